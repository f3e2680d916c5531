"""
The form of a message table: which words in a log line are which sign.

A table holds what programs print, word for word where the words are fixed and open where versions, paths and numbers stand. A row
says in which kinds of evidence it is looked for; the same words mean different things in a driver's and in an application's log.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from shoal.diagnosis.evidence import Kind, Side
from shoal.diagnosis.signs import Sign

POD_KINDS: Final = frozenset(
    {
        Kind.PLUGIN_LOG,
        Kind.GFD_LOG,
        Kind.DRA_LOG,
        Kind.MONITOR,
        Kind.VALIDATOR_LOG,
        Kind.CONTAINER_LOG,
        Kind.SMI_CONTAINER,
        Kind.APP_LOG,
        Kind.MPS,
        Kind.PODS,
        Kind.POD_EVENTS,
        Kind.NOTE,
    }
)
"""What programs inside pods print, or what is written down of them."""
OPERAND_KINDS: Final = POD_KINDS - {Kind.APP_LOG, Kind.MONITOR}
PLUGIN_KINDS: Final = frozenset({Kind.PLUGIN_LOG, Kind.GFD_LOG, Kind.PODS, Kind.POD_EVENTS, Kind.NOTE, Kind.CONTAINER_LOG, Kind.MIG})
APP_KINDS: Final = frozenset(
    {Kind.APP_LOG, Kind.CONTAINER_LOG, Kind.NOTE, Kind.POD_EVENTS, Kind.RAY, Kind.SLURM, Kind.VALIDATOR_LOG, Kind.PODS}
)
DRIVER_KINDS: Final = frozenset(
    {
        Kind.DRIVER_LOG,
        Kind.KERNEL_LOG,
        Kind.JOURNAL,
        Kind.PACKAGES,
        Kind.HOST,
        Kind.NODE,
        Kind.NOTE,
        Kind.LISTING,
        Kind.PODS,
        Kind.HARDWARE,
        Kind.CONTAINER_LOG,
        Kind.OPERATOR_LOG,
        Kind.VALIDATOR_LOG,
    }
)


GRAM: Final = 4
"""Letters by which a line finds the rows that may match it."""


class Message(NamedTuple):
    """`sign` is seen where `pattern` is found in a line of one of `kinds` (all if None). Named groups become the fact's values."""

    sign: Sign
    pattern: re.Pattern[str]
    kinds: frozenset[Kind] | None = None
    side: Side | None = None
    """The side that the words themselves fix, whatever the kind says."""
    anchors: tuple[str, ...] = ()
    """One of these is in every line that matches, in small letters; empty where no such words can be told."""


def seen(sign: Sign, *words: str, kinds: frozenset[Kind] | None = None, side: Side | None = None) -> Message:
    """A row of a table: any of `words`, which are regular expressions. Letters match in both cases."""
    found = [anchors_of(branch) for word in words for branch in branches_of(word)]
    anchors = tuple(dict.fromkeys(anchor for each in found for anchor in each)) if all(found) else ()
    return Message(sign, re.compile("|".join(words), re.IGNORECASE), kinds, side, anchors)


class Index:
    """
    The rows of a table that may match a line, found by letters and not by trying them all.

    Each anchor is filed under one of its runs of four letters, the one that fewest anchors share; a line looks up its own runs. What
    has no anchor is always tried. Cost per line: its length, and the few rows found.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        grams = Counter(gram for message in messages for anchor in message.anchors for gram in set(_grams(anchor)))
        self._always = [place for place, message in enumerate(messages) if not message.anchors]
        self._messages = tuple(messages)
        self._by_gram: dict[str, set[int]] = {}
        for place, message in enumerate(messages):
            for anchor in message.anchors:
                self._by_gram.setdefault(min(_grams(anchor), key=lambda gram: (grams[gram], gram)), set()).add(place)

    def candidates(self, text: str) -> list[Message]:
        """Rows that may match `text`, in the table's order."""
        found = set(self._always)
        for gram in self._by_gram.keys() & set(_grams(text.lower())):
            found |= self._by_gram[gram]
        return [self._messages[place] for place in sorted(found)]


def _grams(text: str) -> list[str]:
    return [text[place : place + GRAM] for place in range(len(text) - GRAM + 1)]


def branches_of(pattern: str) -> list[str]:
    """The alternatives of a regular expression at its top level."""
    branches, start = [], 0
    for place, part in _parts(pattern):
        if part == "|":
            branches.append(pattern[start:place])
            start = place + 1
    return [*branches, pattern[start:]]


def anchors_of(branch: str) -> list[str]:
    """
    Runs of plain characters of which every match of `branch` holds one: its longest own run, or else those of the alternatives of one of
    its groups. Empty where neither is as long as GRAM.
    """
    runs, groups, run = [], list[list[str]](), ""
    for place, part in _parts(branch):
        after = branch[place + len(part) : place + len(part) + 1]
        optional = after in ("?", "*", "{")
        if part.startswith("(") and not optional:
            inner = _GROUP.sub("", part[1:-1], count=1)
            if not part.startswith(("(?!", "(?<!", "(?=", "(?<=")):
                groups.append([anchor for inside in branches_of(inner) for anchor in (anchors_of(inside) or [""])])
        plain = part.isalnum() or part in _PLAIN or (len(part) == 2 and part[0] == "\\" and not part[1].isalnum())
        if plain and len(part) <= 2 and not optional:
            run += part[-1]
        else:
            runs.append(run)
            run = ""
    best = max([*runs, run], key=len).lower()
    if len(best) >= GRAM:
        return [best]
    return next((group for group in groups if min(map(len, group)) >= GRAM), [])


_GROUP: Final = re.compile(r"^\?(?:P<\w+>|:)")
_PLAIN: Final = frozenset(" _/:=-,<>'\"")


def _parts(pattern: str) -> Iterator[tuple[int, str]]:
    """Place and text of each part of a regular expression: a character, an escape, a class, a whole group."""
    place = 0
    while place < len(pattern):
        end = _end_of(pattern, place)
        yield place, pattern[place:end]
        place = end


def _end_of(pattern: str, place: int) -> int:
    char = pattern[place]
    if char == "\\":
        return place + 2
    if char == "[":
        end = place + 1
        while pattern[end] != "]":
            end += 2 if pattern[end] == "\\" else 1
        return end + 1
    if char == "{":
        return pattern.index("}", place) + 1
    if char == "(":
        end = place + 1
        while pattern[end] != ")":
            end = _end_of(pattern, end)
        return end + 1
    return place + 1

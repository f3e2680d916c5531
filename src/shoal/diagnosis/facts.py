"""
Facts: what a parser understood from a piece of evidence. Rules reason over these and never see text.

A fact is a sign (which thing was seen), values (with which numbers and names), the side of the container wall, and where it stood.
`Facts` answers what rules ask: is there such a sign, on which side, with which values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from shoal.diagnosis.evidence import Kind, Side
from shoal.diagnosis.signs import Sign

FACTS_MAX: Final = 2_000
"""Facts kept of one body of evidence: each sign a few times; more says nothing new."""
PER_SIGN_MAX: Final = 64
"""As many as the largest node has GPUs."""


class Place(msgspec.Struct, frozen=True):
    """Where a fact was read: the key of the piece, the line (0 for what follows from several) and the words there."""

    key: str
    line: int
    text: str


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was seen. Values are text; `number` reads them."""

    sign: Sign
    place: Place
    kind: Kind = Kind.NOTE
    side: Side = Side.UNKNOWN
    reported: bool = False
    """Somebody said so; raw output weighs more."""
    values: dict[str, str] = {}

    def number(self, name: str) -> int | None:
        """The value called `name` as an integer, or None where it is missing or no number."""
        text = self.values.get(name, "")
        return int(text) if text.isascii() and text.isdigit() else None


class Facts:
    """Facts by sign, in the order in which they were read."""

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self._by_sign: dict[Sign, list[Fact]] = {}
        self._count = 0
        self.extend(facts)

    def add(self, fact: Fact) -> None:
        """Takes `fact` in, unless an equal one or enough of its sign are there."""
        held = self._by_sign.setdefault(fact.sign, [])
        if self._count >= FACTS_MAX or len(held) >= PER_SIGN_MAX:
            return
        if any(one.values == fact.values and one.side == fact.side and one.kind == fact.kind for one in held):
            return
        held.append(fact)
        self._count += 1

    def extend(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            self.add(fact)

    def of(self, sign: Sign, *sides: Side, **values: str) -> tuple[Fact, ...]:
        """Facts of `sign`, on one of `sides` if any are given, that have all of `values`."""
        return tuple(
            fact
            for fact in self._by_sign.get(sign, ())
            if (not sides or fact.side in sides) and all(fact.values.get(name) == value for name, value in values.items())
        )

    def has(self, sign: Sign, *sides: Side, **values: str) -> bool:
        return bool(self.of(sign, *sides, **values))

    def first(self, sign: Sign, *sides: Side, **values: str) -> Fact | None:
        return next(iter(self.of(sign, *sides, **values)), None)

    def signs(self) -> frozenset[Sign]:
        return frozenset(sign for sign, held in self._by_sign.items() if held)

    def __iter__(self) -> Iterator[Fact]:
        for held in self._by_sign.values():
            yield from held

    def __len__(self) -> int:
        return self._count

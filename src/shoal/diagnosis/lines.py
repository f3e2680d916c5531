"""
Text to lines worth reading: bounded, without the prefixes that loggers put before a message, and each shape only a few times.

A log of a million lines says a few hundred different things. Lines that differ in digits alone have one shape, and after
`SAME_SHAPE_MAX` of it the rest is skipped, so the cost of everything behind this grows with what is said and not with how often.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

LINE_CHARS_MAX: Final = 2_000
"""Longer lines are cut: a message says what it is in its beginning; JSON on one line is broken at its fields first."""
LINES_MAX: Final = 4_000
"""Different lines read per piece of evidence."""
SAME_SHAPE_MAX: Final = 16
"""Lines of one shape that are kept: as many as a machine has GPUs."""

_PREFIX: Final = re.compile(
    r"^(?:"
    r"\[[\s\d.:TZ+-]+\]\s*"  # [  123.456789] of the kernel, [2026-11-03T10:00:00.123] of slurmd
    r"|<\d+>"
    r"|\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\s*(?:\|\s*)?"
    r"|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s+\d+\s+\d\d:\d\d:\d\d\s+\S+\s+"
    r"|\d\d:\d\d:\d\d(?:[.,]\d+)?\s+"
    r"|[IWEF]\d{4}\s+\d\d:\d\d:\d\d\.\d+\s+\d+\s+[\w.-]+:\d+\]\s*"
    r"|(?:kernel|nvidia-persistenced|containerd|dockerd|systemd)(?:\[\d+\])?:\s*"
    r"|(?:stdout|stderr) [FP] "
    r"|(?:\+|\$|>|#|-|\*)\s+"
    r")"
)
_DIGITS: Final = re.compile(r"\d+|[0-9a-f]{8,}")


class Line(NamedTuple):
    """A line as it stood (`text`, stripped) and its message without prefixes. `number` counts from 1."""

    number: int
    text: str
    message: str


def lines_of(text: str) -> Iterator[Line]:
    """Every line worth reading, in order. See module for the bounds."""
    seen: dict[str, int] = {}
    kept = 0
    for number, raw in enumerate(text.splitlines(), 1):
        stripped = raw.strip()
        if not stripped:
            continue
        shape = _DIGITS.sub("0", stripped[:160])
        count = seen.get(shape, 0)
        if count >= SAME_SHAPE_MAX:
            continue
        seen[shape] = count + 1
        kept += 1
        if kept > LINES_MAX:
            return
        cut = stripped[:LINE_CHARS_MAX]
        yield Line(number, cut, message_of(cut))


def message_of(line: str) -> str:
    """The line without what loggers put before a message; at most four prefixes are taken off."""
    for _ in range(4):
        rest = _PREFIX.sub("", line, count=1)
        if rest == line or not rest:
            break
        line = rest
    return line

"""
How text is to look: width, colours, characters, the time that "3m ago" counts from. Made by the CLI from its terminal, passed in.

Text that comes from users (names, messages) goes through `clean` before it is shown: a job named with escape codes must not steer
the terminal of the person who lists it.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

_COLOURS: Final = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36", "dim": "2", "bold": "1"}
_PAINT = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Look:
    """`width` 0: no limit, as for output into a file. `utc_offset_minutes` is the zone in which times are told."""

    width: int = 0
    colour: bool = False
    unicode: bool = True
    now_ms: int = 0
    utc_offset_minutes: int = 0

    def paint(self, text: str, colour: str) -> str:
        """`text` in a colour, where there are colours."""
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self.colour and colour and text else text

    def pick(self, fine: str, plain: str) -> str:
        """`fine` where the terminal can show it, else `plain`, which is ASCII."""
        return fine if self.unicode else plain

    def clock(self, at_ms: int) -> str:
        """A moment in the reader's zone: `2026-11-03 14:05:07`, with `Z` in UTC."""
        zone = timezone(timedelta(minutes=self.utc_offset_minutes)) if self.utc_offset_minutes else UTC
        text = datetime.fromtimestamp(at_ms / 1000, zone).strftime("%Y-%m-%d %H:%M:%S")
        return text if self.utc_offset_minutes else f"{text}Z"

    def ago(self, at_ms: int | None) -> str:
        """`3m ago`, `in 2h`, `now`; a dash for a moment that is not known."""
        if at_ms is None or at_ms <= 0:
            return "-"
        passed = self.now_ms - at_ms
        if abs(passed) < 1000:
            return "now"
        return f"{span(passed)} ago" if passed > 0 else f"in {span(-passed)}"

    def since(self, at_ms: int | None) -> str:
        """How long ago, without the word: `3m`."""
        return "-" if at_ms is None or at_ms <= 0 else span(max(0, self.now_ms - at_ms))


def span(length_ms: int) -> str:
    """A length of time as people say it, in at most two units: `45s`, `3m20s`, `2h5m`, `3d4h`."""
    seconds = max(0, length_ms) // 1000
    if seconds < 60:
        return f"{seconds}s"
    for size, unit, small, small_unit in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= size:
            count, rest = divmod(seconds, size)
            # Seconds matter in the first ten minutes and are noise after.
            more = rest // small if not (unit == "m" and count >= 10) else 0
            return f"{count}{unit}{more}{small_unit}" if more else f"{count}{unit}"
    raise AssertionError("unreachable: at least 60 seconds")


def clean(text: str) -> str:
    """`text` on one line and without anything that steers a terminal: control characters, direction marks, lone surrogates."""
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() else " " if ch in "\t\n" else f"\\x{ord(ch):02x}" for ch in text)


def width_of(text: str) -> int:
    """Columns that `text` takes on a terminal: colours take none, wide characters two."""
    bare = _PAINT.sub("", text) if "\x1b" in text else text
    if bare.isascii():
        return len(bare)
    return sum(0 if unicodedata.combining(ch) else 2 if unicodedata.east_asian_width(ch) in "WF" else 1 for ch in bare)


def cut(text: str, width: int, look: Look) -> str:
    """`text` (without colours) in at most `width` columns; what is cut is marked."""
    if width_of(text) <= width:
        return text
    mark = look.pick("…", "~")
    kept, used = [], 0
    for ch in text:
        used += width_of(ch)
        if used > width - 1:
            break
        kept.append(ch)
    return "".join(kept).rstrip() + mark if width > 0 else ""


def wrap(text: str, look: Look, indent: str = "", first: str | None = None) -> list[str]:
    """`text` broken at blanks into lines of at most `look.width`; `first` starts the first line, `indent` the others."""
    lead = indent if first is None else first
    room = look.width or 1 << 30
    lines: list[str] = []
    line, empty = lead, True
    for word in clean(text).split():
        if not empty and width_of(line) + 1 + width_of(word) > room:
            lines.append(line)
            line, empty = indent, True
        line += word if empty else f" {word}"
        empty = False
    return [*lines, line] if not empty or lead.strip() else lines

"""
Text with units to integers and back: memory, durations, ranges, array lists. One grammar for job files, flags and answers.

`GB` is 10^9 and `GiB` is 2^30, kept apart; a bare number is refused where a unit decides its meaning. Slurm's own forms are
read elsewhere (`formats`): there a bare number has a meaning of its own.
All functions raise ValueError with a message that names the value, the accepted form and an example. Digits are 0 to 9 (not those of
other scripts), and every amount has a bound, so that no text can cost time or memory out of proportion to its length.
"""

from __future__ import annotations

import re

WHOLE_DIGITS_MAX = 18
_DECIMAL = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
_BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
MEMORY_UNITS = {**_DECIMAL, **_BINARY}
_DURATION_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
_DURATION_PART = re.compile(r"([0-9]+)(?:\.([0-9]+))?(ms|[smhdw])")
_COUNT = re.compile(r"[0-9]{1,9}")
_ARRAY_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_DIGITS_MAX = 32
"""Digits in one amount: more than any has, few enough that arithmetic on them costs nothing."""
MEMORY_MAX = 2**63 - 1
"""What a 64-bit counter of bytes holds."""
DURATION_MS_MAX = 100 * 366 * 86_400_000
"""A hundred years: past any wish, and times made by adding it stay in range."""


def parse_memory(text: str) -> int:
    """Bytes for text such as `64GiB` or `1.5GB`."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None or match[2] not in MEMORY_UNITS:
        hint = "add a unit" if match is not None and match[2] == "" else "use one of B, KB, MB, GB, TB, KiB, MiB, GiB, TiB"
        raise ValueError(f"memory {_quoted(text)}: {hint}, for example 64GiB")
    whole, _, fraction = match[1].partition(".")
    size_bytes = _scaled(whole, fraction, MEMORY_UNITS[match[2]]) if len(match[1]) <= _DIGITS_MAX else MEMORY_MAX + 1
    if size_bytes > MEMORY_MAX:
        raise ValueError(f"memory {_quoted(text)}: more than any machine has, at most {format_memory(2**60)} makes sense")
    return size_bytes


def _scaled(whole: str, fraction: str, unit: int) -> int:
    """A decimal number of units, exact, rounded down to one."""
    return int(whole) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)


def _quoted(text: str) -> str:
    """The text as it stands in a message: quoted, and cut where it is long."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def format_memory(size_bytes: int) -> str:
    """The shortest text that `parse_memory` reads back to exactly `size_bytes`; binary units win a tie."""
    fits = [(size_bytes // unit, -unit, name) for name, unit in {**_BINARY, **_DECIMAL}.items() if size_bytes % unit == 0 and name != "kB"]
    count, _, name = min(fits, key=lambda fit: (len(str(fit[0])), fit[1] % 1024 != 0, fit[1])) if size_bytes else (0, 0, "B")
    return f"{count}{name}"


def parse_duration_ms(text: str) -> int:
    """Milliseconds for text such as `90s`, `2h30m`, `1d12h`. No bare numbers."""
    squeezed = text.replace(" ", "")
    total, at = 0, 0
    for part in _DURATION_PART.finditer(squeezed):
        if part.start() != at:
            break
        too_long = part.end() - part.start() > _DIGITS_MAX
        total += DURATION_MS_MAX + 1 if too_long else _scaled(part[1], part[2] or "", _DURATION_MS[part[3]])
        at = part.end()
    if at != len(squeezed) or not squeezed:
        raise ValueError(f"duration {_quoted(text)}: use numbers with units ms, s, m, h, d or w, for example 2h30m")
    if total > DURATION_MS_MAX:
        raise ValueError(f"duration {_quoted(text)}: more than a hundred years; use a shorter one, for example 2h30m")
    return total


def format_duration_ms(value_ms: int) -> str:
    """The text for a duration that `parse_duration_ms` reads back exactly, largest unit first: `2h30m`."""
    if value_ms == 0:
        return "0s"
    parts, rest = [], value_ms
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, _DURATION_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def parse_count_range(text: str) -> tuple[int, int]:
    """(low, high) for `4` or `2..4`."""
    low, dots, high = text.strip().partition("..")
    if not _COUNT.fullmatch(low) or (dots and not _COUNT.fullmatch(high)):
        raise ValueError(f"count {_quoted(text)}: use a number or a range, for example 4 or 2..4")
    pair = (int(low), int(high) if dots else int(low))
    if pair[0] < 1 or pair[1] < pair[0]:
        raise ValueError(f"count {_quoted(text)}: the low end must be at least 1 and at most the high end")
    return pair


def parse_memory_range(text: str) -> tuple[int, int | None]:
    """(least, most or None) bytes for `80GB`, `80GB..` or `24GB..40GB`. A single value means at least that much."""
    low, dots, high = text.strip().partition("..")
    least = parse_memory(low)
    most = parse_memory(high) if dots and high else None
    if most is not None and most < least:
        raise ValueError(f"memory {_quoted(text)}: the low end is above the high end")
    return least, most


def parse_array(text: str, tasks_max: int) -> tuple[tuple[int, ...], int | None]:
    """
    (indices ascending without repeats, most at once or None) for lists such as `0-15`, `0-15:4%2`, `1,3,5-7`.

    `tasks_max` bounds the count of indices as written (a repeated one counts again) before any list is built, so that `0-999999999`
    costs nothing, and a megabyte of overlapping ranges neither.
    """
    body, percent, limit = text.replace(" ", "").partition("%")
    at_once = _positive(limit, text) if percent else None
    indices: set[int] = set()
    written = 0
    for part in body.split(","):
        match = _ARRAY_PART.fullmatch(part)
        if match is None:
            raise ValueError(f"array {_quoted(text)}: {_quoted(part)} is not an index or range, for example 0-15, 0-15:4%2 or 1,3,5-7")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step < 1:
            raise ValueError(f"array {_quoted(text)}: range {_quoted(part)} must rise and its step be at least 1")
        written += (last - first) // step + 1
        if written > tasks_max:
            raise ValueError(f"array {_quoted(text)}: more than {tasks_max} tasks; split it into several jobs")
        indices.update(range(first, last + 1, step))
    return tuple(sorted(indices)), at_once


def _positive(text: str, whole: str) -> int:
    if not _COUNT.fullmatch(text) or int(text) < 1:
        raise ValueError(f"array {_quoted(whole)}: the limit after % must be a whole number of at least 1, got {_quoted(text)}")
    return int(text)


def parse_whole(text: str) -> int | None:
    """
    A whole number of up to 18 ASCII digits, which both databases can hold; None for anything else.

    `int` alone takes other scripts' digits, underscores and signs, and raises over 4,300 digits.
    """
    return int(text) if len(text) <= WHOLE_DIGITS_MAX and text.isascii() and text.isdigit() else None

"""Values of flags that have units, with errors that name the flag."""

from __future__ import annotations

from shoal.base import units
from shoal.base.errors import Invalid


def duration_s(flag: str, text: str) -> float:
    """Seconds for `2h30m`. Raises Invalid."""
    try:
        return units.parse_duration_ms(text) / 1_000
    except ValueError as error:
        raise Invalid(f"{flag}: {error}") from error


def moment_ms(flag: str, text: str, now_ms: int) -> int:
    """Milliseconds since the epoch for `2026-12-01T22:00Z`, or `+2h` from `now_ms`. Raises Invalid."""
    from shoal.formats.moment import resolve_moment

    try:
        return resolve_moment(text, now_ms, flag)
    except ValueError as error:
        raise Invalid(str(error)) from error


def thousandths(flag: str, text: str) -> int:
    """Thousandths for `8` or `0.5`. Raises Invalid."""
    whole, _, part = text.partition(".")
    if not whole.isdecimal() or (part and not part.isdecimal()) or len(part) > 3:
        raise Invalid(f"{flag}: {text!r} is no amount; write a number such as 8 or 0.5")
    return int(whole) * 1_000 + int((part + "000")[:3])


def memory_bytes(flag: str, text: str) -> int:
    """Bytes for `64GiB`. Raises Invalid."""
    try:
        return units.parse_memory(text)
    except ValueError as error:
        raise Invalid(f"{flag}: {error}") from error

"""A moment that a person wrote (`begin` of a job, a reservation's start): text to a time. Knows a calendar; never asks what day it is."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from shoal.base.units import parse_duration_ms

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:?\d{2})?")


def resolve_moment(text: str, now_ms: int, what: str = "begin") -> int:
    """
    Milliseconds since the epoch for `2026-12-01T08:00:00+01:00`, `2026-12-01T08:00Z`, `+2h` from `now_ms`, or `now`.

    Raises ValueError that names `what`, the value and an example; a time without a zone is refused, since user and server may differ in it.
    """
    squeezed = text.strip()
    if squeezed == "now":
        return now_ms
    if squeezed.startswith("+"):
        return now_ms + parse_duration_ms(squeezed[1:])
    match = _ISO.fullmatch(squeezed)
    if match is None:
        raise ValueError(f"{what} {text!r}: use a time with a zone such as 2026-12-01T08:00:00Z, or +2h from now")
    if match[3] is None:
        raise ValueError(f"{what} {text!r}: add a zone, for example {squeezed}Z for UTC or {squeezed}+01:00")
    try:
        when = datetime.fromisoformat(squeezed)
        return (when - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{what} {text!r}: {error}; use a time such as 2026-12-01T08:00:00Z, or +2h from now") from error


def moment_text(at_ms: int) -> str:
    """A moment to the minute, in UTC, as `resolve_moment` reads it."""
    return (_EPOCH + timedelta(milliseconds=at_ms)).strftime("%Y-%m-%dT%H:%MZ")

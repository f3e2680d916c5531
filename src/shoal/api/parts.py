"""What several handlers read and write in the same way: limits of pages, waiting times, versions."""

from __future__ import annotations

from shoal.api.etags import etag, parse_if_match
from shoal.api.operations import Call, Headers
from shoal.base.errors import Fault, Invalid, Malformed
from shoal.base.limits import LONG_POLL_MS_MAX, PAGE_ROWS_MAX
from shoal.base.units import parse_duration_ms


def clamp_limit(limit: int, rows_max: int = PAGE_ROWS_MAX) -> int:
    """A page size: larger than the most is cut down, under 1 is a mistake."""
    if limit < 1:
        raise Malformed(f"limit is {limit}; use 1 to {rows_max}")
    return min(limit, rows_max)


def wait_ms_of(text: str | None, default_ms: int = LONG_POLL_MS_MAX) -> int:
    """How long an answer may be held back: a duration such as `30s`, cut down to LONG_POLL_MS_MAX."""
    if text is None:
        return default_ms
    try:
        return min(parse_duration_ms(text), LONG_POLL_MS_MAX)
    except ValueError as error:
        raise Malformed(str(error)) from error


def duration_of(text: str | None, pointer: str) -> int | None:
    """Milliseconds for a duration in a body; None stays None. Raises Invalid with its place."""
    if text is None:
        return None
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise Invalid(str(error), (Fault(str(error), pointer),)) from error


def etag_headers(version: int) -> Headers:
    """The ETag of a record."""
    return (("ETag", etag(version)),)


def if_match_of(call: Call) -> int | None:
    """
    The version that a change is made on: `If-Match`, or 0 for `If-None-Match: *` (it must not exist yet); None: whatever it is.

    Raises Invalid for both at once.
    """
    match, none_match = call.headers.get(b"if-match"), call.headers.get(b"if-none-match")
    if none_match is None:
        return parse_if_match(match)
    if match is not None or none_match.strip() != b"*":
        raise Invalid("send either If-Match with one ETag or If-None-Match: *")
    return 0

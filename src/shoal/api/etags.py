"""ETag and If-Match for records that people edit: the tag is the record's version, `"17"`."""

from __future__ import annotations

from shoal.base.errors import Malformed
from shoal.base.units import parse_whole


def etag(version: int) -> str:
    """The entity tag of a record's version."""
    return f'"{version}"'


def parse_if_match(header: bytes | None) -> int | None:
    """
    The version that `If-Match` asks for; None for no header and for `*`.

    Raises Malformed for weak tags and lists: a change is made on one version that its author has read.
    """
    if header is None or header.strip() == b"*":
        return None
    text = header.strip().decode("latin-1")
    version = parse_whole(text[1:-1])
    if len(text) < 3 or text[0] != '"' or text[-1] != '"' or version is None:
        raise Malformed(f'If-Match {text!r} is not an ETag of this server; send the one that the last read answered, such as "17"')
    return version

"""
The rules of `Idempotency-Key`: what a key looks like, and when two bodies are the same request.

The key itself does its work in the store: it is written in the same transaction as what it made (`ChangeSet.key`).
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

from shoal.base.errors import Malformed

KEY_CHARS_MAX = 255
"""As the draft standard's implementers have it; a UUID needs 36."""

_MAYBE_FLOAT = re.compile(rb"[\[:,]\s*-?\d+[.eE]")
_encode = msgspec.json.Encoder(order="sorted").encode


def parse_key(header: bytes | None) -> str | None:
    """
    The key in an `Idempotency-Key` header, None if there is no header.

    Read with or without quotes around it; `"a"` and `a` are the same key. Raises Malformed for what is not 1-255 visible ASCII.
    """
    if header is None:
        return None
    raw = header.strip()
    if len(raw) >= 2 and raw[:1] == b'"' and raw[-1:] == b'"':
        raw = raw[1:-1]
    if not 1 <= len(raw) <= KEY_CHARS_MAX:
        raise Malformed(f"Idempotency-Key has {len(raw)} characters; use 1 to {KEY_CHARS_MAX}")
    if not all(0x21 <= byte <= 0x7E for byte in raw):
        raise Malformed("Idempotency-Key holds a blank, a control or a non-ASCII character; use visible ASCII, such as a UUID")
    return raw.decode("ascii")


def canonical_json(raw: bytes) -> bytes:
    """
    One byte string for all spellings of the same JSON value (after RFC 8785: sorted keys, no blanks, `1.0` as `1`).

    Keys are sorted by code point, which differs from the RFC only outside the basic plane; nobody but this server compares.
    """
    value = msgspec.json.decode(raw)
    # Walking the value costs more than all the rest, and nearly no body has a number with a point or an exponent.
    return _encode(_integral(value) if _MAYBE_FLOAT.search(raw) else value)


def _integral(raw: Any) -> Any:
    if isinstance(raw, dict):
        return {key: _integral(value) for key, value in raw.items()}
    if isinstance(raw, list):
        return [_integral(value) for value in raw]
    if isinstance(raw, float) and raw.is_integer() and abs(raw) < 2**53:
        return int(raw)
    return raw


def fingerprint(raw: bytes, *, path: str, media_type: str = "application/json") -> str:
    """SHA-256 (hex) of a JSON body as it was sent (before defaults and shorthands), its path and its media type."""
    return hashlib.sha256(b"%b\n%b\n%b" % (path.encode(), media_type.encode(), canonical_json(raw))).hexdigest()

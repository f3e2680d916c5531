"""
Page tokens: the place in a list, sealed so that a client cannot make one up or carry it over to other filters.

A token is base64url of (payload, HMAC-SHA-256 over it); the payload has the route, a hash of the filters, the last number shown and
the store version of the first page, which together give the promise of `store.protocol.JobQuery`: nothing skipped, nothing twice.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Any

import msgspec

from shoal.base.errors import PageTokenExpired, PageTokenMismatch

LIFE_MS = 3 * 86_400_000
"""Three days: a page left open over a weekend. What it points at never moves, so the bound is only against collecting them."""
_SIGNATURE_BYTES = 16
_FILTER_BYTES = 12


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """The place in a list. `last` is the number of the last row shown, `as_of` the version of the first page."""

    route: str
    filters: bytes
    last: int
    as_of: int
    expires_ms: int


_decoder = msgspec.msgpack.Decoder(Cursor)
_encode = msgspec.msgpack.Encoder().encode


class Cursors:
    """Seals and opens page tokens under one key (the installation's, so that tokens outlive a restart)."""

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.sha256(b"shoal page token\n" + key).digest()

    def seal(self, route: str, filters: Any, *, last: int, as_of: int, now_ms: int) -> str:
        """The token for the page after `last`."""
        payload = _encode(Cursor(route, _filter_hash(filters), last, as_of, now_ms + LIFE_MS))
        return base64.urlsafe_b64encode(payload + self._sign(payload)).rstrip(b"=").decode()

    def open(self, token: str, route: str, filters: Any, *, now_ms: int) -> Cursor:
        """
        What `seal` put in.

        Raises PageTokenMismatch for a token that is not of this list with these filters, PageTokenExpired for one too old.
        """
        cursor = self._read(token)
        if cursor.route != route or cursor.filters != _filter_hash(filters):
            raise PageTokenMismatch("this cursor belongs to another list or other filters; send the same filters, or leave the cursor out")
        if cursor.expires_ms <= now_ms:
            raise PageTokenExpired("this cursor is older than three days; list again without it")
        return cursor

    def _read(self, token: str) -> Cursor:
        try:
            raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
            payload, signature = raw[:-_SIGNATURE_BYTES], raw[-_SIGNATURE_BYTES:]
            if hmac.compare_digest(signature, self._sign(payload)):
                return _decoder.decode(payload)
        except (binascii.Error, ValueError, msgspec.DecodeError):
            pass
        raise PageTokenMismatch("this cursor was not made by this server; leave it out to list from the start")

    def _sign(self, payload: bytes) -> bytes:
        return hmac.digest(self._key, payload, "sha256")[:_SIGNATURE_BYTES]


def _filter_hash(filters: Any) -> bytes:
    return hashlib.sha256(msgspec.json.encode(filters, order="sorted")).digest()[:_FILTER_BYTES]

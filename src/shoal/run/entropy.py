"""The operating system's entropy: ids and secrets of a running installation."""

from __future__ import annotations

import os

from shoal.base.ids import uuid7


class OsIds:
    """UUIDv7 from the operating system's random bits."""

    def uuid(self, now_ms: int) -> str:
        return uuid7(now_ms, int.from_bytes(os.urandom(10), "big"))


def octets(count: int) -> bytes:
    """`count` bytes fit for secrets."""
    return os.urandom(count)


def seed() -> int:
    """A seed for the random streams of judgement (ties, back-off); printed with each replay, so no secret."""
    return int.from_bytes(os.urandom(8), "big")

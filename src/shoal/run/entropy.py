"""The operating system's entropy: ids and secrets of a running installation."""

from __future__ import annotations

import os

from shoal.base.ids import uuid7

BATCH = 256
BYTES_PER_ID = 10


class OsIds:
    """
    UUIDv7 from the operating system's random bits; any thread.

    Bits are taken in batches: asking the system gives up the interpreter to other threads, and the event loop, which makes an id per
    create, would wait each time until it gets it back.
    """

    def __init__(self) -> None:
        self._bits: list[int] = []

    def uuid(self, now_ms: int) -> str:
        try:
            return uuid7(now_ms, self._bits.pop())
        except IndexError:
            drawn = os.urandom(BATCH * BYTES_PER_ID)
            fresh = [int.from_bytes(drawn[at : at + BYTES_PER_ID], "big") for at in range(0, len(drawn), BYTES_PER_ID)]
            bits = fresh.pop()
            self._bits.extend(fresh)
            return uuid7(now_ms, bits)


def octets(count: int) -> bytes:
    """`count` bytes fit for secrets."""
    return os.urandom(count)


def seed() -> int:
    """A seed for the random streams of judgement (ties, back-off); printed with each replay, so no secret."""
    return int.from_bytes(os.urandom(8), "big")

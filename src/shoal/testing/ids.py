"""Ids and secrets from a seed, so that a run can be repeated; the fake side of `base.ids.IdSource`."""

from __future__ import annotations

from shoal.base.ids import uuid7
from shoal.base.rng import Rng


class SeededIds:
    """UUIDv7 text whose random bits come from a seeded stream."""

    def __init__(self, seed: int = 1) -> None:
        self._rng = Rng(seed).stream("ids")

    def uuid(self, now_ms: int) -> str:
        return uuid7(now_ms, self._rng.next64() << 64 | self._rng.next64())


class SeededEntropy:
    """Bytes where production takes the operating system's entropy."""

    def __init__(self, seed: int = 1) -> None:
        self._rng = Rng(seed).stream("entropy")

    def __call__(self, count: int) -> bytes:
        return self._rng.octets(count)

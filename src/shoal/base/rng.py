"""
Named random streams from one seed: the same seed and the same names give the same numbers, on every Python version.

SplitMix64 (Steele, Lea, Flood 2014, public domain algorithm) rather than `random`: judgement may not import the latter, whose
module-level state is shared by everybody, and whose sequence is not promised across versions for all methods.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import TypeVar

T = TypeVar("T")
_MASK = (1 << 64) - 1


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class Rng:
    """One stream. `stream(name)` gives an independent one that does not depend on how much this one was used."""

    __slots__ = ("_seed", "_state")

    def __init__(self, seed: int) -> None:
        self._seed = seed & _MASK
        self._state = self._seed

    def stream(self, name: str) -> Rng:
        """An independent stream for one purpose, so that a new draw somewhere does not shift all others."""
        h = self._seed
        for byte in name.encode():
            h = _mix((h ^ byte) + 0x9E3779B97F4A7C15 & _MASK)
        return Rng(_mix(h))

    def next64(self) -> int:
        """The next 64 random bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        return _mix(self._state)

    def below(self, bound: int) -> int:
        """An integer in [0, bound), without bias."""
        if bound <= 0:
            raise ValueError(f"bound must be positive, got {bound}")
        limit = (1 << 64) - (1 << 64) % bound
        while True:
            value = self.next64()
            if value < limit:
                return value % bound

    def unit(self) -> float:
        """A float in [0, 1) with 53 random bits."""
        return (self.next64() >> 11) * (1.0 / (1 << 53))

    def choice(self, items: Sequence[T]) -> T:
        """One of `items`, each as likely."""
        return items[self.below(len(items))]

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Shuffles in place (Fisher-Yates)."""
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]

    def octets(self, count: int) -> bytes:
        """`count` random bytes. Not for secrets: those come from the operating system, in `run`."""
        out = b"".join(self.next64().to_bytes(8, "big") for _ in range(-(-count // 8)))
        return out[:count]

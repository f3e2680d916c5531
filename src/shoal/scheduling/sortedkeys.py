"""
Keys kept in order, in blocks: add, remove and rank cost the logarithm of the count plus one short block's shift.

Used for pending jobs, queue heads and timers. A heap was turned down: it cannot be walked without taking it apart, and a cycle must
leave the board as found. A balanced tree was turned down: in Python a block of a few hundred keys moves faster than one tree node turns.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=tuple[Any, ...])

_BLOCK_MAX = 512
"""Keys per block before it is halved: a shift of 4 KiB of pointers, about a tenth of a microsecond."""


class SortedKeys(Generic[K]):
    """Distinct tuples in ascending order."""

    __slots__ = ("_blocks", "_lasts", "_size")

    def __init__(self, keys: Iterable[K] = ()) -> None:
        ordered = sorted(keys)
        half = _BLOCK_MAX // 2
        self._blocks: list[list[K]] = [ordered[at : at + half] for at in range(0, len(ordered), half)]
        self._lasts: list[K] = [block[-1] for block in self._blocks]
        self._size = len(ordered)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        for block in self._blocks:
            yield from block

    def add(self, key: K) -> None:
        """Puts `key` in its place; the caller does not add a key twice."""
        self._size += 1
        if not self._blocks:
            self._blocks.append([key])
            self._lasts.append(key)
            return
        at = min(bisect_left(self._lasts, key), len(self._blocks) - 1)
        block = self._blocks[at]
        insort(block, key)
        self._lasts[at] = block[-1]
        if len(block) > _BLOCK_MAX:
            self._split(at)

    def _split(self, at: int) -> None:
        block = self._blocks[at]
        half = len(block) // 2
        self._blocks[at : at + 1] = [block[:half], block[half:]]
        self._lasts[at : at + 1] = [block[half - 1], block[-1]]

    def remove(self, key: K) -> None:
        """Takes `key` out; KeyError where it is not in."""
        at = bisect_left(self._lasts, key)
        if at == len(self._blocks):
            raise KeyError(key)
        block = self._blocks[at]
        place = bisect_left(block, key)
        if block[place] != key:
            raise KeyError(key)
        del block[place]
        self._size -= 1
        if block:
            self._lasts[at] = block[-1]
        else:
            del self._blocks[at]
            del self._lasts[at]

    def first(self) -> K | None:
        """The least key, or None."""
        return self._blocks[0][0] if self._blocks else None

    def rank(self, key: tuple[Any, ...]) -> int:
        """How many keys are less than `key`. Cost: the number of blocks."""
        at = bisect_left(self._lasts, key)
        below = sum(map(len, self._blocks[:at]))
        return below if at == len(self._blocks) else below + bisect_left(self._blocks[at], key)

    def after(self, key: tuple[Any, ...]) -> K | None:
        """The least key greater than `key`, or None."""
        at = bisect_left(self._lasts, key)
        if at == len(self._blocks):
            return None
        block = self._blocks[at]
        place = bisect_left(block, key)
        if block[place] != key:
            return block[place]
        if place + 1 < len(block):
            return block[place + 1]
        return self._blocks[at + 1][0] if at + 1 < len(self._blocks) else None

    def below(self, key: tuple[Any, ...]) -> list[K]:
        """All keys less than `key`, ascending."""
        found: list[K] = []
        for block in self._blocks:
            if block[-1] < key:
                found.extend(block)
                continue
            found.extend(block[: bisect_left(block, key)])
            break
        return found

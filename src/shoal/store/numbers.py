"""
Job numbers without a sync per job: blocks are reserved durably, numbers handed out from memory.

A crash loses what is left of the blocks (gaps are allowed, repeats are not). Blocks start small and double, so that an installation with
three jobs does not go on at number 1,000 after a crash; a clean close gives the rest back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

BLOCK_FIRST: Final = 16
BLOCK_MAX: Final = 1_024
"""Half of it lasts an eighth of a second at the highest measured rate; the next one is fetched meanwhile, in the time of one sync."""


class NumberBlocks:
    """
    `take` is safe from any thread.

    `reserve(count)` durably sets aside `count` numbers and gives the first; `settle` waits for its future.
    """

    def __init__(self, reserve: Callable[[int], Future[int]], settle: Callable[[Future[int]], int]) -> None:
        self._reserve = reserve
        self._settle = settle
        self._lock = threading.Lock()
        self._next = 0
        self._end = 0
        """Numbers from `_next` to below `_end` are ours to give."""
        self._size = BLOCK_FIRST
        self._coming: Future[int] | None = None
        self._coming_size = 0

    def take(self, count: int) -> int:
        """The first of `count` numbers in a row. Waits for the disk only where the next block has not come yet."""
        with self._lock:
            while self._end - self._next < count:
                self._fetch(max(self._size, count))
                assert self._coming is not None
                self._add(self._coming)
            first = self._next
            self._next += count
            if self._end - self._next < self._size // 2:
                self._fetch(self._size)
            return first

    def _fetch(self, size: int) -> None:
        if self._coming is None:
            self._coming, self._coming_size = self._reserve(size), size
            self._size = min(2 * self._size, BLOCK_MAX)

    def _add(self, coming: Future[int]) -> None:
        self._coming = None
        first = self._settle(coming)
        if first != self._end:
            self._next = first
        self._end = first + self._coming_size

    def left(self) -> tuple[int, int]:
        """(next, end) of what was never given, one run of numbers; for giving back at close."""
        with self._lock:
            if self._coming is not None:
                self._add(self._coming)
            return self._next, self._end

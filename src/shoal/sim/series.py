"""
What changed over the time of a replay, in a bounded number of equal spans: GPUs held and owned, GPUs stranded, jobs waiting.

When time outgrows the spans they are joined two by two, so a trace of a year costs as much as one of an hour, and equal replays give
equal series.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

SPANS = 1_024
"""Kept at most: more than a picture has columns."""
_KINDS = 4
_IN_ONE = np.array((1_000.0, 1_000.0, 1_000.0, 1.0))
"""What comes in, of one of what goes out: thousandths of a GPU, jobs."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Means over spans of `span_s` seconds each, from the start of the trace."""

    span_s: float
    held: tuple[float, ...]
    """GPUs held."""
    owned: tuple[float, ...]
    """GPUs of all nodes."""
    stranded: tuple[float, ...]
    """Free GPUs of nodes of which others are held: no use to a gang of whole nodes."""
    waiting: tuple[float, ...]
    """Jobs that only room, order or quota keep waiting."""


class SeriesRecord:
    """Integrals per span; `series` makes means of them."""

    def __init__(self) -> None:
        self._span_ms = 1_000
        self._sums: NDArray[np.float64] = np.zeros((_KINDS, SPANS))
        self._passed_ms = 0

    def add(self, from_ms: int, to_ms: int, state: tuple[int, int, int, int]) -> None:
        """
        (thousandths of GPUs held, owned, stranded; jobs waiting) from one moment to the next.

        Cost: the spans that lie between, all told at most SPANS.
        """
        while to_ms > self._span_ms * SPANS:
            self._join()
        first, last = from_ms // self._span_ms, (to_ms - 1) // self._span_ms
        values = np.array(state, np.float64)
        self._passed_ms = to_ms
        if first == last:
            self._sums[:, first] += values * (to_ms - from_ms)
            return
        self._sums[:, first] += values * ((first + 1) * self._span_ms - from_ms)
        self._sums[:, first + 1 : last] += values[:, None] * self._span_ms
        self._sums[:, last] += values * (to_ms - last * self._span_ms)

    def series(self) -> Series:
        """The means so far; of the last span as far as time has come."""
        count = -(-self._passed_ms // self._span_ms)
        widths = np.full(count, float(self._span_ms))
        if count:
            widths[-1] = self._passed_ms - (count - 1) * self._span_ms
        means = np.round(self._sums[:, :count] / widths / _IN_ONE[:, None], 3)
        held, owned, stranded, waiting = (tuple(row) for row in means.tolist())
        return Series(span_s=self._span_ms / 1_000, held=held, owned=owned, stranded=stranded, waiting=waiting)

    def _join(self) -> None:
        joined = self._sums.reshape(_KINDS, SPANS // 2, 2).sum(axis=2)
        self._sums = np.concatenate((joined, np.zeros((_KINDS, SPANS // 2))), axis=1)
        self._span_ms *= 2

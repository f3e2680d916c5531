"""A clock that stands still until it is told to go on; the fake side of `base.clock`."""

from __future__ import annotations

EPOCH_MS = 1_750_000_000_000
"""Some day in June 2025; tests show times that look like times."""


class SimulatedClock:
    """All three readings go on together by `advance`; `jump` moves only what people read, as a corrected wall clock does."""

    def __init__(self, now_ms: int = EPOCH_MS) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 1_000

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def boottime_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, by_ms: int) -> int:
        """Lets time pass; gives the new `now_ms`."""
        if by_ms < 0:
            raise ValueError(f"time does not go back, got {by_ms} ms; use jump for a wall clock that is set back")
        self._now_ms += by_ms
        self._monotonic_ms += by_ms
        return self._now_ms

    def jump(self, by_ms: int) -> None:
        """Sets the wall clock on or back; waits and leases must not notice."""
        self._now_ms += by_ms

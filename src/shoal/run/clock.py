"""The real clock. The only one: everything else is given a `base.clock.Clock`."""

from __future__ import annotations

import time


class RealClock:
    """Milliseconds of this machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def boottime_ms(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

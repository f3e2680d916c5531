"""
What a clock is; the real one lives in `run`, the simulated one in `testing`.

Judgement never sees a clock: it gets `now_ms` as an argument, so that a cycle can be replayed and compared.
Prior art: Trio `_abc.Clock`, TigerBeetle `time.zig`.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC. May jump; used for what people read and for times that cross machines."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed point; never goes back. Used for waits and leases."""
        ...

    def boottime_ms(self) -> int:
        """As `monotonic_ms`, but goes on while the machine is suspended. Used for stop deadlines."""
        ...

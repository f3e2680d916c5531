"""
Whether this node may start work: the agent's own count of its lease (rule 2 of `lifecycle.orders`).

A lease that has run out may have been taken for the end of the node's work: allocations fenced, their devices given to others. So a node
whose lease has run out obeys no Prepare and no Commit until it has renewed it, and none that it asked for before that. Counted from
when a renewal was *sent*, on the boot-time clock, so a frozen agent finds its lease run out when it goes on. Any thread.
"""

from __future__ import annotations

import threading

from shoal.base.clock import Clock
from shoal.model.wire import LeaseTerms


class Lease:
    """See module. Not held before the first renewal."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._ttl_ms = 0
        self._renewed_ms: int | None = None
        self._unbroken_since_ms = 0

    def renewed(self, sent_ms: int, terms: LeaseTerms) -> None:
        """What was sent at `sent_ms` has been answered. It mends nothing that was asked for in an earlier, broken stretch."""
        with self._lock:
            if self._has_run_out():
                self._unbroken_since_ms = sent_ms
            self._ttl_ms = terms.ttl_ms
            self._renewed_ms = sent_ms if self._renewed_ms is None else max(sent_ms, self._renewed_ms)

    def has_run_out(self) -> bool:
        """True also before the first renewal."""
        with self._lock:
            return self._has_run_out()

    def covers(self, asked_ms: int) -> bool:
        """Whether the lease has held without a break from `asked_ms` until now."""
        with self._lock:
            return not self._has_run_out() and asked_ms >= self._unbroken_since_ms

    def _has_run_out(self) -> bool:
        return self._renewed_ms is None or self._clock.boottime_ms() - self._renewed_ms >= self._ttl_ms

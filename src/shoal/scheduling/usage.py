"""
What queues have used, with what lies back counting less: half as much per half-life. For shares that look at more than this moment.

Nothing is sampled. An allocation of amount s from a to b counts, at t, (s / r) (e^(-r (t - b)) - e^(-r (t - a))) with r = ln 2 / half-life:
its integral, decayed. So each start and each end costs one step, whatever lies between, and a burst is seen however short it is. Three sums
per queue and resource are enough:

    past      what has ended, as of a time
    held      s of what runs
    begun     s e^(-r (t - a)) of what runs, as of a time          value(t) = past(t) + (held - begun(t)) / r

Steady use of s comes to s / r: 10 GPU-hours a day at a half-life of a week to 101. `past` is stored now and then
(`model.queue.QueueUsage`), so a crash forgets at most what ended since; what runs is known from its records. Prior art: Slurm's usage
decay, in steps of minutes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from shoal.base.limits import HALF_LIFE_MS
from shoal.model.attempt import Allocation
from shoal.model.queue import QueueUsage
from shoal.scheduling.quota import QuotaTree, charge_of_allocation


class _Decaying:
    """A number that halves per half-life; `at_ms` is when `value` was right."""

    __slots__ = ("at_ms", "value")

    def __init__(self, value: float = 0.0, at_ms: int = 0) -> None:
        self.value = value
        self.at_ms = at_ms

    def seen(self, now_ms: int, rate: float) -> float:
        return self.value * math.exp(-rate * (now_ms - self.at_ms))

    def add(self, value: float, at_ms: int, rate: float) -> None:
        """Adds what was worth `value` at `at_ms`, which may lie before or behind."""
        if at_ms > self.at_ms:
            self.value, self.at_ms = self.seen(at_ms, rate) + value, at_ms
        else:
            self.value += value * math.exp(-rate * (self.at_ms - at_ms))


class _Use:
    """One queue's use of one resource; see module."""

    __slots__ = ("begun", "count", "held", "past")

    def __init__(self) -> None:
        self.past = _Decaying()
        self.held = 0
        self.begun = _Decaying()
        self.count = 0

    def seen(self, now_ms: int, rate: float) -> float:
        running = max(0.0, self.held - self.begun.seen(now_ms, rate)) / rate if self.count else 0.0
        return self.past.seen(now_ms, rate) + running


class Used(NamedTuple):
    """What a queue and those under it used of late, as shares of the fleet: of the resource used most, and by resource."""

    share: float
    by_resource: dict[str, float]


class UsageBook:
    """See module. Moved by the board with every allocation that comes or goes."""

    def __init__(self, half_life_ms: int = HALF_LIFE_MS) -> None:
        self.half_life_ms = half_life_ms
        self.stored: dict[str, QueueUsage] = {}
        """As last written, by queue."""
        self.changed: dict[str, None] = {}
        """Queues of which something has ended since then."""
        self._of: dict[str, dict[str, _Use]] = {}

    @property
    def _rate(self) -> float:
        return math.log(2) / self.half_life_ms

    def begin(self, allocation: Allocation) -> None:
        """An allocation holds room since it was claimed."""
        for use, amount in self._uses(allocation):
            use.held += amount
            use.count += 1
            use.begun.add(amount, allocation.claimed_ms, self._rate)

    def end(self, allocation: Allocation, ended_ms: int) -> None:
        """One that had begun holds nothing any more."""
        rate, begun_ms = self._rate, allocation.claimed_ms
        ended_ms = max(ended_ms, begun_ms)
        for use, amount in self._uses(allocation):
            use.held -= amount
            use.count -= 1
            use.begun.add(-amount, begun_ms, rate)
            if not use.count:
                use.begun = _Decaying()  # What is left is the sum's rounding.
            use.past.add(amount / rate * -math.expm1(-rate * (ended_ms - begun_ms)), ended_ms, rate)
        self.changed[allocation.queue] = None

    def _uses(self, allocation: Allocation) -> list[tuple[_Use, int]]:
        mine = self._of.setdefault(allocation.queue, {})
        return [(mine.setdefault(resource, _Use()), amount) for resource, amount in charge_of_allocation(allocation)]

    def learn(self, stored: QueueUsage) -> None:
        """A queue's past, found at the start."""
        self.stored[stored.id] = stored
        mine = self._of.setdefault(stored.id, {})
        for resource, amount in stored.used.items():
            mine.setdefault(resource, _Use()).past.add(amount, stored.at_ms, self._rate)

    def forget(self, queue: str) -> None:
        """The queue is gone, and its past with it."""
        self.stored.pop(queue, None)
        self.changed.pop(queue, None)
        self._of.pop(queue, None)

    def to_store(self, now_ms: int) -> tuple[QueueUsage, ...]:
        """What is to be written of queues whose past has changed since it was, as of now. Who writes it says `written`."""
        rate, records = self._rate, []
        for queue in sorted(self.changed):
            used = {resource: round(use.past.seen(now_ms, rate)) for resource, use in sorted(self._of.get(queue, {}).items())}
            before = self.stored.get(queue)
            records.append(
                QueueUsage(id=queue, used={r: u for r, u in used.items() if u}, at_ms=now_ms, version=before.version if before else 0)
            )
        self.changed.clear()
        return tuple(records)

    def written(self, stored: QueueUsage) -> None:
        """It stands in the store now; it came from here, and is known already."""
        self.stored[stored.id] = stored

    def use_half_life(self, half_life_ms: int, running: Iterable[Allocation]) -> None:
        """From now on with another half-life. What has ended keeps the worth that it had; what runs is counted anew."""
        if half_life_ms == self.half_life_ms:
            return
        self.half_life_ms = half_life_ms
        for mine in self._of.values():
            for use in mine.values():
                use.held, use.count, use.begun = 0, 0, _Decaying()
        for allocation in running:
            self.begin(allocation)

    def seen(self, queue: str, now_ms: int) -> dict[str, float]:
        """What a queue itself has used, by resource: amount x milliseconds, decayed."""
        rate = self._rate
        return {resource: use.seen(now_ms, rate) for resource, use in self._of.get(queue, {}).items()}

    def shares(self, quota: QuotaTree, capacity: dict[str, int], now_ms: int) -> dict[str, Used]:
        """
        Every queue's use of late as shares of the fleet, those under it counted in: 1 for all of it since ever. Cost: the queues.
        """
        rate = self._rate
        totals: dict[str, dict[str, float]] = {name: {} for name in quota.vertices}
        for name in sorted(self._of):
            mine = self.seen(name, now_ms)
            at = quota.vertices.get(name)
            while at is not None:
                above = totals[at.name]
                for resource, amount in mine.items():
                    above[resource] = above.get(resource, 0.0) + amount
                at = at.parent
        return {name: _used(total, capacity, rate) for name, total in totals.items()}


def _used(total: dict[str, float], capacity: dict[str, int], rate: float) -> Used:
    shares = {resource: amount * rate / capacity[resource] for resource, amount in sorted(total.items()) if capacity.get(resource)}
    return Used(max(shares.values(), default=0.0), shares)

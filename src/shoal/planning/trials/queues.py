"""Queues event by event: jobs of two classes on equal servers, calls that are lost, a ramp as a fluid."""

from __future__ import annotations

import heapq
from collections import deque
from typing import NamedTuple

from shoal.base.rng import Rng
from shoal.planning.trials.draws import Estimate, batched, exponential


class Load(NamedTuple):
    """Arrival rates by class, the higher first, and what one server ends."""

    high_rate: float
    low_rate: float
    service_rate: float
    servers: int


class Waits(NamedTuple):
    """Share that waits, and mean waits by class and of all."""

    waiting: Estimate
    high: Estimate
    low: Estimate
    all: Estimate


def waits(rng: Rng, load: Load, jobs: int) -> Waits:
    """A run of `jobs` arrivals from an empty system; the first tenth is left out. The higher class goes first, nobody is displaced."""
    rate = load.high_rate + load.low_rate
    busy: list[float] = []
    queues: tuple[deque[tuple[int, float]], deque[tuple[int, float]]] = (deque(), deque())
    waited: list[tuple[bool, float]] = [(False, 0.0)] * jobs
    now = 0.0

    def serve_until(until: float) -> None:
        while busy and busy[0] <= until:
            at = heapq.heappop(busy)
            queue = queues[0] or queues[1]
            if queue:
                job, came = queue.popleft()
                waited[job] = (waited[job][0], at - came)
                heapq.heappush(busy, at + exponential(rng, 1 / load.service_rate))

    for job in range(jobs):
        now += exponential(rng, 1 / rate)
        serve_until(now)
        high = rng.unit() * rate < load.high_rate
        waited[job] = (high, 0.0)
        if len(busy) < load.servers:
            heapq.heappush(busy, now + exponential(rng, 1 / load.service_rate))
        else:
            queues[0 if high else 1].append((job, now))
    serve_until(float("inf"))
    kept = waited[jobs // 10 :]
    by_class = [
        batched([wait for high, wait in kept if high is wanted]) if load.high_rate else batched([0.0] * 100) for wanted in (True, False)
    ]
    everybody = [wait for _, wait in kept]
    return Waits(batched([float(wait > 0) for wait in everybody]), by_class[0], by_class[1], batched(everybody))


def worst_delay(reclaim_time: float, ramp: float, serving: float, headroom: float, step: float) -> float:
    """The largest delay of a fluid queue whose load rises from `serving` while capacity is serving + headroom until the reclaim is over."""
    backlog, worst, now = 0.0, 0.0, 0.0
    while now < reclaim_time:
        backlog = max(0.0, backlog + (ramp * now - headroom) * step)
        worst = max(worst, backlog / serving)
        now += step
    return worst

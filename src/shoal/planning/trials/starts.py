"""Warm pools, kept instances, image pulls, router caches, event by event."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable

from shoal.base.rng import Rng
from shoal.planning.trials.draws import Estimate, batched, exponential, repeated, share

Refill = Callable[[Rng], float]


def pool_misses(rng: Rng, start_rate: float, refill: Refill, slots: int, starts: int, *, backorder: bool = False) -> Estimate:
    """
    Share of starts that find no warm slot.

    Loss: a miss leaves the pool alone. Backorder: a miss takes the next slot that becomes warm, which is then refilled in turn, so that
    refills under way are all starts of the last refill time.
    """
    refilling: list[float] = []
    now, missed = 0.0, list[float]()
    for _ in range(starts):
        now += exponential(rng, 1 / start_rate)
        while refilling and refilling[0] <= now:
            heapq.heappop(refilling)
        miss = len(refilling) >= slots
        missed.append(float(miss))
        if backorder or not miss:
            heapq.heappush(refilling, now + refill(rng))
    return batched(missed[len(missed) // 10 :])


def cold_share(rng: Rng, mean_gap: float, keep: float, requests: int) -> Estimate:
    """Share of requests that come after the instance was let go."""
    return share(lambda stream: exponential(stream, mean_gap) > keep, rng, requests)


def idle_per_request(rng: Rng, mean_gap: float, keep: float, requests: int) -> Estimate:
    """Time that an instance is kept idle for each request."""
    return repeated(lambda stream: min(keep, exponential(stream, mean_gap)), rng, requests)


def pull_by_steps(
    sizes: tuple[float, ...], at_once: int, rates: tuple[float, float], unpack_per_byte: float, step: float
) -> tuple[float, float]:
    """(download, ready) of an image pull in small steps of time: no events, no ordering trick. `rates` are (connection, NIC)."""
    left, unpack = list(sizes), [size * unpack_per_byte for size in sizes]
    now, download, at = 0.0, 0.0, 0
    while at < len(sizes):
        active = [layer for layer, size in enumerate(left) if size > 0][:at_once]
        fetched = [size <= 0 for size in left]
        for layer in active:
            left[layer] -= min(rates[0], rates[1] / len(active)) * step
        now += step
        download = now if active else download
        if fetched[at]:
            unpack[at] -= step
            at += unpack[at] <= step * 1e-6
    return download, now


def cache_hits(rng: Rng, weights: tuple[float, ...], slots: int, requests: int) -> Estimate:
    """Share of requests whose prefix is in a least-recently-used cache."""
    totals, total = list[float](), 0.0
    for weight in weights:
        total += weight
        totals.append(total)
    cache: OrderedDict[int, None] = OrderedDict()
    hits = []
    for _ in range(requests):
        point = rng.unit() * total
        low, high = 0, len(totals) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if totals[middle] <= point else (low, middle)
        hits.append(float(low in cache))
        cache[low] = None
        cache.move_to_end(low)
        if len(cache) > slots:
            cache.popitem(last=False)
    return batched(hits[len(hits) // 10 :])

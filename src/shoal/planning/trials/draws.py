"""Random variates from a stream, and means with their standard errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from shoal.base.rng import Rng

BATCHES: Final = 20
"""Batches of a long run: enough for a standard error, few enough that each forgets the one before."""


class Estimate(NamedTuple):
    """A mean and how far off it may be by chance (one standard error)."""

    mean: float
    error: float

    def agrees(self, value: float, errors: float = 3.0) -> bool:
        """True if `value` is within so many standard errors."""
        return abs(value - self.mean) <= errors * self.error + 1e-12


def exponential(rng: Rng, mean: float) -> float:
    """A memoryless time."""
    return -mean * math.log1p(-rng.unit())


def normal(rng: Rng) -> float:
    """A standard normal (Box and Muller; the second one is dropped, so that draws stay aligned with their purpose)."""
    return math.sqrt(-2 * math.log1p(-rng.unit())) * math.cos(2 * math.pi * rng.unit())


def lognormal(rng: Rng, mean: float, cv: float) -> float:
    """A lognormal time with this mean and coefficient of variation."""
    spread = math.log1p(cv * cv)
    return mean * math.exp(math.sqrt(spread) * normal(rng) - spread / 2)


def chosen(rng: Rng, total: int, count: int) -> list[int]:
    """`count` different numbers of range(total), in random order."""
    items = list(range(total))
    for at in range(count):
        other = at + rng.below(total - at)
        items[at], items[other] = items[other], items[at]
    return items[:count]


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and standard error of independent values."""
    count = len(values)
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / max(1, count - 1)
    return Estimate(mean, math.sqrt(variance / count))


def repeated(trial: Callable[[Rng], float], rng: Rng, times: int) -> Estimate:
    """The mean of a trial over independent repetitions."""
    return estimate([trial(rng) for _ in range(times)])


def share(trial: Callable[[Rng], bool], rng: Rng, times: int) -> Estimate:
    """How often a trial is true. One of each is added to the error's counts, so that what was never seen is not taken for impossible."""
    seen = sum(trial(rng) for _ in range(times))
    return Estimate(seen / times, math.sqrt((seen + 1) * (times - seen + 1) / (times + 2) ** 3))


def batched(values: Sequence[float]) -> Estimate:
    """Mean of a long run whose values depend on those before, its error from the means of batches."""
    size = len(values) // BATCHES
    return estimate([math.fsum(values[at * size : (at + 1) * size]) / size for at in range(BATCHES)])

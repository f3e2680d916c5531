"""
Inputs of a question from a record of use: GPUs by team or kind, at equal steps of time.

What a formula wants (mean, spread, correlation, steepest rise) is measured here, so that nobody guesses it. Used by `--from-usage`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from shoal.base.errors import Invalid
from shoal.planning.quantity import DAY_S

STEPS_LEAST: Final = 24
"""Fewer say nothing about a spread."""
RISE_QUANTILE: Final = 0.99
_EVEN: Final = 1e-3
"""Steps of time may differ by so much of themselves: clocks and rounding, no gaps."""


class Usage(NamedTuple):
    """`series[k]` is the use of `names[k]`, a value per step of `step_s` seconds."""

    step_s: float
    names: tuple[str, ...]
    series: tuple[tuple[float, ...], ...]

    @property
    def total(self) -> tuple[float, ...]:
        return tuple(math.fsum(column) for column in zip(*self.series, strict=True))

    @property
    def seconds(self) -> float:
        return self.step_s * len(self.series[0])


def usage_of(times_s: list[float], names: tuple[str, ...], series: tuple[tuple[float, ...], ...], source: str) -> Usage:
    """A record of use. Raises Invalid for one that is short, uneven in time, or negative."""
    if len(times_s) < STEPS_LEAST or not series:
        raise Invalid(
            f"{source}: {len(times_s)} rows of {len(names)} columns; at least {STEPS_LEAST} rows and one column of GPUs are needed"
        )
    step = (times_s[-1] - times_s[0]) / (len(times_s) - 1)
    for at in range(1, len(times_s)):
        if step <= 0 or abs(times_s[at] - times_s[at - 1] - step) > _EVEN * step:
            gap = times_s[at] - times_s[at - 1]
            raise Invalid(f"{source}: row {at + 1} is {gap:g} s after the one before, {step:g} s is the step; fill gaps first")
    if any(value < 0 or not math.isfinite(value) for one in series for value in one):
        raise Invalid(f"{source}: a use of GPUs is negative or no number")
    return Usage(step, names, series)


def mean_of(values: tuple[float, ...]) -> float:
    """The mean."""
    return math.fsum(values) / len(values)


def sd_of(values: tuple[float, ...]) -> float:
    """The standard deviation over the record."""
    mean = mean_of(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def correlation_of(usage: Usage) -> float:
    """The mean correlation of pairs, weighted by their spreads: the one that gives the sum its variance. 0 for a single column."""
    spreads = [sd_of(one) for one in usage.series]
    own = math.fsum(sd * sd for sd in spreads)
    pairs = math.fsum(spreads) ** 2 - own
    return max(-1.0, min(1.0, (sd_of(usage.total) ** 2 - own) / pairs)) if pairs > 1e-12 else 0.0


def swing_of(usage: Usage) -> float:
    """The amplitude of the daily swing of the total: its Fourier component of 24 hours."""
    angles = [2 * math.pi * at * usage.step_s / DAY_S for at in range(len(usage.total))]
    cosine = math.fsum(value * math.cos(angle) for value, angle in zip(usage.total, angles, strict=True))
    sine = math.fsum(value * math.sin(angle) for value, angle in zip(usage.total, angles, strict=True))
    return 2 * math.hypot(cosine, sine) / len(angles)


def rise_of(usage: Usage) -> float:
    """The rise per second that is passed in one step of a hundred."""
    rises = sorted((after - before) / usage.step_s for before, after in zip(usage.total, usage.total[1:], strict=False))
    return max(0.0, rises[min(len(rises) - 1, math.ceil(RISE_QUANTILE * len(rises)) - 1)])


def _gpu(value: float) -> dict[str, Any]:
    return {"value": value, "unit": "GPU"}


def _committed(usage: Usage) -> dict[str, Any]:
    return {"mean": _gpu(mean_of(usage.total)), "sd": _gpu(sd_of(usage.total)), "history": {"value": usage.seconds, "unit": "s"}}


def _ladder(usage: Usage) -> dict[str, Any]:
    return {"demand": {"value": list(usage.total), "unit": "GPU"}, "step": {"value": usage.step_s, "unit": "s"}}


def _pooling(usage: Usage) -> dict[str, Any]:
    spread = math.sqrt(mean_of(tuple(sd_of(one) ** 2 for one in usage.series)))
    mean = mean_of(usage.total) / len(usage.series)
    return {"teams": len(usage.series), "mean": _gpu(mean), "sd": _gpu(spread), "correlation": correlation_of(usage)}


def _swing(usage: Usage) -> dict[str, Any]:
    mean = mean_of(usage.total)
    return {"mean": _gpu(mean), "amplitude": _gpu(min(mean, swing_of(usage)))}


def _reclaim(usage: Usage) -> dict[str, Any]:
    return {"serving_gpus": _gpu(mean_of(usage.total)), "ramp": {"value": rise_of(usage), "unit": "GPU/s"}}


FROM_USAGE: Final[dict[str, Callable[[Usage], dict[str, Any]]]] = {
    "committed": _committed,
    "committed_diurnal": _swing,
    "capacity_ladder": _ladder,
    "pooling": _pooling,
    "floor_borrow": _swing,
    "reclaim": _reclaim,
}
"""What each question takes from a record of use."""


def inputs_from(word: str, usage: Usage) -> dict[str, Any]:
    """Inputs of the question `word`, measured. Raises Invalid for one that takes none."""
    if word not in FROM_USAGE:
        raise Invalid(f"{word} takes no inputs from use; {', '.join(FROM_USAGE)} do")
    return FROM_USAGE[word](usage)

"""Demand drawn or walked through: teams and their pool, commitments against draws, a swing hour by hour, memory of many sessions."""

from __future__ import annotations

import math

from shoal.base.rng import Rng
from shoal.planning.trials.draws import Estimate, exponential, normal, repeated, share


def pool_is_enough(rng: Rng, teams: int, team: tuple[float, float], correlation: float, pool: float, times: int) -> Estimate:
    """Share of draws in which all teams' demand is within the pool. `team` is (mean, sd); correlation at least 0."""
    shared, own = math.sqrt(correlation), math.sqrt(1 - correlation)

    def trial(stream: Rng) -> bool:
        common = normal(stream)
        total = sum(team[0] + team[1] * (shared * common + own * normal(stream)) for _ in range(teams))
        return total <= pool

    return share(trial, rng, times)


def committed_cost(rng: Rng, demand: tuple[float, float], reserve: float, prices: tuple[float, float], times: int) -> Estimate:
    """Cost per hour of a reserve with normal demand. `demand` is (mean, sd), `prices` (committed, alternative)."""
    return repeated(lambda stream: prices[0] * reserve + prices[1] * max(0.0, demand[0] + demand[1] * normal(stream) - reserve), rng, times)


def swing(mean: float, amplitude: float, steps: int) -> list[float]:
    """One period of a sinusoidal demand, step by step."""
    return [mean + amplitude * math.sin(2 * math.pi * (at + 0.5) / steps) for at in range(steps)]


def idle_cost(rng: Rng, mean_gap: float, timeout: float, scale_up: float, times: int) -> Estimate:
    """Held seconds per gap of a worker that is released after `timeout`; infinite for never."""

    def trial(stream: Rng) -> float:
        gap = exponential(stream, mean_gap)
        return gap if gap <= timeout else timeout + scale_up

    return repeated(trial, rng, times)


def memory_is_enough(rng: Rng, sessions: int, use: tuple[float, float], room: float, times: int) -> Estimate:
    """Share of draws in which the memory of so many sessions is within the room. `use` is (mean, sd), normal."""
    return share(lambda stream: sum(use[0] + use[1] * normal(stream) for _ in range(sessions)) <= room, rng, times)

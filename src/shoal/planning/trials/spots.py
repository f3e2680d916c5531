"""Jobs on spot: preempted at random moments, in work, checkpoint and restart alike; gangs whose nodes go one by one."""

from __future__ import annotations

from typing import NamedTuple

from shoal.base.rng import Rng
from shoal.planning.trials.draws import Estimate, exponential, repeated, share


class Terms(NamedTuple):
    """A job's interval, checkpoint and restart, and the rate of preemptions; in one unit of time."""

    interval: float
    checkpoint: float
    restart: float
    rate: float


def factor(rng: Rng, terms: Terms, intervals: int) -> Estimate:
    """
    Wall time over useful work.

    Each sample is one interval carried to its checkpoint, with every loss on the way. A preemption in a restart starts the restart again.
    """

    def segment(stream: Rng) -> float:
        spent, need = 0.0, terms.interval + terms.checkpoint
        while True:
            until = exponential(stream, 1 / terms.rate)
            if until >= need:
                return (spent + need) / terms.interval
            spent += until
            need = terms.restart + terms.interval + terms.checkpoint

    return repeated(segment, rng, intervals)


def factor_with_notice(rng: Rng, terms: Terms, intervals: int) -> Estimate:
    """The same where a notice leaves time for a checkpoint: no work is lost, each preemption costs a checkpoint and a restart."""

    def segment(stream: Rng) -> float:
        spent, left = 0.0, terms.interval + terms.checkpoint
        while (until := exponential(stream, 1 / terms.rate)) < left:
            spent += until + terms.checkpoint
            left -= until
            while (failed := exponential(stream, 1 / terms.rate)) < terms.restart:
                spent += failed
            spent += terms.restart
        return (spent + left) / terms.interval

    return repeated(segment, rng, intervals)


def gang_survives(rng: Rng, rate: float, nodes: int, shock: float, horizon: float, times: int) -> Estimate:
    """Share of horizons in which no node goes and no shock comes."""

    def trial(stream: Rng) -> bool:
        if shock > 0 and exponential(stream, 1 / shock) < horizon:
            return False
        return all(exponential(stream, 1 / rate) >= horizon for _ in range(nodes))

    return share(trial, rng, times)


def first_event(rng: Rng, rate: float, nodes: int, times: int) -> Estimate:
    """Time until the first node goes."""
    return repeated(lambda stream: min(exponential(stream, 1 / rate) for _ in range(nodes)), rng, times)

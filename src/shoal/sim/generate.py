"""
Logs made from a seed, in Standard Workload Format: as long, as loaded and as mixed as a test or a benchmark wants them.

Sizes are powers of two, each as likely, up to the largest (small jobs are many, large ones hold most of the machine, as in the archive's
logs); every eighth is some other number. Run times are spread evenly over their logarithm. Arrivals have exponential gaps whose mean
makes the offered load exactly what was asked for. Requested times are the run time with up to four times as much again, in whole minutes,
which is how people ask.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from shoal.base.errors import Invalid
from shoal.base.rng import Rng
from shoal.formats.swf import SwfLine, format_swf

USERS = 64


class LogPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a log should be like. Load 1 offers as much work as the machine can do."""

    jobs: int = 10_000
    processors: int = 1_024
    largest: int = 512
    load: float = 0.9
    shortest_s: int = 10
    longest_s: int = 36_000
    seed: int = 1


def generate_swf(plan: LogPlan) -> Iterator[str]:
    """The lines of a log, header first; the same plan gives the same lines. Raises Invalid for a plan that cannot be."""
    _check(plan)
    rng = Rng(plan.seed)
    sizes, runs = _work(plan, rng.stream("sizes"), rng.stream("runs"))
    work = sum(size * run for size, run in zip(sizes, runs, strict=True))
    gap_s = work / (plan.load * plan.processors * plan.jobs)
    gaps, asks, users = rng.stream("gaps"), rng.stream("asks"), rng.stream("users")
    yield "; Version: 2.2"
    yield f"; MaxProcs: {plan.processors}"
    yield f"; Note: generated, load {plan.load:g}, seed {plan.seed}"
    at_s = 0.0
    for number, (size, run) in enumerate(zip(sizes, runs, strict=True), 1):
        at_s -= gap_s * math.log(1.0 - gaps.unit())
        asked_s = -(-int(run * (1 + 4 * asks.unit())) // 60) * 60
        yield format_swf(SwfLine(number, int(at_s), run, size, size, asked_s, 1, users.below(USERS), 0))


def _work(plan: LogPlan, sizes: Rng, runs: Rng) -> tuple[list[int], list[int]]:
    """Processors and run time (seconds) of each job."""
    steps = plan.largest.bit_length()
    low, span = math.log(plan.shortest_s), math.log(plan.longest_s / plan.shortest_s)
    drawn = [min(1 << sizes.below(steps), plan.largest) for _ in range(plan.jobs)]
    odd = [size if sizes.below(8) else 1 + sizes.below(size) for size in drawn]
    return odd, [int(math.exp(low + span * runs.unit())) for _ in range(plan.jobs)]


def _check(plan: LogPlan) -> None:
    if plan.jobs < 1 or not 0 < plan.largest <= plan.processors:
        raise Invalid(f"a log of {plan.jobs} jobs of up to {plan.largest} processors on {plan.processors} cannot be")
    if plan.load <= 0 or not 0 < plan.shortest_s < plan.longest_s:
        raise Invalid(f"load {plan.load:g} and run times of {plan.shortest_s} to {plan.longest_s} s cannot be: they must rise from above 0")

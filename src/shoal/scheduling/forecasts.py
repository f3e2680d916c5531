"""
How good earliest starts have been: the first that was told of each job, held against when it started.

Time limits are bounds and not run times, so that most jobs start before they were told to; jobs that arrive later and are owed more make
others start after. What has been said and how it came out is the honest width of the next one. Kept by whoever runs cycles, outside the
board: no decision looks at it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

from shoal.base import limits
from shoal.model.job import Job
from shoal.model.plan import Place, Plan, Reserve

WITHIN = 0.8
"""The share of past forecasts that lie within what is told."""


class Missed(NamedTuple):
    """A job has started: `error_ms` after its first forecast; below 0 before it."""

    job_id: str
    queue: str
    error_ms: int


class Track(NamedTuple):
    """The last forecasts of a queue: four in five were off by at most `within_ms`; half the starts came `late_ms` after, or earlier."""

    told: int
    within_ms: int
    late_ms: int


class Forecasts:
    """See module. Bounded: the oldest open forecasts go first, and a queue's track is that of its last starts."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, tuple[str, int]] = OrderedDict()
        self._errors: dict[str, deque[int]] = {}

    def tell(self, job_id: str, queue: str, start_ms: int) -> None:
        """An earliest start was worked out; the first one of a job counts."""
        if job_id not in self._told:
            self._told[job_id] = (queue, start_ms)
            if len(self._told) > limits.FORECASTS_OPEN_MAX:
                self._told.popitem(last=False)

    def follow(self, plan: Plan, jobs: Mapping[str, Job]) -> list[Missed]:
        """Takes in a cycle's plan and gives back the forecasts that it brought to an end. `jobs` has those that it reserves for."""
        missed = []
        for decision in plan.decisions:
            told = self._told.pop(decision.job, None) if isinstance(decision, Place) else None
            if told is not None and plan.at_ms is not None:
                missed.append(Missed(decision.job, told[0], plan.at_ms - told[1]))
        for one in missed:
            self._errors.setdefault(one.queue, deque(maxlen=limits.FORECASTS_KEPT)).append(one.error_ms)
        for decision in plan.decisions:
            if isinstance(decision, Reserve) and decision.job in jobs:
                self.tell(decision.job, jobs[decision.job].queue, decision.start_ms)
        return missed

    def track(self, queue: str) -> Track | None:
        """How good the queue's last forecasts were; None before there were limits.FORECASTS_LEAST."""
        errors = self._errors.get(queue, ())
        if len(errors) < limits.FORECASTS_LEAST:
            return None
        ordered, off = sorted(errors), sorted(abs(error) for error in errors)
        return Track(len(ordered), off[ceil(WITHIN * len(off)) - 1], ordered[(len(ordered) - 1) // 2])

"""
How long a job will run, going by the last runs of its kind: the mean of two (Tsafrir, Etsion, Feitelson 2007), by project, owner, name
and size. People ask for several times what they use; what they ran last says more than what they ask for.

Kept by whoever creates jobs and hears of their ends, outside the board: a job carries what was known when it was submitted
(`Job.expected_ms`), so that judgement stays a function of records.
"""

from __future__ import annotations

from collections import OrderedDict

from shoal.base import limits
from shoal.model.job import Job, JobSpec, JobState

Kind = tuple[str, str, str, int]
_TELLING = (JobState.SUCCEEDED, JobState.FAILED, JobState.TIMEOUT, JobState.OOM)
"""Ends of a run's own; who was cancelled or lost a node would have run longer."""


def kind_of(project: str, owner: str, spec: JobSpec) -> Kind:
    """Jobs of one kind run about as long."""
    groups = spec.groups or (spec,)
    sizes = [(group.nodes.low if group.nodes is not None else 1, group.gpus.count if group.gpus is not None else 0) for group in groups]
    gpus = sum([nodes * count for nodes, count in sizes])
    return project, owner, spec.name, gpus


class RunTimes:
    """See module. Bounded: the kinds that have ended nothing for longest are forgotten first. Cost: constant per end and per submit."""

    def __init__(self) -> None:
        self._last: OrderedDict[Kind, tuple[int, int]] = OrderedDict()

    def note(self, job: Job) -> None:
        """A job has ended; what says nothing of how long its kind runs is left out."""
        if job.state not in _TELLING or job.started_ms is None or job.ended_ms is None or job.is_array:
            return
        kind = kind_of(job.project, job.owner, job.spec)
        ran_ms = max(1, job.ended_ms - job.started_ms)
        before = self._last.pop(kind, None)
        self._last[kind] = (ran_ms, ran_ms if before is None else before[0])
        if len(self._last) > limits.RUN_KINDS_KEPT:
            self._last.popitem(last=False)

    def expected_ms(self, project: str, owner: str, spec: JobSpec) -> int | None:
        """What a job of this kind is expected to run; None while none has ended."""
        last = self._last.get(kind_of(project, owner, spec))
        return None if last is None else (last[0] + last[1]) // 2

"""
Arrays: one parent and a job per index. The parent is never placed and has no transitions; its state is that of its elements.

Elements get records of their own when something happens to them: a plan starts them, or somebody names one. Until then they are a
range in their parent (`model.array`), and an array of ten thousand costs one record. The parent is written seldom on purpose (at birth,
once per plan that starts elements, when the first of them runs, at the end): ten thousand elements that each wrote it would all wait
for one record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from shoal.lifecycle.job import Origin, job_of
from shoal.lifecycle.turn import job_row
from shoal.model.array import element_of, element_spec, is_unborn, unborn_count, without
from shoal.model.change import ChangeSet
from shoal.model.event import JobEnded, JobStarted, JobSubmitted
from shoal.model.job import ENDED, WAITING, CancelMode, Job, JobEnd, JobSpec, JobState
from shoal.model.reason import Reason, ReasonCode

ENDS_BY_WEIGHT = (
    JobState.FAILED,
    JobState.OOM,
    JobState.TIMEOUT,
    JobState.DEADLINE,
    JobState.NODE_LOST,
    JobState.PREEMPTED,
    JobState.CANCELLED,
    JobState.SUCCEEDED,
)
"""An array ends as the first of these that any of its elements ended as: what its owner must look at first."""


def new_array(spec: JobSpec, origin: Origin) -> ChangeSet:
    """
    The ChangeSet that creates an array: the parent alone, however many indices it has.

    Needs as many fresh numbers after `origin.number`, which is the parent's, as there are indices.
    """
    assert spec.array is not None
    parent = replace(job_of(spec, origin), unborn=((0, len(spec.array.indices)),))
    submitted = JobSubmitted(number=parent.number, name=spec.name)
    return ChangeSet(put=(parent,), events=(job_row(parent, submitted, origin.now_ms, origin.owner),))


def bear(parent: Job, positions: Iterable[int]) -> ChangeSet:
    """Records for elements that have none, the parent first; those that have one are left as they are."""
    born = tuple(sorted(position for position in set(positions) if is_unborn(parent, position)))
    if not born:
        return ChangeSet()
    spec = element_spec(parent)
    elements = tuple(element_of(parent, position, spec) for position in born)
    return ChangeSet(put=(replace(parent, unborn=without(parent.unborn, born)), *elements))


def counted(parent: Job, counts: Mapping[JobState, int]) -> dict[JobState, int]:
    """The states of all elements: of those with a record as counted, the others as their parent has them."""
    state = JobState.CANCELLED if parent.cancel is not CancelMode.NONE else JobState.HELD if parent.hold else JobState.QUEUED
    waiting = unborn_count(parent)
    return {**counts, state: counts.get(state, 0) + waiting} if waiting else dict(counts)


def array_state(counts: Mapping[JobState, int]) -> JobState:
    """
    The state of an array whose elements are in these states.

    RUNNING from the first element that runs (or has run) until all have ended; a start alone shows nothing yet.
    """
    present = {state for state, count in counts.items() if count > 0}
    if present and present <= ENDED:
        return next(state for state in ENDS_BY_WEIGHT if state in present)
    quiet = {*WAITING, JobState.STARTING, JobState.CANCELLED}
    if present - quiet:
        return JobState.RUNNING
    return JobState.HELD if present - {JobState.CANCELLED} == {JobState.HELD} else JobState.QUEUED


def worst_end(elements: Iterable[Job]) -> JobEnd | None:
    """The end with the highest exit code, ties to the lower index: what `wait` on an array answers."""
    ends = [(-e.outcome.exit_code, e.array.index if e.array else 0, e.outcome) for e in elements if e.outcome is not None]
    return min(ends, key=lambda end: end[:2])[2] if ends else None


def advance_array(parent: Job, counts: Mapping[JobState, int], worst: JobEnd | None, now_ms: int) -> ChangeSet:
    """
    The parent brought in line with its elements; empty when its state stays, which is nearly always.

    `counts` are those of all elements, as of `counted`.
    `worst` (from `worst_end`) is needed only when all elements have ended.
    """
    state = array_state(counts)
    if state is parent.state:
        return ChangeSet()
    reason_kept = parent.reason if state is JobState.HELD else None
    after = replace(parent, state=state, reason=reason_kept, outcome=None, ended_ms=None)
    if state in ENDED:
        told = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()) if count)
        reason = Reason(code=ReasonCode.EXIT, message=f"all elements ended: {told}")
        end = worst or JobEnd(exit_code=0 if state is JobState.SUCCEEDED else 1, message=reason.message)
        after = replace(after, reason=reason, outcome=end, ended_ms=now_ms, observed_generation=parent.generation)
        return ChangeSet(
            put=(after,), events=(job_row(parent, JobEnded(state=str(state), exit_code=end.exit_code, reason=reason), now_ms, "shoal"),)
        )
    if state is JobState.RUNNING and parent.started_ms is None:
        after = replace(after, started_ms=now_ms)
        return ChangeSet(put=(after,), events=(job_row(parent, JobStarted(attempt=0), now_ms, "shoal"),))
    return ChangeSet(put=(after,))

"""
What must hold of jobs, attempts and allocations at every version, in words where it does not: the "never" list of the lifecycle.

Pure and read-only. Property tests run it after every event, `shoal check` on the live records. (`scheduling.check` has the other half:
quota, capacity, topology.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from shoal.model.attempt import HOLDING, Allocation, Attempt
from shoal.model.job import ENDED, LIVE, WAITING, Job, JobState

_ON_THE_WAY_OUT = (JobState.PREEMPTING, JobState.CANCELLING, JobState.COMPLETING)


def audit(jobs: Iterable[Job], attempts: Iterable[Attempt], allocations: Iterable[Allocation]) -> tuple[str, ...]:
    """
    Every violation in words, ascending; empty when all is well.

    `attempts` and `allocations` may hold those of past attempts as well. Cost: linear in the records.
    """
    tries: dict[str, dict[int, Attempt]] = defaultdict(dict)
    for attempt in attempts:
        tries[attempt.job][attempt.number] = attempt
    members: dict[str, list[Allocation]] = defaultdict(list)
    for allocation in allocations:
        members[allocation.job].append(allocation)
    found = _devices_held_twice([a for held in members.values() for a in held])
    for job in jobs:
        found += _status(job) + _tries(job, tries[job.id], members[job.id])
    return tuple(sorted(found))


def _devices_held_twice(allocations: Sequence[Allocation]) -> list[str]:
    holders: dict[str, list[str]] = defaultdict(list)
    for allocation in allocations:
        if allocation.state in HOLDING:
            for device in allocation.devices:
                holders[device].append(allocation.id)
    return [f"device {device} is held by {' and '.join(sorted(ids))}" for device, ids in holders.items() if len(ids) > 1]


def _status(job: Job) -> list[str]:
    found = []
    if job.state in ENDED and (job.ended_ms is None or job.outcome is None or job.reason is None):
        found.append(f"job {job.address} is {job.state} without its end time, outcome or reason")
    if job.state not in ENDED and job.ended_ms is not None:
        found.append(f"job {job.address} is {job.state} and has an end time")
    if (job.state is JobState.SUCCEEDED) and job.outcome is not None and job.outcome.exit_code != 0:
        found.append(f"job {job.address} is SUCCEEDED with exit code {job.outcome.exit_code}")
    if job.state in _ON_THE_WAY_OUT and job.ending is None:
        found.append(f"job {job.address} is {job.state} towards nothing")
    if job.state not in _ON_THE_WAY_OUT and job.ending is not None:
        found.append(f"job {job.address} is {job.state} and has an ending, {job.ending}")
    if job.retries > job.spec.retry.limit:
        found.append(f"job {job.address} has used {job.retries} retries of {job.spec.retry.limit}")
    return found


def _tries(job: Job, attempts: Mapping[int, Attempt], members: Sequence[Allocation]) -> list[str]:
    found = []
    holding = [a for a in members if a.state in HOLDING]
    if job.state in WAITING | ENDED and holding:
        found.append(f"job {job.address} is {job.state} and {holding[0].id} still holds its room")
    stale = [a for a in holding if a.attempt != job.attempt]
    if stale:
        found.append(f"job {job.address} is at attempt {job.attempt} while {stale[0].id} holds its room")
    if any(number > job.attempt for number in attempts):
        found.append(f"job {job.address} is at attempt {job.attempt} and has a record of a later one")
    if job.state in LIVE and not job.is_array:
        found += _current(job, attempts.get(job.attempt), [a for a in members if a.attempt == job.attempt])
    return found


def _current(job: Job, attempt: Attempt | None, members: Sequence[Allocation]) -> list[str]:
    if attempt is None:
        return [f"job {job.address} is {job.state} without a record of attempt {job.attempt}"]
    staying = [a.id for a in members if not a.leaving]
    if sorted(attempt.members) != sorted(staying):
        return [f"attempt {attempt.id} has {len(attempt.members)} members and {len(staying)} allocations"]
    ranks = sorted(task.rank for a in members for task in a.tasks)
    found = []
    if attempt.ranks and len(set(ranks)) < len(ranks):
        found.append(f"attempt {attempt.id} gives a rank twice, out of {ranks[:8]}")
    if not attempt.ranks and ranks != list(range(len(ranks))):
        found.append(f"attempt {attempt.id} has ranks {ranks[:8]}, not 0 to {len(ranks) - 1}")
    if job.state is JobState.PREEMPTING and attempt.save_by_ms is None:
        waiting = [a.id for a in members if a.state in HOLDING and not a.stop_sent and any(t.rank not in a.exits for t in a.tasks)]
        if waiting:
            found.append(f"job {job.address} gives its room away and {waiting[0]} was neither stopped nor left time to save")
    if attempt.ended_ms is not None:
        found.append(f"job {job.address} is {job.state} and attempt {attempt.id} has ended")
    if job.state is JobState.RUNNING and job.spec.nodes is not None and not job.spec.groups and len(staying) < job.spec.nodes.low:
        found.append(f"job {job.address} runs with {len(staying)} members, and needs {job.spec.nodes.low} at least")
    if not any(a.state in HOLDING for a in members):
        found.append(f"job {job.address} is {job.state} and no member of {attempt.id} holds anything")
    return found

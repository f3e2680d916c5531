"""Part of `check`: no plan starts more than the running limits of its queues allow, to the queue or to one user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from shoal.model.job import Job
from shoal.model.plan import Place, PlacedMember
from shoal.model.queue import Queue
from shoal.scheduling.crowd import Count, excess_of, limits_of, steps_of


class Records(Protocol):
    """The part of a check's records that is looked at."""

    @property
    def jobs(self) -> Mapping[str, Job]: ...

    @property
    def queues(self) -> Mapping[str, Queue]: ...

    def running(self, queue: str, owner: str) -> Count:
        """What runs in a queue; of one user alone where one is named."""
        ...


def check_limits(records: Records, places: Iterable[Place]) -> list[str]:
    """What starts beyond a limit, one after another in the order of the plan."""
    faults = []
    started: dict[tuple[str, str], Count] = {}
    for place in places:
        job = records.jobs.get(place.job)
        limits = limits_of(dict(records.queues), job.queue) if job is not None else None
        if job is None or limits is None or not limits.of_running:
            continue
        whole, mine = (records.running(job.queue, owner).plus(started.get((job.queue, owner), Count())) for owner in ("", job.owner))
        asked_milli = sum(_gpus_milli(member) for member in place.members)
        excess = excess_of(limits, whole, mine, asked_milli, steps_of(job))
        if excess is not None:
            faults.append(
                f"job {job.address} breaks limit {excess.name} of queue {job.queue}: {excess.used} and {excess.asked} of {excess.limit}"
            )
        one = Count(1, asked_milli, asked_milli * steps_of(job))
        for owner in ("", job.owner):
            started[job.queue, owner] = started.get((job.queue, owner), Count()).plus(one)
    return faults


def _gpus_milli(member: PlacedMember) -> int:
    return len(member.devices) * 1_000 + sum(part.charge for part in member.parts)

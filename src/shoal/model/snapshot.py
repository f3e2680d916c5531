"""All live records at one version of the store: what `scheduling.board` is built from and `check_plan` looks at."""

from __future__ import annotations

import msgspec

from shoal.model.attempt import Allocation, Attempt
from shoal.model.job import Job, JobState
from shoal.model.node import Node
from shoal.model.queue import Claim, Queue, QueueUsage
from shoal.model.reservation import Reservation
from shoal.model.schedule import Schedule


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """
    `jobs` that have not ended, current `attempts` of those, `allocations` that hold room, all `nodes`, `queues`, `claims`, `usages`,
    `reservations` and `schedules`, each ascending by id.

    `ended` has the end states of jobs that some live job depends on, by job id.
    """

    version: int
    jobs: tuple[Job, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    nodes: tuple[Node, ...] = ()
    queues: tuple[Queue, ...] = ()
    claims: tuple[Claim, ...] = ()
    usages: tuple[QueueUsage, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    ended: dict[str, JobState] = {}


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """One job with its current attempt and that attempt's allocations, read at one version: what `lifecycle.job` judges on."""

    job: Job
    attempt: Attempt | None = None
    allocations: tuple[Allocation, ...] = ()

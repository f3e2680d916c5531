"""
A queue: a vertex of the quota tree. Its usage is derived from allocations, never stored.

Resources are keyed by text: `gpu/<model>` and `gpu` (any model) in thousandths of a GPU, `cpu` in thousandths of a core, `memory` in bytes.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from shoal.model.job import Spec
from shoal.model.part import DevicePart

NON_PREEMPTIBLE_STEPS: Final = 10
"""What a job that cannot be stopped costs of a priority budget, per GPU: to be spared for as long as it runs is worth more than to go
before one's neighbours once. An assumption; there is no market to read it from."""


class Quota(Spec, frozen=True, kw_only=True):
    """For one resource. `nominal` is guaranteed; None limits mean no limit. Amounts in the resource's own unit (see module)."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


class QueueLimits(Spec, frozen=True, kw_only=True):
    """
    Bounds on jobs, of a queue itself and not of those under it; None: no bound. A job at a running limit waits and holds up nobody.

    A gang of a range of nodes starts at its smallest size where GPUs per user are limited.
    """

    running_jobs: int | None = None
    """Jobs that have started and not ended."""
    running_jobs_per_user: int | None = None
    gpus_per_user: int | None = None
    """GPUs that one user's jobs hold, whole ones; parts of a GPU count as their charge, rounded up."""
    queued_jobs: int | None = None
    """Jobs that wait, elements of arrays each; a create beyond is refused."""
    queued_jobs_per_user: int | None = None
    priority_budget: int | None = None
    """What urgency the queue's running jobs may have together, in GPU-steps: a job costs its GPUs x the steps of its priority above 0, and
    NON_PREEMPTIBLE_STEPS more where it cannot be stopped. A job of priority 0 costs nothing."""
    priority_budget_per_user: int | None = None
    time_ms: int | None = None
    """The longest time limit; a job that asks for more is refused, one that asks for none gets this."""

    @property
    def of_running(self) -> bool:
        """True if what runs decides whether another job starts."""
        return self.running_jobs is not None or self.by_user or self.priced

    @property
    def priced(self) -> bool:
        """True if urgency is paid for out of a budget."""
        return self.priority_budget is not None or self.priority_budget_per_user is not None

    @property
    def by_user(self) -> bool:
        """True if what a user's jobs hold decides whether another of his starts."""
        limits = (self.running_jobs_per_user, self.gpus_per_user, self.priority_budget_per_user)
        return any(limit is not None for limit in limits)


class QueueSpec(Spec, frozen=True, kw_only=True):
    """What a person sets. A resource not named in `quotas` is unlimited for this queue if no ancestor names it either."""

    parent: str | None = None
    project: str = "default"
    weight: int = 1000
    """Share among siblings, in thousandths; 0 only takes what nobody else wants."""
    order: Literal["strict", "best-effort"] = "best-effort"
    """
    strict: what does not fit holds back every job behind it that could use its GPU models. A job without GPUs could use the cores of any
    node, so it passes nobody and nobody passes it. best-effort: what does not fit lets others by.
    """
    quotas: dict[str, Quota] = {}
    closed: bool = False
    """Takes jobs but starts none."""
    default_time_ms: int | None = None
    limits: QueueLimits = QueueLimits()
    min_run_ms: int | None = None
    """A job of this queue is not stopped for another before it has run so long; unset: as the policy says."""


class Queue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A queue as stored; `id` is its name, unique in the installation."""

    id: str
    spec: QueueSpec
    version: int = 0


class QueueUsage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What jobs of a queue that have ended used of late (`scheduling.usage`): amount x milliseconds by resource, decayed up to `at_ms`."""

    id: str
    """The queue's name."""
    used: dict[str, int] = {}
    at_ms: int = 0
    version: int = 0


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """
    Stored room kept for a job until it starts there or the claim expires: for one that preempted for it, or that holds on after a failure.

    `term` is that of the plane that decided it; 0 where the lifecycle did.
    """

    id: str
    job: str
    node: str
    devices: tuple[str, ...]
    cpu_milli: int
    memory_bytes: int
    term: int
    expires_ms: int
    parts: tuple[DevicePart, ...] = ()
    project: str = ""
    """The job's: soft shares are kept beside those of one project only."""
    version: int = 0

"""
What must never be, seen from outside: from the processes themselves, and from what people were answered.

Each violation is a line of words. The plane's own books are looked at too (`control.check`), when it has come to rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shoal.control.check import check_plane
from shoal.control.plane import Plane
from shoal.model.attempt import HOLDING, Allocation
from shoal.model.change import Change
from shoal.model.job import ENDED, Job
from shoal.sim.swarm.agenda import Agenda
from shoal.sim.swarm.tasks import Task, Tasks

VIOLATIONS_KEPT_MAX = 20
"""One says that something is wrong; a thousand say no more."""


@dataclass
class Order:
    """A job that somebody wants, by its idempotency key, and what was answered."""

    key: str
    body: bytes
    job: str | None = None
    """Set by the first answer."""
    tombstoned: bool = False
    """A cancel by this key was accepted before any answer to the create."""
    cancelled_at: int | None = None
    """The job's attempt in the answer that accepted a cancel."""


@dataclass
class Oracle:
    """See module."""

    agenda: Agenda
    violations: list[str] = field(default_factory=list)
    machines: list[Tasks] = field(default_factory=list)
    orders: dict[str, Order] = field(default_factory=dict)
    _by_job: dict[str, Order] = field(default_factory=dict)
    _over: dict[str, str] = field(default_factory=dict)
    """Allocations that hold nothing any more by the books, and their state."""

    def violate(self, what: str) -> None:
        if len(self.violations) < VIOLATIONS_KEPT_MAX:
            self.violations.append(f"at {self.agenda.now_ms} ms: {what}")

    # --- processes ---------------------------------------------------------------------------------------------------------------
    def started(self, machine: str, task: Task) -> None:
        """A process has begun: nobody else may have its devices, nor may another attempt of its job run anywhere."""
        for tasks in self.machines:
            for other in tasks.living.values():
                if other.job == task.job and other.attempt != task.attempt:
                    self.violate(f"{task.allocation} starts on {machine} while {other.allocation} runs on {tasks.machine}")
                if other.allocation != task.allocation and not set(task.devices).isdisjoint(other.devices):
                    self.violate(f"{task.allocation} starts on devices of {other.allocation} on {machine}")
        if task.allocation in self._over:
            self.violate(f"{task.allocation} starts on {machine} and is {self._over[task.allocation]} already")
        order = self._by_job.get(task.job)
        if order is not None and order.cancelled_at is not None and task.attempt > order.cancelled_at:
            self.violate(f"{task.allocation} starts though job {task.job} was cancelled in attempt {order.cancelled_at}")

    def changed(self, change: Change) -> None:
        """The books say that an allocation is over: then nothing of it may run."""
        for record in change.put:
            if isinstance(record, Allocation) and record.state not in HOLDING and record.id not in self._over:
                self._over[record.id] = str(record.state)
                for tasks in self.machines:
                    if tasks.alive(record.id):
                        self.violate(f"{record.id} is {record.state} by the books and has processes on {tasks.machine}")

    # --- people ------------------------------------------------------------------------------------------------------------------
    def created(self, order: Order, job: Job) -> None:
        """A create was answered: always with the same job."""
        if order.job is None:
            order.job = job.id
            self._by_job[job.id] = order
        elif order.job != job.id:
            self.violate(f"key {order.key} was answered with job {order.job} and with job {job.id}")

    def cancelled(self, order: Order, job: Job) -> None:
        """A cancel was accepted."""
        if order.cancelled_at is None:
            order.cancelled_at = job.attempt

    # --- the end -----------------------------------------------------------------------------------------------------------------
    def at_rest(self, plane: Plane) -> None:
        """Nothing is under way and no fault is left: everything has ended, and the books are sound."""
        for tasks in self.machines:
            for task in tasks.living.values():
                self.violate(f"{task.allocation} still runs on {tasks.machine} in the end")
        jobs = {job.id: job for job in _all_jobs(plane)}
        by_key: dict[str, list[str]] = {}
        for job in jobs.values():
            by_key.setdefault(job.spec.labels.get("key", ""), []).append(job.id)
        for order in self.orders.values():
            found = by_key.get(order.key, [])
            if len(found) != 1 or (order.job is not None and found != [order.job]):
                self.violate(f"key {order.key} was answered with {order.job}, and there are {found}")
        for job in jobs.values():
            if job.state not in ENDED:
                self.violate(f"job {job.number} is {job.state} ({job.reason}) in the end")
        for fault in check_plane(plane):
            self.violate(fault)


def _all_jobs(plane: Plane) -> Iterable[Job]:
    from shoal.store.protocol import JobQuery

    before: int | None = None
    while True:
        page = plane.store.list_jobs(JobQuery(project="default", before=before, limit=500))
        yield from page
        if len(page) < 500:
            return
        before = page[-1].number

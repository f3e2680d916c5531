"""
Who runs how much in which queue: jobs that have started, and what they hold, by queue and by user. What running limits are judged by.

Kept by the board, one job at a time, whenever one moves. GPUs are thousandths, as they are charged; they are added up only in queues
that limit them, since that walks a gang's members.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from shoal.model.attempt import Allocation
from shoal.model.job import LIVE, Job
from shoal.model.queue import NON_PREEMPTIBLE_STEPS, Queue, QueueLimits
from shoal.model.reason import ReasonCode
from shoal.scheduling.quota import charge_of_allocation

NO_LIMITS = QueueLimits()


class Count(NamedTuple):
    """Jobs, thousandths of GPUs that they hold, and what their urgency costs: these times the steps of each."""

    jobs: int = 0
    gpus_milli: int = 0
    price_milli: int = 0

    def plus(self, other: Count, sign: int = 1) -> Count:
        jobs, gpus, price = other
        return Count(self.jobs + sign * jobs, self.gpus_milli + sign * gpus, self.price_milli + sign * price)


_NOTHING = Count()


class Excess(NamedTuple):
    """A limit that one more job would break: its name as in QueueLimits, what it is, and what counts against it already."""

    code: ReasonCode
    name: str
    limit: int
    used: int
    asked: int


class Held(Protocol):
    """The part of a board that is looked at."""

    queues: dict[str, Queue]
    allocations: dict[str, Allocation]
    held_by: dict[str, dict[str, None]]


class Crowd:
    """See module. `of` is a queue's own, not of those under it."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], Count] = {}
        """By queue and user; a queue's whole under the empty name."""
        self._counted: dict[str, tuple[str, str, Count]] = {}
        """What each job was counted as."""

    def of(self, queue: str, owner: str = "") -> Count:
        """What runs in a queue; of one user alone where one is named."""
        return self._of.get((queue, owner), _NOTHING)

    def note(self, job_id: str, job: Job | None, board: Held) -> None:
        """A job has moved: it is counted anew."""
        before = self._counted.pop(job_id, None)
        if before is not None:
            self._add(*before, sign=-1)
        if job is None or job.state not in LIVE or job.is_array:
            return
        bounds = limits_of(board.queues, job.queue)
        gpus_milli = gpus_of(board, job) if bounds.gpus_per_user is not None or bounds.priced else 0
        counted = self._counted[job_id] = (job.queue, job.owner, Count(1, gpus_milli, gpus_milli * steps_of(job)))
        self._add(*counted)

    def _add(self, queue: str, owner: str, count: Count, sign: int = 1) -> None:
        for place in ((queue, ""), (queue, owner)):
            after = self._of.get(place, _NOTHING).plus(count, sign)
            if after.jobs:
                self._of[place] = after
            else:
                self._of.pop(place, None)

    def contents(self) -> dict[tuple[str, str], Count]:
        """Everything, to be compared."""
        return dict(sorted(self._of.items()))


def gpus_of(board: Held, job: Job) -> int:
    """Thousandths of GPUs that a job holds."""
    return gpus_milli_of(board.allocations[held] for held in board.held_by.get(job.id, ()))


def gpus_milli_of(held: Iterable[Allocation]) -> int:
    """Thousandths of GPUs that these are charged."""
    return sum(amount for allocation in held for resource, amount in charge_of_allocation(allocation) if resource == "gpu")


def limits_of(queues: dict[str, Queue], name: str) -> QueueLimits:
    """The limits of a queue; none for one that is not stored."""
    queue = queues.get(name)
    return NO_LIMITS if queue is None else queue.spec.limits


def steps_of(job: Job) -> int:
    """What each GPU of a job costs of a priority budget: the steps of its priority above 0, and more where nobody may stop it."""
    return max(0, job.priority) + (0 if job.spec.preemptible else NON_PREEMPTIBLE_STEPS)


def excess_of(limits: QueueLimits, whole: Count, mine: Count, asked_milli: int, steps: int = 0) -> Excess | None:
    """
    The first limit that one more job would break, which asks for so many thousandths of GPUs of so many steps.

    `whole` is what runs in the queue, `mine` what the job's user runs there.
    """
    if limits.running_jobs is not None and whole.jobs >= limits.running_jobs:
        return Excess(ReasonCode.QUEUE_JOBS_LIMIT, "running_jobs", limits.running_jobs, whole.jobs, 1)
    if limits.running_jobs_per_user is not None and mine.jobs >= limits.running_jobs_per_user:
        return Excess(ReasonCode.USER_JOBS_LIMIT, "running_jobs_per_user", limits.running_jobs_per_user, mine.jobs, 1)
    if limits.gpus_per_user is not None and asked_milli and mine.gpus_milli + asked_milli > limits.gpus_per_user * 1_000:
        return Excess(
            ReasonCode.USER_GPUS_LIMIT, "gpus_per_user", limits.gpus_per_user, -(-mine.gpus_milli // 1_000), -(-asked_milli // 1_000)
        )
    return _excess_of_budget(limits, whole, mine, asked_milli * steps) if limits.priced and steps else None


def _excess_of_budget(limits: QueueLimits, whole: Count, mine: Count, asked_milli: int) -> Excess | None:
    """Who asks for no urgency never breaks a budget, not even one that is cut below what is in use."""
    budgets = (
        (ReasonCode.QUEUE_BUDGET, "priority_budget", limits.priority_budget, whole.price_milli),
        (ReasonCode.USER_BUDGET, "priority_budget_per_user", limits.priority_budget_per_user, mine.price_milli),
    )
    for code, name, budget, used_milli in budgets:
        if budget is not None and asked_milli and used_milli + asked_milli > budget * 1_000:
            return Excess(code, name, budget, -(-used_milli // 1_000), -(-asked_milli // 1_000))
    return None

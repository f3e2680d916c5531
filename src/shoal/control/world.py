"""
The live picture: records by id and the indexes that use cases and steps look through, moved forward by the store's tail alone.

Anyone may call `catch_up`, from any thread; records are frozen and single entries are read without a lock. Two entries that must
fit together are read by a method (`picture`, `live_on`), under the lock. Nothing here is decided and nothing is written. A reader that
is further behind than the store keeps changes goes on by one great change: the difference to a new snapshot (`gap`).

A tail in memory rather than reads of the database: a job of one second makes five changes, and each would cost a query.
Cost of `catch_up`: what changed; of every look-up: the size of its answer.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from shoal.base import limits
from shoal.base.errors import VersionExpired
from shoal.control.gap import bridge
from shoal.model.access import Token
from shoal.model.array import unborn_count
from shoal.model.attempt import HOLDING, Allocation, Attempt
from shoal.model.change import Change, Record
from shoal.model.job import ENDED, WAITING, CancelMode, Job, JobSpec, JobState
from shoal.model.node import Node
from shoal.model.queue import Claim, Queue
from shoal.model.reservation import Reservation
from shoal.model.schedule import Schedule
from shoal.model.snapshot import Picture, Snapshot
from shoal.scheduling.runtimes import RunTimes
from shoal.store.protocol import JobQuery, Store

R = TypeVar("R")
Listener = Callable[[Change], None]
Index = dict[str, dict[str, None]]
"""Ids by a key, in the order in which they came: a set whose iteration is the same in every run."""


class World:
    """See module. Fields are for reading; `version` is that of the last change taken in."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.RLock()
        self._listeners: list[Listener] = []
        self.version = 0
        self.jumps = 0
        """How often the tail was lost and a snapshot taken in its place: who keeps more than records (the outbox) reads that again."""
        self.jobs: dict[str, Job] = {}
        """Jobs that have not ended."""
        self.ended: OrderedDict[str, Job] = OrderedDict()
        """The last ENDED_JOBS_KEPT_MAX jobs that ended."""
        self.attempts: dict[str, Attempt] = {}
        """The current attempt of a live job, by job id."""
        self.allocations: dict[str, Allocation] = {}
        """Those of live jobs' current attempts and every other that still holds room."""
        self.nodes: dict[str, Node] = {}
        self.queues: dict[str, Queue] = {}
        self.claims: dict[str, Claim] = {}
        self.reservations: dict[str, Reservation] = {}
        self.schedules: dict[str, Schedule] = {}
        self.tokens: dict[str, Token] = {}
        self._run_times = RunTimes()
        self._learned: set[str] = set()
        """Projects whose last ends from before this process are in there."""
        self._parents: frozenset[str] | None = None
        """Queues that have queues under them; None: to be worked out."""
        self._numbers: dict[int, str] = {}
        self._allocations_by_job: Index = {}
        self._allocations_by_node: Index = {}
        self._jobs_by_queue: Index = {}
        self._waiting: dict[tuple[str, str], int] = {}
        """Jobs that wait, by queue and user; a queue's whole under the empty name."""
        self._elements: dict[str, dict[str, JobState]] = {}
        self._element_counts: dict[str, dict[JobState, int]] = {}
        self._dependents: Index = {}
        self._put_by_type: dict[type, Callable[[Any], None]] = {
            Job: self._put_job,
            Attempt: self._put_attempt,
            Allocation: self._put_allocation,
            Node: self._put_node,
            Queue: self._put_queue,
            Claim: self._put_claim,
            Reservation: self._put_reservation,
            Schedule: self._put_schedule,
            Token: self._put_token,
        }
        # Secrets are left out: they stay sealed in the store until a node asks for one.
        self._load()

    # --- moving forward ---------------------------------------------------------------------------------------------------
    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener(change)` for each change, in order, under the lock; it must be short. Returns the way to stop it."""
        with self._lock:
            self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def catch_up(self) -> int:
        """Takes in what was committed since; gives the version reached."""
        if self._store.version() <= self.version:
            return self.version
        with self._lock:
            while changes := self._read_on():
                for change in changes:
                    self._take_in(change)
                if len(changes) < limits.CHANGES_PER_READ:
                    break
            return self.version

    def _read_on(self) -> tuple[Change, ...]:
        try:
            return self._store.changes_after(self.version, limits.CHANGES_PER_READ)
        except VersionExpired:
            self._jump()
            return self._store.changes_after(self.version, limits.CHANGES_PER_READ)

    def _jump(self) -> None:
        """To a new snapshot. Nothing is emptied on the way: who looks without the lock never misses what is there before and after."""
        arrays = tuple(self._elements)
        change = bridge(self, self._store)
        self.version = change.version  # Before the records, so that jobs count as found and not as born in this change.
        self.jumps += 1
        self._take_in(change)
        for array_id in arrays:  # Of these some elements may have come again and ended otherwise.
            if array_id in self.jobs:
                self._load_elements(self.jobs[array_id])
        self._load_released()

    def _load(self) -> None:
        snapshot = self._store.snapshot()
        records: Iterable[Record] = (
            *snapshot.nodes,
            *snapshot.queues,
            *snapshot.claims,
            *snapshot.reservations,
            *snapshot.schedules,
            *sorted(snapshot.jobs, key=lambda job: not job.is_array),
            *snapshot.attempts,
            *snapshot.allocations,
            *self._store.tokens(),
        )
        self.version = snapshot.version
        for record in records:
            self._put(record)
        self._load_released()

    def _load_elements(self, array: Job) -> None:
        """
        The states of all elements of an array, from the store; those that ended long ago count for its end too.

        They may be newer than the version that is being taken in; being taken in again later does not count them twice.
        """
        before: int | None = None
        while True:
            page = self._store.list_jobs(JobQuery(project=array.project, array=array.number, before=before, limit=limits.PAGE_ROWS_MAX))
            for job in page:
                self._count_element(job)
            if len(page) < limits.PAGE_ROWS_MAX:
                return
            before = page[-1].number

    def _load_released(self) -> None:
        """Members of a live attempt that have given back already: a snapshot has only what holds room, a picture wants all."""
        for job in tuple(self.jobs.values()):
            attempt = self.attempts.get(job.id)
            if attempt is None or job.state in WAITING or len(self.allocations_of(job.id)) == len(attempt.members):
                continue
            picture = self._store.picture(job.id)
            for allocation in picture.allocations if picture is not None else ():
                if allocation.id not in self.allocations:
                    self._put_allocation(allocation)

    def _take_in(self, change: Change) -> None:
        for record in change.put:
            self._put(record)
        for record in change.delete:
            self._drop(record)
        self.version = change.version
        for listener in tuple(self._listeners):
            listener(change)

    def _put(self, record: Record) -> None:
        put = self._put_by_type.get(type(record))
        if put is not None:
            put(record)

    def _put_job(self, job: Job) -> None:
        before = self.jobs.get(job.id)
        self._count_waiting(before, -1)
        self._count_waiting(job, 1)
        if job.array is not None:
            self._count_element(job)
        if job.state in ENDED:
            self._end_job(job, before)
            return
        self.ended.pop(job.id, None)
        self.jobs[job.id] = job
        if before is None:
            self._begin_job(job)
        elif before.queue != job.queue:
            _remove(self._jobs_by_queue, before.queue, job.id)
            _add(self._jobs_by_queue, job.queue, job.id)
        if before is not None and before.attempt != job.attempt:
            self._forget_released(job.id)

    def _count_waiting(self, job: Job | None, sign: int) -> None:
        count = _waiting_of(job) if job is not None else 0
        if job is not None and count:
            for place in ((job.queue, ""), (job.queue, job.owner)):
                self._waiting[place] = self._waiting.get(place, 0) + sign * count
                if not self._waiting[place]:
                    del self._waiting[place]

    def _begin_job(self, job: Job) -> None:
        self._numbers[job.number] = job.id
        _add(self._jobs_by_queue, job.queue, job.id)
        for dependency in job.spec.depends_on:
            _add(self._dependents, dependency.job, job.id)
        if job.attempt and job.version > self.version:
            self._revive(job)
        if job.is_array:
            self._elements[job.id], self._element_counts[job.id] = {}, {}
            if job.version <= self.version or job.observed_generation:  # Not born in this change, but found or come to life again.
                self._load_elements(job)

    def _revive(self, job: Job) -> None:
        """A job that had ended is queued again: its last attempt, which went with its end, is part of its picture."""
        picture = self._store.picture(job.id)
        if picture is not None and picture.attempt is not None:
            self._put_attempt(picture.attempt)

    def _count_element(self, job: Job) -> None:
        """Counts an element for its parent, which comes before it; of an array that has ended nobody asks."""
        assert job.array is not None
        elements = self._elements.get(job.array.array_id)
        if elements is None:
            return
        counts = self._element_counts[job.array.array_id]
        before = elements.get(job.id)
        if before is not None:
            counts[before] -= 1
        elements[job.id] = job.state
        counts[job.state] = counts.get(job.state, 0) + 1

    def expected_ms(self, project: str, owner: str, spec: JobSpec) -> int | None:
        """How long runs of this kind took of late; None where none is known. The first question of a project reads a page of its jobs."""
        with self._lock:
            if project not in self._learned:
                self._learned.add(project)
                page = self._store.list_jobs(JobQuery(project=project, states=tuple(ENDED), limit=limits.PAGE_ROWS_MAX))
                for job in sorted(page, key=lambda job: (job.ended_ms or 0, job.id)):
                    self._run_times.note(job)
            return self._run_times.expected_ms(project, owner, spec)

    def _end_job(self, job: Job, before: Job | None) -> None:
        self.ended[job.id] = job
        self._run_times.note(job)
        self._numbers[job.number] = job.id
        while len(self.ended) > limits.ENDED_JOBS_KEPT_MAX:
            _, oldest = self.ended.popitem(last=False)
            self._numbers.pop(oldest.number, None)
        if job.is_array:
            self._elements.pop(job.id, None)
            self._element_counts.pop(job.id, None)
        if before is None:
            return
        del self.jobs[job.id]
        _remove(self._jobs_by_queue, before.queue, job.id)
        for dependency in job.spec.depends_on:
            _remove(self._dependents, dependency.job, job.id)
        self.attempts.pop(job.id, None)
        self._forget_released(job.id)

    def _forget_released(self, job_id: str) -> None:
        for allocation in self.allocations_of(job_id):
            if allocation.state not in HOLDING:
                self._forget_allocation(allocation)

    def _put_attempt(self, attempt: Attempt) -> None:
        known = self.attempts.get(attempt.job)
        if attempt.job in self.jobs and (known is None or known.number <= attempt.number):
            self.attempts[attempt.job] = attempt

    def _put_allocation(self, allocation: Allocation) -> None:
        job = self.jobs.get(allocation.job)
        if allocation.state in HOLDING or (job is not None and job.attempt == allocation.attempt):
            self.allocations[allocation.id] = allocation
            _add(self._allocations_by_job, allocation.job, allocation.id)
        else:
            self._forget_allocation(allocation)
        if allocation.state in HOLDING:
            _add(self._allocations_by_node, allocation.node, allocation.id)
        else:
            _remove(self._allocations_by_node, allocation.node, allocation.id)

    def _forget_allocation(self, allocation: Allocation) -> None:
        self.allocations.pop(allocation.id, None)
        _remove(self._allocations_by_job, allocation.job, allocation.id)
        _remove(self._allocations_by_node, allocation.node, allocation.id)

    def _put_node(self, node: Node) -> None:
        self.nodes[node.id] = node

    def _put_queue(self, queue: Queue) -> None:
        self.queues[queue.id] = queue
        self._parents = None

    def _put_claim(self, claim: Claim) -> None:
        self.claims[claim.id] = claim

    def _put_reservation(self, reservation: Reservation) -> None:
        self.reservations[reservation.id] = reservation

    def _put_schedule(self, schedule: Schedule) -> None:
        self.schedules[schedule.id] = schedule

    def _put_token(self, token: Token) -> None:
        self.tokens[token.id] = token

    def _drop(self, record: Record) -> None:
        if isinstance(record, Job):
            self._drop_job(record)
        elif isinstance(record, Allocation):
            self._forget_allocation(record)
        elif isinstance(record, Attempt):
            known = self.attempts.get(record.job)
            if known is not None and known.number == record.number:
                del self.attempts[record.job]
        else:
            table = self._table(record)
            if table is not None:
                table.pop(record.id, None)
            self._parents = None

    def _drop_job(self, job: Job) -> None:
        if job.id in self.jobs:
            self._end_job(job, self.jobs[job.id])
        self.ended.pop(job.id, None)
        self._numbers.pop(job.number, None)

    def _table(self, record: Record) -> dict[str, Any] | None:
        if isinstance(record, Node):
            return self.nodes
        if isinstance(record, Queue):
            return self.queues
        if isinstance(record, Claim):
            return self.claims
        if isinstance(record, Reservation):
            return self.reservations
        if isinstance(record, Schedule):
            return self.schedules
        return self.tokens if isinstance(record, Token) else None

    # --- looking ----------------------------------------------------------------------------------------------------------
    def is_parent(self, queue: str) -> bool:
        """Whether the queue has queues under it. Asked for every job that is submitted."""
        parents = self._parents
        if parents is None:
            with self._lock:
                parents = self._parents = frozenset(other.spec.parent for other in self.queues.values() if other.spec.parent)
        return queue in parents

    def job(self, job_id: str) -> Job | None:
        """A live job or a recently ended one."""
        return self.jobs.get(job_id) or self.ended.get(job_id)

    def job_numbered(self, number: int) -> Job | None:
        job_id = self._numbers.get(number)
        return None if job_id is None else self.job(job_id)

    def picture(self, job_id: str) -> Picture | None:
        """A live job with its current attempt and that attempt's allocations, all of one version."""
        with self._lock:
            job = self.jobs.get(job_id)
            if job is None:
                return None
            mine = tuple(a for a in self.allocations_of(job_id) if a.attempt == job.attempt)
            return Picture(job=job, attempt=self.attempts.get(job_id), allocations=mine)

    def allocations_of(self, job_id: str) -> tuple[Allocation, ...]:
        """Known allocations of a job, in the order in which they were made."""
        with self._lock:
            return tuple(self.allocations[a] for a in self._allocations_by_job.get(job_id, ()))

    def live_on(self, node_id: str) -> tuple[Allocation, ...]:
        """Allocations that hold room on a node."""
        with self._lock:
            return tuple(self.allocations[a] for a in self._allocations_by_node.get(node_id, ()))

    def waiting_in(self, queue: str, owner: str = "") -> int:
        """Jobs of a queue that wait, elements of arrays each; of one user alone where one is named."""
        return self._waiting.get((queue, owner), 0)

    def jobs_in(self, queue: str) -> tuple[str, ...]:
        """Ids of live jobs of a queue."""
        with self._lock:
            return tuple(self._jobs_by_queue.get(queue, ()))

    def live_elements(self, array_id: str) -> tuple[str, ...]:
        """Ids of an array's elements that have not ended."""
        with self._lock:
            return tuple(job_id for job_id, state in self._elements.get(array_id, {}).items() if state not in ENDED)

    def element_counts(self, array_id: str) -> Mapping[JobState, int] | None:
        """How many elements of a live array are in each state; None for one that has ended."""
        with self._lock:
            counts = self._element_counts.get(array_id)
            return None if counts is None else {state: count for state, count in counts.items() if count}

    def dependents_of(self, job_id: str) -> tuple[str, ...]:
        """Ids of live jobs that wait for this one."""
        with self._lock:
            return tuple(self._dependents.get(job_id, ()))

    def records(self) -> Snapshot:
        """Everything live at one version, as a Snapshot. For checks and tests: it costs the whole world."""
        with self._lock:
            return Snapshot(
                version=self.version,
                jobs=_by_id(self.jobs),
                attempts=tuple(sorted(self.attempts.values(), key=lambda attempt: attempt.id)),
                allocations=tuple(a for a in _by_id(self.allocations) if a.state in HOLDING),
                nodes=_by_id(self.nodes),
                queues=_by_id(self.queues),
                claims=_by_id(self.claims),
                reservations=_by_id(self.reservations),
                schedules=_by_id(self.schedules),
            )


def _waiting_of(job: Job) -> int:
    if job.is_array:
        return unborn_count(job) if job.state not in ENDED and job.cancel is CancelMode.NONE else 0
    return 1 if job.state in WAITING else 0


def _add(index: Index, key: str, value: str) -> None:
    index.setdefault(key, {})[value] = None


def _remove(index: Index, key: str, value: str) -> None:
    held = index.get(key)
    if held is not None:
        held.pop(value, None)
        if not held:
            del index[key]


def _by_id(table: Mapping[str, R]) -> tuple[R, ...]:
    return tuple(table[key] for key in sorted(table))

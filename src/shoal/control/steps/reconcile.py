"""
What time and others' ends bring about: starts that are late, time limits, arrays that follow their elements, what was asked of many.

Costs what changed and what is due: deadlines lie in a heap, pushed when a change brings them and looked at again when they are due.
"""

from __future__ import annotations

import heapq
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from shoal.base import limits
from shoal.base.errors import Conflict, NotFound
from shoal.control.answers import done, gather
from shoal.control.jobs import advance
from shoal.control.lanes import JobSubject
from shoal.control.steps.base import Progress
from shoal.lifecycle.array import advance_array, array_state, counted, worst_end
from shoal.lifecycle.job import advance_all, next_due_ms, time_events
from shoal.model.attempt import Attempt
from shoal.model.change import Change, ChangeSet
from shoal.model.event import CancelRequested, Event
from shoal.model.job import ENDED, LIVE, CancelMode, Job, JobState
from shoal.model.snapshot import Picture
from shoal.store.protocol import JobQuery

if TYPE_CHECKING:
    from shoal.control.plane import Plane


@dataclass(slots=True)
class _Errand:
    """One event for many jobs; `answer` is done, with their count, when all have it."""

    jobs: deque[str]
    event: Event
    by: str
    answer: Future[int] = field(default_factory=Future)
    count: int = 0

    def __post_init__(self) -> None:
        self.answer.set_running_or_notify_cancel()


class ReconcileStep:
    """See module. `errand` may be called from any thread, `step` from one."""

    name = "reconcile"

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._touched: dict[str, None] = {}
        """Jobs whose deadline may have moved."""
        self._due: list[tuple[int, str]] = []
        self._arrays: dict[str, None] = {}
        """Arrays whose elements moved."""
        self._errands: deque[_Errand] = deque()
        world = plane.world
        for job in tuple(world.jobs.values()):
            self._note_job(job)
        world.on_change(self._note)

    def errand(self, jobs: tuple[str, ...], event: Event, by: str) -> Future[int]:
        """`event` for each of `jobs`, some hundred at each step. Those whose state does not take it are passed over."""
        if not jobs:
            return done(0)
        errand = _Errand(deque(jobs), event, by)
        self._errands.append(errand)
        self._plane.wake()
        return errand.answer

    def step(self, now_ms: int) -> Progress:
        """Everything that is due, and one bite of what was asked of many."""
        self._plane.world.catch_up()
        writes: list[Future[Any]] = [*self._late(now_ms), *self._follow_elements(now_ms), *self._run_errands()]
        self._plane.await_all(writes)
        again = now_ms if self._errands else None
        return Progress(len(writes), again) + Progress(0, self._due[0][0] if self._due else None)

    # --- taking notes (under the world's lock: short) ------------------------------------------------------------------------
    def _note(self, change: Change) -> None:
        for record in change.put:
            if isinstance(record, Job):
                self._note_job(record)
            elif isinstance(record, Attempt):
                self._touched[record.job] = None

    def _note_job(self, job: Job) -> None:
        if job.state in LIVE:
            self._touched[job.id] = None
        if job.array is not None:
            self._arrays[job.array.array_id] = None
        elif job.is_array and job.state not in ENDED:
            self._arrays[job.id] = None

    # --- deadlines -----------------------------------------------------------------------------------------------------------
    def _late(self, now_ms: int) -> list[Future[Picture | None]]:
        """What the clock alone brings about by now."""
        touched, self._touched = self._touched, {}
        for job_id in touched:
            self._set_alarm(job_id)
        writes: list[Future[Picture | None]] = []
        while self._due and self._due[0][0] <= now_ms:
            _, job_id = heapq.heappop(self._due)
            picture = self._plane.world.picture(job_id)
            if picture is not None and time_events(picture, now_ms):
                self._touched[job_id] = None  # A write that fails changes no record, and nothing else would look at the deadline again.
                writes.append(self._plane.lanes.ask(self._subject(job_id), partial(self._judge_time, now_ms)))
        return writes

    def _set_alarm(self, job_id: str) -> None:
        picture = self._plane.world.picture(job_id)
        due_ms = next_due_ms(picture) if picture is not None else None
        if due_ms is not None:
            heapq.heappush(self._due, (due_ms, job_id))

    def _judge_time(self, now_ms: int, picture: Picture | None) -> ChangeSet:
        if picture is None:
            return ChangeSet()
        return advance_all(picture, time_events(picture, now_ms), now_ms, self._plane.terms)

    def _subject(self, job_id: str) -> JobSubject:
        return JobSubject(self._plane.world, self._plane.store, job_id)

    # --- arrays --------------------------------------------------------------------------------------------------------------
    def _follow_elements(self, now_ms: int) -> list[Future[Picture | None]]:
        """Parents brought in line with their elements; a parent's wish to be cancelled handed on to them."""
        arrays, self._arrays = self._arrays, {}
        writes: list[Future[Picture | None]] = []
        for array_id in arrays:
            parent = self._plane.world.jobs.get(array_id)
            if parent is not None and parent.cancel is not CancelMode.NONE:
                self._hand_on_cancel(parent)
            counts = self._counts(array_id, parent)
            if counts and (parent is None or array_state(counts) is not parent.state):
                self._arrays[array_id] = None
                writes.append(self._plane.lanes.ask(self._subject(array_id), partial(self._judge_array, counts, now_ms)))
        return writes

    def _counts(self, array_id: str, parent: Job | None) -> dict[JobState, int]:
        """
        By the world for a live array; by the store for one that ended and of which an element came back.

        The parent was read before the counts: an element born in between is counted twice, never left out.
        """
        known = self._plane.world.element_counts(array_id) if parent is not None else None
        counts = known if known is not None else self._plane.store.count_elements(array_id)
        read = parent or JobSubject(self._plane.world, self._plane.store, array_id).read()
        of_array = read.job if isinstance(read, Picture) else read
        return dict(counts) if of_array is None else counted(of_array, counts)

    def _judge_array(self, counts: dict[JobState, int], now_ms: int, picture: Picture | None) -> ChangeSet:
        if picture is None:
            return ChangeSet()
        worst = worst_end(self._elements(picture.job)) if array_state(counts) in ENDED else None
        return advance_array(picture.job, counts, worst, now_ms)

    def _elements(self, parent: Job) -> list[Job]:
        found: list[Job] = []
        before: int | None = None
        while True:
            query = JobQuery(project=parent.project, array=parent.number, before=before, limit=limits.PAGE_ROWS_MAX)
            page = self._plane.store.list_jobs(query)
            found.extend(page)
            if len(page) < limits.PAGE_ROWS_MAX:
                return found
            before = page[-1].number

    def _hand_on_cancel(self, parent: Job) -> None:
        """The parent's wish is what a restart finds; elements that have heard it as strong are left alone."""
        if any(errand.event == self._cancel_of(parent) and errand.jobs for errand in self._errands):
            return
        world = self._plane.world
        behind = tuple(e for e in world.live_elements(parent.id) if _weaker(world.jobs.get(e), parent.cancel))
        if behind:
            self._errands.append(_Errand(deque(behind), self._cancel_of(parent), parent.cancel_by or "shoal"))

    @staticmethod
    def _cancel_of(parent: Job) -> CancelRequested:
        return CancelRequested(mode=parent.cancel, reason=parent.cancel_reason or f"array {parent.address} was cancelled")

    # --- what was asked of many ----------------------------------------------------------------------------------------------
    def _run_errands(self) -> list[Future[None]]:
        """One bite of the first errand."""
        if not self._errands:
            return []
        errand = self._errands[0]
        writes = [self._run(errand, errand.jobs.popleft()) for _ in range(min(len(errand.jobs), limits.ERRAND_JOBS_PER_STEP))]
        if not errand.jobs:
            self._errands.popleft()
            gather(writes).add_done_callback(lambda _: errand.answer.set_result(errand.count))
        return writes

    def _run(self, errand: _Errand, job_id: str) -> Future[None]:
        passed: Future[None] = Future()
        passed.set_running_or_notify_cancel()

        def end(ended: Future[Job]) -> None:
            error = ended.exception()
            if error is None:
                errand.count += 1
            if error is None or isinstance(error, Conflict | NotFound):
                passed.set_result(None)
            else:
                self._look_again(job_id)
                passed.set_exception(error)

        advance(self._plane, job_id, errand.event, errand.by).add_done_callback(end)
        return passed

    def _look_again(self, job_id: str) -> None:
        """An element has not heard what its array was asked: the wish in the parent's record is handed on once more."""
        job = self._plane.world.jobs.get(job_id)
        if job is not None and job.array is not None:
            self._arrays[job.array.array_id] = None


def _weaker(job: Job | None, mode: CancelMode) -> bool:
    order = (CancelMode.NONE, CancelMode.GRACEFUL, CancelMode.FORCE)
    return job is not None and order.index(job.cancel) < order.index(mode)

"""
START HERE. A workload played on virtual time: the same cycle, the same lifecycle and the same board as in life, with a list of events in
place of stores, networks and processes.

    one instant:   1. what machines say (ends first, as they were due), what time brings (limits, leases)
                   2. jobs that arrive
                   3. what people do: quota, nodes, cancel and the like
                   4. cycles until one places nothing more; what machines answer at once comes in between

Deterministic to the byte: order is by time, then kind, then (with `Course.shuffle`) a number drawn from the seed, then the order in which
things were planned. `Course.check` looks at everything after every write: INV of the records, each plan before it is enacted, and the
board against one built anew. Without it, what machines answer at once is judged and written together with what caused it, which is what
a large trace can pay; every judgement is the lifecycle's own either way.

Called by `simulate` (traces) and `scenario` (files with expectations). Cost: about what the lifecycle and the board cost; see
docs/howto/simulate.md for figures.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from shoal.base.errors import InvariantViolated
from shoal.base.rng import Rng
from shoal.formats.workload import TraceJob
from shoal.lifecycle.array import advance_array, array_state, bear, counted, new_array, worst_end
from shoal.lifecycle.claims import claims_of_plan, stale_claims
from shoal.lifecycle.enact import enact_evict, enact_place, enact_resize
from shoal.lifecycle.job import Origin, advance_all, job_of, new_job, next_due_ms, time_events
from shoal.lifecycle.picture import merged, moved
from shoal.model.array import element_id
from shoal.model.attempt import HOLDING
from shoal.model.change import ChangeSet
from shoal.model.command import CommandRow
from shoal.model.event import Checkpointed, Event, Report
from shoal.model.job import ENDED, WAITING, Job, JobSpec
from shoal.model.node import Node
from shoal.model.plan import Evict, Move, Place, Plan, Resize
from shoal.model.queue import Queue
from shoal.model.snapshot import Picture
from shoal.model.wire import LeaseTerms
from shoal.scheduling.board import Board
from shoal.scheduling.check import check_plan, check_snapshot
from shoal.scheduling.cycle import schedule
from shoal.scheduling.forecasts import Forecasts
from shoal.scheduling.policy import Policy
from shoal.scheduling.runtimes import RunTimes
from shoal.sim.machines import Machines, Reports
from shoal.sim.record import Record
from shoal.sim.world import World

BASE_MS = 1_735_689_600_000
"""2025-01-01T00:00:00Z: what time 0 of a trace is to the lifecycle, for which 0 means "never"."""
ID_PREFIX = "job-"
ROUNDS_PER_INSTANT_MAX = 10_000
"""Cycles and answers at one moment; more means that something starts and stops for ever while time stands still."""
REPORTS, TIMERS, SUBMITS, DEEDS = range(4)
"""Kinds of events in the order in which those of one moment happen."""

Deed = Callable[["Replay"], None]
"""What somebody does at a moment: makes changes through the replay's methods."""


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """How to play: with which policy, from which seed, how closely watched."""

    policy: Policy = Policy()
    seed: int = 0
    shuffle: bool = False
    """Draw the order of arrivals and of reports of one moment from the seed."""
    check: bool = False
    """Look at every invariant after every write."""
    keep_ended: bool = False
    terms: LeaseTerms = LeaseTerms()


class Replay:
    """See module. `world` and `record` are for reading; `at_rest` is called when all of an instant has happened."""

    def __init__(self, nodes: Iterable[Node], queues: Iterable[Queue], jobs: Iterable[TraceJob], course: Course) -> None:
        self.course = course
        self.world = World(nodes, queues, keep_ended=course.keep_ended)
        self.machines = Machines()
        self.record = Record(self.world)
        self.forecasts = Forecasts()
        self.run_times = RunTimes()
        self._by_history = course.policy.estimate == "history"
        if self._by_history:
            self.world.on_end = self._note_end
        self.now_ms = BASE_MS
        self.cycles = 0
        self.events = 0
        """Arrivals of jobs, reports of gangs that came later than what caused them, times that were up, and deeds."""
        self.evictions = 0
        self.moves = 0
        self.at_rest: Callable[[Replay], None] | None = None
        self._rng = Rng(course.seed)
        self._order = self._rng.stream("order")
        self._cycle_rng = self._rng.stream("cycle")
        self._heap: list[tuple[int, int, int, int, Any]] = []
        self._planned = 0
        self._jobs = self._arranged(jobs)
        self._arrived = 0
        self._numbers = 0
        self.ids: dict[str, str] = {}
        """With `Course.keep_ended`: ids of jobs by name."""
        self._dirty = True
        self._wake_ms: int | None = None

    def _note_end(self, job: Job) -> None:
        self.record.note(job)
        self.run_times.note(job)

    # --- running -----------------------------------------------------------------------------------------------------------
    def run(self, until_ms: int | None = None) -> None:
        """Plays on until nothing is left to happen, or through `until_ms` (from the start of the trace)."""
        end_ms = None if until_ms is None else BASE_MS + until_ms
        while (at_ms := self._next_ms()) is not None and (end_ms is None or at_ms <= end_ms):
            self.record.pass_time(at_ms - BASE_MS)
            self.now_ms = at_ms
            self._instant()
        if end_ms is not None:
            self.record.pass_time(end_ms - BASE_MS)
            self.now_ms = max(self.now_ms, end_ms)

    def plan_deed(self, at_ms: int, deed: Deed, kind: int = DEEDS) -> None:
        """Something that will be done at `at_ms` from the start of the trace."""
        self._push(BASE_MS + at_ms, kind, deed)

    @property
    def time_ms(self) -> int:
        """Now, from the start of the trace."""
        return self.now_ms - BASE_MS

    @property
    def arrived(self) -> int:
        """Jobs of the trace that have arrived so far."""
        return self._arrived

    def _next_ms(self) -> int | None:
        while self._heap and self._is_over(self._heap[0][4]):
            heapq.heappop(self._heap)
        times = [self._heap[0][0]] if self._heap else []
        if self._arrived < len(self._jobs):
            times.append(BASE_MS + self._jobs[self._arrived].submit_ms)
        if self._wake_ms is not None:
            times.append(max(self._wake_ms, self.now_ms + 1))
        if self._dirty:
            times.append(self.now_ms)
        return min(times, default=None)

    def _is_over(self, what: Any) -> bool:
        """Whether something planned has become pointless: time must not go on for its sake."""
        if isinstance(what, Reports):
            return self.machines.is_void(what)
        if not isinstance(what, str):
            return False
        picture = self.world.picture(what)
        return picture is None or next_due_ms(picture) is None

    def _instant(self) -> None:
        for _ in range(ROUNDS_PER_INSTANT_MAX):
            self._happen()
            due = self._wake_ms is not None and self._wake_ms <= self.now_ms
            if not self._dirty and not due:
                break
            self.cycle()
        else:
            raise InvariantViolated(f"time stands still at {self.time_ms} ms: {ROUNDS_PER_INSTANT_MAX:,} rounds without an end")
        if self.at_rest is not None:
            self.at_rest(self)

    def _happen(self) -> None:
        """Everything that is due now, in the order of kinds; what it leads to at once included."""
        while True:
            due = self._heap[0] if self._heap and self._heap[0][0] <= self.now_ms else None
            if due is not None and due[1] < SUBMITS:
                self._take(heapq.heappop(self._heap)[4])
            elif self._arrived < len(self._jobs) and BASE_MS + self._jobs[self._arrived].submit_ms <= self.now_ms:
                self._arrive()
            elif due is not None:
                self._take(heapq.heappop(self._heap)[4])
            else:
                return

    def _take(self, what: Any) -> None:
        self.events += 1
        if isinstance(what, Reports):
            self._hear(what.job, self._said(what))
        elif isinstance(what, str):
            self._tick(what)
        else:
            what(self)

    def _push(self, at_ms: int, kind: int, what: Any) -> None:
        draw = self._order.next64() if self.course.shuffle and kind <= SUBMITS else 0
        self._planned += 1
        heapq.heappush(self._heap, (at_ms, kind, draw, self._planned, what))

    def _arranged(self, jobs: Iterable[TraceJob]) -> tuple[TraceJob, ...]:
        listed = list(jobs)
        if self.course.shuffle:
            self._rng.stream("arrivals").shuffle(listed)
        ordered = sorted(listed, key=lambda job: job.submit_ms)
        if any(job.spec.depends_on for job in ordered):
            ordered = _after_what_they_name(ordered)
        return tuple(ordered)

    # --- the cycle ---------------------------------------------------------------------------------------------------------
    def cycle(self) -> None:
        """One cycle, carried out. With nobody pending there is nothing to judge."""
        self._dirty, self._wake_ms = False, None
        board = self.world.board
        if self.world.claims:
            self._drop_stale_claims()
        if not len(board.pending) and not board.horizon.elastic and not self.course.check:
            return
        self.cycles += 1
        plan = schedule(board, self.course.policy, self.now_ms, self._cycle_rng)
        self._wake_ms = plan.next_at_ms
        self.record.forecast_error.extend([missed.error_ms for missed in self.forecasts.follow(plan, board.jobs)])
        for array_id, positions in board.unborn_in(plan).items():
            self._write(bear(self.world.jobs[array_id], positions))
        if self.course.check:
            self._check_plan(plan)
        self._claim(plan)
        acted = False
        for decision in plan.decisions:
            if isinstance(decision, Place):
                self._place(decision)
                acted = True
            elif isinstance(decision, Evict | Move):
                self._evict(decision)
                acted = True
            elif isinstance(decision, Resize):
                self._resize(decision)
                acted = True
        if acted and board.gates:
            self._dirty = True  # somebody may have waited for a start

    def _claim(self, plan: Plan) -> None:
        """Room is kept for gainers and for who is moved before the first is told; the clock comes back when a claim is over."""
        if any(isinstance(decision, Evict | Move | Resize) for decision in plan.decisions):
            self._write(ChangeSet(put=claims_of_plan(plan, self.world.jobs.get, self.now_ms + self.course.policy.claim_ms, 1)))
        if self.world.claims:
            first_ms = min(claim.expires_ms for claim in self.world.claims.values())
            self._wake_ms = first_ms if self._wake_ms is None else min(self._wake_ms, first_ms)

    def _drop_stale_claims(self) -> None:
        stale = stale_claims(self.world.claims.values(), self.world.jobs, self.now_ms)
        if stale:
            self._write(ChangeSet(delete=stale))

    def _place(self, place: Place) -> None:
        job = self.world.jobs[place.job]
        changes = enact_place(place, job, self.world.nodes, self.now_ms, self.course.terms)
        if self.world.claims:
            mine = tuple(claim for claim in self.world.claims.values() if claim.job == place.job)
            changes = replace(changes, delete=(*changes.delete, *mine))
        self._carry_out(Picture(job=job), changes, dirty=self.course.check)

    def _evict(self, evict: Evict | Move) -> None:
        picture = self.world.picture(evict.job)
        if picture is not None:
            self.evictions += isinstance(evict, Evict)
            self.moves += isinstance(evict, Move)
            self.record.note_eviction(picture, self.now_ms)
            self._carry_out(picture, enact_evict(evict, picture, self.now_ms, self.course.terms))

    def _resize(self, resize: Resize) -> None:
        picture = self.world.picture(resize.job)
        if picture is None:
            return
        if resize.beneficiary is not None:
            nodes = {member.node for member in resize.members}
            self.evictions += sum(1 for a in picture.allocations if a.node not in nodes and a.state in HOLDING and not a.leaving)
        self._carry_out(picture, enact_resize(resize, picture, self.world.nodes, self.now_ms, self.course.terms))

    # --- events ------------------------------------------------------------------------------------------------------------
    def tell(self, job_id: str, events: Iterable[Event], by: str = "shoal") -> None:
        """What these events make of a job is made true. Raises what the lifecycle raises for a verb that does not fit."""
        picture = self.world.picture(job_id)
        if picture is not None:
            changes = advance_all(picture, events, self.now_ms, self.course.terms, by)
            self._carry_out(picture, changes)

    def write(self, changes: ChangeSet) -> None:
        """Makes true what is no job's own: nodes, queues."""
        if not changes.empty:
            self._write(changes)
            self._dirty = True

    def obey(self, rows: Iterable[CommandRow]) -> None:
        """Commands reach their machines."""
        self.expect_reports(self.machines.answer(rows, self.now_ms))

    def expect_reports(self, coming: Iterable[Reports]) -> None:
        """Machines will say this, each at its time."""
        for said in coming:
            self._push(said.at_ms, REPORTS, said)

    def _said(self, coming: Reports) -> tuple[Report, ...]:
        """What is said now of what was to be said."""
        said = self.machines.still_true(coming)
        if any(isinstance(report, Checkpointed) for report in said):
            self.record.note_saved(coming.job)
        return said

    def _hear(self, job_id: str, reports: tuple[Event, ...]) -> None:
        if not self.course.check:
            self.tell(job_id, reports)
            return
        for report in self._interleaved(reports):
            self.tell(job_id, (report,))

    def _interleaved(self, reports: tuple[Event, ...]) -> list[Event]:
        """Reports of one moment in another order, those of each member in their own."""
        if not self.course.shuffle:
            return list(reports)
        by_member: dict[str, list[Event]] = {}
        for report in reports:
            by_member.setdefault(report.allocation, []).append(report)  # type: ignore[union-attr]
        turns = [member for member, said in by_member.items() for _ in said]
        self._order.shuffle(turns)
        return [by_member[member].pop(0) for member in turns]

    def _carry_out(self, picture: Picture, changes: ChangeSet, dirty: bool = True) -> None:
        """
        Writes what one job's events led to, and plans what its machines will answer.

        Unless everything is to be looked at step by step, answers of this very moment are judged before the write and go into it.
        """
        if changes.empty:
            return
        later: list[Reports] = []
        coming = self.machines.answer(changes.commands, self.now_ms)
        while coming and not self.course.check:
            at_once = [said for said in coming if said.at_ms <= self.now_ms and not said.ends]
            later += [said for said in coming if said.at_ms > self.now_ms or said.ends]
            reports = tuple(report for said in at_once for report in self._said(said))
            if not reports:
                coming = ()
                break
            after = moved(picture, changes)
            step = advance_all(after, reports, self.now_ms, self.course.terms)
            changes = merged(changes, step)
            coming = self.machines.answer(step.commands, self.now_ms)
        self._write(changes)
        self.expect_reports((*later, *coming))
        self._set_timer(picture.job.id)
        self._dirty = self._dirty or dirty

    def _set_timer(self, job_id: str) -> None:
        """Plans the next thing that the clock alone brings about for this job, where it does."""
        job = self.world.jobs.get(job_id)
        if job is None or job.is_array or job.state in WAITING:
            return
        told = self.machines.told[job_id]
        due_ms = next_due_ms(Picture(job=job, attempt=self.world.attempts.get(job_id)))
        if due_ms is None:
            return
        started_ms = job.started_ms
        ends_before = started_ms is not None and told.run_ms is not None and started_ms + told.run_ms <= due_ms
        if not ends_before or self.machines.silent or self.course.check:
            self._push(due_ms, TIMERS, job_id)

    def _tick(self, job_id: str) -> None:
        """The clock has come to a moment that was planned for this job; most often it is over."""
        picture = self.world.picture(job_id)
        if picture is not None and picture.job.state not in ENDED:
            events = time_events(picture, self.now_ms)
            if events:
                self.tell(job_id, events)

    # --- arrivals ----------------------------------------------------------------------------------------------------------
    def _arrive(self) -> None:
        """All jobs of this moment, in one write."""
        births: list[ChangeSet] = []
        dependent = False
        while self._arrived < len(self._jobs) and BASE_MS + self._jobs[self._arrived].submit_ms <= self.now_ms:
            told = self._jobs[self._arrived]
            self._arrived += 1
            self.events += 1
            births.append(self._born(told))
            dependent = dependent or bool(told.spec.depends_on)
        put = tuple(record for birth in births for record in birth.put)
        self._write(ChangeSet(put=put, events=tuple(row for birth in births for row in birth.events)))
        if dependent:
            self.world.learn_dependencies()
        self._dirty = True

    def _born(self, told: TraceJob) -> ChangeSet:
        self._numbers += 1
        queue = self.world.queues.get(told.queue)
        origin = Origin(
            id=id_of(self._numbers),
            number=self._numbers,
            project=told.project,
            owner=told.owner,
            queue=told.queue,
            now_ms=self.now_ms,
            default_time_ms=told.limit_ms if told.limit_ms is not None or queue is None else queue.spec.default_time_ms,
            expected_ms=self.run_times.expected_ms(told.project, told.owner, told.spec) if self._by_history else None,
        )
        spec = self._resolved(told)
        if self.course.keep_ended:
            self.ids[spec.name] = origin.id
        if spec.array is None:
            self.machines.told[origin.id] = told
            if self.world.listeners:
                return new_job(spec, origin)
            return ChangeSet(put=(job_of(spec, origin),))
        count = len(spec.array.indices)
        self._numbers += count
        for position in range(count):
            self.machines.told[element_id(origin.id, position)] = told
        return new_array(spec, origin)

    def _resolved(self, told: TraceJob) -> JobSpec:
        """The spec with dependencies as ids: a file knows jobs by their names. One that has not arrived yet is waited for by no id."""
        if not told.spec.depends_on:
            return told.spec
        named = tuple(replace(one, job=self.ids.get(one.job, one.job)) for one in told.spec.depends_on)
        return replace(told.spec, depends_on=named)

    # --- writing -----------------------------------------------------------------------------------------------------------
    def _write(self, changes: ChangeSet) -> None:
        self.world.write(changes)
        if self.world.arrays_moved:
            self._advance_arrays()
        if self.course.check and any(not isinstance(record, Job) or record.attempt for record in (*changes.put, *changes.delete)):
            self._check()  # a job that has never been placed can break nothing, and thousands of them arrive at once

    def _advance_arrays(self) -> None:
        moved_now, self.world.arrays_moved = self.world.arrays_moved, {}
        for array_id in moved_now:
            parent = self.world.jobs.get(array_id)
            if parent is None:
                continue
            counts = counted(parent, self.world.array_counts.get(array_id, {}))
            over = array_state(counts) in ENDED
            elements = [job for job in self.world.ended.values() if job.array is not None and job.array.array_id == array_id]
            step = advance_array(parent, counts, worst_end(elements) if over else None, self.now_ms)
            if not step.empty:
                self.world.write(step)
                self._dirty = True

    def _check(self) -> None:
        snapshot = self.world.snapshot()
        faults = list(check_snapshot(snapshot))
        faults += self.world.miscounted(snapshot)
        if faults:
            raise InvariantViolated(f"at {self.time_ms} ms: {'; '.join(faults)}")

    def _check_plan(self, plan: Plan) -> None:
        snapshot = self.world.snapshot()
        faults = list(check_plan(snapshot, plan))
        rebuilt = Board.of(snapshot)
        rebuilt.use_policy(self.course.policy)
        rebuilt.horizon.outlive(self.world.board.horizon.now_ms)
        rebuilt.pending.advance(self.now_ms)
        if rebuilt != self.world.board:
            faults.append("the board that was moved differs from one built anew")
        if faults:
            raise InvariantViolated(f"at {self.time_ms} ms, cycle {self.cycles}: {'; '.join(faults)}")


def id_of(number: int) -> str:
    """The id of a replay's job: its number, so that equal scores fall to the earlier one as with ids that rise with time."""
    return f"{ID_PREFIX}{number:08}"


def _after_what_they_name(jobs: list[TraceJob]) -> list[TraceJob]:
    """Jobs in this order, but none before one that it depends on: nobody can name a job that is not there yet."""
    waiting: dict[str, list[TraceJob]] = {}
    named = {job.spec.name for job in jobs}
    arrived: set[str] = set()
    ordered: list[TraceJob] = []
    for job in jobs:
        ready = [job]
        while ready:
            one = ready.pop(0)
            missing = next((d.job for d in one.spec.depends_on if d.job in named and d.job not in arrived), None)
            if missing is not None:
                waiting.setdefault(missing, []).append(one)
                continue
            ordered.append(one)
            arrived.add(one.spec.name)
            ready += waiting.pop(one.spec.name, [])
    return ordered

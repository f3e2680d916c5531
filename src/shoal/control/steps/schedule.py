"""
The cycle in life: the board moved forward by what was committed, judged, the plan checked by one who did not make it, and enacted.

Runs only when something changed that could start a job, or when the plan's own time has come. Each placed gang is one ChangeSet in its
job's lane; the step waits for all of them together, so that the next cycle sees them. A job that changed since it was planned is
passed over: the change itself brings the next cycle.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shoal import __version__
from shoal.base import limits
from shoal.base.errors import InvariantViolated, VersionExpired
from shoal.base.rng import Rng
from shoal.control.elements import births
from shoal.control.lanes import JobSubject
from shoal.control.steps.base import Progress
from shoal.control.world import World
from shoal.lifecycle.claims import claims_of_plan, stale_claims
from shoal.lifecycle.enact import enact_evict, enact_place, enact_resize
from shoal.model.attempt import HOLDING, Allocation, Attempt
from shoal.model.change import Change, ChangeSet
from shoal.model.job import LIVE, Job
from shoal.model.node import NodeState
from shoal.model.plan import Delegate, Evict, Move, Place, Plan, Resize
from shoal.model.reason import Reason
from shoal.model.snapshot import Picture
from shoal.model.wire import Explanation, QueueView
from shoal.scheduling.board import Board
from shoal.scheduling.brief import brief_reasons
from shoal.scheduling.check import check_plan
from shoal.scheduling.cycle import schedule
from shoal.scheduling.explain import explain_job
from shoal.scheduling.forecasts import Forecasts
from shoal.scheduling.scene import Scene
from shoal.scheduling.views import queue_views

if TYPE_CHECKING:
    from shoal.control.plane import Plane

_NOT_CARRIED_OUT = (Delegate,)


class ScheduleStep:
    """See module. `step` from one thread; `explain` and `queue_views` from any, waiting for a cycle that runs."""

    name = "schedule"

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._lock = threading.Lock()
        """Held while the board moves or is judged on."""
        self._board = Board.of(plane.store.snapshot())
        self._rng = Rng(plane.term)
        self._pending = True
        """Something changed that could start a job."""
        self._new_dependencies = True
        self._next_at_ms: int | None = None
        self._usage_due_ms = 0
        self.last: Plan | None = None
        self._forecasts = Forecasts()
        """Since this process began: how good its earliest starts were."""

    def step(self, now_ms: int) -> Progress:
        """One cycle, if there is reason for one."""
        with self._lock:
            self._refresh()
            self._drop_stale_claims(now_ms)
            self._keep_usage(now_ms)
            if not self._pending and (self._next_at_ms is None or now_ms < self._next_at_ms):
                return Progress(0, self._next_at_ms)
            self._pending = False
            plan = schedule(self._board, self._plane.policy, now_ms, self._rng.stream(f"cycle/{self._board.cycle}"))
            self._check(plan)
            unborn = self._board.unborn_in(plan)
            acts = [d for d in plan.decisions if isinstance(d, Place | Evict | Move | Resize)]
            planned = [(decision, self._board.jobs[decision.job]) for decision in acts]
            self._forecasts.follow(plan, self._board.jobs)
            expiries = [claim.expires_ms for claim in self._board.claims.values()]
        self.last = plan
        times = [*expiries, *([] if plan.next_at_ms is None else [plan.next_at_ms])]
        self._next_at_ms = min(times, default=None)
        self._bring_to_birth(unborn)
        self._claim(plan, now_ms)
        return Progress(self._enact(planned, now_ms), self._next_at_ms)

    def explain(self, job_id: str, now_ms: int) -> Explanation | None:
        """Why a live job is where it is; None for one that is not on the board."""
        with self._lock:
            self._refresh()
            job = self._board.jobs.get(job_id)
            told = explain_job(self._board, self._plane.policy, job_id, now_ms) if job is not None else None
            return told if job is None or told is None else self._with_track(job, told)

    def _with_track(self, job: Job, told: Explanation) -> Explanation:
        """An earliest start is told with how good those before it were."""
        if told.earliest_start_ms is None:
            return told
        self._forecasts.tell(job.id, job.queue, told.earliest_start_ms)
        track = self._forecasts.track(job.queue)
        if track is None:
            return told
        return replace(told, forecasts=track.told, forecast_within_ms=track.within_ms, forecast_late_ms=track.late_ms)

    def brief_reasons(self, job_ids: tuple[str, ...], now_ms: int) -> dict[str, Reason]:
        """In a line, why those of these jobs wait that have no reason in their records; the others are left out."""
        with self._lock:
            self._refresh()
            return brief_reasons(self._board, self._plane.policy, job_ids, now_ms)

    def scene(self, now_ms: int) -> Scene:
        """What a cycle would judge now, as a value: read from the store, so that no cycle waits for it."""
        plane = self._plane
        dirty = {node: tuple(sorted(devices)) for node, devices in sorted(plane.links.all_dirty())}
        snapshot = plane.store.snapshot()
        return Scene(shoal=__version__, now_ms=now_ms, seed=plane.term, policy=plane.policy, dirty=dirty, snapshot=snapshot)

    def queue_views(self) -> tuple[QueueView, ...]:
        """Every queue with its numbers, by name."""
        with self._lock:
            self._refresh()
            return queue_views(self._board, self._plane.clock.now_ms())

    # --- the board -------------------------------------------------------------------------------------------------------------
    def _refresh(self) -> None:
        """Takes in what was committed, and what agents see on devices."""
        plane = self._plane
        while changes := self._read_on():
            for change in changes:
                self._board.apply(change)
                self._note(change)
            if len(changes) < limits.CHANGES_PER_READ:
                break
        for node_id, devices in plane.links.take_soiled():
            self._board.mark_dirty(node_id, devices)
            self._pending = True
        if self._new_dependencies:
            self._new_dependencies = False
            self._learn(self._board.unknown_dependencies())

    def _read_on(self) -> tuple[Change, ...]:
        """The next changes; too far behind for them, the board starts again from a snapshot."""
        store = self._plane.store
        try:
            return store.changes_after(self._board.version, limits.CHANGES_PER_READ)
        except VersionExpired:
            self._rebuild()
            return store.changes_after(self._board.version, limits.CHANGES_PER_READ)

    def _rebuild(self) -> None:
        plane = self._plane
        board = Board.of(plane.store.snapshot())
        board.cycle = self._board.cycle
        for node_id, devices in plane.links.all_dirty():
            board.mark_dirty(node_id, devices)
        self._board = board
        self._pending = self._new_dependencies = True

    def _note(self, change: Change) -> None:
        self._pending = self._pending or _matters(change, self._plane.world)
        self._new_dependencies = self._new_dependencies or any(isinstance(r, Job) and r.spec.depends_on for r in change.put)

    def _learn(self, unknown: tuple[str, ...]) -> None:
        """Jobs that ended before one came that depends on them are not on the board; the world or the store knows how they ended."""
        known = {job_id: job for job_id in unknown if (job := self._plane.world.ended.get(job_id)) is not None}
        missing = tuple(job_id for job_id in unknown if job_id not in known)
        known.update({job.id: job for job in self._plane.store.jobs_by_id(missing)} if missing else {})
        self._board.learn_ended({job_id: job.state for job_id, job in known.items()})

    def _check(self, plan: Plan) -> None:
        """Raises InvariantViolated for a plan that is not legal, or that holds a decision which nothing here carries out."""
        if not any(isinstance(decision, Place | Evict | Move | Resize) for decision in plan.decisions):
            return
        odd = [type(decision).__name__ for decision in plan.decisions if isinstance(decision, _NOT_CARRIED_OUT)]
        violations = (*check_plan(self._board.records, plan), *(f"no step carries out a {name}" for name in odd))
        if violations:
            self._pending = True
            raise InvariantViolated(f"the plan at version {plan.version} is not legal: {'; '.join(violations[:8])}")

    def _keep_usage(self, now_ms: int) -> None:
        """Writes what queues have used, now and then: where shares look back it must outlive this process."""
        usage = self._board.usage
        if self._plane.policy.fair_share == "dominant" or now_ms < self._usage_due_ms or not usage.changed:
            return
        self._usage_due_ms = now_ms + limits.USAGE_WRITE_MS
        self._write(ChangeSet(put=usage.to_store(now_ms)))
        self._refresh()

    # --- claims -----------------------------------------------------------------------------------------------------------------
    def _drop_stale_claims(self, now_ms: int) -> None:
        """Room that is kept for nobody any more is anybody's again."""
        stale = stale_claims(self._board.claims.values(), self._board.jobs, now_ms)
        if stale:
            self._write(ChangeSet(delete=stale))
            self._refresh()
            self._pending = True

    def _claim(self, plan: Plan, now_ms: int) -> None:
        """Keeps the room of those who preempt and of those who are moved, before the first is told: it survives a crash in between."""
        plane = self._plane
        claims = claims_of_plan(plan, plane.world.job, now_ms + plane.policy.claim_ms, plane.term)
        if claims:
            self._write(ChangeSet(put=claims))

    def _write(self, changes: ChangeSet) -> None:
        """Waits for a write of records that nobody else writes."""
        self._plane.await_all((self._plane.store.apply(changes, self._plane.term),))

    # --- elements of arrays that have no record yet ---------------------------------------------------------------------------
    def _bring_to_birth(self, unborn: dict[str, list[int]]) -> None:
        """One write per array. A crash behind it leaves queued jobs, which the next cycle finds."""
        self._plane.await_all([births(self._plane, array_id, positions) for array_id, positions in unborn.items()])

    # --- enacting --------------------------------------------------------------------------------------------------------------
    def _enact(self, planned: list[tuple[Place | Evict | Move | Resize, Job]], now_ms: int) -> int:
        """Each decision in its job's lane, awaited together."""
        plane = self._plane
        writes: list[Future[Picture | None]] = []
        for decision, job in planned:
            subject = JobSubject(plane.world, plane.store, decision.job)
            writes.append(plane.lanes.ask(subject, partial(self._judge, decision, job, now_ms)))
        plane.await_all(writes)
        return len(writes)

    def _judge(self, decision: Place | Evict | Move | Resize, planned: Job, now_ms: int, picture: Picture | None) -> ChangeSet:
        """The decision carried out, if its job is still exactly the one that was planned for and its nodes still take work."""
        plane = self._plane
        if picture is None or not _still(picture.job, planned):
            return ChangeSet()
        if isinstance(decision, Evict | Move):
            return enact_evict(decision, picture, now_ms, plane.terms)
        here = {a.node for a in picture.allocations if a.state in HOLDING} if isinstance(decision, Resize) else set()
        nodes = {member.node: plane.world.nodes.get(member.node) for member in decision.members if member.node not in here}
        ready = {name: node for name, node in nodes.items() if node is not None and node.state is NodeState.READY}
        if len(ready) < len(nodes):  # Drained or removed a moment ago, which brings a cycle of its own.
            return ChangeSet()
        if isinstance(decision, Resize):
            return enact_resize(decision, picture, ready, now_ms, plane.terms)
        placed = enact_place(decision, picture.job, ready, now_ms, plane.terms)
        mine = tuple(claim for claim in plane.world.claims.values() if claim.job == decision.job)
        return replace(placed, delete=(*placed.delete, *mine)) if mine else placed


def _still(job: Job, planned: Job) -> bool:
    """True if the job is exactly the one that was planned for; one that had no record then has a version now."""
    return job == planned or (planned.array is not None and not planned.version and replace(job, version=0) == planned)


def _matters(change: Change, world: World) -> bool:
    """Whether a change could let a job start: anything but the progress of what is placed already."""
    if change.delete:
        return True
    for record in change.put:
        if isinstance(record, Job):
            if record.state not in LIVE or record.unborn or record.spec.elastic is not None or world.dependents_of(record.id):
                return True
        elif isinstance(record, Allocation):
            if record.state not in HOLDING or record.joined:
                return True
        elif not isinstance(record, Attempt):
            return True
    return False

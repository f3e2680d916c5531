"""
Who may be stopped or moved for a gang, and what that would cost: for steps 6 (`preempt`) and 5b (`move`) of the cycle.

    who        lower priorities of the gang's own queue; and jobs of queues that are over their guarantee, all the way up to where their
               way parts from that of the gang's queue
    never      jobs that are not preemptible, what is on its way out, who was decided on in this cycle, and jobs that have not run for
               their queue's `min_run` yet: when the first of these may be stopped is kept, since time alone brings it
    surplus    members that a gang which shrinks in place has above its least: they go before anything dies, the last that came first, and
               give way to equals of their own queue as well
    cost       (work since the last checkpoint + the way back) x GPUs, in GPU-milliseconds; for surplus the time in which
               the others form anew

The rule of claims (`Victims.may_lose`) is asked at the moment of stopping, since it depends on who else is stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from shoal.model.attempt import Allocation
from shoal.model.job import Job, JobState
from shoal.planning.backfill import work_lost
from shoal.scheduling.board import Board
from shoal.scheduling.grow import staying
from shoal.scheduling.ledger import Ledger
from shoal.scheduling.policy import Policy
from shoal.scheduling.quota import Charge, Vertex, add_charges, charge_of_allocation
from shoal.scheduling.reserve import Part
from shoal.scheduling.standing import claim_of

_STOPPABLE = (JobState.STARTING, JobState.RUNNING)


class Victim(NamedTuple):
    """
    A running job that may be stopped, or one member that an elastic gang may lose and go on without.

    `across` is the highest queue on its way to the root that the gang's queue does not share. A job that is stopped after it has lost all
    its `surplus` brings what is left.
    """

    cost: int
    job_id: str
    queue: str
    across: Vertex | None
    charge: Charge
    parts: tuple[Part, ...]
    member: str = ""
    """The allocation of a member that alone leaves; empty for a whole job."""
    rank: int = 0
    surplus: tuple[str, ...] = ()
    """Of a whole job: the members that must have gone before."""

    @property
    def order(self) -> tuple[bool, int, str, int]:
        """Who goes first: surplus before anything dies, then the cheapest; of one gang the last that came."""
        return not self.member, self.cost, self.job_id, -self.rank

    @property
    def gpus(self) -> int:
        """Whole GPUs and pieces of them, each counted as one."""
        return sum(part.mask.bit_count() + len(part.pieces) for part in self.parts)


class Victims:
    """See module. One per cycle; `taken` is who was decided on so far."""

    def __init__(self, board: Board, policy: Policy, now_ms: int) -> None:
        self._board = board
        self._policy = policy
        self._now_ms = now_ms
        self._medians: dict[str, int] = {}
        self.taken: dict[str, Victim] = {}
        """Jobs that are stopped or moved whole."""
        self.shed: dict[tuple[str, str], Victim] = {}
        """Members that leave, by job and allocation."""
        self.spared_until_ms: int | None = None
        """When the first of those may be stopped who have not run long enough yet, since `begin`."""

    def begin(self) -> None:
        """Another gang asks."""
        self.spared_until_ms = None

    @property
    def touched(self) -> set[str]:
        """Jobs that are stopped or lose members."""
        return {*self.taken, *(job_id for job_id, _ in self.shed)}

    def take(self, victim: Victim) -> None:
        """Decided."""
        if victim.member:
            self.shed[victim.job_id, victim.member] = victim
        else:
            self.taken[victim.job_id] = victim

    def eligible(self, job: Job, most: int) -> list[Victim]:
        """`most` running jobs that this one may displace if the rule of claims holds for them too, the cheapest first."""
        return sorted(islice(self._all(job), most), key=lambda victim: victim.order)

    def _all(self, job: Job) -> Iterator[Victim]:
        """Those of its own queue, then of queues over their share; the youngest ids first, which mostly have least to lose."""
        running = self._board.horizon.running
        yield from self._below(running.get(job.queue, ()), job)
        for queue, across in self._over_their_share(job.queue):
            for other in sorted(running[queue], reverse=True):
                yield from self._of_job(other, across, whole=True)

    def _below(self, running: Iterable[str], job: Job) -> Iterator[Victim]:
        for other in sorted(running, reverse=True):
            if other in self._board.jobs and self._board.jobs[other].priority <= job.priority:
                yield from self._of_job(other, None, whole=self._board.jobs[other].priority < job.priority)

    def _of_job(self, job_id: str, across: Vertex | None, *, whole: bool) -> Iterator[Victim]:
        """What may be taken of one running job: members that it can go on without; then, with `whole`, the rest of it."""
        surplus = self._surplus(job_id)
        for held in surplus:
            cost = self._policy.regroup_ms * max(1, len(held.devices))
            yield self._victim((held,), across, cost)._replace(member=held.id, rank=held.node_rank)
        found = self.look_at(job_id, across) if whole else None
        if found is None:
            return
        if surplus:
            gone = {held.id for held in surplus}
            rest = tuple(held for held in self._held(job_id) if held.id not in gone)
            found = self._victim(rest, across, found.cost)._replace(surplus=tuple(sorted(gone)))
        yield found

    def _surplus(self, job_id: str) -> list[Allocation]:
        """Members above the least of a gang that shrinks in place, the last that came first."""
        if job_id not in self._board.horizon.elastic or job_id in self.taken:
            return []
        job = self._board.jobs[job_id]
        if not job.in_place or not job.spec.preemptible or job.spec.nodes is None:
            return []
        above = staying(self._board, job_id)[: job.spec.nodes.low - 1 : -1]
        return [held for held in above if (job_id, held.id) not in self.shed]

    def _held(self, job_id: str) -> list[Allocation]:
        """What it holds and is not giving back, or about to."""
        held = (self._board.allocations[one] for one in self._board.held_by[job_id])
        return [a for a in held if not a.leaving and (job_id, a.id) not in self.shed]

    def _over_their_share(self, mine: str) -> list[tuple[str, Vertex]]:
        """Queues that hold more than their guarantee, all the way up to where they part from `mine`; the furthest over first."""
        vertices, capacity = self._board.quota.vertices, self._board.columns.capacity
        above = way_up(vertices[mine])
        found = []
        for queue in self._board.horizon.running:
            if queue not in vertices or queue == mine:
                continue
            way = way_up(vertices[queue])
            apart = [vertex for vertex in way if vertex not in above]
            if apart and vertices[mine] not in way and all(claim_of(v, capacity) > 0 for v in apart):
                found.append((-claim_of(apart[-1], capacity), queue, apart[-1]))
        return [(queue, across) for _, queue, across in sorted(found, key=lambda item: item[:2])]

    def look_at(self, job_id: str, across: Vertex | None) -> Victim | None:
        """The job as a victim, whoever asks; None for one that may not be stopped, or not yet."""
        job = self._board.jobs.get(job_id)
        if job is None or job.state not in _STOPPABLE or not job.spec.preemptible or job_id in self.taken:
            return None
        if self._too_young(job):
            return None
        held = tuple(self._held(job_id))
        gpus = sum(len(a.devices) + len(a.parts) for a in held)
        cost = work_lost(max(1, gpus), self._now_ms - self.saved_ms(job), self._policy.restart_ms)
        return self._victim(held, across, cost)

    def _victim(self, held: tuple[Allocation, ...], across: Vertex | None, cost: int) -> Victim:
        columns = self._board.columns
        parts = tuple(
            Part(row, columns.mask_of(row, a.devices), a.cpu_milli, a.memory_bytes, columns.pieces_of(row, a.parts, a.project))
            for a in held
            if (row := columns.row.get(a.node)) is not None
        )
        charge = charge_of_allocation(held[0]) if len(held) == 1 else add_charges(*(charge_of_allocation(a) for a in held))
        return Victim(cost, held[0].job, held[0].queue, across, charge, parts)

    def _too_young(self, job: Job) -> bool:
        """True while it has not run for as long as its queue lets everybody run; who is only starting has not run at all."""
        queue = self._board.queues.get(job.queue)
        least_ms = queue.spec.min_run_ms if queue is not None and queue.spec.min_run_ms is not None else self._policy.min_run_ms
        if least_ms <= 0:
            return False
        if job.started_ms is None:
            return True  # Its start is a change of its own, which brings a cycle.
        may_ms = job.started_ms + least_ms
        if may_ms <= self._now_ms:
            return False
        self.spared_until_ms = may_ms if self.spared_until_ms is None else min(may_ms, self.spared_until_ms)
        return True

    def saved_ms(self, job: Job) -> int:
        """When its work was last saved; who has reported nothing since its start is taken to save as late as the median of its queue."""
        started_ms = job.started_ms if job.started_ms is not None else self._now_ms
        if job.checkpointed_ms is not None and job.checkpointed_ms >= started_ms:
            return job.checkpointed_ms
        median = self._medians.get(job.queue)
        if median is None:
            jobs = (self._board.jobs.get(other) for other in self._board.horizon.running.get(job.queue, ()))
            told = sorted(j.checkpointed_ms for j in jobs if j is not None and j.checkpointed_ms is not None)
            median = self._medians[job.queue] = told[len(told) // 2] if told else 0
        return max(started_ms, median)

    # --- on the ledger -----------------------------------------------------------------------------------------------------------
    def may_lose(self, gainer: str, charge: Charge, victim: Victim) -> bool:
        """The rule of claims: after the loss the victim's side is still owed no more than the gang's side is after the gain."""
        if victim.across is None:
            return True
        quota, capacity = self._board.quota, self._board.columns.capacity
        mine = side_of(quota.vertices[gainer], victim.across)
        before = claim_of(victim.across, capacity)
        with quota.counting(victim.across, victim.queue, victim.charge, -1):
            after = claim_of(victim.across, capacity)
        if after >= before:
            return False
        with quota.counting(mine, gainer, charge):
            return claim_of(mine, capacity) <= after

    def stop(self, ledger: Ledger, victim: Victim) -> None:
        """Its room and its charge are free on the ledger."""
        for part in victim.parts:
            mask = part.mask & int(self._board.columns.healthy[part.row])
            ledger.unseat(part.row, mask, part.cpu_milli, part.memory_bytes, part.pieces)
        ledger.uncharge(victim.queue, victim.charge)

    def put_back(self, ledger: Ledger, victim: Victim) -> None:
        """The inverse of `stop`."""
        for part in victim.parts:
            ledger.seat(*part._replace(mask=part.mask & int(self._board.columns.healthy[part.row])))
        ledger.charge(victim.queue, victim.charge)


def way_up(vertex: Vertex) -> list[Vertex]:
    """The vertex and all above it, the root last."""
    way = [vertex]
    while way[-1].parent is not None:
        way.append(way[-1].parent)
    return way


def side_of(vertex: Vertex, across: Vertex) -> Vertex:
    """The vertex on the way up from `vertex` that has the same parent as `across`."""
    return next(v for v in reversed(way_up(vertex)) if v.parent is across.parent)

"""
Step 6 of the cycle: room for a gang that has the right to it, by stopping others.

    who may be stopped    lower priorities of the gang's own queue; and jobs of a queue that is over its guarantee, as long as that
                          queue's claim after the loss is at least the claim of the gang's queue after the gain. Two queues are
                          compared where their ways to the root part. Equal claims do not displace.
    who is stopped        least (work since its last checkpoint + restart) x GPUs first; then everybody who can be spared is, the
                          dearest first
    what is freed already is counted before anybody is stopped, and where it is enough nobody is

The gang is placed on the ledger with its victims gone before one of them is told: with all of it or not at all. What it will get is
claimed, so that nobody else takes it meanwhile. It settles, because each eviction lowers a measure that nothing here raises: the claims of
the queues, sorted downwards; then the negative sum of running priorities.

Prior art: Kueue's rule S2-a (its S2-b loops and is left out) and fill-back; kube-scheduler's reprieve.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from shoal.base import limits
from shoal.model.job import Job, JobState
from shoal.model.plan import Evict, Reserve
from shoal.model.reason import Reason, ReasonCode
from shoal.scheduling.board import Board
from shoal.scheduling.ledger import Ledger
from shoal.scheduling.options import options_of
from shoal.scheduling.order import Candidate, claim_of
from shoal.scheduling.place import Placement, place_options, seated
from shoal.scheduling.policy import Policy
from shoal.scheduling.quota import Charge, Vertex
from shoal.scheduling.reserve import Part, least, parts_of

_STOPPABLE = (JobState.STARTING, JobState.RUNNING)


class Victim(NamedTuple):
    """A running job that may be stopped. `across` is the highest queue on its way to the root that the gang's queue does not share."""

    cost: int
    job_id: str
    queue: str
    across: Vertex | None
    charge: Charge
    parts: tuple[Part, ...]


class Preemption(NamedTuple):
    """Decided: these jobs are stopped, and this is the room that the gang will have."""

    candidate: Candidate
    victims: tuple[Victim, ...]
    placement: Placement


class Preemptor:
    """See module. One per cycle, over the cycle's ledger."""

    def __init__(self, board: Board, ledger: Ledger, policy: Policy, now_ms: int) -> None:
        self._board = board
        self._ledger = ledger
        self._policy = policy
        self._now_ms = now_ms
        self._tries = self._weighed = 0
        self._stopped: dict[str, Victim] = {}
        self._medians: dict[str, int] = {}
        self.made: list[Preemption] = []
        self._hopeful = policy.preempt and self._somebody_may_have_to_go()

    @property
    def open(self) -> bool:
        """True while victims may be looked for."""
        return self._hopeful and not self.bound

    def _somebody_may_have_to_go(self) -> bool:
        """
        False where nobody can have a right to stop anybody: only one queue has jobs that run, the same one has those that wait, and
        the first of these is of no higher priority than any of those.
        """
        running, lines = self._board.horizon.running, self._board.pending.lines
        if len(running) != 1 or lines.keys() != running.keys():
            return bool(running and lines)
        (queue,) = running
        first, lowest = lines[queue].heads.first(), self._board.horizon.lowest_priority(queue)
        return first is not None and lowest is not None and -first[0] > lowest

    @property
    def bound(self) -> bool:
        """True if more gangs may have the right to stop others than could be looked at."""
        return self._tries >= limits.PREEMPT_TRIES_MAX or self._weighed >= limits.VICTIMS_PER_CYCLE_MAX

    def attempt(self, candidate: Candidate) -> bool:
        """
        Whether room for the gang is being freed or will be: by what is ending anyhow, or by victims that are now decided.

        What the gang will get of free room is taken on the ledger, and its charge is too.
        """
        job = self._board.jobs[candidate.job_id]
        if candidate.lane.array or job.id in self._board.claims_by:
            return False
        if not options_of(candidate.lane.state, self._board.columns):
            return False  # No node there is could ever take it, whoever is stopped.
        self._tries += 1
        victims = self.eligible(job, max(limits.VICTIMS_LOOKED_AT_MAX, 4 * candidate.lane.state.gpus_least))
        self._weighed += len(victims)
        if not victims:
            return False
        with self._ledger.trial():
            found = self._search(candidate, victims)
        if found is None:
            return False
        self.made.append(found)
        for victim in found.victims:
            self._stopped[victim.job_id] = victim
        self._take(found)
        return True

    def decisions(self) -> list[Reserve | Evict]:
        """Each gang's room, and who is stopped for it."""
        found: list[Reserve | Evict] = []
        for made in self.made:
            members = seated(self._board.columns, made.placement)
            found.append(Reserve(job=made.candidate.job_id, members=members, start_ms=self._now_ms))
            found.extend(self._evict(victim, made) for victim in made.victims)
        return found

    def _evict(self, victim: Victim, made: Preemption) -> Evict:
        jobs = self._board.jobs
        name, queue = jobs[made.candidate.job_id].address, made.candidate.queue
        why = f"of queue {queue}, which is owed its share" if victim.across is not None else "of its queue, which has a higher priority"
        reason = Reason(code=ReasonCode.PREEMPTED, message=f"stopped in favour of job {name} {why}", queue=queue, blockers=(name,))
        return Evict(job=victim.job_id, beneficiary=made.candidate.job_id, reason=reason)

    # --- who may be stopped ------------------------------------------------------------------------------------------------------
    def eligible(self, job: Job, most: int) -> list[Victim]:
        """`most` running jobs that this one may displace if the rule of claims holds for them too, the cheapest first."""
        return sorted(islice(self._all_eligible(job), most), key=lambda victim: victim[:2])

    def _all_eligible(self, job: Job) -> Iterator[Victim]:
        """Those of its own queue, then of queues over their share; the youngest ids first, which mostly have least to lose."""
        running = self._board.horizon.running
        for other in sorted(running.get(job.queue, ()), reverse=True):
            victim = self._victim(other, None, job)
            if victim is not None:
                yield victim
        for queue, across in self._over_their_share(job.queue):
            for other in sorted(running[queue], reverse=True):
                victim = self._victim(other, across, job)
                if victim is not None:
                    yield victim

    def _over_their_share(self, mine: str) -> list[tuple[str, Vertex]]:
        """Queues that hold more than their guarantee, all the way up to where they part from `mine`; the furthest over first."""
        vertices, capacity = self._board.quota.vertices, self._board.columns.capacity
        above = _way_up(vertices[mine])
        found = []
        for queue in self._board.horizon.running:
            if queue not in vertices or queue == mine:
                continue
            way = _way_up(vertices[queue])
            apart = [vertex for vertex in way if vertex not in above]
            if apart and vertices[mine] not in way and all(claim_of(v, capacity) > 0 for v in apart):
                found.append((-claim_of(apart[-1], capacity), queue, apart[-1]))
        return [(queue, across) for _, queue, across in sorted(found, key=lambda item: item[:2])]

    def _victim(self, job_id: str, across: Vertex | None, gainer: Job) -> Victim | None:
        job = self._board.jobs.get(job_id)
        if job is None or job.state not in _STOPPABLE or not job.spec.preemptible or job_id in self._stopped:
            return None
        if across is None and job.priority >= gainer.priority:
            return None
        board, columns = self._board, self._board.columns
        held = [board.allocations[allocation_id] for allocation_id in board.held_by[job_id]]
        parts = tuple(
            Part(row, columns.mask_of(row, a.devices), a.cpu_milli, a.memory_bytes, columns.pieces_of(row, a.parts, a.project))
            for a in held
            if (row := columns.row.get(a.node)) is not None
        )
        gpus = sum(part.mask.bit_count() + len(part.pieces) for part in parts)
        cost = (self._now_ms - self._saved_ms(job) + self._policy.restart_ms) * max(1, gpus)
        return Victim(cost, job_id, held[0].queue, across, board.horizon.charge_of(job_id), parts)

    def _saved_ms(self, job: Job) -> int:
        """When its work was last saved; who reports no checkpoints is taken to save as late as the median of its queue."""
        started_ms = job.started_ms if job.started_ms is not None else self._now_ms
        if job.checkpointed_ms is not None:
            return max(started_ms, job.checkpointed_ms)
        median = self._medians.get(job.queue)
        if median is None:
            jobs = (self._board.jobs.get(other) for other in self._board.horizon.running.get(job.queue, ()))
            told = sorted(j.checkpointed_ms for j in jobs if j is not None and j.checkpointed_ms is not None)
            median = self._medians[job.queue] = told[len(told) // 2] if told else 0
        return max(started_ms, median)

    # --- the trial ---------------------------------------------------------------------------------------------------------------
    def _search(self, candidate: Candidate, victims: list[Victim]) -> Preemption | None:
        """None where nobody needs to be stopped or where stopping does not help. Leaves the ledger moved: the caller rewinds."""
        for stopped in self._stopped.values():
            self._ledger.uncharge(stopped.queue, stopped.charge)
        self._give_what_ends()
        if self._place(candidate) is not None:
            return None
        gone, found = self._stop_until_it_fits(candidate, victims)
        if found is None:
            return None
        kept, found = self._spare(candidate, gone, found)
        return Preemption(candidate, tuple(sorted(kept, key=lambda victim: victim.job_id)), found)

    def _place(self, candidate: Candidate) -> Placement | None:
        options = tuple(least(option) for option in options_of(candidate.lane.state, self._board.columns))
        found = place_options(self._ledger, candidate.queue, candidate.lane.state.shape, options, self._policy)
        return found if isinstance(found, Placement) else None

    def _give_what_ends(self) -> None:
        """Room that is being freed is free for this question, but for what is claimed of it."""
        board, columns = self._board, self._board.columns
        for _, job_id in board.horizon.ends.below((1,)):
            for allocation_id in board.held_by[job_id]:
                held = board.allocations[allocation_id]
                row = columns.row.get(held.node)
                if row is not None:
                    mask = columns.mask_of(row, held.devices) & ~board.claimed_on(row) & int(columns.healthy[row])
                    pieces = columns.pieces_of(row, held.parts, held.project)
                    self._ledger.unseat(row, mask, held.cpu_milli, held.memory_bytes, pieces)
            queue = board.horizon.queue_of(job_id)
            if queue in board.quota.vertices:
                self._ledger.uncharge(queue, board.horizon.charge_of(job_id))

    def _stop_until_it_fits(self, candidate: Candidate, victims: list[Victim]) -> tuple[list[Victim], Placement | None]:
        gone: list[Victim] = []
        wanted = 1
        for victim in victims:
            if self._may_stop(candidate, victim):
                self._stop(victim)
                gone.append(victim)
                if len(gone) == wanted:
                    found = self._place(candidate)
                    if found is not None:
                        return gone, found
                    wanted *= 2
        return gone, self._place(candidate) if gone else None

    def _may_stop(self, candidate: Candidate, victim: Victim) -> bool:
        """The rule of claims: after the loss the victim's side is still owed no more than the gang's side is after the gain."""
        if victim.across is None:
            return True
        quota, capacity = self._board.quota, self._board.columns.capacity
        charge = options_of(candidate.lane.state, self._board.columns)[0].charge_least
        mine = next(v for v in reversed(_way_up(quota.vertices[candidate.queue])) if v.parent is victim.across.parent)
        before = claim_of(victim.across, capacity)
        quota.add(candidate.queue, charge)
        gained = claim_of(mine, capacity)
        quota.remove(candidate.queue, charge)
        quota.remove(victim.queue, victim.charge)
        after = claim_of(victim.across, capacity)
        quota.add(victim.queue, victim.charge)
        return gained <= after < before

    def _stop(self, victim: Victim) -> None:
        for part in victim.parts:
            mask = part.mask & int(self._board.columns.healthy[part.row])
            self._ledger.unseat(part.row, mask, part.cpu_milli, part.memory_bytes, part.pieces)
        self._ledger.uncharge(victim.queue, victim.charge)

    def _put_back(self, victim: Victim) -> None:
        for part in victim.parts:
            self._ledger.seat(*part._replace(mask=part.mask & int(self._board.columns.healthy[part.row])))
        self._ledger.charge(victim.queue, victim.charge)

    def _spare(self, candidate: Candidate, gone: list[Victim], found: Placement) -> tuple[list[Victim], Placement]:
        """Gives back whoever is not needed: first all on other nodes at once, then one by one, the dearest first."""
        rows = {seat.row for seat in found.seats}
        elsewhere = [victim for victim in gone if rows.isdisjoint(part.row for part in victim.parts)]
        kept = gone
        groups = ([elsewhere] if elsewhere else []) + [[victim] for victim in reversed(gone)]
        for group in groups[: limits.REPRIEVES_MAX]:
            spared = [victim for victim in group if victim in kept]
            if not spared:
                continue
            for victim in spared:
                self._put_back(victim)
            again = self._place(candidate)
            if again is None:
                for victim in spared:
                    self._stop(victim)
            else:
                found, kept = again, [victim for victim in kept if victim not in spared]
        return kept, found

    def _take(self, made: Preemption) -> None:
        """Nobody else in this cycle gets what is free of the gang's room, nor its quota."""
        columns = self._board.columns
        for part in parts_of(made.placement):
            given = [mine for victim in made.victims for mine in victim.parts if mine.row == part.row]
            cpu = max(0, part.cpu_milli - sum(mine.cpu_milli for mine in given))
            memory = max(0, part.memory_bytes - sum(mine.memory_bytes for mine in given))
            mask = part.mask & int(columns.free_mask[part.row] | columns.shared_mask[part.row])
            self._ledger.seat(part.row, mask, cpu, memory, part.pieces)
        self._ledger.charge(made.candidate.queue, made.placement.charge)


def _way_up(vertex: Vertex) -> list[Vertex]:
    way = [vertex]
    while way[-1].parent is not None:
        way.append(way[-1].parent)
    return way

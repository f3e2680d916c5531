"""
Step 6 of the cycle: room for a gang that has the right to it, by stopping others.

    who may be stopped    lower priorities of the gang's own queue; and jobs of a queue that is over its guarantee, as long as that
                          queue's claim after the loss is at least the claim of the gang's queue after the gain. Two queues are
                          compared where their ways to the root part. Equal claims do not displace.
    who is stopped        members above the least of gangs that shrink in place; then least (work since its last checkpoint + restart) x
                          GPUs first; then everybody who can be spared is, the dearest first
    what is freed already is counted before anybody is stopped, and where it is enough nobody is
    patience              who has a known start waits for it where that costs less GPU time than stopping loses

`victims` says who may be stopped, and what each loses. The gang is placed on the ledger with its victims gone before one of them is
told: with all of it or not at all. What it will get is claimed, so that nobody else takes it meanwhile. It settles, because each
eviction lowers a measure that nothing here raises: the claims of the queues, sorted downwards; then the negative sum of running priorities.

Prior art: Kueue's rule S2-a (its S2-b loops and is left out) and fill-back; kube-scheduler's reprieve.
"""

from __future__ import annotations

from typing import NamedTuple

from shoal.base import limits
from shoal.model.plan import Evict, Reserve, Resize
from shoal.model.reason import Reason, ReasonCode
from shoal.scheduling.board import Board
from shoal.scheduling.grow import member_of, staying
from shoal.scheduling.ledger import Ledger
from shoal.scheduling.options import options_of
from shoal.scheduling.order import Candidate
from shoal.scheduling.place import Placement, place_options, seated
from shoal.scheduling.policy import Policy
from shoal.scheduling.quota import charge_of_allocation
from shoal.scheduling.reserve import least, parts_of
from shoal.scheduling.victims import Victim, Victims


class Preemption(NamedTuple):
    """Decided: these jobs are stopped, and this is the room that the gang will have."""

    candidate: Candidate
    victims: tuple[Victim, ...]
    placement: Placement

    @property
    def cost(self) -> int:
        """GPU-milliseconds of work that is lost, the ways back included."""
        return sum(victim.cost for victim in self.victims)


class Preemptor:
    """See module. One per cycle, over the cycle's ledger."""

    def __init__(self, board: Board, ledger: Ledger, policy: Policy, now_ms: int, victims: Victims) -> None:
        self._board = board
        self._ledger = ledger
        self._policy = policy
        self._now_ms = now_ms
        self._victims = victims
        self._tries = self._weighed = 0
        self.wake_ms: int | None = None
        """When somebody has run long enough who could not be stopped yet."""
        self.made: list[Preemption] = []
        self._hopeful = policy.preempt and self._somebody_may_have_to_go()

    @property
    def open(self) -> bool:
        """True while victims may be looked for."""
        return self._hopeful and not self.bound

    def _somebody_may_have_to_go(self) -> bool:
        """
        False where nobody can have a right to stop anybody: no elastic gang runs, only one queue has jobs that run, the same one has
        those that wait, and the first of these is of no higher priority than any of those.
        """
        running, lines = self._board.horizon.running, self._board.pending.lines
        if len(running) != 1 or lines.keys() != running.keys() or self._board.horizon.elastic:
            return bool(running and lines)
        (queue,) = running
        first, lowest = lines[queue].heads.first(), self._board.horizon.lowest_priority(queue)
        return first is not None and lowest is not None and -first[0] > lowest

    @property
    def bound(self) -> bool:
        """True if more gangs may have the right to stop others than could be looked at."""
        return self._tries >= limits.PREEMPT_TRIES_MAX or self._weighed >= limits.VICTIMS_PER_CYCLE_MAX

    @property
    def time_may_help(self) -> bool:
        """True if somebody whom the last gang could stop has only not run long enough."""
        return self._victims.spared_until_ms is not None

    def find(self, candidate: Candidate) -> Preemption | None:
        """
        Who would be stopped for the gang, and the room that it would have; None where stopping does not help or is not needed.

        Not needed: what is ending anyhow is enough. Nothing is decided; `take` does that.
        """
        job = self._board.jobs[candidate.job_id]
        self._victims.begin()
        if job.id in self._board.claims_by or not self._is_its_turn(candidate.lane.array):
            return None
        if not options_of(candidate.lane.state, self._board.columns):
            return None  # No node there is could ever take it, whoever is stopped.
        self._tries += 1
        victims = self._victims.eligible(job, max(limits.VICTIMS_LOOKED_AT_MAX, 4 * candidate.lane.state.gpus_least))
        self._weighed += len(victims)
        found = None
        if victims:
            with self._ledger.trial():
                found = self._search(candidate, victims)
        young_ms = self._victims.spared_until_ms
        if found is None and young_ms is not None:
            self.wake_ms = young_ms if self.wake_ms is None else min(self.wake_ms, young_ms)
        return found

    def take(self, found: Preemption) -> None:
        """Decided: what the gang will get of free room is taken on the ledger, and its charge is too."""
        self.made.append(found)
        for victim in found.victims:
            self._victims.take(victim)
        self._take(found)

    def would_rather_wait(self, found: Preemption, start_ms: int) -> bool:
        """
        True if waiting for a known start costs less GPU time than stopping these loses, and it is not too long.

        The same for a priority and for a guarantee: whoever has the right has it `patience_max_ms` later at the latest.
        """
        job = self._board.jobs[found.candidate.job_id]
        wait_ms = start_ms - self._now_ms
        if job.spec.tolerance is not None and wait_ms <= job.spec.tolerance.ms:
            return True
        gpus = sum(seat.mask.bit_count() for seat in found.placement.seats)
        return wait_ms <= self._policy.patience_max_ms and wait_ms * max(1, gpus) < found.cost

    def _is_its_turn(self, array: str) -> bool:
        """False for an element whose array runs, or has cleared room for, as many as it may."""
        if not array:
            return True
        board = self._board
        at_once = board.at_once(array)
        waiting = {j for j in (*board.claims_by, *(made.candidate.job_id for made in self.made)) if self._array_of(j) == array}
        return at_once is None or board.array_live.get(array, 0) + len(waiting) < at_once

    def _array_of(self, job_id: str) -> str:
        job = self._board.jobs.get(job_id)
        return job.array.array_id if job is not None and job.array is not None else ""

    def decisions(self) -> list[Reserve | Evict | Resize]:
        """Each gang's room, and who is stopped or shrinks for it. Whoever loses members to several gangs does so at once."""
        found: list[Reserve | Evict | Resize] = []
        told: set[str] = set()
        for made in self.made:
            members = seated(self._board.columns, made.placement)
            found.append(Reserve(job=made.candidate.job_id, members=members, start_ms=self._now_ms))
            for victim in made.victims:
                if victim.job_id not in told:
                    told.add(victim.job_id)
                    found.append(self._evict(victim, made) if victim.job_id in self._victims.taken else self._shrink(victim, made))
        return found

    def _evict(self, victim: Victim, made: Preemption) -> Evict:
        jobs = self._board.jobs
        name, queue = jobs[made.candidate.job_id].address, made.candidate.queue
        why = f"of queue {queue}, which is owed its share" if victim.across is not None else "of its queue, which has a higher priority"
        reason = Reason(code=ReasonCode.PREEMPTED, message=f"stopped in favour of job {name} {why}", queue=queue, blockers=(name,))
        return Evict(job=victim.job_id, beneficiary=made.candidate.job_id, reason=reason)

    def _shrink(self, victim: Victim, made: Preemption) -> Resize:
        """All that the job loses in this cycle, to whomever."""
        job_id, gainer, queue = victim.job_id, made.candidate.job_id, made.candidate.queue
        name, held = self._board.jobs[gainer].address, staying(self._board, job_id)
        kept = tuple(member_of(a) for a in held if (job_id, a.id) not in self._victims.shed)
        message = f"from {len(held)} to {len(kept)} nodes in favour of job {name} of queue {queue}"
        reason = Reason(code=ReasonCode.PREEMPTED, message=message, queue=queue, blockers=(name,))
        return Resize(job=job_id, members=kept, gpu_model=held[0].gpu_model, reason=reason, beneficiary=gainer)

    # --- the trial ---------------------------------------------------------------------------------------------------------------
    def _search(self, candidate: Candidate, victims: list[Victim]) -> Preemption | None:
        """None where nobody needs to be stopped or where stopping does not help. Leaves the ledger moved: the caller rewinds."""
        for stopped in (*self._victims.taken.values(), *self._victims.shed.values()):
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
        ending = [allocation_id for _, job_id in board.horizon.ends.below((1,)) for allocation_id in board.held_by[job_id]]
        leaving = [allocation_id for ids in board.horizon.leaving.values() for allocation_id in ids]
        for allocation_id in (*ending, *leaving):
            held = board.allocations[allocation_id]
            row = columns.row.get(held.node)
            if row is not None:
                mask = columns.mask_of(row, held.devices) & ~board.claimed_on(row) & int(columns.healthy[row])
                pieces = columns.pieces_of(row, held.parts, held.project)
                self._ledger.unseat(row, mask, held.cpu_milli, held.memory_bytes, pieces)
            if held.queue in board.quota.vertices:
                self._ledger.uncharge(held.queue, charge_of_allocation(held))

    def _stop_until_it_fits(self, candidate: Candidate, victims: list[Victim]) -> tuple[list[Victim], Placement | None]:
        gone: list[Victim] = []
        wanted = 1
        charge = options_of(candidate.lane.state, self._board.columns)[0].charge_least
        members: set[str] = set()
        for victim in victims:
            if members.issuperset(victim.surplus) and self._victims.may_lose(candidate.queue, charge, victim):
                self._victims.stop(self._ledger, victim)
                members.add(victim.member)
                gone.append(victim)
                if len(gone) == wanted:
                    found = self._place(candidate)
                    if found is not None:
                        return gone, found
                    wanted *= 2
        return gone, self._place(candidate) if gone else None

    def _spare(self, candidate: Candidate, gone: list[Victim], found: Placement) -> tuple[list[Victim], Placement]:
        """Gives back whoever is not needed: first all on other nodes at once, then one by one, the dearest first."""
        rows = {seat.row for seat in found.seats}
        elsewhere = [victim for victim in gone if rows.isdisjoint(part.row for part in victim.parts)]
        kept = gone
        groups = ([elsewhere] if elsewhere else []) + [[victim] for victim in reversed(gone)]
        for group in groups[: limits.REPRIEVES_MAX]:
            whole = {victim.job_id for victim in kept if not victim.member and victim not in group}  # It has lost its surplus too.
            spared = [victim for victim in group if victim in kept and victim.job_id not in whole]
            if not spared:
                continue
            for victim in spared:
                self._victims.put_back(self._ledger, victim)
            again = self._place(candidate)
            if again is None:
                for victim in spared:
                    self._victims.stop(self._ledger, victim)
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

"""
Steps 5b and 6 of the cycle together: how a blocked gang that has the right to room gets it from others, by moves before stops, and
whether it would rather wait. What is decided is kept here until the plan is made.

Called by `cycle` alone; `move` and `preempt` say how, `victims` who, `clearing` what they have in common.
"""

from __future__ import annotations

from shoal.base import limits
from shoal.model.plan import Evict, Move, Reserve, Resize
from shoal.model.reason import Reason, ReasonCode
from shoal.scheduling.board import Board
from shoal.scheduling.clearing import Clearing, Trials
from shoal.scheduling.grow import member_of, staying
from shoal.scheduling.ledger import Ledger
from shoal.scheduling.move import Mover
from shoal.scheduling.options import options_of
from shoal.scheduling.order import Candidate
from shoal.scheduling.pending import NO_LIMIT
from shoal.scheduling.place import Placement, seated
from shoal.scheduling.policy import Policy
from shoal.scheduling.preempt import Preemptor
from shoal.scheduling.victims import Victim, Victims
from shoal.scheduling.windows import leaves_within_ms


class Clearer:
    """See module. One per cycle, over the cycle's ledger."""

    def __init__(self, board: Board, ledger: Ledger, policy: Policy, now_ms: int) -> None:
        self._board = board
        self._policy = policy
        self._now_ms = now_ms
        self._victims = Victims(board, policy, now_ms)
        self._trials = Trials(board, ledger, policy, self._victims)
        self._mover = Mover(self._trials, now_ms)
        self._preemptor = Preemptor(self._trials)
        self._tries = 0
        self.wake_ms: int | None = None
        """When somebody has run long enough who could not be stopped yet."""
        self.made: list[Clearing] = []
        self._hopeful = policy.preempt and self._somebody_may_have_to_go()

    @property
    def open(self) -> bool:
        """True while room may be looked for that others hold."""
        return self._hopeful and not self.bound

    def _somebody_may_have_to_go(self) -> bool:
        """
        False where nobody can have a right to others' room: no elastic gang runs, only one queue has jobs that run, the same one has
        those that wait, nothing is guaranteed to it, and the first of these is of no higher priority than any of those.
        """
        running, lines = self._board.horizon.running, self._board.pending.lines
        if len(running) != 1 or lines.keys() != running.keys() or self._board.horizon.elastic:
            return bool(running and lines)
        (queue,) = running
        if self._policy.move and queue in self._board.quota.vertices and self._board.quota.vertices[queue].named:
            return True
        first, lowest = lines[queue].heads.first(), self._board.horizon.lowest_priority(queue)
        return first is not None and lowest is not None and -first[0] > lowest

    @property
    def bound(self) -> bool:
        """True if more gangs may have the right to others' room than could be looked at."""
        return self._tries >= limits.PREEMPT_TRIES_MAX or self._preemptor.bound

    @property
    def time_may_help_at(self) -> int | None:
        """When the first of those whom the last gang could stop has run long enough; None if it is not that."""
        return self._victims.spared_until_ms

    @property
    def touched(self) -> set[str]:
        """Jobs that are stopped or moved, or lose members."""
        return self._victims.touched

    def wake_at(self, at_ms: int) -> None:
        """Time alone may let somebody be stopped then."""
        if at_ms < NO_LIMIT:
            self.wake_ms = at_ms if self.wake_ms is None else min(self.wake_ms, at_ms)

    def find(self, candidate: Candidate) -> Clearing | None:
        """
        Who would go for the gang, and the room that it would have; None where that does not help or is not needed.

        Not needed: what is ending anyhow is enough. Nothing is decided; `take` does that.
        """
        self._victims.begin()
        if candidate.job_id in self._board.claims_by or not self._is_its_turn(candidate.lane.array):
            return None
        if not options_of(candidate.lane.state, self._board.columns):
            return None  # No node there is could ever take it, whoever goes.
        self._tries += 1
        moved = self._mover.find(candidate) if self._policy.move else None
        found = moved or self._preemptor.find(candidate)
        if found is None and self._victims.spared_until_ms is not None:
            self.wake_at(self._victims.spared_until_ms)
        return found

    def leaves_within_ms(self, found: Clearing) -> int:
        """The longest until all who go for it are out."""
        return max((leaves_within_ms(self._board.jobs[victim.job_id]) for victim in found.victims), default=0)

    def take(self, found: Clearing) -> None:
        """Decided: what is free of the room that was found is taken on the ledger, and the charges are too."""
        self.made.append(found)
        for victim in found.victims:
            self._victims.take(victim)
        self._trials.keep(found)

    def would_rather_wait(self, found: Clearing, start_ms: int) -> bool:
        """
        True if waiting for a known start costs less GPU time than these would lose, and it is not too long.

        The same for a priority and for a guarantee: whoever has the right has it `patience_max_ms` later at the latest.
        """
        job = self._board.jobs[found.candidate.job_id]
        wait_ms = start_ms - self._now_ms
        if job.spec.tolerance is not None and wait_ms <= job.spec.tolerance.ms:
            return True
        return wait_ms <= self._policy.patience_max_ms and wait_ms * max(1, found.gpus) < found.cost

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

    # --- for the plan --------------------------------------------------------------------------------------------------------------
    def decisions(self) -> list[Reserve | Move | Evict | Resize]:
        """Each gang's room, and who is moved, stopped or shrinks for it. Whoever loses members to several gangs does so at once."""
        found: list[Reserve | Move | Evict | Resize] = []
        told: set[str] = set()
        for made in self.made:
            members = seated(self._board.columns, made.placement)
            found.append(Reserve(job=made.candidate.job_id, members=members, start_ms=self._now_ms))
            for at, victim in enumerate(made.victims):
                if victim.job_id in told:
                    continue
                told.add(victim.job_id)
                if made.moved_to:
                    found.append(self._move(victim, made.moved_to[at], made))
                elif victim.job_id in self._victims.taken:
                    found.append(self._evict(victim, made))
                else:
                    found.append(self._shrink(victim, made))
        return found

    def _move(self, victim: Victim, to: Placement, made: Clearing) -> Move:
        members = seated(self._board.columns, to)
        name, queue = self._board.jobs[made.candidate.job_id].address, made.candidate.queue
        where = ", ".join(member.node for member in members[: limits.HOLDERS_SHOWN_MAX])
        message = f"goes on at {where}, so that job {name} of queue {queue} has room for its shape"
        reason = Reason(code=ReasonCode.MOVED, message=message, queue=queue, blockers=(name,))
        return Move(job=victim.job_id, members=members, beneficiary=made.candidate.job_id, reason=reason)

    def _evict(self, victim: Victim, made: Clearing) -> Evict:
        name, queue = self._board.jobs[made.candidate.job_id].address, made.candidate.queue
        why = f"of queue {queue}, which is owed its share" if victim.across is not None else "of its queue, which has a higher priority"
        reason = Reason(code=ReasonCode.PREEMPTED, message=f"stopped in favour of job {name} {why}", queue=queue, blockers=(name,))
        return Evict(job=victim.job_id, beneficiary=made.candidate.job_id, reason=reason)

    def _shrink(self, victim: Victim, made: Clearing) -> Resize:
        """All that the job loses in this cycle, to whomever."""
        job_id, gainer, queue = victim.job_id, made.candidate.job_id, made.candidate.queue
        name, held = self._board.jobs[gainer].address, staying(self._board, job_id)
        kept = tuple(member_of(a) for a in held if (job_id, a.id) not in self._victims.shed)
        message = f"from {len(held)} to {len(kept)} nodes in favour of job {name} of queue {queue}"
        reason = Reason(code=ReasonCode.PREEMPTED, message=message, queue=queue, blockers=(name,))
        return Resize(job=job_id, members=kept, gpu_model=held[0].gpu_model, reason=reason, beneficiary=gainer)

"""
START HERE. One cycle: from a board, a policy, a time and a random stream to a plan. Pure: boards of the same records place the same, to
the byte. (A reason is told when a shape fails, not again while the board remembers that it did.)

    1. admit    jobs whose time has come join the others; held ones and those with open dependencies never come this far   admit, pending
    2. order    queues by fair share over the tree; inside a queue by priority, age, number                               order
    3. place    quota room, then domains, then nodes, then devices; a gang whole or not at all                            place
    4. tell     why the jobs that were tried and did not fit wait                                                         shortfall

What is taken for one job is seen by the next, on a private ledger over the board; in the end the board is as it was found. A shape
that failed is not tried again for its siblings, in this cycle and until some node may take more than before. Who enacts the plan
checks it again, from the records (`check`).

Called by the plane's schedule step, by what-if questions and by the simulator: all get their answer from here.
Cost: what changed since the last cycle, plus queues, plus distinct shapes, times logarithms; not the length of the queues.
"""

from __future__ import annotations

from shoal.base import limits
from shoal.base.rng import Rng
from shoal.model.plan import Decision, Place, PlacedMember, Plan, Wait
from shoal.model.reason import Reason, ReasonCode
from shoal.scheduling.board import Board
from shoal.scheduling.ledger import Ledger
from shoal.scheduling.options import options_of
from shoal.scheduling.order import Candidate, Contest
from shoal.scheduling.place import Placement, Refusal, place
from shoal.scheduling.policy import Policy
from shoal.scheduling.shortfall import no_room_reason, quota_reason


def schedule(board: Board, policy: Policy, now_ms: int, rng: Rng) -> Plan:  # noqa: ARG001 - no step draws yet; a stream per step
    """
    What to do now. `board` is left as found, apart from what it remembers of failed shapes.

    At most limits.PLACED_PER_CYCLE_MAX gangs are placed and limits.ATTEMPTS_PER_CYCLE_MAX tried; `counters["bound"]` is 1 if that
    ended the cycle, and then `next_at_ms` is now.
    """
    # 1. admit
    board.begin_cycle(now_ms)
    # 2. order
    contest = Contest(board, policy)
    run = _Run(board, policy)
    with run.ledger.trial():
        while not run.bound and (candidate := contest.next()) is not None:
            # 3. place
            refusal = run.attempt(candidate)
            if refusal is None:
                contest.placed()
            else:
                contest.refused(by_quota=refusal is Refusal.QUOTA)
        # 4. tell
        waits = run.waits()
    contest.close()
    next_at_ms = now_ms if run.bound else board.pending.next_time_ms()
    return Plan(version=board.version, decisions=(*run.places, *waits), counters=run.counters(), next_at_ms=next_at_ms)


class _Run:
    """One cycle's decisions so far."""

    def __init__(self, board: Board, policy: Policy) -> None:
        self.board = board
        self.policy = policy
        self.ledger = Ledger(board)
        self.places: list[Decision] = []
        self._refused: list[tuple[Candidate, Refusal]] = []
        self._attempts = 0
        self._placed_max = min(policy.placed_per_cycle, limits.PLACED_PER_CYCLE_MAX)

    @property
    def bound(self) -> bool:
        return len(self.places) >= self._placed_max or self._attempts >= limits.ATTEMPTS_PER_CYCLE_MAX

    def attempt(self, candidate: Candidate) -> Refusal | None:
        """Tries one job; None if it is placed, and then its room and its quota are taken on the ledger."""
        self._attempts += 1
        found = place(self.ledger, candidate.queue, candidate.lane.state, self.policy)
        if isinstance(found, Placement):
            self.places.append(self._decide(candidate, found))
            return None
        if found is Refusal.ROOM:
            self._remember_failure(candidate)
        self._refused.append((candidate, found))
        return found

    def _decide(self, candidate: Candidate, found: Placement) -> Place:
        columns, option = self.board.columns, found.option
        borrowed = self.board.quota.borrows(candidate.queue, found.charge)
        members = []
        for seat in found.seats:
            part = option.groups[seat.group]
            asked = part.need.member
            self.ledger.seat(seat.row, seat.mask, asked.cpu_milli, asked.memory_bytes)
            members.append(
                PlacedMember(
                    node=columns.nodes[seat.row].id,
                    group=part.group.name,
                    devices=columns.uuids(seat.row, seat.mask),
                    cpu_milli=asked.cpu_milli,
                    memory_bytes=asked.memory_bytes,
                )
            )
        self.ledger.charge(candidate.queue, found.charge)
        return Place(
            job=candidate.job_id,
            members=tuple(members),
            gpu_model=option.model or "",
            domain=found.domain,
            borrowed=borrowed,
            alternative=option.alternative.entry,
        )

    def _remember_failure(self, candidate: Candidate) -> None:
        """For as long as no node may take more; but what failed on room that only this plan has taken is tried again next time."""
        state = candidate.lane.state
        state.failed_cycle = self.board.cycle
        if self.ledger.clean:
            state.failed_growth = self.board.columns.growth

    def waits(self) -> list[Wait]:
        """Reasons for the first that were refused, as things stand with everything placed; not more than the policy wants."""
        told = self._refused[: self.policy.waits_per_plan]
        return [Wait(job=candidate.job_id, reason=self._reason(candidate, refusal)) for candidate, refusal in told]

    def _reason(self, candidate: Candidate, refusal: Refusal) -> Reason:
        state = candidate.lane.state
        options = options_of(state, self.board.columns)
        if refusal is Refusal.ROOM:
            return no_room_reason(self.board, state.shape, options, self.policy)
        short = quota_reason(self.board.quota, candidate.queue, options)
        return short or Reason(code=ReasonCode.BEHIND, message="its queue may start less than the nodes could take", queue=candidate.queue)

    def counters(self) -> dict[str, int]:
        return {
            "attempts": self._attempts,
            "placed": len(self.places),
            "refused": len(self._refused),
            "pending": len(self.board.pending),
            "bound": int(self.bound),
        }

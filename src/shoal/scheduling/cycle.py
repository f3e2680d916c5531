"""
START HERE. One cycle: from a board, a policy, a time and a random stream to a plan. Pure: boards of the same records place the same, to
the byte. (A reason is told when a shape fails, not again while the board remembers that it did.)

    1. admit    jobs whose time has come join the others; held ones and those with open dependencies never come this far   admit, pending
    2. order    queues by fair share over the tree; inside a queue by priority, age, number                               order
    3. place    quota room, then domains, then nodes, then devices; a gang whole or not at all                            place
    4. reserve  the earliest start of gangs that are blocked, and room kept for it                                        reserve
    5. backfill who comes after takes what delays no reservation                                                          reserve
    5b. move    room for who has the right to it, by moving others to where they fit as well                          move, clear
    6. preempt  room for who has the right to it, by stopping others; nothing started in a cycle is stopped in it          preempt, clear
    7. resize   elastic gangs take what nobody waits for                                                                  grow
    8. tell     why the jobs that were tried and did not fit wait                                                         shortfall

What is taken for one job is seen by the next, on a private ledger over the board; in the end the board is as it was found. A shape
that failed is not tried again for its siblings, in this cycle and until some node may take more than before. Who enacts the plan
checks it again, from the records (`check`).

Called by the plane's schedule step, by what-if questions and by the simulator: all get their answer from here.
Cost: what changed since the last cycle, plus queues, plus distinct shapes, times logarithms; not the length of the queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from shoal.base import limits
from shoal.base.rng import Rng
from shoal.model.plan import Decision, Place, Plan, Wait
from shoal.model.reason import Reason, ReasonCode
from shoal.scheduling.allowance import gpus_milli
from shoal.scheduling.board import Board
from shoal.scheduling.clear import Clearer
from shoal.scheduling.clearing import Clearing
from shoal.scheduling.grow import Grower
from shoal.scheduling.ledger import Ledger
from shoal.scheduling.maintenance import window_reason
from shoal.scheduling.options import options_of
from shoal.scheduling.order import Candidate, Contest
from shoal.scheduling.packed import use_packing
from shoal.scheduling.place import Placement, Refusal, seated
from shoal.scheduling.policy import Policy
from shoal.scheduling.reserve import Reservations, Reserved
from shoal.scheduling.shortfall import no_room_reason, quota_reason
from shoal.scheduling.standing import is_closed


def schedule(board: Board, policy: Policy, now_ms: int, rng: Rng) -> Plan:  # noqa: ARG001 - no step draws yet; a stream per step
    """
    What to do now. `board` is left as found, apart from what it remembers of failed shapes.

    At most limits.PLACED_PER_CYCLE_MAX gangs are placed and limits.ATTEMPTS_PER_CYCLE_MAX tried; `counters["bound"]` is 1 if that
    ended the cycle, and then `next_at_ms` is now.
    """
    # 1. admit
    board.begin_cycle(now_ms)
    board.use_policy(policy)
    # 2. order
    run = _Run(board, policy, now_ms)
    run.reservations.recalling = True
    with run.ledger.trial():
        run.go()
        # 8. tell
        waits = run.waits()
    return run.plan(waits)


class Forecast(NamedTuple):
    """What a cycle would do for one job: start it now (`placed`), keep it room, or neither; and everything that it keeps."""

    placed: bool
    reserved: Reserved | None
    others: tuple[Reserved, ...]


class Ahead:
    """A cycle as of now, held open for questions: what it placed is taken, and what it keeps for others is kept."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self.board = run.board
        self.ledger = run.ledger
        self.stopping = frozenset(victim.job_id for made in run.clearer.made for victim in made.victims)
        """Jobs that this cycle would stop, move or shrink: their room is somebody's already."""

    @property
    def placed(self) -> tuple[str, ...]:
        """Jobs that the cycle starts."""
        return tuple(place.job for place in self._run.places)

    def places(self, job_id: str) -> bool:
        """True if the cycle starts this job."""
        return any(place.job == job_id for place in self._run.places)

    def forecast(self, job_id: str) -> Forecast:
        """The earliest start of one pending job, however far away, as far as it is known."""
        run, filed = self._run, self.board.pending.filed(job_id)
        made = {reserved.job_id: reserved for reserved in run.reservations.made}
        placed = self.places(job_id)
        others = tuple(reserved for reserved in made.values() if reserved.job_id != job_id)
        mine = made.get(job_id)
        if mine is None and filed is not None and not placed and filed.queue in self.board.quota.vertices:
            mine = run.reservations.forecast(Candidate(filed.queue, filed.key, filed.lane, blocked=True))
        return Forecast(placed, mine, others)

    def found(self, candidate: Candidate) -> Placement | None:
        """Where the candidate would start now, beside all that this cycle placed and keeps; it may be another shape of a pending job."""
        return self._run.reservations.asked(candidate)

    def spared(self, candidate: Candidate) -> tuple[str, ...]:
        """Jobs whose room it has the right to, and that the cycle leaves since the job would rather wait. Cost: one search for victims."""
        run = self._run
        if not run.clearer.open or any(made.candidate.job_id == candidate.job_id for made in run.clearer.made):
            return ()
        closed = run.reservations.closed_to(candidate)
        with run.reservations.besides(candidate.job_id), self.board.rooms.closing(closed):
            found = run.clearer.find(candidate)
        return tuple(victim.job_id for victim in found.victims) if found is not None else ()

    def plan(self) -> Plan:
        """What the cycle decided."""
        return self._run.plan(self._run.waits())


@contextmanager
def look_ahead(board: Board, policy: Policy, now_ms: int) -> Iterator[Ahead]:
    """
    The cycle as it would run now, to ask what would be if; the board is as it was when the questions are over.

    Costs a cycle. `board.begin_cycle` was said.
    """
    run = _Run(board, policy, now_ms)
    with run.ledger.trial():
        run.go()
        yield Ahead(run)


class _Run:
    """One cycle's decisions so far."""

    def __init__(self, board: Board, policy: Policy, now_ms: int) -> None:
        self.board = board
        self.policy = policy
        self.now_ms = now_ms
        use_packing(board.columns, policy)
        self.ledger = Ledger(board)
        self.reservations = Reservations(board, self.ledger, policy, now_ms)
        self.clearer = Clearer(board, self.ledger, policy, now_ms)
        self.grower = Grower(board, self.ledger, self.reservations, policy, now_ms)
        self.places: list[Decision] = []
        self._claimed: set[str] = set()
        """Jobs that were looked at first, since room is kept for them."""
        self._refused: list[tuple[Candidate, Refusal]] = []
        self._attempts = 0
        self._last_milli = 0
        self._placed_max = min(policy.placed_per_cycle, limits.PLACED_PER_CYCLE_MAX)

    @property
    def bound(self) -> bool:
        return len(self.places) >= self._placed_max or self._attempts >= limits.ATTEMPTS_PER_CYCLE_MAX

    def plan(self, waits: list[Wait]) -> Plan:
        """Everything decided."""
        decisions = (*self.places, *self.reservations.decisions(), *self.clearer.decisions(), *self.grower.made, *waits)
        times_ms = (self.board.pending.next_time_ms(), self.clearer.wake_ms, self.reservations.wake_ms, self.grower.wake_ms)
        wakes = [at for at in times_ms if at is not None]
        next_at_ms = self.now_ms if self.bound or self.clearer.bound else min(wakes, default=None)
        return Plan(version=self.board.version, decisions=decisions, counters=self.counters(), next_at_ms=next_at_ms, at_ms=self.now_ms)

    def go(self) -> None:
        """All candidates in turn, until nobody is left or a bound is reached."""
        self._place_claimed()
        contest = Contest(self.board, self.policy, self.reservations.open, self.clearer.open)
        while not self.bound and (candidate := contest.next()) is not None:
            # 3. place
            if candidate.job_id in self._claimed:
                contest.placed(self._charged(candidate.job_id))
                continue
            refusal = Refusal.ROOM if candidate.blocked else self.attempt(candidate)
            if refusal is None:
                contest.placed(self._charged(candidate.job_id))
            else:
                # 4. reserve
                reserved = contest.wants_reservation and self.reservations.reserve(candidate) is not None
                # 6. preempt
                contest.refused(refusal, reserved, cleared=self._preempt(candidate))
            contest.want_blocked(self.reservations.open, self.clearer.open)
        contest.close()
        if contest.left_out:
            self.clearer.wake_at(self.now_ms + limits.PREEMPT_GO_ON_MS)
        # 7. resize
        if not self.bound:
            settled = {made.job_id for made in self.reservations.made} | {made.candidate.job_id for made in self.clearer.made}
            self.grower.go({place.job for place in self.places}, settled | self._claimed, self.clearer.touched)

    def _charged(self, job_id: str) -> int | None:
        """Thousandths of GPUs that a job is charged which this plan places, where it was the last; else None."""
        last = self.places[-1] if self.places else None
        return None if last is None or last.job != job_id else self._last_milli

    def _place_claimed(self) -> None:
        """
        Who preempted comes first: its claims, as far as their room has been freed, are free for it alone.

        Until it starts its charge is held too, so that nobody takes the quota that was freed for it; nobody but those whose room is all
        free already. (Who still stops for it is charged as well: by both, a gang that has its room would be held up for one that has not.)
        """
        waiting = [candidate for candidate in self._claimants() if not self._place_on_claims(candidate)]
        for candidate in waiting:
            self.ledger.charge(candidate.queue, options_of(candidate.lane.state, self.board.columns)[0].charge_least)

    def _claimants(self) -> list[Candidate]:
        """Waiting jobs with claims, in order; those that may not start now are left out."""
        board = self.board
        filed = ((board.pending.filed(job_id), job_id) for job_id in board.claims_by)
        found: list[Candidate] = []
        for one, job_id in sorted(((f, j) for f, j in filed if f is not None), key=lambda entry: entry[0].key):
            vertex = board.quota.vertices.get(one.queue)
            if vertex is not None and not is_closed(vertex) and not board.pending.waits_for_time(job_id):
                self._claimed.add(job_id)
                found.append(Candidate(one.queue, one.key, one.lane))
        return found

    def _place_on_claims(self, candidate: Candidate) -> bool:
        """True if the gang starts in the room that is claimed for it."""
        board = self.board
        mark = self.ledger.mark()
        for claim_id in board.claims_by[candidate.job_id]:
            claim = board.claims[claim_id]
            row = board.columns.row.get(claim.node)
            if row is not None:
                mask = board.columns.mask_of(row, claim.devices) & board.columns.free_without(row, claim_id)
                pieces = board.columns.pieces_of(row, claim.parts, claim.project)
                self.ledger.unseat(row, mask, claim.cpu_milli, claim.memory_bytes, pieces)
        placed = self.attempt(candidate, remember=False) is None
        if not placed:
            self.ledger.rewind(mark)
        return placed

    def _preempt(self, candidate: Candidate) -> bool:
        """Victims, unless the gang would rather wait, or the room that it will have soon is being freed already."""
        job = self.board.jobs[candidate.job_id]
        start_ms = self._reserved_start(job.id)
        if start_ms is not None and job.spec.tolerance is not None and start_ms <= self.now_ms + job.spec.tolerance.ms:
            return False
        if not self.clearer.open:
            return False
        if candidate.lane.is_hopeless(self.board.version, self.now_ms):
            self._ask_as_before(candidate, start_ms)
            return False
        found, kept_off = self._clearing(candidate)
        if found is None:
            if not kept_off:  # Windows begin and end without a change of the board.
                candidate.lane.searched(self.board.version, self.clearer.time_may_help_at)
            return False
        if self._waits_instead(candidate, found, start_ms):
            candidate.lane.searched(self.board.version, patient=True)
            return False
        self.reservations.drop(job.id)  # first: what it hides of its own room must be free to be taken
        self.clearer.take(found)
        return True

    def _clearing(self, candidate: Candidate) -> tuple[Clearing | None, bool]:
        """Who would go for it, where no window keeps it from starting once they are out; and whether windows kept it off some nodes."""
        later_ms = 0
        for _ in range(2):  # The second time with the wait that the first one's victims bring.
            closed = self.reservations.closed_to(candidate, later_ms)
            with self.reservations.besides(candidate.job_id), self.board.rooms.closing(closed):
                found = self.clearer.find(candidate)
            if found is None:
                return None, closed is not None
            later_ms = self.clearer.leaves_within_ms(found)
            closed = self.reservations.closed_to(candidate, later_ms)
            if closed is None or not closed[[seat.row for seat in found.placement.seats]].any():
                return found, closed is not None
        return None, True

    def _ask_as_before(self, candidate: Candidate, start_ms: int | None) -> None:
        """What a search would end in is known from an earlier cycle: room that is kept, or a time to be woken at."""
        if candidate.lane.patient and start_ms is None and self.reservations.open:
            self.reservations.reserve(candidate)
        self.clearer.wake_at(candidate.lane.hopeless_until_ms)

    def _reserved_start(self, job_id: str) -> int | None:
        return next((r.start_ms for r in self.reservations.made if r.job_id == job_id), None)

    def _waits_instead(self, candidate: Candidate, found: Clearing, start_ms: int | None) -> bool:
        """Whether its known start is near enough; one without a reservation gets one, since only kept room is a known start."""
        if start_ms is not None:
            return self.clearer.would_rather_wait(found, start_ms)
        reserved = self.reservations.reserve(candidate) if self.reservations.open else None
        if reserved is not None and not self.clearer.would_rather_wait(found, reserved.start_ms):
            self.reservations.drop(candidate.job_id)
            return False
        return reserved is not None

    def attempt(self, candidate: Candidate, remember: bool = True) -> Refusal | None:
        """Tries one job; None if it is placed, and then its room and its quota are taken on the ledger."""
        self._attempts += 1
        found = self.reservations.find(candidate, claimed=not remember)  # 5. backfill: past reservations only where they are not delayed
        if isinstance(found, Placement):
            self.places.append(self._decide(candidate, found))
            self.reservations.settle(candidate, found)
            return None
        if found is Refusal.ROOM and remember and not self.reservations.allowance.left_out:
            self._remember_failure(candidate)
        self._refused.append((candidate, found))
        return found

    def _decide(self, candidate: Candidate, found: Placement) -> Place:
        option = found.option
        borrowed = self.board.quota.borrows(candidate.queue, found.charge)
        for seat in found.seats:
            asked = option.groups[seat.group].need.member
            self.ledger.seat(seat.row, seat.mask, asked.cpu_milli, asked.memory_bytes, seat.pieces)
        self.ledger.charge(candidate.queue, found.charge)
        self._last_milli = gpus_milli(found.charge)
        return Place(
            job=candidate.job_id,
            members=seated(self.board.columns, found),
            gpu_model=option.model or "",
            domain=found.domain,
            borrowed=borrowed,
            alternative=option.alternative.entry,
            relative_speed=found.prediction.speed if found.prediction is not None else None,
            predicted=found.prediction.text if found.prediction is not None else "",
        )

    def _remember_failure(self, candidate: Candidate) -> None:
        """For as long as no node may take more; but what failed on room that this plan has taken or keeps is tried again next time."""
        if self.reservations.is_full_for(candidate.lane.state):
            candidate.lane.state.failed_growth = self.board.columns.growth
            return
        state = candidate.lane.state
        kept = self.reservations.hiding or self.reservations.closed_to(candidate) is not None
        length = (candidate.lane.run_ms, candidate.lane.limit_ms) if kept else (0, 0)
        shorter = length[0] <= state.failed_run_ms and length[1] <= state.failed_limit_ms
        if shorter or state.failed_cycle != self.board.cycle:
            state.failed_run_ms, state.failed_limit_ms = length
        state.failed_cycle = self.board.cycle
        if self.ledger.clean and not kept:
            state.failed_growth = self.board.columns.growth

    def waits(self) -> list[Wait]:
        """Reasons for the first that were refused, as things stand with everything placed; not more than the policy wants."""
        reserved = {made.job_id for made in self.reservations.made} | {made.candidate.job_id for made in self.clearer.made}
        told = [entry for entry in self._refused if entry[0].job_id not in reserved][: self.policy.waits_per_plan]
        return [Wait(job=candidate.job_id, reason=self._reason(candidate, refusal)) for candidate, refusal in told]

    def _reason(self, candidate: Candidate, refusal: Refusal) -> Reason:
        state = candidate.lane.state
        options = options_of(state, self.board.columns)
        if refusal is Refusal.ROOM:
            window = window_reason(self.board, self.policy, candidate.lane, self.now_ms)
            if window is not None:
                return window
            return no_room_reason(self.board, state.shape, options, self.policy)
        if refusal is Refusal.LATER:
            return Reason(code=ReasonCode.BEHIND, message="its queue's quota is kept for a job before it", queue=candidate.queue)
        short = quota_reason(self.board.quota, candidate.queue, options)
        return short or Reason(code=ReasonCode.BEHIND, message="its queue may start less than the nodes could take", queue=candidate.queue)

    def counters(self) -> dict[str, int]:
        return {
            "attempts": self._attempts,
            "placed": len(self.places),
            "refused": len(self._refused),
            "evicted": sum(len(made.victims) for made in self.clearer.made if not made.moved_to),
            "moved": sum(len(made.moved_to) for made in self.clearer.made),
            "resized": len(self.grower.made),
            "reserved": len(self.reservations.made),
            "pending": len(self.board.pending),
            "bound": int(self.bound),
        }

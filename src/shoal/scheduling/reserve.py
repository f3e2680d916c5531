"""
Steps 4 and 5 of the cycle: an earliest start for gangs that are blocked, and the rule by which others may pass them.

    reserve    the first time at which a gang fits, on the board as it will be by then: what ends by its time limit has given back its
               devices, CPUs, memory and quota; earlier reservations hold theirs. Placement is asked, so topology, islands, groups and
               quota count exactly as they do for a start.
    backfill   who is placed while reservations stand takes only what they leave. Who ends before a reservation starts may use its
               room meanwhile; who would still run by then may not, and neither may he use quota that it will need.

Nodes that are somebody's for a window (`windows`) are closed to who would still run when it begins; a gang's earliest start may lie
behind one.

EASY gives a reservation to the first blocked gang of each queue, conservative to every blocked gang in turn; both up to a bound. What
is kept now of a reservation is taken off a copy of the columns, and others are tried on that. Nothing is stored: equal boards give equal
reservations, and a board on which only time has passed gives the same ones.

Prior art: Slurm's backfill (table of times, one pass), EASY's shadow time. Where two reservations overlap a third one but not each other,
their CPUs, memory and quota are added up: the third may be told too late, never too early.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np

from shoal.base import limits
from shoal.model.plan import Reserve
from shoal.scheduling.allowance import Allowance
from shoal.scheduling.board import Board
from shoal.scheduling.columns import Columns
from shoal.scheduling.domains import wish_of
from shoal.scheduling.horizon import NEVER, Firsts, after
from shoal.scheduling.ledger import Board as LedgerBoard
from shoal.scheduling.ledger import Ground, Ledger
from shoal.scheduling.options import GroupOption, Option, inside_host, options_of
from shoal.scheduling.order import Candidate
from shoal.scheduling.pending import Lane, ShapeState
from shoal.scheduling.place import Placement, Refusal, place, place_options, seated
from shoal.scheduling.policy import Policy
from shoal.scheduling.quota import Charge, QuotaTree
from shoal.scheduling.rooms import Flags, RoomTable, accepted_devices
from shoal.scheduling.shares import Pieces
from shoal.scheduling.stretch import Stretch, give_all, stretch_of, take_all
from shoal.scheduling.windows import fits_between

Released = tuple[tuple[str, Charge], ...]
"""Charges given back, by queue."""
_GALLOP_AFTER = 8
"""Tries in a row at neighbouring ends, before more and more of them are stepped over."""


class Part(NamedTuple):
    """Room on one node."""

    row: int
    mask: int
    cpu_milli: int
    memory_bytes: int
    pieces: Pieces = ()


class Reserved(NamedTuple):
    """Room that a blocked gang will have from `start_ms` on. `keeps` is what of it nobody may have who still runs by then."""

    job_id: str
    queue: str
    start_ms: int
    end_ms: int
    placement: Placement
    parts: tuple[Part, ...]
    keeps: Stretch
    released: Released
    """In its quota tree, by the start."""
    slack: dict[str, int]
    """What the queue could be charged on top at the start, by resource; less what was placed since."""

    def meets(self, start_ms: int, end_ms: int) -> bool:
        """True if it needs its room at some time in between."""
        return self.start_ms < end_ms and start_ms < self.end_ms


class Recall(NamedTuple):
    """A cycle's first reservation with all that it followed from: while that is so, and it lies ahead, it would be found again."""

    reserved: Reserved
    lane: Lane
    quota: QuotaTree
    policy: Policy
    state: tuple[int, ...]


class _Started(NamedTuple):
    """A gang that this cycle has placed."""

    queue: str
    end_ms: int
    charge: Charge
    parts: tuple[Part, ...]


class Reservations:
    """See module. One per cycle, over the cycle's ledger."""

    def __init__(self, board: Board, ledger: Ledger, policy: Policy, now_ms: int) -> None:
        self._board = board
        self._ledger = ledger
        self._policy = policy
        self._now_ms = now_ms
        self.recalling = False
        """Off for questions of what would be if: what they find is not so, and what was found before is not asked for."""
        self.made: list[Reserved] = []
        self.allowance = Allowance(board)
        self.wake_ms: int | None = None
        """When a window ends that kept somebody out."""
        self._most = 0 if policy.reserve == "none" else min(policy.reservations, limits.RESERVATIONS_MAX)
        self._started: list[_Started] = []
        self._grounds: dict[int, Ground] = {}
        """By how many of the reservations, the earliest first, are kept off it."""
        self._some_end = len(board.horizon.ends) > 0
        self._tries = self._walked = 0

    @property
    def open(self) -> bool:
        """True while another blocked gang may get a reservation."""
        if len(self.made) >= self._most or self._tries >= limits.RESERVE_TRIES_MAX:
            return False
        return self._some_end

    # --- backfill ------------------------------------------------------------------------------------------------------------
    @contextmanager
    def besides(self, job_id: str) -> Iterator[None]:
        """While inside, what is kept for others is taken off the board itself; a job sees the room that is kept for it."""
        hidden: list[Stretch] = []
        for reserved in self.made:
            if reserved.job_id != job_id:
                hidden.append(_take_kept(self._board.columns, reserved))
        try:
            yield
        finally:
            for taken in reversed(hidden):
                give_all(self._board.columns, taken)

    def drop(self, job_id: str) -> None:
        """The job gets its room in another way, which was taken on the ledger."""
        self.made = [reserved for reserved in self.made if reserved.job_id != job_id]
        self._grounds.clear()

    def find(self, candidate: Candidate, claimed: bool = False) -> Placement | Refusal:
        """
        A place that delays no reservation and lies in nobody's window, or why there is none. `claimed`: room that is kept for it was
        given back just now.

        What nobody is kept room on is tried first; then, for who ends in time, what is needed only after that. With a placement, the
        caller seats it and says `settle`.
        """
        self.allowance.left_out = False
        if not claimed and self.is_full_for(candidate.lane.state):
            return Refusal.ROOM
        ends_ms, closed = after(self._now_ms, candidate.lane.run_ms), self.closed_to(candidate)
        found = self._place(candidate, NEVER, closed)
        if found is Refusal.ROOM and any(reserved.start_ms >= ends_ms for reserved in self.made):
            found = self._place(candidate, ends_ms, closed)
        if found is Refusal.ROOM and closed is not None:
            self._note_wake(candidate)
        if isinstance(found, Placement) and not self._leaves_quota(candidate.queue, found.charge, ends_ms):
            return Refusal.LATER
        return found

    def closed_to(self, candidate: Candidate, later_ms: int = 0) -> Flags | None:
        """The nodes that somebody else has before the candidate would end that starts `later_ms` from now at the latest; None: none."""
        ends_ms = after(self._now_ms + later_ms, candidate.lane.limit_ms)
        return self._board.windows.closed(self._now_ms, ends_ms, candidate.lane.state.passes)

    def _note_wake(self, candidate: Candidate) -> None:
        """A candidate that windows keep out may start when the first of them ends."""
        windows, limit_ms = self._board.windows, candidate.lane.limit_ms
        for name, window in windows.meeting(self._now_ms, after(self._now_ms, limit_ms), candidate.lane.state.passes):
            if fits_between(windows.reservations[name].spec, limit_ms):
                self.wake_ms = window.end_ms if self.wake_ms is None else min(self.wake_ms, window.end_ms)

    def _place(self, candidate: Candidate, before_ms: int, closed: Flags | None) -> Placement | Refusal:
        ledger = self._ledger if not self.made else Ledger(self._ground(before_ms))
        with ledger.board.rooms.closing(closed):
            return self._place_on(ledger, candidate)

    def _place_on(self, ledger: Ledger, candidate: Candidate) -> Placement | Refusal:
        state = candidate.lane.state
        if self.allowance.limits(candidate):
            return place_options(ledger, candidate.queue, state.shape, self.allowance.options(candidate), self._policy)
        return place(ledger, candidate.queue, state, self._policy)

    def _ground(self, before_ms: int) -> Ground:
        """The fleet without what is kept for reservations that start before a time. Kept, and moved on with what is placed."""
        kept = [reserved for reserved in self.made if reserved.start_ms < before_ms]
        ground = self._grounds.get(len(kept))  # reservations before a time are the more the later it is: their number tells which
        if ground is None:
            none = np.zeros(0, np.int64)
            columns = self._board.columns.with_freed(none, np.zeros(0, np.uint64), none, none)
            for reserved in kept:
                _take_kept(columns, reserved)
            moved = np.unique(np.concatenate([none, *(reserved.keeps.rows for reserved in kept)]))
            ground = Ground(columns, RoomTable(columns, self._board.rooms, moved), self._board.quota)
            self._grounds[len(kept)] = ground
        return ground

    def is_full_for(self, state: ShapeState) -> bool:
        """True if it was seen when the cycle began that there are not nodes enough, whatever is kept for whom."""
        rooms = self._board.rooms
        options = options_of(state, self._board.columns)
        return all(any(rooms.at_start(part.need) < part.group.low for part in option.groups) for option in options)

    @property
    def left(self) -> LedgerBoard:
        """The board without what is kept for anybody, however late: for whoever will hold his room for ever."""
        return self._board if not self.made else self._ground(NEVER)

    def may_grow(self, queue: str, charge: Charge) -> bool:
        """True if with this charge, held for ever, every reservation may still be charged at its start; then it counts as held."""
        return self._leaves_quota(queue, charge, NEVER)

    def grown(self, parts: tuple[Part, ...]) -> None:
        """Somebody who runs has got this room too."""
        room = stretch_of(parts)
        for ground in self._grounds.values():
            take_all(ground.columns, room)

    def asked(self, candidate: Candidate) -> Placement | None:
        """As `find`, for a question: its own reservation is not in its way, and nothing of it counts afterwards."""
        made, grounds = self.made, self._grounds
        slack = [(reserved, dict(reserved.slack)) for reserved in made]
        self.made, self._grounds = [reserved for reserved in made if reserved.job_id != candidate.job_id], {}
        try:
            found = self.find(candidate, claimed=True)
        finally:
            self.made, self._grounds = made, grounds
            for reserved, before in slack:
                reserved.slack.update(before)
        return found if isinstance(found, Placement) else None

    def settle(self, candidate: Candidate, placement: Placement) -> None:
        """The placement was seated and charged."""
        ends_ms = after(self._now_ms, candidate.lane.run_ms)
        parts = parts_of(placement)
        self.allowance.note(candidate, placement.charge)
        self._started.append(_Started(candidate.queue, ends_ms, placement.charge, parts))
        self._some_end = self._some_end or ends_ms < NEVER
        if self._grounds:
            room = stretch_of(parts)
            for ground in self._grounds.values():
                take_all(ground.columns, room)

    @property
    def hiding(self) -> bool:
        """True if something failed on room that is free, but kept."""
        return bool(self.made)

    def _leaves_quota(self, queue: str, charge: Charge, ends_ms: int) -> bool:
        """True if with this charge every reservation that starts before `ends_ms` may still be charged at its start."""
        quota = self._board.quota
        tree = quota.tree_of(queue)
        meeting = [r for r in self.made if r.start_ms < ends_ms and r.queue in tree and quota.vertices[r.queue].named]
        for reserved in meeting:
            if all(amount <= reserved.slack.get(resource, amount) for resource, amount in charge):
                continue  # Whatever part of it reaches the queue's ancestors, it is no more than this.
            with self._quota_at(reserved.start_ms, reserved.released, (reserved,), min(reserved.end_ms, ends_ms)):
                quota.count(queue, charge)
                short = quota.short_of(reserved.queue, reserved.placement.charge)
                quota.count(queue, charge, -1)
            if short is not None:
                return False
        for reserved in meeting:
            for resource, amount in charge:
                if resource in reserved.slack:
                    reserved.slack[resource] -= amount
        return True

    # --- reserve ---------------------------------------------------------------------------------------------------------------
    def reserve(self, candidate: Candidate) -> Reserved | None:
        """Keeps room for a blocked gang at its earliest start; None if no end of a job that is known would start it in time."""
        first = self.recalling and self._ledger.clean and not self.made and not self._walked
        reserved = self._recalled(candidate) if first else None
        if reserved is None:
            reserved = self._earliest(candidate, self._now_ms + self._policy.reserve_window_ms)
            if first and reserved is not None:
                kept = reserved._replace(slack=dict(reserved.slack))  # Its own slack is used up by what is placed beside it.
                self._board.recall = Recall(kept, candidate.lane, self._board.quota, self._policy, self._state())
        if reserved is not None:
            self.made.append(reserved)
            self._grounds.clear()
        return reserved

    def _recalled(self, candidate: Candidate) -> Reserved | None:
        """The same as the last cycle's, where nothing but time and the queues' lines have moved since."""
        known = self._board.recall
        if known is None or known.reserved.job_id != candidate.job_id or known.reserved.start_ms <= self._now_ms:
            return None
        same = known.lane is candidate.lane and known.quota is self._board.quota and known.policy is self._policy
        if not same or known.state != self._state():
            return None
        return known.reserved._replace(slack=dict(known.reserved.slack))

    def _state(self) -> tuple[int, ...]:
        columns = self._board.columns
        return self._board.horizon.moves, columns.epoch, columns.growth, self._board.windows.moves

    def forecast(self, candidate: Candidate) -> Reserved | None:
        """As `reserve`, however far away, and with nothing kept: for questions after a cycle."""
        self._walked = 0
        return self._earliest(candidate, NEVER - 1)

    def _earliest(self, candidate: Candidate, until_ms: int) -> Reserved | None:
        """The first time up to `until_ms` at which the gang fits beside everything reserved so far."""
        state, lane = candidate.lane.state, candidate.lane
        options = self.allowance.options(candidate)
        time_ms: int | None = self._first_time(candidate, options)
        for tried in range(limits.RESERVE_TRIES_PER_JOB_MAX):
            if time_ms is None or time_ms > until_ms:
                break
            self._tries += 1
            end_ms = after(time_ms, lane.run_ms)
            later = self._later(time_ms, end_ms)
            released = self._board.horizon.released_by(time_ms, self._board.quota.tree_of(candidate.queue))
            closed = self._board.windows.closed(time_ms, after(time_ms, lane.limit_ms), state.passes)
            with self._quota_at(time_ms, released, (), end_ms), later.rooms.closing(closed):
                found = place_options(Ledger(later), candidate.queue, state.shape, options, self._policy)
                slack = self._board.quota.slack(candidate.queue, found.charge) if isinstance(found, Placement) else {}
            if isinstance(found, Placement):
                found = _moved_to_freed(found, later.columns, self._board.columns)
                parts = parts_of(found)
                keeps = stretch_of([self._kept(part, time_ms, end_ms) for part in parts])
                return Reserved(candidate.job_id, candidate.queue, time_ms, end_ms, found, parts, keeps, released, slack)
            time_ms = self._next_time(time_ms, 1 << max(0, tried - _GALLOP_AFTER))
        return None

    def _kept(self, part: Part, time_ms: int, end_ms: int) -> Part:
        """Of CPU and memory, only what those who end by then and earlier reservations do not leave has to be kept now."""
        if not part.cpu_milli and not part.memory_bytes:
            return part
        cpu = memory = 0
        for end, _, allocation in self._board.horizon.ending_on(part.row):
            if end <= time_ms:
                cpu, memory = cpu + allocation.cpu_milli, memory + allocation.memory_bytes
        for started in self._started:
            if started.end_ms <= time_ms:
                same = [other for other in started.parts if other.row == part.row]
                cpu, memory = cpu + sum(p.cpu_milli for p in same), memory + sum(p.memory_bytes for p in same)
        for reserved in self.made:
            if reserved.meets(time_ms, end_ms):
                same = [other for other in reserved.parts if other.row == part.row]
                cpu, memory = cpu - sum(p.cpu_milli for p in same), memory - sum(p.memory_bytes for p in same)
        return part._replace(cpu_milli=max(0, part.cpu_milli - max(0, cpu)), memory_bytes=max(0, part.memory_bytes - max(0, memory)))

    def decisions(self) -> list[Reserve]:
        """What was reserved, for the plan."""
        columns = self._board.columns
        return [
            Reserve(job=reserved.job_id, members=seated(columns, reserved.placement), start_ms=reserved.start_ms) for reserved in self.made
        ]

    # --- the board at another time -----------------------------------------------------------------------------------------------
    def _later(self, time_ms: int, end_ms: int) -> Ground:
        """Columns with what ends by `time_ms` given back, and with what is reserved up to `end_ms` taken."""
        freed = self._board.horizon.freed_by(time_ms)
        columns = self._board.columns.with_freed(*freed)
        given = [Part(row, 0, 0, 0, pieces) for row, pieces in self._board.horizon.pieces_freed_by(time_ms)]
        given += [part for started in self._started if started.end_ms <= time_ms for part in started.parts]
        taken = [part for reserved in self.made if reserved.meets(time_ms, end_ms) for part in reserved.parts]
        give_all(columns, stretch_of(given))
        take_all(columns, stretch_of(taken))
        moved = np.unique(np.concatenate([freed.rows, np.array([part.row for part in (*given, *taken)], np.int64)]))
        return Ground(columns, RoomTable(columns, self._board.rooms, moved), self._board.quota)

    @contextmanager
    def _quota_at(self, time_ms: int, released: Released, without: tuple[Reserved, ...], end_ms: int) -> Iterator[None]:
        """The quota tree with what ends by `time_ms` given back, and with what else is reserved up to `end_ms` charged."""
        quota = self._board.quota
        gone = [*released, *((started.queue, started.charge) for started in self._started if started.end_ms <= time_ms)]
        kept = [(r.queue, r.placement.charge) for r in self.made if r.meets(time_ms, end_ms) and r not in without]
        for name, charge in gone:
            quota.count(name, charge, -1)
        for name, charge in kept:
            quota.count(name, charge)
        try:
            yield
        finally:
            for name, charge in kept:
                quota.count(name, charge, -1)
            for name, charge in gone:
                quota.count(name, charge)

    def _next_time(self, time_ms: int, steps: int) -> int | None:
        """The `steps`-th time after this one at which somebody gives back room, or a window ends."""
        time: int | None = time_ms
        for _ in range(steps):
            assert time is not None
            known = self._board.horizon.next_end(time)
            later = [started.end_ms for started in self._started if time < started.end_ms < NEVER]
            later += [reserved.end_ms for reserved in self.made if time < reserved.end_ms < NEVER]
            later += [] if known is None else [known]
            opens = self._board.windows.ends_after(time)
            later += [] if opens is None else [opens]
            time = min(later, default=None)
            if time is None:
                return None
        return time

    # --- a bound from below --------------------------------------------------------------------------------------------------------
    def _first_time(self, candidate: Candidate, options: tuple[Option, ...]) -> int | None:
        """No option fits before this time; mostly it is the earliest start. None: never, as far as is known."""
        first = NEVER
        for option in options:
            allowed = self._quota_time(candidate.queue, option.charge_least)
            if allowed < first:
                room = max(self._room_time(candidate.lane, option, part) for part in option.groups)
                first = min(first, max(room, allowed))
        return None if first >= NEVER else first

    def _room_time(self, lane: Lane, option: Option, part: GroupOption) -> int:
        """When enough nodes of one domain of the widest level allowed will have room for a member each, and be nobody else's."""
        columns, windows, state = self._board.columns, self._board.windows, lane.state
        self._tries += 1
        sooner: dict[int, int] = {}
        for started in self._started:
            if started.end_ms < NEVER:
                for placed in started.parts:
                    sooner[placed.row] = min(sooner.get(placed.row, NEVER), started.end_ms)
        codes, low = None, 1
        if option.members_least > 1:
            wish = wish_of(state.shape, columns, self._policy)
            if wish.ceiling is None or (state.shape.required and inside_host(state.shape, columns)):
                return NEVER
            codes, low = columns.scopes[wish.ceiling].codes, part.group.low
        postponed = partial(windows.postponed, length_ms=lane.limit_ms, passes=state.passes) if windows.reservations else None
        return self._board.horizon.earliest(part.need, Firsts(low, codes, postponed), sooner, self._now_ms)

    def _quota_time(self, queue: str, charge: Charge) -> int:
        """When the queue may be charged so much, going by ends alone."""
        quota = self._board.quota
        if quota.short_of(queue, charge) is None:
            return self._now_ms
        tree = quota.tree_of(queue)
        placed = [(s.end_ms, s.queue, s.charge) for s in self._started if s.queue in tree and s.end_ms < NEVER]
        ends = heapq.merge(self._board.horizon.ends_in(tree), sorted(placed))
        gone: list[tuple[str, Charge]] = []
        found = NEVER
        for end, name, given in islice(ends, limits.ENDS_WALKED_MAX - self._walked):
            quota.count(name, given, -1)
            gone.append((name, given))
            if quota.short_of(queue, charge) is None:
                found = max(end, self._now_ms)
                break
        for name, given in gone:
            quota.count(name, given)
        self._walked += len(gone)
        return found


def _take_kept(columns: Columns, reserved: Reserved) -> Stretch:
    """Takes what a reservation keeps, as far as it is free; gives back what that was."""
    kept = reserved.keeps
    taken = kept._replace(masks=kept.masks & columns.free_mask[kept.rows])
    take_all(columns, taken)
    return taken


def parts_of(placement: Placement) -> tuple[Part, ...]:
    """The room of a placement, node by node."""
    asked = [part.need.member for part in placement.option.groups]
    return tuple(Part(s.row, s.mask, asked[s.group].cpu_milli, asked[s.group].memory_bytes, s.pieces) for s in placement.seats)


def _moved_to_freed(placement: Placement, later: Columns, now: Columns) -> Placement:
    """The same nodes, on devices that are not free yet where these will do: those that are free stay open to others."""
    if len(placement.option.groups) > 1:
        return placement
    need = placement.option.groups[0].need
    if need.model is None or need.together or need.member.pieces:
        return placement
    rows = np.array([seat.row for seat in placement.seats], np.int64)
    accepted = {layout: accepted_devices(layout, need) for layout in dict.fromkeys(later.layouts[row] for row in rows.tolist())}
    seats = []
    for seat, soon in zip(placement.seats, (later.free_mask[rows] & ~now.free_mask[rows]).tolist(), strict=True):
        layout = later.layouts[seat.row]
        coming = soon & accepted[layout]
        enough = coming.bit_count() >= need.member.gpus
        seats.append(seat._replace(mask=layout.choose(coming, need.member.gpus)) if enough else seat)
    return placement._replace(seats=tuple(seats))

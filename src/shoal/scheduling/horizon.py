"""
When held room comes back, as far as it is known: per job the end that its time limit sets, per node what is free by then.

    end of a running job     start + time limit; NEVER for one without a limit, or on a node that is silent
    end of one on its way out ENDING, before everything else: its room is being freed

Owned by the board, which says which jobs and nodes moved; read by `reserve` and `victims`. The table over the nodes is brought up to
date only when somebody asks, and only for nodes that moved. A node with more ends than ENDS_PER_NODE_MAX has them thinned out evenly:
what is free between two that are kept is told at the later one, so that room is never told too early.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.base import limits
from shoal.model.attempt import Allocation, AllocationState
from shoal.model.job import Job, JobState
from shoal.scheduling.quota import Charge, add_charges, charge_of_allocation
from shoal.scheduling.rooms import Need
from shoal.scheduling.shares import Pieces, room_for
from shoal.scheduling.sortedkeys import SortedKeys

if TYPE_CHECKING:
    from shoal.scheduling.board import Board
    from shoal.scheduling.columns import Columns

Times = NDArray[np.int64]
EndKey = tuple[int, str]
"""(end, job id)."""
NEVER: Final = 1 << 62
ENDING: Final = 0

_ENDS_AT_ONCE: Final = 512
"""Ends looked at in one sweep of the table, doubled with each: a blocked gang's room is mostly among the next few hundred."""


def after(time_ms: int, length_ms: int) -> int:
    """So much later; NEVER for a length without a bound (`pending.NO_LIMIT`, which is NEVER)."""
    return NEVER if length_ms >= NEVER else time_ms + length_ms


class Freed(NamedTuple):
    """What will have come back by some time, by row: devices, CPU, memory."""

    rows: Times
    masks: NDArray[np.uint64]
    cpu_milli: Times
    memory_bytes: Times


class Horizon:
    """See module."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.ends: SortedKeys[EndKey] = SortedKeys()
        """Jobs whose end is known, in the order in which they end."""
        self.end_of: dict[str, int] = {}
        """By job that holds room; NEVER where it is not known."""
        self._by_queue: dict[str, SortedKeys[EndKey]] = {}
        self._queue_of: dict[str, str] = {}
        self._charge_of: dict[str, Charge] = {}
        """What each job that holds room is charged: asked far more often than it moves."""
        self.running: dict[str, dict[str, None]] = {}
        """Jobs that hold room, by queue."""
        self._rank_of: dict[str, int] = {}
        self._ranks: dict[str, dict[int, int]] = {}
        """By queue, how many of the jobs that hold room have each priority."""
        self.elastic: dict[str, None] = {}
        """Running jobs that may grow and shrink."""
        self.leaving: dict[str, tuple[str, ...]] = {}
        """By running job, its allocations that are being given back while it goes on."""
        self.by_history = False
        """Whether jobs are taken to end when past runs say, while they have not outlived that. Set as `pending.age_unit_ms`."""
        self.now_ms = 0
        self.moves = 0
        """Rises with everything that is held, freed or told of a node."""
        self._stale: dict[str, None] = {}
        self._epoch = -1
        self._times: Times = np.zeros((0, 0), np.int64)
        self._order: Times = np.zeros(0, np.int64)
        """Places in the table (row x ENDS_PER_NODE_MAX + which end) in the order in which those ends come."""
        self._order_times: Times = np.zeros(0, np.int64)
        self._freed = Freed(self._order, np.zeros((0, 0), np.uint64), self._times, self._times)
        """Per row and end, what has come back with it: the table of which `freed_by` reads a part."""

    # --- moving forward ----------------------------------------------------------------------------------------------------
    def note_job(self, job_id: str) -> None:
        """A job, or what it holds, has moved."""
        held = self._board.held_by.get(job_id)
        before = self.end_of.get(job_id)
        self.moves += held is not None or before is not None
        if not held:
            if before is not None:
                self._count_rank(job_id, -1)
                del self._rank_of[job_id]
                self._drop_end(job_id, before)
                del self._charge_of[job_id]
                self._note_sizes(job_id, ())
            return
        mine = [self._board.allocations[allocation_id] for allocation_id in held]
        charges = [charge_of_allocation(held) for held in mine]
        self._charge_of[job_id] = charges[0] if len(charges) == 1 else add_charges(*charges)
        self._note_sizes(job_id, mine)
        job, queue = self._board.jobs.get(job_id), mine[0].queue
        end, rank = self._end_of(job, mine), job.priority if job is not None else 0
        if before is None or rank != self._rank_of[job_id] or queue != self._queue_of[job_id]:
            if before is not None:
                self._count_rank(job_id, -1)
            self._rank_of[job_id] = rank
            self._count_rank(job_id, 1, queue)
        if end == before and queue == self._queue_of[job_id]:
            return
        if before is not None:
            self._drop_end(job_id, before)
        self.end_of[job_id], self._queue_of[job_id] = end, queue
        self.running.setdefault(queue, {})[job_id] = None
        if end < NEVER:
            self.ends.add((end, job_id))
            self._by_queue.setdefault(queue, SortedKeys()).add((end, job_id))
        for allocation in mine:
            self._stale[allocation.node] = None

    def _note_sizes(self, job_id: str, mine: Sequence[Allocation]) -> None:
        job = self._board.jobs.get(job_id)
        resizes = job is not None and job.state is JobState.RUNNING and job.spec.elastic is not None and len(mine) > 0
        if not resizes:
            self.elastic.pop(job_id, None)
            self.leaving.pop(job_id, None)
            return
        self.elastic[job_id] = None
        leaving = tuple(allocation.id for allocation in mine if allocation.leaving)
        if leaving:
            self.leaving[job_id] = leaving
        else:
            self.leaving.pop(job_id, None)

    def note_node(self, node_id: str) -> None:
        """Somebody came to the node, or left it."""
        self.moves += 1
        self._stale[node_id] = None

    def _count_rank(self, job_id: str, step: int, queue: str | None = None) -> None:
        mine = self._ranks.setdefault(queue or self._queue_of[job_id], {})
        rank = self._rank_of[job_id]
        mine[rank] = mine.get(rank, 0) + step
        if not mine[rank]:
            del mine[rank]

    def _drop_end(self, job_id: str, end: int) -> None:
        queue = self._queue_of.pop(job_id)
        del self.end_of[job_id]
        del self.running[queue][job_id]
        if not self.running[queue]:
            del self.running[queue]
        if end < NEVER:
            self.ends.remove((end, job_id))
            self._by_queue[queue].remove((end, job_id))
            if not len(self._by_queue[queue]):
                del self._by_queue[queue]

    # --- questions ---------------------------------------------------------------------------------------------------------
    def ends_in(self, queues: Iterable[str]) -> Iterator[tuple[int, str, Charge]]:
        """(end, queue, what is given back), ascending by end, of jobs in these queues whose end is known."""
        for end, job_id in self.job_ends_in(queues):
            yield end, self._queue_of[job_id], self.charge_of(job_id)

    def job_ends_in(self, queues: Iterable[str]) -> Iterator[EndKey]:
        """(end, job id), ascending, of jobs in these queues whose end is known."""
        return heapq.merge(*(self._by_queue[queue] for queue in queues if queue in self._by_queue))

    def released_by(self, time_ms: int, queues: Iterable[str]) -> tuple[tuple[str, Charge], ...]:
        """By queue, the charges that jobs give back that end at or before a time."""
        found = []
        for queue in queues:
            ends = self._by_queue.get(queue)
            total: dict[str, int] = {}
            for _, job_id in ends.below((time_ms + 1,)) if ends is not None else ():
                for resource, amount in self._charge_of[job_id]:
                    total[resource] = total.get(resource, 0) + amount
            if total:
                found.append((queue, tuple(sorted(total.items()))))
        return tuple(found)

    def charge_of(self, job_id: str) -> Charge:
        """What a job that holds room is charged."""
        return self._charge_of[job_id]

    def queue_of(self, job_id: str) -> str:
        """The queue that a job which holds room is charged to."""
        return self._queue_of[job_id]

    def outlive(self, now_ms: int) -> None:
        """Time moves on: who was expected to have ended by now and has not is expected to run twice as long, and so on to his limit."""
        self.now_ms = now_ms
        if not self.by_history:
            return
        for _, job_id in tuple(self.ends.below((now_ms + 1,))):
            self.note_job(job_id)

    def _end_of(self, job: Job | None, held: list[Allocation]) -> int:
        """When a job that holds room gives it back. Its time counts from the claim while it has not started."""
        if any(allocation.state is AllocationState.LOST for allocation in held):
            return NEVER
        if job is None or job.state not in (JobState.STARTING, JobState.RUNNING):
            return ENDING
        started_ms = job.started_ms if job.started_ms is not None else min(allocation.claimed_ms for allocation in held)
        end_ms = NEVER if job.time_limit_ms is None else started_ms + job.time_limit_ms
        if self.by_history and job.expected_ms is not None:
            passed_ms = max(0, self.now_ms - started_ms)
            doublings = (passed_ms // max(1, job.expected_ms)).bit_length()
            end_ms = min(end_ms, started_ms + (job.expected_ms << doublings))
        return end_ms

    def lowest_priority(self, queue: str) -> int | None:
        """The lowest priority among the queue's jobs that hold room; None where none does."""
        return min(self._ranks.get(queue, ()), default=None)

    def next_end(self, after_ms: int) -> int | None:
        """The first end after a time, if one is known."""
        key = self.ends.after((after_ms + 1,))
        return None if key is None else key[0]

    def ending_on(self, row: int) -> list[tuple[int, str, Allocation]]:
        """(end, id, allocation) of those on a node whose end is known, ascending."""
        board = self._board
        held = (board.allocations[held] for held in board.held_on.get(board.columns.nodes[row].id, ()))
        return sorted((end, a.id, a) for a in held if (end := ENDING if a.leaving else self.end_of[a.job]) < NEVER)

    def freed_by(self, time_ms: int) -> Freed:
        """What will have come back by then, on the rows where anything will. Cost: the ends up to then."""
        self._bring_up()
        flat = self._order[: np.searchsorted(self._order_times, time_ms, side="right")]
        rows, last = np.unique((flat // limits.ENDS_PER_NODE_MAX)[::-1], return_index=True)
        flat = flat[::-1][last]
        known = self._freed
        return Freed(rows, known.masks.ravel()[flat], known.cpu_milli.ravel()[flat], known.memory_bytes.ravel()[flat])

    def earliest(self, need: Need, first: Firsts, sooner: dict[int, int], now_ms: int) -> int:
        """
        The first time at which enough nodes of one domain have room for a member each, going by ends alone; NEVER where none is known.

        `sooner` has times by which rows may be taken to have room whatever the table says. Ends
        are looked at in the order in which they come, so the cost is the ends before the answer.
        """
        self._bring_up()
        columns = self._board.columns
        there = columns.open & columns.in_pool(need.member.pool) if need.member.pool else columns.open.copy()
        there[[columns.row[node] for node in need.avoid if node in columns.row]] = False
        if first.codes is not None:
            there &= first.codes >= 0
        seen = self._board.rooms.fitting_all(need).copy()
        first.add(np.flatnonzero(seen & there), now_ms)
        early = [row for row in sooner if there[row] and not seen[row]]
        first.add(np.array(early, np.int64), np.array([max(now_ms, sooner[row]) for row in early], np.int64))
        found, at, size = first.time_ms(), 0, _ENDS_AT_ONCE
        while at < len(self._order) and self._order_times[at] < found:
            flat, times = self._order[at : at + size], self._order_times[at : at + size]
            rows = flat // limits.ENDS_PER_NODE_MAX
            open_ones = np.flatnonzero(there[rows] & ~seen[rows])
            fits = open_ones[self._fits_after(need, rows[open_ones], flat[open_ones])]
            new, where = np.unique(rows[fits], return_index=True)
            if len(new):
                seen[new] = True
                first.add(new, np.maximum(times[fits[where]], now_ms))
                found = first.time_ms()
            at, size = at + size, size * 2
        return found

    def _fits_after(self, need: Need, rows: Times, flat: Times) -> NDArray[np.bool_]:
        """Per row of `rows`: would a member fit with what the table's entry `flat` gives back?"""
        columns, member = self._board.columns, need.member
        fits: NDArray[np.bool_] = columns.cpu_free[rows] + self._freed.cpu_milli.ravel()[flat] >= member.cpu_milli
        fits &= columns.memory_free[rows] + self._freed.memory_bytes.ravel()[flat] >= member.memory_bytes
        if member.piece is not None:
            accepted, times = self._board.rooms.accepted(need), self._times.ravel()[flat]
            for at in np.flatnonzero(fits & (accepted[rows] != 0)).tolist():
                fits[at] = self._parts_fit_by(int(rows[at]), int(times[at]), need, int(accepted[rows[at]]))
            fits &= accepted[rows] != 0
        elif need.model is not None:
            free = (self._freed.masks.ravel()[flat] & columns.healthy[rows]) | columns.free_mask[rows]
            fits &= np.bitwise_count(free & self._board.rooms.accepted(need)[rows]) >= member.gpus
        return fits

    def _parts_fit_by(self, row: int, time_ms: int, need: Need, accepted: int) -> bool:
        """Would the parts that a member asks for fit on a node with what ends by then given back?"""
        columns, piece, most = self._board.columns, need.member.piece, need.member.pieces
        assert piece is not None
        claimed = self._board.claimed_on(row)
        held = {at: list(pieces) for at, pieces in columns.parts_at(row).items()}
        usable = int(columns.free_mask[row] | columns.shared_mask[row])
        for end, _, allocation in self.ending_on(row):
            if end <= time_ms:
                usable |= columns.mask_of(row, allocation.devices) & ~claimed & int(columns.healthy[row])
                for gone in columns.pieces_of(row, allocation.parts, allocation.project):
                    held[gone.at].remove(gone)
        left = {at: tuple(pieces) for at, pieces in held.items() if pieces}
        return room_for(columns.layouts[row].devices, left, usable & accepted, piece, most)[0] >= most

    def pieces_freed_by(self, time_ms: int) -> Iterator[tuple[int, Pieces]]:
        """(row, parts) of those that will have come back by then. Cost: nodes of which parts are held."""
        columns = self._board.columns
        for node_id in columns.parts.by_node:
            row = columns.row.get(node_id)
            ended = () if row is None else tuple(a for end, _, a in self.ending_on(row) if end <= time_ms and a.parts)
            if row is not None and ended:
                yield row, tuple(piece for a in ended for piece in columns.pieces_of(row, a.parts, a.project))

    # --- the table -----------------------------------------------------------------------------------------------------------
    def _bring_up(self) -> None:
        columns = self._board.columns
        if self._epoch != columns.epoch or len(self._times) != len(columns):
            self._epoch = columns.epoch
            shape = (len(columns), limits.ENDS_PER_NODE_MAX)
            self._times = np.full(shape, NEVER, np.int64)
            masks, cpu, memory = np.zeros(shape, np.uint64), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
            self._freed = Freed(np.arange(len(columns)), masks, cpu, memory)
            self._order, self._order_times = np.zeros(0, np.int64), np.zeros(0, np.int64)
            self._stale = dict.fromkeys(self._board.held_on)
        rows = [row for node_id in self._stale if (row := columns.row.get(node_id)) is not None]
        self._stale.clear()
        for row in rows:
            self._work_out(row)
        if rows:
            self._sort_in(np.unique(np.array(rows, np.int64)))

    def _sort_in(self, rows: Times) -> None:
        """The order of all ends, with those of these rows as they are now."""
        moved = np.zeros(len(self._times), np.bool_)
        moved[rows] = True
        stay = ~moved[self._order // limits.ENDS_PER_NODE_MAX]
        order, times = self._order[stay], self._order_times[stay]
        flat = (rows[:, None] * limits.ENDS_PER_NODE_MAX + np.arange(limits.ENDS_PER_NODE_MAX)).ravel()
        new = self._times.ravel()[flat]
        flat, new = flat[new < NEVER], new[new < NEVER]
        by_time = np.argsort(new, kind="stable")
        flat, new = flat[by_time], new[by_time]
        places = np.searchsorted(times, new, side="right")
        self._order, self._order_times = np.insert(order, places, flat), np.insert(times, places, new)

    def _work_out(self, row: int) -> None:
        columns = self._board.columns
        ending = self.ending_on(row)
        self._times[row] = NEVER
        mask = cpu = memory = at = 0
        claimed = self._board.claimed_on(row) if self._board.claims else 0
        most = limits.ENDS_PER_NODE_MAX
        kept = {len(ending) * (k + 1) // most - 1 for k in range(most)} if len(ending) > most else None
        shared = _Emptying(columns, row)
        for place, (end, _, allocation) in enumerate(ending):
            mask |= (columns.mask_of(row, allocation.devices) | shared.without(allocation)) & ~claimed
            cpu += allocation.cpu_milli
            memory += allocation.memory_bytes
            if kept is None or place in kept:
                self._times[row, at] = end
                self._freed.masks[row, at], self._freed.cpu_milli[row, at], self._freed.memory_bytes[row, at] = mask, cpu, memory
                at += 1


class Firsts:
    """Rows with the times at which they have room, and when `low` of one domain have."""

    def __init__(self, low: int, codes: NDArray[np.int32] | None, postponed: Callable[[Times, Times], Times] | None = None) -> None:
        """`codes` has each row's domain (-1: none; None: all rows are one); `postponed` moves the times of rows behind what closes them."""
        self._low, self.codes = low, codes
        self._postponed = postponed
        self._rows: list[Times] = []
        self._times: list[Times] = []

    def add(self, rows: Times, times: Times | int) -> None:
        """Rows that have not been added before."""
        when = np.broadcast_to(np.asarray(times, np.int64), rows.shape)
        self._rows.append(rows)
        self._times.append(when if self._postponed is None else self._postponed(rows, when))

    def time_ms(self) -> int:
        """When enough rows of one domain have room, by those added so far; NEVER where they are too few."""
        rows, times = np.concatenate(self._rows), np.concatenate(self._times)
        if self._low == 1:
            return int(times.min(initial=NEVER))
        last = self._low - 1
        if len(rows) <= last:
            return NEVER
        if self.codes is None:
            return int(np.partition(times, last)[last])
        codes = self.codes[rows]
        order = np.lexsort((times, codes))
        codes, times = codes[order], times[order]
        # `low` rows of one domain stand in a row wherever the first and the last of so many are of the same.
        whole = codes[last:] == codes[: len(codes) - last]
        return int(times[last:][whole].min(initial=NEVER))


class _Emptying:
    """Which shared devices of a node are whole again as those who hold parts of them end."""

    def __init__(self, columns: Columns, row: int) -> None:
        self._columns, self._row = columns, row
        self._parts: tuple[dict[int, int], int] | None = None
        """Parts that are left by device, and the devices that can be given; not asked for until somebody has parts."""

    def without(self, allocation: Allocation) -> int:
        """One more has ended: the devices of which it had the last part, if they can be given at all."""
        if not allocation.parts:
            return 0
        if self._parts is None:
            self._parts = self._columns.parts_recorded(self._row)
        left, usable = self._parts
        emptied = 0
        for piece in self._columns.pieces_of(self._row, allocation.parts, allocation.project):
            left[piece.at] -= 1
            emptied |= 0 if left[piece.at] else usable & 1 << piece.at
        return emptied

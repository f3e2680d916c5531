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
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.base import limits
from shoal.model.attempt import Allocation, AllocationState
from shoal.model.job import Job, JobState
from shoal.scheduling.quota import Charge, add_charges, charge_of
from shoal.scheduling.rooms import Need
from shoal.scheduling.sortedkeys import SortedKeys

if TYPE_CHECKING:
    from shoal.scheduling.board import Board

Times = NDArray[np.int64]
EndKey = tuple[int, str]
"""(end, job id)."""
NEVER: Final = 1 << 62
ENDING: Final = 0


class Freed(NamedTuple):
    """Per row, what will have come back by some time: devices, CPU, memory."""

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
        self.running: dict[str, dict[str, None]] = {}
        """Jobs that hold room, by queue."""
        self._stale: dict[str, None] = {}
        self._epoch = -1
        self._times: Times = np.zeros((0, 0), np.int64)
        self._freed = Freed(np.zeros((0, 0), np.uint64), self._times, self._times)

    # --- moving forward ----------------------------------------------------------------------------------------------------
    def note_job(self, job_id: str) -> None:
        """A job, or what it holds, has moved."""
        held = self._board.held_by.get(job_id)
        before = self.end_of.get(job_id)
        if not held:
            if before is not None:
                self._forget(job_id, before)
            return
        mine = [self._board.allocations[allocation_id] for allocation_id in held]
        end, queue = _end_of(self._board.jobs.get(job_id), mine), mine[0].queue
        if end == before and queue == self._queue_of[job_id]:
            return
        if before is not None:
            self._forget(job_id, before)
        self.end_of[job_id], self._queue_of[job_id] = end, queue
        self.running.setdefault(queue, {})[job_id] = None
        if end < NEVER:
            self.ends.add((end, job_id))
            self._by_queue.setdefault(queue, SortedKeys()).add((end, job_id))
        for allocation in mine:
            self._stale[allocation.node] = None

    def note_node(self, node_id: str) -> None:
        """Somebody came to the node, or left it."""
        self._stale[node_id] = None

    def _forget(self, job_id: str, end: int) -> None:
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
            ended = ends.below((time_ms + 1,)) if ends is not None else ()
            if ended:
                found.append((queue, add_charges(*(self.charge_of(job_id) for _, job_id in ended))))
        return tuple(found)

    def charge_of(self, job_id: str) -> Charge:
        """What a job that holds room is charged."""
        mine = (self._board.allocations[allocation_id] for allocation_id in self._board.held_by[job_id])
        return add_charges(*(charge_of(len(a.devices), a.gpu_model, a.cpu_milli, a.memory_bytes) for a in mine))

    def queue_of(self, job_id: str) -> str:
        """The queue that a job which holds room is charged to."""
        return self._queue_of[job_id]

    def next_end(self, after_ms: int) -> int | None:
        """The first end after a time, if one is known."""
        key = self.ends.after((after_ms + 1,))
        return None if key is None else key[0]

    def ending_on(self, row: int) -> list[tuple[int, str, Allocation]]:
        """(end, id, allocation) of those on a node whose end is known, ascending."""
        board = self._board
        held = (board.allocations[held] for held in board.held_on.get(board.columns.nodes[row].id, ()))
        return sorted((end, a.id, a) for a in held if (end := self.end_of[a.job]) < NEVER)

    def freed_by(self, time_ms: int) -> Freed:
        """What will have come back by then, per row."""
        self._bring_up()
        at = np.count_nonzero(self._times <= time_ms, axis=1) - 1
        rows = np.flatnonzero(at >= 0)
        count = len(self._board.columns)
        freed = Freed(np.zeros(count, np.uint64), np.zeros(count, np.int64), np.zeros(count, np.int64))
        for column, known in zip(freed, self._freed, strict=True):
            column[rows] = known[rows, at[rows]]
        return freed

    def first_times(self, need: Need, now_ms: int) -> Times:
        """Per row, the first time at which a member fits that fits now or once others have ended; NEVER where it does not."""
        self._bring_up()
        board, member = self._board, need.member
        columns = board.columns
        there = columns.open & columns.in_pool(member.pool)
        fits = (columns.cpu_free[:, None] + self._freed.cpu_milli >= member.cpu_milli) & there[:, None]
        fits &= columns.memory_free[:, None] + self._freed.memory_bytes >= member.memory_bytes
        if need.model is not None:
            free = (self._freed.masks & columns.healthy[:, None]) | columns.free_mask[:, None]
            fits &= np.bitwise_count(free & board.rooms.accepted(need)[:, None]) >= member.gpus
        times: Times = np.where(fits.any(axis=1), self._times[np.arange(len(columns)), fits.argmax(axis=1)], NEVER)
        times[board.rooms.fitting(need)] = now_ms
        times[[columns.row[node] for node in need.avoid if node in columns.row]] = NEVER
        return np.where(times < NEVER, np.maximum(times, now_ms), NEVER)

    # --- the table -----------------------------------------------------------------------------------------------------------
    def _bring_up(self) -> None:
        columns = self._board.columns
        if self._epoch != columns.epoch or len(self._times) != len(columns):
            self._epoch = columns.epoch
            shape = (len(columns), limits.ENDS_PER_NODE_MAX)
            self._times = np.full(shape, NEVER, np.int64)
            self._freed = Freed(np.zeros(shape, np.uint64), np.zeros(shape, np.int64), np.zeros(shape, np.int64))
            self._stale = dict.fromkeys(self._board.held_on)
        for node_id in self._stale:
            row = columns.row.get(node_id)
            if row is not None:
                self._work_out(row)
        self._stale.clear()

    def _work_out(self, row: int) -> None:
        columns = self._board.columns
        ending = self.ending_on(row)
        self._times[row] = NEVER
        for column in self._freed:
            column[row] = 0
        mask = cpu = memory = 0
        claimed = self._board.claimed_on(row)
        kept = {len(ending) * (at + 1) // limits.ENDS_PER_NODE_MAX - 1 for at in range(limits.ENDS_PER_NODE_MAX)}
        at = 0
        for place, (end, _, allocation) in enumerate(ending):
            mask |= columns.mask_of(row, allocation.devices) & ~claimed
            cpu += allocation.cpu_milli
            memory += allocation.memory_bytes
            if len(ending) <= limits.ENDS_PER_NODE_MAX or place in kept:
                self._times[row, at] = end
                self._freed.masks[row, at], self._freed.cpu_milli[row, at], self._freed.memory_bytes[row, at] = mask, cpu, memory
                at += 1


def _end_of(job: Job | None, held: list[Allocation]) -> int:
    """When a job that holds room gives it back. The limit counts from the claim while the job has not started."""
    if any(allocation.state is AllocationState.LOST for allocation in held):
        return NEVER
    if job is None or job.state not in (JobState.STARTING, JobState.RUNNING):
        return ENDING
    if job.time_limit_ms is None:
        return NEVER
    started_ms = job.started_ms if job.started_ms is not None else min(allocation.claimed_ms for allocation in held)
    return started_ms + job.time_limit_ms

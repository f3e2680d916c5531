"""
The smallest set of running jobs whose end would start a job that waits. For `explain`: read-only, everything tried is taken back.

    an upper bound   two ways to find a set that is enough; each job of it that is not needed after all is given back
    a lower bound    no set with fewer jobs holds as many GPUs as are missing
    in between       every smaller set is tried, while they are few

Where the bounds meet, or every smaller set was tried, the set is proven to be the smallest; else it is only enough, and that is said.
Each set is judged by placing the job with these jobs gone, beside all that the cycle placed and keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import nsmallest
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np

from shoal.base import limits
from shoal.scheduling.board import Board
from shoal.scheduling.cycle import Ahead
from shoal.scheduling.ledger import Ledger
from shoal.scheduling.order import Candidate
from shoal.scheduling.place import Placement
from shoal.scheduling.quota import Charge
from shoal.scheduling.reserve import Part


class InTheWay(NamedTuple):
    """Jobs by id, the nodes that they free for the job, and whether no smaller set would do."""

    jobs: tuple[str, ...]
    nodes: tuple[str, ...]
    smallest: bool


class _Holder(NamedTuple):
    job_id: str
    queue: str
    gpus: int
    """Of them that the waiting job could use or that count against its quota."""
    parts: tuple[Part, ...]
    charge: Charge


class _Search:
    """What one search keeps: who could go, and a count of what was tried."""

    def __init__(self, ahead: Ahead, candidate: Candidate, holders: list[_Holder]) -> None:
        self.ahead = ahead
        self.candidate = candidate
        self.holders = holders
        self.tries = 0

    def found(self, gone: Iterable[_Holder]) -> Placement | None:
        """Where the job would start with these gone."""
        self.tries += 1
        with self.ahead.ledger.trial() as ledger:
            _take_off(self.ahead.board, ledger, gone)
            return self.ahead.found(self.candidate)


def _take_off(board: Board, ledger: Ledger, gone: Iterable[_Holder]) -> None:
    for holder in gone:
        for part in holder.parts:
            held = part.mask & int(board.columns.healthy[part.row]) & ~int(board.columns.free_mask[part.row])
            ledger.unseat(*part._replace(mask=held))
        ledger.uncharge(holder.queue, holder.charge)


@contextmanager
def jobs_gone(board: Board, ledger: Ledger, jobs: tuple[str, ...]) -> Iterator[None]:
    """While inside, these running jobs hold nothing."""
    with ledger.trial():
        holders = (_holder(board, job_id) for job_id in jobs)
        _take_off(board, ledger, [holder for holder in holders if holder is not None])
        yield


def in_the_way(ahead: Ahead, candidate: Candidate, preferred: Sequence[str] = (), for_room: bool = False) -> InTheWay | None:
    """
    See module; None if no end of running jobs would start it. `preferred` is a set of jobs to try before others; `for_room`
    leaves out those whose end gives quota.

    Cost: up to limits.BLOCKER_SETS_MAX judgements.
    """
    search = _Search(ahead, candidate, _holders(ahead, candidate, for_room))
    by_id = {holder.job_id: holder for holder in search.holders}
    wished = [by_id[job_id] for job_id in preferred if job_id in by_id]
    least = _least_needed(search)
    found = [_spared(search, wished, least)] if wished and search.found(wished) is not None else []
    if not found or len(found[0]) > least:
        enough = _fewest_first(search, least)
        found += [enough] if enough is not None else []
    if not found:
        return None
    best = min(found, key=lambda gone: (len(gone), sum(h.gpus for h in gone), [h.job_id for h in gone]))
    best, proven = _smaller(search, best, least)
    seats = search.found(best)
    rows = {seat.row for seat in seats.seats} if seats is not None else set()
    freed = sorted({part.row for holder in best for part in holder.parts} & rows)
    nodes = tuple(ahead.board.columns.nodes[row].id for row in freed)
    return InTheWay(tuple(holder.job_id for holder in sorted(best, key=lambda h: h.job_id)), nodes, proven)


def _holders(ahead: Ahead, candidate: Candidate, for_room: bool) -> list[_Holder]:
    """Running jobs that hold what it could use, those that hold most of it first."""
    board = ahead.board
    usable = _usable_rows(board, candidate)
    tree = frozenset(board.quota.tree_of(candidate.queue)) if candidate.queue in board.quota.vertices else frozenset()
    ranked = []
    for job_id, ids in board.held_by.items():
        held = [board.allocations[held_id] for held_id in ids]
        gives_quota = held[0].queue in tree
        if (gives_quota and for_room) or job_id in ahead.stopping:
            continue
        if gives_quota or any(board.columns.row.get(one.node) in usable for one in held):
            ranked.append((-sum([len(one.devices) + len(one.parts) for one in held]), -len(held), job_id))
    most = nsmallest(limits.BLOCKERS_LOOKED_AT_MAX, ranked)
    found = [holder for _, _, job_id in most if (holder := _holder(board, job_id)) is not None]
    found.sort(key=lambda holder: (-holder.gpus, -len(holder.parts), holder.job_id))
    return found


def _usable_rows(board: Board, candidate: Candidate) -> frozenset[int]:
    pools = candidate.lane.state.shape.pools
    rows: list[int] = np.flatnonzero(board.columns.open).tolist()
    return frozenset(rows if "" in pools else (row for row in rows if board.columns.nodes[row].pool in pools))


def _holder(board: Board, job_id: str) -> _Holder | None:
    held = [board.allocations[held_id] for held_id in board.held_by[job_id]]
    columns, rows = board.columns, board.columns.row
    if any(a.node not in rows for a in held):
        return None
    parts = tuple(
        Part(row := rows[a.node], columns.mask_of(row, a.devices), a.cpu_milli, a.memory_bytes, columns.pieces_of(row, a.parts, a.project))
        for a in held
    )
    gpus = sum(part.mask.bit_count() + len(part.pieces) for part in parts)
    queue, charge = held[0].queue, board.horizon.charge_of(job_id)
    if queue not in board.quota.vertices:
        queue, charge = next(iter(board.quota.vertices)), ()
    return _Holder(job_id, queue, gpus, parts, charge)


def _fewest_first(search: _Search, least: int) -> list[_Holder] | None:
    """The fewest of those that hold most which are enough together, less those that are not needed."""
    holders = search.holders
    if not holders or search.found(holders) is None:
        return None
    low, high = 0, len(holders)
    while high - low > 1:
        middle = (low + high) // 2
        if search.found(holders[:middle]) is None:
            low = middle
        else:
            high = middle
    return _spared(search, holders[:high], least)


def _spared(search: _Search, gone: list[_Holder], least: int) -> list[_Holder]:
    """Without whoever is not needed: first all that free no node it would take, then one by one, those that hold least first."""
    if len(gone) <= least:
        return gone
    found = search.found(gone)
    if found is not None:
        rows = {seat.row for seat in found.seats}
        there = [holder for holder in gone if any(part.row in rows for part in holder.parts)]
        gone = there if len(there) < len(gone) and search.found(there) is not None else gone
    for holder in reversed(gone[-limits.REPRIEVES_MAX :]):
        if len(gone) <= least:
            break
        rest = [other for other in gone if other is not holder]
        if search.found(rest) is not None:
            gone = rest
    return gone


def _least_needed(search: _Search) -> int:
    """No fewer jobs than this can hold the GPUs that are missing in all."""
    board, state = search.ahead.board, search.candidate.lane.state
    missing = state.gpus_least - int(board.columns.free_gpus[board.columns.open].sum())
    count = 0
    for holder in search.holders:
        if missing <= 0:
            break
        missing, count = missing - holder.gpus, count + 1
    return max(1, count)


def _smaller(search: _Search, best: list[_Holder], least: int) -> tuple[list[_Holder], bool]:
    """A smaller set if there is one among those that can be tried, and whether all were."""
    for size in range(least, len(best)):
        if search.tries + comb(len(search.holders), size) > limits.BLOCKER_SETS_MAX:
            return best, False
        for gone in combinations(search.holders, size):
            if search.found(gone) is not None:
                return list(gone), True
    return best, True

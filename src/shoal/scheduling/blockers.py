"""
Who holds what a shape waits for, and a set of jobs in the way of it. Read-only; for `explain`, never inside a cycle.

The set is found greedily: the nodes that miss least, on each the largest jobs first, then every job given back that is not needed after
all. It is where `smallest` begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from shoal.base import limits
from shoal.model.attempt import Allocation
from shoal.model.node import NodeState
from shoal.model.reason import Holder
from shoal.scheduling.board import Board
from shoal.scheduling.rooms import Need, accepted_devices
from shoal.scheduling.shares import room_for
from shoal.scheduling.shortfall import Shortfall


def holders_of(board: Board, model: str | None, queues: frozenset[str] | None = None, pool: str = "") -> tuple[Holder, ...]:
    """By project and queue, who holds GPUs of `model` (None: anything), in `queues` and `pool` only where given; the largest first."""
    jobs: dict[tuple[str, str], set[str]] = {}
    gpus: dict[tuple[str, str], int] = {}
    for held in board.allocations.values():
        wanted = model is None or (held.gpu_model == model and bool(held.gpus_touched))
        if wanted and (queues is None or held.queue in queues) and (not pool or _pool_of(board, held) == pool):
            key = (held.project, held.queue)
            jobs.setdefault(key, set()).add(held.job)
            gpus[key] = gpus.get(key, 0) + 1_000 * len(held.devices) + sum(part.charge for part in held.parts)
    ordered = sorted(gpus, key=lambda key: (-gpus[key], -len(jobs[key]), key))
    shown = ordered[: limits.HOLDERS_SHOWN_MAX]
    return tuple(Holder(project=key[0], queue=key[1], jobs=len(jobs[key]), gpus=-(-gpus[key] // 1_000)) for key in shown)


def _pool_of(board: Board, held: Allocation) -> str | None:
    row = board.columns.row.get(held.node)
    return None if row is None else board.columns.nodes[row].pool


def tree_of(board: Board, queue: str) -> frozenset[str]:
    """The queues that share a root with this one."""
    vertex = board.quota.vertices[queue]
    while vertex.parent is not None:
        vertex = vertex.parent
    found = [vertex]
    for at in found:
        found.extend(at.children)
    return frozenset(at.name for at in found)


def jobs_in_the_way(board: Board, shortfall: Shortfall) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(nodes, jobs by id): if these jobs ended, these nodes could take the members that are missing. Empty if no jobs would do."""
    need = shortfall.part.need
    looked_at = _rows_if_empty(board, need)[: max(limits.BLOCKING_NODES_MAX, 2 * shortfall.missing)]
    candidates = [(len(jobs), row, jobs) for row in looked_at if (jobs := _in_the_way_on(board, row, need))]
    candidates.sort(key=lambda item: (sum(len(held.gpus_touched) for held in item[2]), item[0], item[1]))
    chosen = candidates[: shortfall.missing]
    if len(chosen) < shortfall.missing:
        return (), ()
    nodes = tuple(board.columns.nodes[row].id for _, row, _ in chosen)
    return nodes, tuple(dict.fromkeys(held.job for _, _, jobs in chosen for held in jobs))


def addresses(board: Board, job_ids: Iterable[str]) -> tuple[str, ...]:
    """Jobs as people name them."""
    return tuple(board.jobs[job_id].address if job_id in board.jobs else job_id for job_id in job_ids)


def listed(names: Sequence[str]) -> str:
    """At most HOLDERS_SHOWN_MAX of them in words, and how many more."""
    shown = ", ".join(names[: limits.HOLDERS_SHOWN_MAX])
    more = len(names) - limits.HOLDERS_SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def closed_nodes_that_fit(board: Board, shortfall: Shortfall) -> Iterator[int]:
    """Rows of nodes that take no work, are not given up, and would have room for a member."""
    columns, need = board.columns, shortfall.part.need
    for row in np.flatnonzero(~columns.open).tolist():
        if columns.nodes[row].state is not NodeState.LOST and _fits(board, row, need, ()):
            yield row


def _rows_if_empty(board: Board, need: Need) -> list[int]:
    """Open nodes that have no room now and would have it with nothing on them, those with most free GPUs first."""
    fits = board.rooms.fitting(need)
    rows = np.flatnonzero(board.emptied().rooms.fitting(need) & board.columns.open & ~fits)
    ordered: list[int] = rows[(-board.columns.free_gpus[rows]).argsort(kind="stable")].tolist()
    return ordered


def _in_the_way_on(board: Board, row: int, need: Need) -> list[Allocation]:
    """Allocations that must end before the node has room; empty if their end would not be enough."""
    held = [board.allocations[held] for held in board.held_on.get(board.columns.nodes[row].id, ())]
    held.sort(key=lambda allocation: (-len(allocation.gpus_touched), -allocation.cpu_milli, allocation.id))
    fits = _judge_of(board, row, need, held)
    ending: list[Allocation] = []
    for allocation in held:
        if fits(ending):
            break
        ending.append(allocation)
    if not fits(ending):
        return []
    for allocation in tuple(reversed(ending)):
        rest = [other for other in ending if other is not allocation]
        if fits(rest):
            ending = rest
    return ending


def _judge_of(board: Board, row: int, need: Need, held: list[Allocation]) -> Callable[[list[Allocation]], bool]:
    """`_fits` for this node; of whole GPUs, where nothing is held in parts, by a few sums and one mask."""
    columns, member = board.columns, need.member
    simple = need.model is not None and not member.pieces and not columns.parts_at(row) and not any(one.parts for one in held)
    if not simple or member.pool not in ("", columns.nodes[row].pool):
        return lambda ending: _fits(board, row, need, ending)
    good = accepted_devices(columns.layouts[row], need) & int(columns.healthy[row])
    now = int(columns.free_mask[row]) & good
    cpu_short, memory_short = member.cpu_milli - int(columns.cpu_free[row]), member.memory_bytes - int(columns.memory_free[row])
    masks = {one.id: columns.mask_of(row, one.devices) & good for one in held}

    def fits(ending: list[Allocation]) -> bool:
        free = now
        for one in ending:
            free |= masks[one.id]
        enough = free.bit_count() >= member.gpus
        return enough and sum(o.cpu_milli for o in ending) >= cpu_short and sum(o.memory_bytes for o in ending) >= memory_short

    return fits


def _fits(board: Board, row: int, need: Need, ending: Iterable[Allocation]) -> bool:
    """Would the node have room for a member with these allocations gone, whatever the node's state?"""
    columns, member = board.columns, need.member
    if member.pool not in ("", columns.nodes[row].pool):
        return False
    ending = tuple(ending)
    cpu = int(columns.cpu_free[row]) + sum(held.cpu_milli for held in ending)
    memory = int(columns.memory_free[row]) + sum(held.memory_bytes for held in ending)
    if cpu < member.cpu_milli or memory < member.memory_bytes:
        return False
    if need.model is None:
        return True
    free = int(columns.free_mask[row]) | columns.mask_of(row, tuple(uuid for held in ending for uuid in held.devices))
    left = {at: list(pieces) for at, pieces in columns.parts_at(row).items()}
    for held in ending:
        for gone in columns.pieces_of(row, held.parts, held.project):
            left[gone.at].remove(gone)
    accepted, healthy = accepted_devices(columns.layouts[row], need), int(columns.healthy[row])
    if member.piece is not None:
        usable = (free | int(columns.shared_mask[row])) & healthy & accepted
        pieces = {at: tuple(held) for at, held in left.items() if held}
        return room_for(columns.layouts[row].devices, pieces, usable, member.piece, member.pieces)[0] >= member.pieces
    free |= sum(1 << at for at, held in left.items() if not held)
    return (free & healthy & accepted).bit_count() >= member.gpus

"""A board's records as `check` looks them up, so that a check of a plan costs what the plan touches; and all of a board, to be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.model.attempt import Allocation
from shoal.model.node import Node
from shoal.scheduling.crowd import Count

if TYPE_CHECKING:
    from shoal.scheduling.board import Board


class BoardRecords:
    """See module."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.jobs = board.jobs
        self.ended = board.ended
        self.queues = board.queues
        self.claims = board.claims
        self.reservations = board.windows.reservations

    def node(self, node_id: str) -> Node | None:
        row = self._board.columns.row.get(node_id)
        return None if row is None else self._board.columns.nodes[row]

    def held_on(self, node_id: str) -> list[Allocation]:
        return [self._board.allocations[held] for held in self._board.held_on.get(node_id, ())]

    def held_by(self, job_id: str) -> list[Allocation]:
        return [self._board.allocations[held] for held in self._board.held_by.get(job_id, ())]

    def held_in(self, queue: str) -> dict[str, int]:
        return self._board.charged.get(queue, {})

    def live_elements(self, array_id: str) -> int:
        return self._board.array_live.get(array_id, 0)

    def running(self, queue: str, owner: str) -> Count:
        return self._board.crowd.of(queue, owner)


def contents_of(board: Board) -> dict[str, Any]:
    """Everything that judgement depends on, as plain values that compare equal for equal boards."""
    columns = board.columns
    nodes = {
        node.id: (
            bool(columns.open[row]),
            int(columns.free_mask[row]),
            int(columns.shared_mask[row]),
            dict(sorted(columns.parts.on(node.id).items())),
            int(columns.healthy[row]),
            int(columns.free_gpus[row]),
            int(columns.cpu_free[row]),
            int(columns.memory_free[row]),
            columns.kinds[int(columns.kind[row])][0],
            columns.layouts[row].devices,
            tuple((level.name, level.labels[level.codes[row]] if level.codes[row] >= 0 else None) for level in columns.levels),
        )
        for row, node in enumerate(columns.nodes)
    }
    return {
        "version": board.version,
        "nodes": nodes,
        "capacity": {resource: amount for resource, amount in sorted(columns.capacity.items()) if amount},
        "pending": board.pending.contents(),
        "gates": dict(sorted(board.gates.items())),
        "jobs": {job_id: job for job_id, job in sorted(board.jobs.items()) if not board.is_ahead(job_id)},
        "allocations": dict(sorted(board.allocations.items())),
        "claims": dict(sorted(board.claims.items())),
        "reservations": dict(sorted(board.windows.reservations.items())),
        "queues": {name: board.quota.numbers(name) for name in sorted(board.quota.vertices)},
        "charged": {queue: dict(sorted(amounts.items())) for queue, amounts in sorted(board.charged.items())},
        "crowd": board.crowd.contents(),
        "array_live": dict(sorted(board.array_live.items())),
        "ended": dict(sorted(board.ended.items())),
        "ends": (dict(sorted(board.horizon.end_of.items())), tuple(board.horizon.ends)),
    }

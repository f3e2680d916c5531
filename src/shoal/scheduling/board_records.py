"""A board's records as `check` looks them up: a check of a plan then costs what the plan touches."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

"""
Private trial and undo on top of a board: what a cycle takes for one job is seen by the next, and in the end all of it is taken back.

One ledger for devices, CPU, memory, topology (through the node's row) and quota: a job that fits one of them and not another leaves no
trace. Every step is written down with its inverse; `rewind` plays the inverses backwards. Nothing outside the board is touched, and
nobody else looks at the board while a trial is open (the plane's cycle runs on one thread).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from shoal.scheduling.columns import Columns
from shoal.scheduling.quota import Charge, QuotaTree
from shoal.scheduling.rooms import RoomTable
from shoal.scheduling.shares import Pieces


class Board(Protocol):
    """The part of a board that placement looks at and moves."""

    @property
    def columns(self) -> Columns: ...

    @property
    def rooms(self) -> RoomTable: ...

    @property
    def quota(self) -> QuotaTree: ...


class Ground(NamedTuple):
    """A board to place on that is not the real one: the fleet at another time."""

    columns: Columns
    rooms: RoomTable
    quota: QuotaTree


class Ledger:
    """See module."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._undo: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    @property
    def clean(self) -> bool:
        """True while nothing has been taken: what fails now fails on the board itself."""
        return not self._undo

    def mark(self) -> int:
        """A point to come back to."""
        return len(self._undo)

    def rewind(self, mark: int) -> None:
        """Takes back everything since `mark`, last first."""
        while len(self._undo) > mark:
            inverse, arguments = self._undo.pop()
            inverse(*arguments)

    @contextmanager
    def trial(self) -> Iterator[Ledger]:
        """Everything done inside is taken back at the end, also when it ends in an error."""
        mark = self.mark()
        try:
            yield self
        finally:
            self.rewind(mark)

    def seat(self, row: int, mask: int, cpu_milli: int, memory_bytes: int, pieces: Pieces = ()) -> None:
        """A member takes its room on a node."""
        columns = self.board.columns
        columns.take(row, mask, cpu_milli, memory_bytes, pieces)
        self._undo.append((columns.give, (row, mask, cpu_milli, memory_bytes, pieces)))

    def unseat(self, row: int, mask: int, cpu_milli: int, memory_bytes: int, pieces: Pieces = ()) -> None:
        """Somebody's room on a node is given back, to see what would then fit."""
        columns = self.board.columns
        columns.give(row, mask, cpu_milli, memory_bytes, pieces)
        self._undo.append((columns.take, (row, mask, cpu_milli, memory_bytes, pieces)))

    def uncharge(self, queue: str, charge: Charge) -> None:
        """A queue gives a charge back."""
        quota = self.board.quota
        quota.remove(queue, charge)
        self._undo.append((quota.add, (queue, charge)))

    def charge(self, queue: str, charge: Charge) -> None:
        """A queue is charged."""
        quota = self.board.quota
        quota.add(queue, charge)
        self._undo.append((quota.remove, (queue, charge)))

"""
Room on several nodes at once, as columns: what a gang of many nodes takes and gives back in a few steps in place of some for each node.

Made, taken and given by `reserve`; beside `Columns.take` and `give`, which do the same for one node. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.scheduling.columns import Columns
from shoal.scheduling.shares import Pieces

Room = tuple[int, int, int, int, Pieces]
"""(row, devices, CPU, memory, parts of devices) on one node."""


class Stretch(NamedTuple):
    """See module. A row may come twice. `pieces` is empty where nobody has parts of devices, else as long as `rows`."""

    rows: NDArray[np.int64]
    masks: NDArray[np.uint64]
    cpu_milli: NDArray[np.int64]
    memory_bytes: NDArray[np.int64]
    pieces: tuple[Pieces, ...]

    def parts(self) -> Iterator[Room]:
        """Node by node."""
        for at, row in enumerate(self.rows.tolist()):
            pieces = self.pieces[at] if self.pieces else ()
            yield row, int(self.masks[at]), int(self.cpu_milli[at]), int(self.memory_bytes[at]), pieces


def stretch_of(parts: Sequence[Room]) -> Stretch:
    """These as columns."""
    rows, masks, cpu, memory, pieces = zip(*parts, strict=True) if parts else ((), (), (), (), ())
    return Stretch(
        np.array(rows, np.int64),
        np.array(masks, np.uint64),
        np.array(cpu, np.int64),
        np.array(memory, np.int64),
        pieces if any(pieces) else (),
    )


def take_all(columns: Columns, room: Stretch) -> None:
    """Room is used on all its nodes; the exact inverse of `give_all`."""
    if room.pieces or columns.parts.by_node:
        for part in room.parts():
            columns.take(*part)
    elif len(room.rows):
        np.bitwise_and.at(columns.free_mask, room.rows, ~room.masks)
        _add_all(columns, room, -1)


def give_all(columns: Columns, room: Stretch) -> None:
    """Room comes back on all its nodes."""
    if room.pieces or columns.parts.by_node:
        for part in room.parts():
            columns.give(*part)
    elif len(room.rows):
        np.bitwise_or.at(columns.free_mask, room.rows, room.masks)
        columns.last_gift = len(columns.touched) + len(room.rows)
        _add_all(columns, room, 1)


def _add_all(columns: Columns, room: Stretch, sign: int) -> None:
    rows = room.rows
    columns.free_gpus[rows] = np.bitwise_count(columns.free_mask[rows])
    np.add.at(columns.cpu_free, rows, sign * room.cpu_milli)
    np.add.at(columns.memory_free, rows, sign * room.memory_bytes)
    *most, last = rows.tolist()
    columns.touched.extend(most)
    columns.touch(last)

"""
Room on several nodes at once, as columns: what a gang of many nodes takes and gives back in a few steps in place of some for each node.

Made by `reserve`, taken and given by `columns`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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

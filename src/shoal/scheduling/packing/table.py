"""
What a free piece of a GPU is worth: the thousandths of it that will probably still be filled, by its size and the CPU left beside it.

A table is learned by replaying arrivals (`train`) and kept in a file: JSON, one line per size. Rows are the free thousandths / 10 (1 to 99)
of a part, and `F1` to `F8` for a wholly free GPU with so many of them on its node; columns are cores beside it.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

import msgspec
import numpy as np

from shoal.base.errors import Malformed
from shoal.scheduling.packing.nodes import Floats, Ints

PARTS: Final = 99
"""Rows of parts: 10 to 990 thousandths in steps of 10."""
WHOLES: Final = 8
"""Rows of wholly free GPUs: more than eight on a node count as eight."""
ROWS: Final = 1 + PARTS + WHOLES
"""Row 0 is nothing."""
COLUMNS_CPU: Final = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 24, 28, 36, 52)
"""Cores beside a piece at which it is valued; between them linear, beyond the last constant."""
FORMAT: Final = "shoal-value-table/1"


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What a trained table did at one load before it was written, in per cent of GPUs, beside the others."""

    load: float
    value: float
    fragmentation: float
    best_fit: float


class MixRow(msgspec.Struct, frozen=True, array_like=True):
    """A shape of the history that a table was trained on, and how often it came. Memory in MiB; no models: any."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...]
    count: int


class TableFile(msgspec.Struct, frozen=True, kw_only=True):
    """A table as it is kept."""

    format: str
    source: str
    columns_cpu: tuple[int, ...]
    rows: tuple[tuple[str, tuple[float, ...]], ...]
    checked: tuple[Checked, ...] = ()
    mix: tuple[MixRow, ...] = ()


class Table:
    """
    Values by row and cores, ready for look-ups: `worth` gives the value of many pieces at once.

    The columns are spread to whole cores, with the slope beside them, so that a look-up is two gathers and a product.
    """

    def __init__(self, cells: Floats) -> None:
        """`cells` is [ROWS, columns]; row 0 is zeros."""
        assert cells.shape == (ROWS, len(COLUMNS_CPU))
        self.cells = cells
        cores = np.arange(COLUMNS_CPU[-1] + 1, dtype=np.int64)
        whole = np.array([np.interp(cores, COLUMNS_CPU, row) for row in cells])
        slope = np.diff(whole, axis=1, append=whole[:, -1:])
        self.width = len(cores)
        self._base = (whole - slope * cores).ravel()
        self._slope = slope.ravel()

    def worth(self, rows: Ints, cores: Floats) -> Floats:
        """Values of pieces in `rows` with so many `cores` beside each; both of one shape. `cores` is cut off in place."""
        np.minimum(cores, COLUMNS_CPU[-1], out=cores)
        at = rows * self.width + cores.astype(np.int64)
        worth: Floats = self._base[at] + self._slope[at] * cores
        return worth


def row_label(row: int) -> str:
    """The name of a row in a file."""
    return str(row) if row <= PARTS else f"F{row - PARTS}"


def read_table(text: bytes) -> tuple[Table, TableFile]:
    """A table from its file. Raises Malformed with what is wrong with it."""
    try:
        file = msgspec.json.decode(text, type=TableFile)
    except msgspec.MsgspecError as error:
        raise Malformed(f"not a value table: {error}") from error
    wrong = _fault_of(file)
    if wrong:
        raise Malformed(f"not a value table: {wrong}")
    return table_of(file), file


def _fault_of(file: TableFile) -> str | None:
    if file.format != FORMAT:
        return f"its format is {file.format!r}, {FORMAT!r} is due"
    if file.columns_cpu != COLUMNS_CPU:
        return f"its columns_cpu are {list(file.columns_cpu)}, {list(COLUMNS_CPU)} are due"
    labels = [row_label(row) for row in range(1, ROWS)]
    if [label for label, _ in file.rows] != labels:
        return f"its rows are not {labels[0]} to {labels[-1]} in order"
    for label, values in file.rows:
        if len(values) != len(COLUMNS_CPU):
            return f"row {label} has {len(values)} values, {len(COLUMNS_CPU)} are due"
        if not all(0 <= value <= 1_000 for value in values):
            return f"row {label} has a value outside 0..1000"
    return None


def write_table(file: TableFile) -> bytes:
    """The file, one line per row, so that two of them can be compared by eye."""
    head = {name: getattr(file, name) for name in ("format", "source", "columns_cpu", "checked", "mix")}
    lines = [f"{msgspec.json.encode(name).decode()}: {msgspec.json.encode(value).decode()}" for name, value in head.items()]
    rows = ",\n".join(msgspec.json.encode(row).decode() for row in file.rows)
    return ("{\n" + ",\n".join([*lines, f'"rows": [\n{rows}\n]']) + "\n}\n").encode()


def table_of(file: TableFile) -> Table:
    """The table of a file that was read and has no fault."""
    return Table(np.array([[0.0] * len(COLUMNS_CPU), *(values for _, values in file.rows)]))


@cache
def default_file() -> TableFile:
    """The table that ships with Shoal, and the mix that goes with it, which names no models."""
    return read_table(files(__package__).joinpath("value_table.json").read_bytes())[1]


@cache
def default_table() -> Table:
    """The table that ships with Shoal."""
    return table_of(default_file())

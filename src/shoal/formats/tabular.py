"""Comma-separated tables with a heading, as traces come: rows by column name, numbers read with the line that a fault is in."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence

from shoal.base.errors import Fault, Invalid


class Row:
    """One line of a table. Reads raise Invalid with the line and the column."""

    __slots__ = ("_cells", "_columns", "_source", "line")

    def __init__(self, columns: dict[str, int], cells: Sequence[str], source: str, line: int) -> None:
        self._columns = columns
        self._cells = cells
        self._source = source
        self.line = line

    def text(self, column: str) -> str:
        """What stands there; empty where the table has no such column."""
        at = self._columns.get(column)
        return "" if at is None or at >= len(self._cells) else self._cells[at].strip()

    def number(self, column: str, default: float | None = None) -> float:
        """The number there; `default` for an empty cell, where one is given."""
        text = self.text(column)
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not abs(value) < 1e15:  # also what is no number at all
            raise self.fault(f"{column} is {text[:40]!r}, wanted a number")
        return value

    def fault(self, what: str) -> Invalid:
        return Invalid(f"{self._source} line {self.line}: {what}", (Fault(what, "", self.line),))


def read_rows(lines: Iterable[str], source: str, needed: Sequence[str]) -> Iterator[Row]:
    """The rows of a table that has at least the columns `needed`. Raises Invalid."""
    reader = csv.reader(lines)
    heading = next(reader, None)
    columns = {name.strip(): at for at, name in enumerate(heading or ())}
    missing = [name for name in needed if name not in columns]
    if missing:
        raise Invalid(f"{source}: the first line must name the columns {', '.join(needed)}; {', '.join(missing)} is missing")
    for cells in reader:
        if cells:
            yield Row(columns, cells, source, reader.line_num)

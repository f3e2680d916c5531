"""Rows in aligned columns, kept to the width of the terminal: what can be spared goes, then the widest flexible column gives way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.render.look import Look, clean, cut, width_of

GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """
    `least` characters are kept when room is short; None: this column is never cut. One that may be `spared` is left out, highest
    number first, where even the least of all does not fit.
    """

    title: str
    right: bool = False
    least: int | None = None
    spared: int = 0


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    colour: str = ""


Row = Sequence[str | Cell]


def table(columns: Sequence[Column], rows: Sequence[Row], look: Look) -> list[str]:
    """Lines: a heading and one per row. Columns that hold nothing in any row are left out."""
    cells = [[_cell(cell) for cell in row] for row in rows]
    shown = [at for at in range(len(columns)) if any(row[at].text for row in cells)] if cells else list(range(len(columns)))
    shown = _spare(columns, cells, shown, look)
    columns = [columns[at] for at in shown]
    cells = [[row[at] for at in shown] for row in cells]
    widths = _widths(columns, cells, look)
    heading = [Cell(column.title, "dim") for column in columns]
    return [_line(columns, row, widths, look) for row in [heading, *cells]]


def _cell(value: str | Cell) -> Cell:
    return Cell(clean(value)) if isinstance(value, str) else Cell(clean(value.text), value.colour)


def _natural(column: Column, at: int, cells: Sequence[Sequence[Cell]]) -> int:
    return max([width_of(column.title), *(width_of(row[at].text) for row in cells)])


def _spare(columns: Sequence[Column], cells: Sequence[Sequence[Cell]], shown: list[int], look: Look) -> list[int]:
    """`shown` without the columns that have no room."""
    if not look.width:
        return shown
    wants = {at: _natural(columns[at], at, cells) for at in shown}
    least = {at: wants[at] if columns[at].least is None else min(wants[at], columns[at].least or 0) for at in shown}
    kept = list(shown)
    for at in sorted((at for at in shown if columns[at].spared), key=lambda at: -columns[at].spared):
        if sum(least[other] for other in kept) + len(GAP) * (len(kept) - 1) > look.width:
            kept.remove(at)
    return kept


def _widths(columns: Sequence[Column], cells: Sequence[Sequence[Cell]], look: Look) -> list[int]:
    widths = [_natural(column, at, cells) for at, column in enumerate(columns)]
    over = sum(widths) + len(GAP) * (len(widths) - 1) - look.width
    while look.width and over > 0:
        room = [(widths[at] - (column.least or 0), at) for at, column in enumerate(columns) if column.least is not None]
        spare, at = max(room, default=(0, 0))
        if spare <= 0:
            break
        # Down to the next widest, so that no column is starved while another is broad; at least one column at a time.
        others = sorted((more for more, other in room if other != at), reverse=True)
        step = min(over, max(1, spare - (others[0] if others else 0)))
        widths[at] -= step
        over -= step
    return widths


def _line(columns: Sequence[Column], row: Sequence[Cell], widths: Sequence[int], look: Look) -> str:
    parts = []
    for at, (column, cell) in enumerate(zip(columns, row, strict=True)):
        text = cut(cell.text, widths[at], look)
        pad = " " * (widths[at] - width_of(text))
        last = at == len(columns) - 1
        painted = look.paint(text, cell.colour)
        parts.append(pad + painted if column.right else painted if last else painted + pad)
    return GAP.join(parts).rstrip()

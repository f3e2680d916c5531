"""How parsers make facts: the place and the side come from the piece, values are text."""

from __future__ import annotations

from shoal.diagnosis.evidence import SIDES, Piece, Side
from shoal.diagnosis.facts import Fact, Place
from shoal.diagnosis.lines import Line
from shoal.diagnosis.signs import Sign

PLACE_CHARS_MAX = 300
"""Of a deciding line so much is shown."""


def make(sign: Sign, piece: Piece, line: Line, *, side: Side | None = None, reported: bool = False, **values: str | None) -> Fact:
    """A fact read in `line` of `piece`; values that are None are left out."""
    return Fact(
        sign=sign,
        place=Place(piece.key, line.number, line.text[:PLACE_CHARS_MAX]),
        kind=piece.kind,
        side=side or SIDES.get(piece.kind, Side.UNKNOWN),
        reported=reported,
        values={name: value for name, value in values.items() if value is not None},
    )

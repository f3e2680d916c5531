"""
Which nodes a gang takes: the tightest topology domain with room, and in it as few sub-domains as may be.

Pure arithmetic over rows: no ledger, no quota. A *scope* is a level of the topology, or the pool, which no gang leaves.
    required   the gang lies in one domain of that level, or nowhere
    preferred  the tightest domain of any level that has room; wider ones if none has
Prior art: Kueue's topology mode (fit counts per domain, best fit, "tight last"). Cost: a few passes over the rows that fit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.scheduling.asks import Shape
from shoal.scheduling.columns import Columns
from shoal.scheduling.levels import Level
from shoal.scheduling.policy import Policy
from shoal.scheduling.rooms import Need
from shoal.scheduling.score import best_row, best_rows

Rows = NDArray[np.int64]


class Wish(NamedTuple):
    """`ceiling` is the widest scope the gang may span (an index into `Columns.scopes`, None: no node says that level); `near`: tighter
    is better; `level` the one that was named."""

    ceiling: int | None
    near: bool
    level: str | None


class Chosen(NamedTuple):
    """Nodes, in the order of node rank, and the domain they lie in where a level was named."""

    rows: Rows
    domain: str | None


def wish_of(shape: Shape, columns: Columns, policy: Policy) -> Wish:
    """What a shape's topology means for this fleet."""
    near = policy.near_by_default or shape.level is not None
    if not shape.required:
        return Wish(0, near, shape.level)
    named = (at for at, scope in enumerate(columns.scopes) if scope.name == shape.level and at > 0)
    return Wish(next(named, None), near, shape.level)


def choose_rows(columns: Columns, rows: Rows, low: int, high: int, need: Need, wish: Wish) -> Chosen | None:
    """
    As many of `rows` as may be, `low` to `high` of them, inside one domain of the ceiling; None if not even `low` are.

    `rows` are ascending and each has room for one member.
    """
    if high == 1:
        return Chosen(np.array([best_row(columns, rows, need)]), _label(columns, rows[:1], wish)) if len(rows) else None
    if wish.ceiling is None:
        return None
    scopes = columns.scopes
    rows, counts = _inside(rows, scopes[wish.ceiling])
    if not len(rows) or counts.max() < low:
        return None
    size = min(high, int(counts.max()))
    for at in range(len(scopes) - 1 if wish.near else wish.ceiling, wish.ceiling - 1, -1):
        inside = _tightest(columns, rows, scopes[at], size)
        if inside is not None:
            inner = scopes[at + 1 :] if wish.near else ()
            chosen = _by_place(columns, _gather(columns, inside, size, inner, need))
            return Chosen(chosen, _label(columns, chosen, wish))
    return None


def room_by_domain(rows: Rows, scope: Level) -> NDArray[np.int64]:
    """Per domain of a scope, how many of `rows` lie in it."""
    return _inside(rows, scope)[1]


def domains_with_room(columns: Columns, rows: Rows, size: int, wish: Wish) -> list[tuple[int, int]]:
    """Every (scope, domain) with at least `size` of `rows`, the tightest scope and in it the least room first."""
    if wish.ceiling is None:
        return []
    scopes = columns.scopes
    found: list[tuple[int, int]] = []
    for at in range(len(scopes) - 1 if wish.near else wish.ceiling, wish.ceiling - 1, -1):
        counts = room_by_domain(rows, scopes[at])
        fitting = np.flatnonzero(counts >= size)
        found.extend((at, int(code)) for code in fitting[counts[fitting].argsort(kind="stable")])
    return found


def gather(columns: Columns, rows: Rows, size: int, scope: int, need: Need) -> Rows:
    """`size` of `rows`, which lie in one domain of `scope`, over as few of its sub-domains as may be."""
    return _by_place(columns, _gather(columns, rows, size, columns.scopes[scope + 1 :], need))


def label_of(columns: Columns, rows: Rows, wish: Wish) -> str | None:
    """The domain of the named level that holds all of `rows`, if one does."""
    return _label(columns, rows, wish)


def _inside(rows: Rows, scope: Level) -> tuple[Rows, NDArray[np.int64]]:
    """The rows that lie in some domain of the scope, and how many lie in each."""
    codes = scope.codes[rows]
    known = codes >= 0
    if not known.all():
        rows, codes = rows[known], codes[known]
    return rows, np.bincount(codes, minlength=len(scope.labels))


def _tightest(columns: Columns, rows: Rows, scope: Level, size: int) -> Rows | None:
    """The rows of the domain with the least room that still has `size`; equal ones: fewest free GPUs, then first label."""
    rows, counts = _inside(rows, scope)
    fitting = np.flatnonzero(counts >= size)
    if not len(fitting):
        return None
    codes = scope.codes[rows]
    tied = fitting[counts[fitting] == counts[fitting].min()]
    if len(tied) > 1:
        gpus = np.bincount(codes, weights=columns.free_gpus[rows], minlength=len(scope.labels))
        tied = tied[gpus[tied] == gpus[tied].min()]
    tightest: Rows = rows[codes == tied[0]]
    return tightest


def _gather(columns: Columns, rows: Rows, size: int, inner: tuple[Level, ...], need: Need) -> Rows:
    if len(rows) == size:
        return rows
    if not inner:
        return best_rows(columns, rows, need, size)
    scope = inner[0]
    codes = scope.codes[rows]
    codes = np.where(codes < 0, len(scope.labels), codes)
    counts = np.bincount(codes)
    taken: list[Rows] = []
    while size:
        enough = np.flatnonzero(counts >= size)
        last = len(enough) > 0
        code = enough[counts[enough].argmin()] if last else counts.argmax()
        part = rows[codes == code]
        taken.append(_gather(columns, part, size, inner[1:], need) if last else part)
        size -= len(taken[-1])
        counts[code] = 0
    return np.concatenate(taken)


def _by_place(columns: Columns, rows: Rows) -> Rows:
    """Neighbours beside each other, so that near ranks are near nodes."""
    if len(rows) < 2:
        return rows
    keys: list[Rows] = [rows, *(level.codes[rows].astype(np.int64) for level in reversed(columns.levels))]
    ordered: Rows = rows[np.lexsort(keys)]
    return ordered


def _label(columns: Columns, rows: Rows, wish: Wish) -> str | None:
    if wish.level is None:
        return None
    for scope in columns.scopes[1:]:
        if scope.name == wish.level:
            codes = scope.codes[rows]
            return scope.labels[codes[0]] if codes[0] >= 0 and (codes == codes[0]).all() else None
    return None

"""
Which nodes a gang takes whose nodes hang together in runs: slices, and the parallel groups of a mesh.

A *run* is a fixed count of nodes next to each other in rank. Runs nest (tensor parallel groups make up expert parallel ones, those a
pipeline), so they are built from the inside: nodes are joined to runs inside the narrowest domains first, and what is left over there is
joined one level further out. That makes as many runs as there can be in every domain at once, since a domain of n free nodes makes
n // size of them whatever is joined first. Then the gang takes whole runs, out of the tightest domain that has enough.

Cost: nodes that fit x levels x tiers, in plain Python; only gangs that ask for runs pay it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.scheduling.asks import Shape
from shoal.scheduling.columns import Columns
from shoal.scheduling.domains import Chosen, Rows, Wish, label_of
from shoal.scheduling.levels import Level
from shoal.scheduling.options import Option
from shoal.scheduling.rooms import Need, RoomTable
from shoal.scheduling.score import score_rows

ISLAND = "island"
"""The level whose domains are NVLink islands over several hosts."""


class Tier(NamedTuple):
    """Runs of `nodes` nodes, each inside one domain of the scope `ceiling` at the widest. A tier's runs are made of whole runs of the
    tier before."""

    nodes: int
    ceiling: int


class _Run(NamedTuple):
    """`scope`: the narrowest in which all its rows are known to lie together; past the last one for a single node."""

    rows: tuple[int, ...]
    scope: int


def tiers_of(shape: Shape, option: Option, columns: Columns, rooms: RoomTable) -> tuple[Tier, ...] | None:
    """The runs of a gang, innermost first; none for one that asks for none; None if the fleet can never make them."""
    if len(option.groups) != 1:
        return ()
    if shape.slice is not None:
        size, level = shape.slice
        ceiling = _scope_named(columns, level)
        return None if ceiling is None else (Tier(size, ceiling),)
    return () if shape.mesh is None else _tiers_of_mesh(shape.mesh, shape.whole, option.groups[0].need, columns, rooms)


def _tiers_of_mesh(mesh: tuple[int, int, int, int], whole: bool, need: Need, columns: Columns, rooms: RoomTable) -> tuple[Tier, ...] | None:
    tp, ep, pp, _ = mesh
    each = max(1, need.member.gpus)
    tiers: list[Tier] = []
    for size, is_tensor in ((tp, True), (tp * ep, False), (tp * ep * pp, False)):
        if size % each or size == each or (tiers and tiers[-1].nodes == size // each):
            continue
        island = _island_that_holds(size // each, need, columns, rooms) if is_tensor else None
        if is_tensor and whole and island is None:
            return None
        tiers.append(Tier(size // each, island or 0))
    return tuple(tiers)


def _scope_named(columns: Columns, level: str) -> int | None:
    return next((at for at, scope in enumerate(columns.scopes) if at and scope.name == level), None)


def _island_that_holds(nodes: int, need: Need, columns: Columns, rooms: RoomTable) -> int | None:
    """The scope of islands over several hosts, if one of them has so many nodes with the GPUs for a member, free or not."""
    at = _scope_named(columns, ISLAND)
    if at is None:
        return None
    codes = columns.scopes[at].codes
    built = (np.bitwise_count(rooms.accepted(need)) >= need.member.gpus) & (codes >= 0)
    return at if np.bincount(codes[built], minlength=1).max() >= nodes else None


def choose_runs(columns: Columns, rows: Rows, most: int, need: Need, wish: Wish, tiers: tuple[Tier, ...]) -> Chosen | None:
    """
    The most of `rows`, `most` at most, that make whole runs of the last tier inside one domain of the ceiling, in rank order.

    `rows` each have room for one member; None if there is not one run.
    """
    if wish.ceiling is None:
        return None
    made = _made(columns, rows, need, tiers)
    size = tiers[-1].nodes
    inside_ceiling = _largest(made, columns.scopes[wish.ceiling], wish.ceiling)
    wanted = min(most // size, inside_ceiling)
    if not wanted:
        return None
    for at in range(len(columns.scopes) - 1 if wish.near else wish.ceiling, wish.ceiling - 1, -1):
        by_domain = _by_domain(made, columns.scopes[at], at)
        enough = [(len(runs), code) for code, runs in by_domain.items() if len(runs) >= wanted]
        if enough:
            ranks = _place_ranks(columns)
            tightest = sorted(by_domain[min(enough)[1]], key=lambda run: (-run.scope, ranks[run.rows[0]]))[:wanted]
            chosen = np.array([row for run in sorted(tightest, key=lambda run: ranks[run.rows[0]]) for row in run.rows])
            return Chosen(chosen, label_of(columns, chosen, wish))
    return None


def runs_in(columns: Columns, rows: Rows, need: Need, wish: Wish, tier: Tier) -> int:
    """How many runs of an innermost tier `rows` make inside the best domain of the ceiling."""
    if wish.ceiling is None:
        return 0
    return _largest(_made(columns, rows, need, (tier,)), columns.scopes[wish.ceiling], wish.ceiling)


def _largest(made: list[_Run], scope: Level, at: int) -> int:
    return max((len(runs) for runs in _by_domain(made, scope, at).values()), default=0)


def _made(columns: Columns, rows: Rows, need: Need, tiers: tuple[Tier, ...]) -> list[_Run]:
    """All runs of the last tier that can be made, each in rank order."""
    fullest_first = rows[np.lexsort((np.array(_place_ranks(columns))[rows], score_rows(columns, rows, need)))]
    made = [_Run((row,), len(columns.scopes)) for row in fullest_first.tolist()]
    before = 1
    for tier in tiers:
        made = _joined(made, tier.nodes // before, columns, tier.ceiling)
        before = tier.nodes
    return made


def _joined(runs: list[_Run], count: int, columns: Columns, ceiling: int) -> list[_Run]:
    """Runs of `count` runs, in the narrowest domains first, none wider than `ceiling`."""
    ranks = _place_ranks(columns)
    made: list[_Run] = []
    for at in range(len(columns.scopes) - 1, ceiling - 1, -1):
        by_domain = _by_domain(runs, columns.scopes[at], at)
        joined: set[int] = set()
        for code in sorted(by_domain):
            inside = by_domain[code]
            whole = len(inside) // count * count
            taken = sorted(inside[:whole], key=lambda run: ranks[run.rows[0]])
            made.extend(_Run(tuple(row for run in taken[i : i + count] for row in run.rows), at) for i in range(0, whole, count))
            joined.update(run.rows[0] for run in taken)
        runs = [run for run in runs if run.rows[0] not in joined]
    return made


def _by_domain(runs: list[_Run], scope: Level, at: int) -> dict[int, list[_Run]]:
    """The runs that lie inside one domain of the scope, by domain."""
    codes = scope.codes
    found: dict[int, list[_Run]] = {}
    for run in runs:
        code = int(codes[run.rows[0]]) if run.scope >= at else -1
        if code >= 0:
            found.setdefault(code, []).append(run)
    return found


def _place_ranks(columns: Columns) -> list[int]:
    """Per row, its place when nodes of one domain stand beside each other."""
    keys = [np.arange(len(columns)), *(scope.codes.astype(np.int64) for scope in reversed(columns.scopes))]
    ranks = np.empty(len(columns), np.int64)
    ranks[np.lexsort(keys)] = np.arange(len(columns))
    whole: list[int] = ranks.tolist()
    return whole

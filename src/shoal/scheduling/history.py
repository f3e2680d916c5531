"""
What a value table is trained on (`packing.train`), out of records: the jobs of a history as a mix of shapes, and a fleet as arrays.

A history is specs, as often as they came; each member of a gang counts as a task of its own, at the least size of the gang. A job that this
fleet could not run if it were empty is left out and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from shoal.base import limits
from shoal.model.job import JobSpec
from shoal.model.node import Node
from shoal.scheduling.asks import Shape, shape_of_spec
from shoal.scheduling.columns import Columns
from shoal.scheduling.options import fits_when_empty, options_for
from shoal.scheduling.packed import codes_of, empty_nodes, mix_of, shape_of
from shoal.scheduling.packing.mix import Mix, scarcity
from shoal.scheduling.packing.nodes import Nodes
from shoal.scheduling.packing.table import MixRow
from shoal.scheduling.rooms import accepted_devices

_PROJECT = "history"
"""Shares of one project may lie beside each other: whose they were is not asked."""


class History(NamedTuple):
    """The mix, in rows as a table keeps them, what its tasks can run on with nothing on it, and how many jobs are not in it."""

    rows: tuple[MixRow, ...]
    mix: Mix
    empty: Nodes
    left_out: int


def history_of(specs: Iterable[JobSpec], nodes: Sequence[Node]) -> History:
    """Of a fleet of more than NODES_TRAINED_MAX nodes, so many, evenly by kind. Cost: an option per distinct shape, and scarcity."""
    columns = Columns()
    columns.load(tuple(sorted(thinned(nodes), key=lambda node: node.id)))
    rows: dict[tuple[int, int, int, int, tuple[str, ...]], int] = {}
    known: dict[Shape, list[MixRow]] = {}
    left_out = 0
    for spec in specs:
        shape = shape_of_spec(spec, project=_PROJECT)
        mine = known.get(shape)
        if mine is None:
            mine = known[shape] = _rows_of(shape, columns)
        left_out += not mine
        for row in mine:
            key = (row.cpu_milli, row.memory_mib, row.gpus, row.gpu_milli, row.models)
            rows[key] = rows.get(key, 0) + row.count
    kept = tuple(MixRow(*key, count) for key, count in sorted(rows.items()))
    mix = mix_of(kept, codes_of(columns))
    empty = empty_nodes(columns)
    return History(kept, mix, empty._replace(scarcity=scarcity(mix, empty)), left_out)


def thinned(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """At most NODES_TRAINED_MAX nodes: of those in the order of what they have, every so many."""
    if len(nodes) <= limits.NODES_TRAINED_MAX:
        return tuple(nodes)
    alike = sorted(nodes, key=lambda node: (len(node.facts.devices), node.facts.cpus, node.facts.memory_bytes, node.id))
    chosen = np.linspace(0, len(alike) - 1, limits.NODES_TRAINED_MAX).round().astype(int)
    return tuple(alike[at] for at in chosen.tolist())


def _rows_of(asked: Shape, columns: Columns) -> list[MixRow]:
    """One row per group of the first way to run it; none if there is no way."""
    options = [option for option in options_for(asked, columns) if fits_when_empty(option, columns)]
    if not options:
        return []
    rows = []
    for part in options[0].groups:
        member, need = part.need.member, part.need
        row = next((at for at, layout in enumerate(columns.layouts) if accepted_devices(layout, need)), 0) if member.pieces else 0
        shape = shape_of(columns, row, need)
        models = tuple(sorted(model for model in member.models if model in columns.models))
        count = part.group.low * max(1, member.pieces)
        rows.append(MixRow(shape.cpu_milli, shape.memory, shape.gpus, shape.gpu_milli, models, count))
    return rows

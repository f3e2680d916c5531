"""
Residual value with scarcity, Shoal's default: place where what is left keeps most of its worth, and off nodes that the picky need.

A free piece of a GPU is worth what will probably still be filled of it given the CPU beside it, which a table says (`table`). FGD asks
instead whether one more task would fit. The gain of a place is

    asked + value(after) - value(before) - SCARCITY_WEIGHT x asked GPUs x scarcity(node)

rounded to STEP; ties go to smaller nodes, then to the first row. A node's CPU is divided among its GPUs by what each has free, plus
SHARE_FLOOR, so that a small rest still counts on some. No task that fits is ever refused.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from shoal.scheduling.packing.nodes import WHOLE, Floats, Ints, Nodes, TaskShape, after_whole, shared_places
from shoal.scheduling.packing.table import PARTS, WHOLES, Table

SHARE_FLOOR: Final = 200
SCARCITY_WEIGHT: Final = 300.0
STEP: Final = 20.0
"""All in thousandths of a GPU. Chosen on two seeds of all 17 openb lists; neighbours (300-500, 20-30) do alike at 130 % load."""
_SIZE_TIE: Final = 0.001 / 8
"""Per GPU of the node: decides between equal scores alone."""
_WEIGHT: Final = np.array([0.0, *(milli + float(SHARE_FLOOR) for milli in range(1, WHOLE + 1))])
"""Per thousandths free, for how much a GPU counts when its node's cores are divided."""
_ROW: Final = np.array([[*(milli // 10 for milli in range(WHOLE)), PARTS + free] for free in range(WHOLES + 1)], np.int64)
"""Row of the table by wholly free GPUs of the node and thousandths free."""


class Value:
    """See module. Scarcity comes with the nodes."""

    generation = 0

    def __init__(self, table: Table) -> None:
        self._table = table

    def values(self, cpu_milli: Ints, gpu_milli: Ints) -> Floats:
        """Per state (free CPU, and free thousandths by GPU) what is left there is worth, in thousandths of a GPU."""
        weight = _WEIGHT[gpu_milli]
        cores = cpu_milli / (1_000.0 * np.maximum(np.add.reduce(weight, axis=1), 1.0))
        free = np.minimum(np.add.reduce(gpu_milli >= WHOLE, axis=1), WHOLES)
        rows = _ROW[free[:, None], gpu_milli]
        worth: Floats = np.add.reduce(self._table.worth(rows, weight * cores[:, None]), axis=1)
        return worth

    def score(self, nodes: Nodes, shape: TaskShape) -> tuple[Floats, Ints]:
        gain, gpu = self._kept(nodes, shape)
        gain += shape.asked_milli - SCARCITY_WEIGHT * (shape.asked_milli / WHOLE) * nodes.scarcity
        score: Floats = STEP * np.floor(gain / STEP + 0.5) - _SIZE_TIE * nodes.gpus
        return score, gpu

    def _kept(self, nodes: Nodes, shape: TaskShape) -> tuple[Floats, Ints]:
        """Per row value(after) - value(before) on its best GPU, and that GPU; all states are valued in one go."""
        count = len(nodes.gpus)
        cpu = nodes.cpu_milli - shape.cpu_milli
        if not shape.shares:
            tried = after_whole(nodes.gpu_milli, shape.gpus) if shape.gpus else nodes.gpu_milli
            values = self.values(np.concatenate((cpu, nodes.cpu_milli)), np.concatenate((tried, nodes.gpu_milli)))
            return values[:count] - values[count:], np.full(count, -1)
        rows, gpus = shared_places(nodes, shape)
        tried = nodes.gpu_milli[rows]
        tried[np.arange(len(rows)), gpus] -= shape.gpu_milli
        values = self.values(np.concatenate((cpu[rows], nodes.cpu_milli)), np.concatenate((tried, nodes.gpu_milli)))
        kept = np.full(nodes.gpu_milli.shape, -np.inf)
        kept[rows, gpus] = values[: len(rows)]
        best: Ints = kept.argmax(axis=1)
        return kept[np.arange(count), best] - values[len(rows) :], best

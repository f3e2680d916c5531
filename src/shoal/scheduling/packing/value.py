"""
Residual value with scarcity: place where what is left keeps most of its worth, and off nodes that the picky need.

A free piece of a GPU is worth what will probably still be filled of it given the CPU beside it, which a table says (`table`). FGD asks
instead whether one more task would fit. The gain of a place is

    asked + worth(after) - worth(before) - SCARCITY_WEIGHT x asked GPUs x scarcity(node)

rounded to STEP; ties go to smaller nodes, then to the first row. A node's CPU is divided among its GPUs by what each has free, plus
SHARE_FLOOR, so that a small rest still counts on some. No task that fits is ever refused.

Where nobody leaves, worth is the table's value: what is filled last is what counts. Once tasks leave, every piece is filled and given back
over and over, and small tasks always find one; then a state is also worth what FGD says of it (less FRAGMENT_WEIGHT x its fragment, not
rounded), and SEVERAL_WEIGHT x what tasks of several GPUs could use of it, since whole nodes come back rarely. Equal nodes of equal size
then go by what is left on them. A cluster is taken to be one that tasks leave; a bench in which nobody leaves has the first alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from shoal.base import limits
from shoal.scheduling.packing.fragmentation import Fragmentation
from shoal.scheduling.packing.mix import Mix
from shoal.scheduling.packing.nodes import WHOLE, Floats, Ints, Nodes, TaskShape, after_whole, shared_places
from shoal.scheduling.packing.table import PARTS, WHOLES, Table

SHARE_FLOOR: Final = 200
SCARCITY_WEIGHT: Final = 300.0
STEP: Final = 20.0
"""All in thousandths of a GPU. Chosen on two seeds of all 17 openb lists; neighbours (300-500, 20-30) do alike at 130 % load."""

FRAGMENT_WEIGHT: Final = 1.0
SEVERAL_WEIGHT: Final = 2.0
"""Where tasks leave. Chosen on two seeds of two lists with departures; 0 to 2 of either serve within 0.8 points of each other."""
_SIZE_TIE: Final = 0.001
"""Per GPU of the node: decides between equal scores alone."""
_LEFT_TIE: Final = 0.0001
"""Where tasks leave, per large node's worth of cores and GPUs that is free: below one GPU of the node's size."""
_CORES_MILLI: Final = 256_000
_GPUS_MILLI: Final = 16_000
_WEIGHT: Final = np.array([0.0, *(milli + float(SHARE_FLOOR) for milli in range(1, WHOLE + 1))])
"""Per thousandths free, for how much a GPU counts when its node's cores are divided."""
_ROW: Final = np.array([[*(milli // 10 for milli in range(WHOLE)), PARTS + free] for free in range(WHOLES + 1)], np.int64)
"""Row of the table by wholly free GPUs of the node and thousandths free."""


def rows_of(gpu_milli: Ints) -> Ints:
    """The row of a table that each GPU of some states is valued by."""
    free = np.minimum(np.add.reduce(gpu_milli >= WHOLE, axis=1), WHOLES)
    rows: Ints = _ROW[free[:, None], gpu_milli]
    return rows


def cores_beside(cpu_milli: Ints, gpu_milli: Ints) -> Floats:
    """Cores of a node that count as those of each of its GPUs, 0 for GPUs with nothing free."""
    weight = _WEIGHT[gpu_milli]
    cores: Floats = weight * (cpu_milli / (1_000.0 * np.maximum(np.add.reduce(weight, axis=1), 1.0)))[:, None]
    return cores


def usable_by_several(mix: Mix) -> Floats:
    """Per number of wholly free GPUs of a node, the thousandths that tasks of several GPUs can use of it: a mean over GPUs asked."""
    free = np.arange(limits.GPUS_PER_NODE_MAX + 1)
    usable = np.zeros(len(free))
    if not mix.asked_milli:
        return usable
    for shape, count in zip(mix.shapes, mix.counts, strict=True):
        if shape.gpus > 1:
            usable += np.where(free >= shape.gpus, free * float(WHOLE) * count * shape.asked_milli / mix.asked_milli, 0.0)
    return usable


class Value:
    """See module. Scarcity comes with the nodes. `leaves` says whether tasks leave; what is remembered is void once it does."""

    def __init__(self, table: Table, mix: Mix, leaves: Callable[[], bool] = lambda: True) -> None:
        self._table = table
        self._leaves = leaves
        self._fragmentation = Fragmentation(mix)
        self._of_several = SEVERAL_WEIGHT * usable_by_several(mix)

    @property
    def generation(self) -> int:
        return int(self._leaves())

    def values(self, cpu_milli: Ints, gpu_milli: Ints) -> Floats:
        """Per state (free CPU, and free thousandths by GPU) what is left there is worth, in thousandths of a GPU."""
        worth: Floats = np.add.reduce(self._table.worth(rows_of(gpu_milli), cores_beside(cpu_milli, gpu_milli)), axis=1)
        return worth

    def score(self, nodes: Nodes, shape: TaskShape) -> tuple[Floats, Ints]:
        count = len(nodes.gpus)
        rows, gpus, tried = _places(nodes, shape)
        cpu = np.concatenate((nodes.cpu_milli[rows] - shape.cpu_milli, nodes.cpu_milli))
        milli = np.concatenate((tried, nodes.gpu_milli))
        worth = self.values(cpu, milli)
        if self._leaves():
            worth += self._lasting(cpu, milli, np.concatenate((nodes.model[rows], nodes.model)))
        kept = worth[: len(rows)] - worth[len(rows) :][rows]
        if shape.shares:
            by_gpu = np.full(nodes.gpu_milli.shape, -np.inf)
            by_gpu[rows, gpus] = kept
            gpus = by_gpu.argmax(axis=1)
            kept = by_gpu[np.arange(count), gpus]
        gain = kept + shape.asked_milli - SCARCITY_WEIGHT * (shape.asked_milli / WHOLE) * nodes.scarcity
        score: Floats = STEP * np.floor(gain / STEP + 0.5) - _SIZE_TIE * nodes.gpus
        if self._leaves():
            score -= _LEFT_TIE * (nodes.cpu_milli / _CORES_MILLI + nodes.gpu_milli.sum(axis=1) / _GPUS_MILLI)
        return score, gpus

    def _lasting(self, cpu_milli: Ints, gpu_milli: Ints, model: Ints) -> Floats:
        """What of a state stays usable however often its tasks come and go."""
        several = self._of_several[np.add.reduce(gpu_milli >= WHOLE, axis=1)]
        lasting: Floats = several - FRAGMENT_WEIGHT * self._fragmentation.means(cpu_milli, gpu_milli, model)
        return lasting


def _places(nodes: Nodes, shape: TaskShape) -> tuple[Ints, Ints, Ints]:
    """Rows and GPUs that may be tried (one per row, and GPU -1, where no part is asked for), and what is free by GPU afterwards."""
    if not shape.shares:
        count = len(nodes.gpus)
        return np.arange(count), np.full(count, -1), after_whole(nodes.gpu_milli, shape.gpus) if shape.gpus else nodes.gpu_milli
    rows, gpus = shared_places(nodes, shape)
    tried = nodes.gpu_milli[rows]
    tried[np.arange(len(rows)), gpus] -= shape.gpu_milli
    return rows, gpus, tried

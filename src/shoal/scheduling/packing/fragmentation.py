"""
Fragmentation gradient (FGD, "Beware of Fragmentation", USENIX ATC 2023): the node of which the task makes least unusable for what comes.

A node's fragment for a shape is all of its free GPU if the shape cannot run there or wants none, else the parts below the shape's ask;
F is its mean over the mix. Score = floor(100 x sigmoid(F before - F after, in GPUs)): rounding is part of the algorithm, ties fall to the
first row, and on a node to the first GPU with the best rounded score. F is counted in whole numbers (count x thousandths), so that "no
change" is exactly zero. Memory is not looked at, as in the original.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from shoal.scheduling.packing.mix import Mix
from shoal.scheduling.packing.nodes import ANY_MODEL, WHOLE, Floats, Ints, Nodes, TaskShape, after_whole, shared_places

_GPU_PLACE_BITS: Final = 7
_GPU_PLACES: Final = 1 << _GPU_PLACE_BITS
"""More than the GPUs of any node: a count of them and their thousandths share a number."""


def _kind_of(shape: TaskShape) -> tuple[int, int, int]:
    """What tasks that differ in nothing but cores have in common: thousandths of each GPU, GPUs, models."""
    return min(shape.gpu_milli, WHOLE), shape.gpus, shape.models


class Fragmentation:
    """See module. Cost: states tried x kinds of the mix (shapes apart from their cores)."""

    generation = 0

    def __init__(self, mix: Mix, models: int = 64) -> None:
        """`models`: model codes lie below this."""
        counted = [(shape, count) for shape, count in zip(mix.shapes, mix.counts, strict=True) if shape.gpus]
        kinds = sorted({_kind_of(shape) for shape, _ in counted})
        asks = sorted({ask for ask, _, _ in kinds})
        cores = sorted({shape.cpu_milli for shape, _ in counted})
        self._count_all = float(sum(mix.counts))
        self._gpus = np.array([gpus for _, gpus, _ in kinds], np.int64)
        self._ask_of = np.array([asks.index(ask) for ask, _, _ in kinds], np.int64)
        self._steps = len(asks) + 1
        self._met = np.searchsorted(asks, np.arange(WHOLE + 1), side="right")  # Per thousandths free, how many of the asks they meet.
        self._cores = np.array(cores, np.int64)
        able = np.zeros((len(cores) + 1, len(kinds)))
        at, step = {kind: at for at, kind in enumerate(kinds)}, {cpu: step for step, cpu in enumerate(cores, 1)}
        for shape, count in counted:
            able[step[shape.cpu_milli], at[_kind_of(shape)]] += count
        self._able = able.cumsum(axis=0)  # Tasks of each kind that so many of the steps of cores are enough for.
        allowed = [[kind[2] == ANY_MODEL or bool(kind[2] >> code & 1) for kind in kinds] for code in range(models)]
        self._allowed = np.array(allowed, np.bool_).reshape(models, len(kinds))

    def fragments(self, cpu_milli: Ints, gpu_milli: Ints, model: Ints) -> Floats:
        """Per state, its fragment in thousandths of a GPU times the number of tasks in the mix: whole numbers."""
        states = len(gpu_milli)
        cell = self._met[gpu_milli] + np.arange(0, states * self._steps, self._steps)[:, None]
        # What meets exactly so many asks, thousandths and GPUs in one number; then what meets so many or more.
        meets = np.bincount(cell.ravel(), gpu_milli.ravel() * _GPU_PLACES + 1.0, states * self._steps).reshape(states, -1)
        meets = meets[:, ::-1].cumsum(axis=1)[:, ::-1]
        enough = meets[:, 1:].astype(np.int64)[:, self._ask_of]
        runs = (enough & (_GPU_PLACES - 1) >= self._gpus) & self._allowed[model]
        usable = runs * (enough >> _GPU_PLACE_BITS) * self._able[self._cores.searchsorted(cpu_milli, side="right")]
        fragments: Floats = gpu_milli.sum(axis=1) * self._count_all - usable.sum(axis=1)
        return fragments

    def means(self, cpu_milli: Ints, gpu_milli: Ints, model: Ints) -> Floats:
        """Per state, its fragment in thousandths of a GPU: the mean over the tasks of the mix."""
        means: Floats = self.fragments(cpu_milli, gpu_milli, model) / self._count_all
        return means

    def score(self, nodes: Nodes, shape: TaskShape) -> tuple[Floats, Ints]:
        before = self.fragments(nodes.cpu_milli, nodes.gpu_milli, nodes.model)
        cpu = nodes.cpu_milli - shape.cpu_milli
        if not shape.shares:
            after = self.fragments(cpu, after_whole(nodes.gpu_milli, shape.gpus), nodes.model)
            return self._rounded(after - before), np.full(len(cpu), -1)
        rows, gpus = shared_places(nodes, shape)
        tried = nodes.gpu_milli[rows]
        tried[np.arange(len(rows)), gpus] -= shape.gpu_milli
        after = self.fragments(cpu[rows], tried, nodes.model[rows])
        scores = np.full(nodes.gpu_milli.shape, -1.0)
        scores[rows, gpus] = self._rounded(after - before[rows])
        best: Ints = scores.argmax(axis=1)
        return scores[np.arange(len(best)), best], best

    def _rounded(self, rise: Floats) -> Floats:
        """The published score of a rise of the fragment."""
        score: Floats = np.floor(100 / (1 + np.exp(rise / (self._count_all * WHOLE))))
        return score

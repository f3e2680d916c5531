"""
Fragmentation gradient (FGD, "Beware of Fragmentation", USENIX ATC 2023): the node of which the task makes least unusable for what comes.

A node's fragment for a shape is all of its free GPU if the shape cannot run there or wants none, else the parts below the shape's ask;
F is its mean over the mix. Score = floor(100 x sigmoid(F before - F after, in GPUs)): rounding is part of the algorithm, ties fall to the
first row, and on a node to the first GPU with the best rounded score. F is counted in whole numbers (count x thousandths), so that "no
change" is exactly zero. Memory is not looked at, as in the original.
"""

from __future__ import annotations

import numpy as np

from shoal.scheduling.packing.mix import Mix
from shoal.scheduling.packing.nodes import ANY_MODEL, WHOLE, Floats, Ints, Nodes, TaskShape, after_whole


class Fragmentation:
    """See module. Cost: states tried x shapes of the mix."""

    generation = 0

    def __init__(self, mix: Mix, models: int = 64) -> None:
        """`models`: model codes lie below this."""
        pairs = [(shape, count) for shape, count in zip(mix.shapes, mix.counts, strict=True) if shape.gpus]
        self._count_all = float(sum(mix.counts))
        self._cpu = np.array([shape.cpu_milli for shape, _ in pairs], np.int64)
        self._gpus = np.array([shape.gpus for shape, _ in pairs], np.int64)
        self._counts = np.array([count for _, count in pairs], np.float64)
        asks = np.array([min(shape.gpu_milli, WHOLE) for shape, _ in pairs], np.int64)
        self._asks, self._ask_of = np.unique(asks, return_inverse=True)
        allowed = [[shape.models == ANY_MODEL or bool(shape.models >> code & 1) for shape, _ in pairs] for code in range(models)]
        self._allowed = np.array(allowed, np.bool_).reshape(models, len(pairs))

    def fragments(self, cpu_milli: Ints, gpu_milli: Ints, model: Ints) -> Floats:
        """Per state, its fragment in thousandths of a GPU times the number of tasks in the mix: whole numbers."""
        total = gpu_milli.sum(axis=1)
        below = gpu_milli[:, None, :] < self._asks[:, None]
        usable = total[:, None] - np.where(below, gpu_milli[:, None, :], 0).sum(axis=2)
        enough = gpu_milli.shape[1] - np.count_nonzero(below, axis=2)
        able = (cpu_milli[:, None] >= self._cpu) & self._allowed[model] & (enough[:, self._ask_of] >= self._gpus)
        fragments: Floats = total * self._count_all - (able * usable[:, self._ask_of]) @ self._counts
        return fragments

    def score(self, nodes: Nodes, shape: TaskShape) -> tuple[Floats, Ints]:
        before = self.fragments(nodes.cpu_milli, nodes.gpu_milli, nodes.model)
        cpu = nodes.cpu_milli - shape.cpu_milli
        if not shape.shares:
            after = self.fragments(cpu, after_whole(nodes.gpu_milli, shape.gpus), nodes.model)
            return self._rounded(after - before), np.full(len(cpu), -1)
        rows, gpus = np.nonzero(nodes.room >= shape.gpu_milli)
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

"""Best fit, spread, and "anywhere": scores that ask nothing about the tasks to come."""

from __future__ import annotations

from typing import Final

import numpy as np

from shoal.scheduling.packing.nodes import WHOLE, Floats, Ints, Nodes, TaskShape

_EMPTY_GPU: Final = 1 << 12
LARGEST_CPU_MILLI: Final = 128_000
LARGEST_GPU_MILLI: Final = 8_000
"""What a large node has: free cores and GPUs are weighed as parts of this. Source: the simulator of FGD (USENIX ATC 2023)."""


def tightest_gpu(nodes: Nodes, shape: TaskShape) -> Ints:
    """Per row the GPU with least free on which the share still fits, the first of equal ones; -1 for tasks that share none."""
    if not shape.shares:
        return np.full(len(nodes.gpus), -1)
    room = np.where(nodes.room >= shape.gpu_milli, nodes.gpu_milli, np.iinfo(np.int64).max)
    gpu: Ints = room.argmin(axis=1)
    return gpu


class Tightest:
    """
    Fewest GPUs left over, then fewest cores: the cycle's best fit (`scheduling.score` has it in whole numbers of columns). Cores are not
    weighed against GPUs, since a broken row of GPUs costs a gang its node and idle cores cost nobody.
    """

    generation = 0

    def score(self, nodes: Nodes, shape: TaskShape) -> tuple[Floats, Ints]:
        whole = np.count_nonzero(nodes.gpu_milli >= WHOLE, axis=1)
        left = (whole - (0 if shape.shares else shape.gpus)) * float(1 << 23) + nodes.cpu_milli
        gpu = tightest_gpu(nodes, shape)
        if shape.shares:  # First how tightly the part sits on a GPU that is shared; an empty one is the loosest.
            free = nodes.gpu_milli[np.arange(len(gpu)), gpu]
            left += np.where(free >= WHOLE, _EMPTY_GPU, free - shape.gpu_milli) * float(1 << 30)
        return -left, gpu


class BestFit:
    """Least left over, cores and GPUs weighed alike as parts of a large node, in whole per cents."""

    generation = 0

    def score(self, nodes: Nodes, shape: TaskShape) -> tuple[Floats, Ints]:
        return np.floor(100 * (1 - _left(nodes, shape))), tightest_gpu(nodes, shape)


class Spread:
    """Most left over: the other end of best fit, for those who want neighbours far apart. A share takes the GPU with most free."""

    generation = 0

    def score(self, nodes: Nodes, shape: TaskShape) -> tuple[Floats, Ints]:
        gpu: Ints = (
            np.where(nodes.room >= shape.gpu_milli, nodes.gpu_milli, -1).argmax(axis=1) if shape.shares else np.full(len(nodes.gpus), -1)
        )
        return _left(nodes, shape), gpu


class Anywhere:
    """Every node that fits is as good as any other: with a random stream in the packer, random placing."""

    generation = 0

    def score(self, nodes: Nodes, shape: TaskShape) -> tuple[Floats, Ints]:
        return np.zeros(len(nodes.gpus)), tightest_gpu(nodes, shape)


def _left(nodes: Nodes, shape: TaskShape) -> Floats:
    cpu = (nodes.cpu_milli - shape.cpu_milli) / LARGEST_CPU_MILLI
    gpu = (nodes.gpu_milli.sum(axis=1) - shape.asked_milli) / LARGEST_GPU_MILLI
    left: Floats = 0.5 * cpu + 0.5 * gpu
    return left

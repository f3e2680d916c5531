"""
What a scorer sees: nodes as rows of arrays, and a task's ask as five numbers. No names, no jobs, no board.

`ArrayFleet` is a fleet made of nothing else, for benches, training and tests; the cycle offers its own columns in the same form.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

WHOLE: Final = 1_000
"""Thousandths of a GPU."""
ANY_MODEL: Final = -1
"""All bits set: every model will do."""


class TaskShape(NamedTuple):
    """
    One task on one node: `gpus` GPUs with `gpu_milli` thousandths of each (1,000 for whole ones; below that `gpus` is 1; 0 and 0 for a
    task without). `models` has a bit per model code that will do. `memory` is in the fleet's own unit.
    """

    cpu_milli: int
    memory: int = 0
    gpus: int = 0
    gpu_milli: int = 0
    models: int = ANY_MODEL

    @property
    def asked_milli(self) -> int:
        """Thousandths of GPUs in all."""
        return self.gpus * self.gpu_milli

    @property
    def shares(self) -> bool:
        """Takes a part of one GPU."""
        return 0 < self.gpu_milli < WHOLE


class Nodes(NamedTuple):
    """
    What is free on some nodes, one row each. `gpu_milli` is [rows, GPUs], 0 where a node has no such GPU; `gpus` counts those it has;
    `scarcity` is how much more each is wanted than the least wanted node (`mix.scarcity`). `takeable` is given where a part that is asked
    for cannot be had of every GPU with room (other tenants, instances in the way): what may be taken, [rows, GPUs].
    """

    cpu_milli: Ints
    memory: Ints
    gpu_milli: Ints
    gpus: Ints
    model: Ints
    scarcity: Floats
    takeable: Ints | None = None

    def at(self, rows: Ints | Flags) -> Nodes:
        """These rows alone."""
        takeable = None if self.takeable is None else self.takeable[rows]
        cpu, memory, milli = self.cpu_milli[rows], self.memory[rows], self.gpu_milli[rows]
        return Nodes(cpu, memory, milli, self.gpus[rows], self.model[rows], self.scarcity[rows], takeable)

    @property
    def room(self) -> Ints:
        """Thousandths by GPU that somebody who asks for a part may take."""
        return self.gpu_milli if self.takeable is None else self.takeable


class Source(Protocol):
    """A fleet that can be read by rows. A row's `version` changes whenever something of it does; rows never change places."""

    @property
    def versions(self) -> Ints: ...

    def nodes(self, rows: Ints) -> Nodes:
        """What is free on these rows now."""
        ...


def fitting(nodes: Nodes, shape: TaskShape) -> Flags:
    """Per row: can the task run there now?"""
    fits: Flags = (nodes.cpu_milli >= shape.cpu_milli) & (nodes.memory >= shape.memory)
    if shape.gpus:
        least = WHOLE if shape.gpu_milli >= WHOLE else shape.gpu_milli
        fits &= np.add.reduce(nodes.gpu_milli >= least, axis=1) >= shape.gpus
        if shape.models != ANY_MODEL:
            fits &= (shape.models >> nodes.model) & 1 == 1
    return fits


def after_whole(gpu_milli: Ints, count: int) -> Ints:
    """Free thousandths once a task has taken the first `count` wholly free GPUs of each row."""
    free = gpu_milli >= WHOLE
    taken = free & (free.cumsum(axis=1) <= count)
    left: Ints = np.where(taken, 0, gpu_milli)
    return left


def shared_places(nodes: Nodes, shape: TaskShape) -> tuple[Ints, Ints]:
    """Rows and GPUs on which a part can be had. Of a row's wholly free GPUs only the first: all are alike, and the first wins ties."""
    room = nodes.room
    able, whole = room >= shape.gpu_milli, (room >= WHOLE) & (nodes.gpu_milli >= WHOLE)
    rows, gpus = np.nonzero(able & ~(whole & (whole.cumsum(axis=1) > 1)))
    return rows, gpus


class ArrayFleet:
    """Nodes held as arrays. Rows are in the order of names, so "first row" is "smallest name"."""

    def __init__(self, nodes: Nodes) -> None:
        self.total = nodes
        self.free = nodes._replace(cpu_milli=nodes.cpu_milli.copy(), memory=nodes.memory.copy(), gpu_milli=nodes.gpu_milli.copy())
        self._versions = np.zeros(len(nodes.gpus), np.int64)
        self.leaves = False
        """True once a task has left."""

    @property
    def versions(self) -> Ints:
        return self._versions

    @property
    def capacity_milli(self) -> int:
        """Thousandths of GPUs there are."""
        return int(self.total.gpu_milli.sum())

    def nodes(self, rows: Ints) -> Nodes:
        return self.free.at(rows)

    def take(self, row: int, shape: TaskShape, gpu: int) -> tuple[int, ...]:
        """The task is on the row now; gives the GPUs it got: `gpu` for a share, the first free ones for whole GPUs."""
        mine: tuple[int, ...] = ()
        if shape.shares:
            mine = (gpu,)
        elif shape.gpus:
            mine = tuple(np.flatnonzero(self.free.gpu_milli[row] >= WHOLE)[: shape.gpus].tolist())
        self._move(row, shape, mine, -1)
        return mine

    def give(self, row: int, shape: TaskShape, gpus: tuple[int, ...]) -> None:
        """The task has left; the inverse of `take`."""
        self.leaves = True
        self._move(row, shape, gpus, 1)

    def _move(self, row: int, shape: TaskShape, gpus: tuple[int, ...], sign: int) -> None:
        free = self.free
        free.cpu_milli[row] += sign * shape.cpu_milli
        free.memory[row] += sign * shape.memory
        for gpu in gpus:
            free.gpu_milli[row, gpu] += sign * shape.gpu_milli
        self._versions[row] += 1

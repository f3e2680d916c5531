"""
The best node for a task, where scores are remembered: per shape and node one number, worked out again only for nodes that changed since.

    place(task)    stale = rows whose version is not the one their score was made at
                   score[shape, stale] = scorer(...)      a few dozen NumPy passes over a handful of rows
                   row = argmax(score[shape]), equal scores to the first row, which is the smallest name

Cost: per decision one comparison and one argmax over the rows, and the scorer over what changed. Versions rather than a list of
changes: a reader that comes back late needs no history, and nobody has to tell when a list may be cut.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple, Protocol

import numpy as np

from shoal.base import limits
from shoal.base.rng import Rng
from shoal.scheduling.packing.nodes import Floats, Ints, Nodes, Source, TaskShape, fitting

NOWHERE = -np.inf
"""The score of a node on which the task does not fit."""


class Scorer(Protocol):
    """
    How good each node is for one more task, the highest best, and for a share the GPU of it to take.

    Only rows on which the task fits are handed in. `generation` rises when everything remembered is void.
    """

    @property
    def generation(self) -> int: ...

    def score(self, nodes: Nodes, shape: TaskShape) -> tuple[Floats, Ints]: ...


class _Remembered(NamedTuple):
    score: Floats
    gpu: Ints
    version: Ints


class Packer:
    """See module. With `rng` equal scores fall to chance, on nodes and on GPUs; without, to the first row and the first GPU."""

    def __init__(self, source: Source, scorer: Scorer, rng: Rng | None = None) -> None:
        self._source = source
        self._scorer = scorer
        self._rng = rng
        self._shapes: OrderedDict[TaskShape, _Remembered] = OrderedDict()
        self._generation = scorer.generation

    def best(self, shape: TaskShape) -> tuple[int, int] | None:
        """The row to place on and, for a share, its GPU (else -1); None if the task fits nowhere now."""
        mine = self._up_to_date(shape, None)
        if self._rng is not None:
            return self._any_best(shape, mine, self._rng)
        row = int(mine.score.argmax())
        return None if mine.score[row] == NOWHERE else (row, int(mine.gpu[row]))

    def scores(self, shape: TaskShape, rows: Ints) -> Floats:
        """The scores of these rows, `NOWHERE` where the task does not fit."""
        score: Floats = self._up_to_date(shape, rows).score[rows]
        return score

    def gpu(self, shape: TaskShape, row: int) -> int:
        """The GPU of a row that a share takes."""
        return int(self._up_to_date(shape, np.array([row])).gpu[row])

    def _up_to_date(self, shape: TaskShape, rows: Ints | None) -> _Remembered:
        mine = self._remembered(shape)
        versions = self._source.versions
        if rows is None:
            stale: Ints = np.flatnonzero(mine.version != versions)
        else:
            stale = rows[mine.version[rows] != versions[rows]]
        if len(stale):
            mine.version[stale] = versions[stale]
            nodes = self._source.nodes(stale)
            fits = fitting(nodes, shape)
            if not fits.all():
                mine.score[stale] = NOWHERE
                stale = stale[fits]
                nodes = nodes.at(fits)
            if len(stale):
                mine.score[stale], mine.gpu[stale] = self._scorer.score(nodes, shape)
        return mine

    def _remembered(self, shape: TaskShape) -> _Remembered:
        if self._generation != self._scorer.generation:
            self._generation = self._scorer.generation
            self._shapes.clear()
        mine = self._shapes.get(shape)
        count = len(self._source.versions)
        if mine is None or len(mine.score) != count:
            if len(self._shapes) >= limits.SHAPES_SCORED_MAX:
                self._shapes.popitem(last=False)
            mine = _Remembered(np.full(count, NOWHERE), np.full(count, -1), np.full(count, -1))
            self._shapes[shape] = mine
        self._shapes.move_to_end(shape)
        return mine

    def _any_best(self, shape: TaskShape, mine: _Remembered, rng: Rng) -> tuple[int, int] | None:
        best = mine.score.max()
        if best == NOWHERE:
            return None
        row = rng.choice(np.flatnonzero(mine.score == best).tolist())
        if not shape.shares:
            return row, -1
        free = self._source.nodes(np.array([row])).gpu_milli[0]
        return row, rng.choice(np.flatnonzero(free >= shape.gpu_milli).tolist())

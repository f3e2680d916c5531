"""The shapes that come and how often, and what follows for a fleet: which nodes are wanted by tasks that can run nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from shoal.scheduling.packing.nodes import Floats, Nodes, TaskShape, fitting

SCARCITY_MOST: Final = 3.0
"""Beyond this a node is simply "very scarce": the term may not outgrow the value of a GPU."""


class Mix(NamedTuple):
    """Distinct shapes, ascending, and how often each came."""

    shapes: tuple[TaskShape, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, tasks: Iterable[TaskShape]) -> Mix:
        """The mix of a history."""
        seen = Counter(tasks)
        shapes = tuple(sorted(seen))
        return cls(shapes, tuple(seen[shape] for shape in shapes))

    @property
    def asked_milli(self) -> int:
        """Thousandths of GPUs that all of them ask together."""
        return sum(shape.asked_milli * count for shape, count in zip(self.shapes, self.counts, strict=True))


def scarcity(mix: Mix, empty: Nodes) -> Floats:
    """
    How much is wanted of each node by the shapes it can run, over what there is for those shapes; the least wanted node is 0.

    `empty` is the fleet with nothing on it. Demand is scaled so that all of the fleet's GPUs are asked for once. Cost: shapes x nodes.
    """
    capacity = empty.gpu_milli.sum(axis=1)
    asked = mix.asked_milli
    wanted = np.zeros(len(capacity))
    if not asked:
        return wanted
    scale = capacity.sum() / asked
    for shape, count in zip(mix.shapes, mix.counts, strict=True):
        if shape.asked_milli:
            able = fitting(empty, shape)
            room = capacity[able].sum()
            if room:
                wanted[able] += count * shape.asked_milli * scale / room
    least: Floats = np.minimum(wanted - wanted.min(initial=np.inf), SCARCITY_MOST)
    return least

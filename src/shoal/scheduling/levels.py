"""The topology as columns: per level of it the domain that each row lies in. Made by `columns` from the nodes' own paths."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.model.node import Node


class Level(NamedTuple):
    """One level of the topology: per row the domain's code (-1: the node does not say), per code its label `rack=a3`."""

    name: str
    codes: NDArray[np.int32]
    labels: tuple[str, ...]


def levels_of(nodes: list[Node]) -> tuple[Level, ...]:
    """The levels that the nodes' own paths name, from the widest to the narrowest."""
    depth: dict[str, int] = {}
    for node in nodes:
        for at, (level, _) in enumerate(node.topology):
            depth[level] = max(depth.get(level, 0), at)
    return tuple(_level(name, nodes) for name in sorted(depth, key=lambda name: (depth[name], name)))


def _level(name: str, nodes: list[Node]) -> Level:
    """Domains are told apart by their whole path: rack 1 of zone a is not rack 1 of zone b."""
    paths: list[tuple[tuple[str, str], ...] | None] = []
    for node in nodes:
        at = next((i for i, (level, _) in enumerate(node.topology) if level == name), None)
        paths.append(None if at is None else node.topology[: at + 1])
    known = {path: code for code, path in enumerate(sorted({p for p in paths if p is not None}))}
    codes = np.array([-1 if path is None else known[path] for path in paths], np.int32)
    return Level(name, codes, tuple(f"{name}={path[-1][1]}" for path in known))

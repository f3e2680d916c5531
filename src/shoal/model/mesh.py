"""
The parallel axes of a gang and the place of each GPU in them: what placement, agents and people all count by.

Ranks run along the axes in the order of `AXES`, tensor parallel fastest: what talks most is numbered next to each other, so that
neighbours in rank are neighbours in the machine. It is the order of `init_device_mesh("cuda", (dp, pp, ep, tp))`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

AXES: Final = ("tp", "ep", "pp", "dp")
"""Fastest first: tensor, expert, pipeline, data parallel."""


def sizes_of(mesh: Mapping[str, int]) -> tuple[int, int, int, int]:
    """The size of every axis in the order of `AXES`; 1 for one that is not named."""
    tp, ep, pp, dp = (mesh.get(axis, 1) for axis in AXES)
    return tp, ep, pp, dp


def gpus_of(mesh: Mapping[str, int]) -> int:
    """GPUs of the whole gang."""
    return prod(sizes_of(mesh))


def coordinates(mesh: Mapping[str, int], gpu: int) -> dict[str, int]:
    """The place of the gang's `gpu`-th GPU on every axis, 0 <= gpu < gpus_of(mesh)."""
    at: dict[str, int] = {}
    for axis, size in zip(AXES, sizes_of(mesh), strict=True):
        gpu, at[axis] = divmod(gpu, size)
    return at


def mesh_text(mesh: Mapping[str, int]) -> str:
    """`tp=8,pp=2,dp=4`: the axes that are named, fastest first."""
    return ",".join(f"{axis}={mesh[axis]}" for axis in AXES if axis in mesh)

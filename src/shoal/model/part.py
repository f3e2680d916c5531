"""
A part of a GPU: what a GPU may be given as (`Partition`), and the piece of one that somebody holds (`DevicePart`).

A MIG instance is a hard slice with memory and SMs of its own. A soft share is a promise between jobs of one project: it isolates nothing.
"""

from __future__ import annotations

from typing import Literal

import msgspec

PartMode = Literal["mig", "mps", "time-slice"]
"""How a part is kept apart: a MIG instance; or soft, with MPS's limits, or taking turns without any."""


class MigInstance(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An instance that a GPU is cut into; `start` counts memory slices."""

    profile: str
    start: int
    uuid: str = ""


class Partition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """
    What a GPU may be given as.

    `mig`: `fixed` gives the instances that there are; `reshape` makes them as they are asked for, and takes idle ones away while nothing
    runs on the GPU.
    """

    whole: bool = True
    mig: Literal["off", "fixed", "reshape"] = "off"
    instances: tuple[MigInstance, ...] = ()
    """The cut as it was found, ascending by start; those made for jobs are not in it."""
    soft: Literal["off", "mps", "time-slice"] = "off"
    shares_max: int = 0
    """Soft shares at a time."""


class DevicePart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A piece of one GPU that a member of a gang has: an instance of `profile` at `start`, or a soft share."""

    device: str
    mode: PartMode
    profile: str = ""
    start: int = 0
    thousandths: int = 0
    """Of the GPU, that a soft share counts for; an instance counts by its slices."""
    memory_bytes: int = 0
    """What a soft share may use of the GPU's memory; of an instance what the driver lists, 0 where that is not known."""
    capped: bool = False
    """The thousandths were asked for: under MPS the tasks are held to them. Else they follow from the memory, and are only counted."""
    charge: int = 0
    """What its queue is charged for it, in thousandths of a GPU."""

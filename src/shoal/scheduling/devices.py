"""
The GPUs inside one node: how they are laid out, and which of the free ones to take.

A set of devices is a bit mask: bit i is the i-th device of the node's facts. Nodes of the same build share one `Layout`, which
remembers its answers: an eight-GPU build has 256 masks, so after a while a choice is one look-up.
"""

from __future__ import annotations

from typing import NamedTuple

from shoal.base import limits
from shoal.model.node import NodeFacts
from shoal.model.part import Partition


class DevicePlace(NamedTuple):
    """What placement knows of one device."""

    model: str
    memory_bytes: int
    island: int
    numa: int
    switch: int
    partition: Partition = Partition()


class Layout:
    """A build of node: its devices in order. Equal builds are one object (`layout_of` with a shared table)."""

    __slots__ = ("_accepted", "_by_island", "_chosen", "_ordered", "by_model", "devices", "islands", "mask", "nests", "whole")

    def __init__(self, devices: tuple[DevicePlace, ...]) -> None:
        self.devices = devices
        self.mask = (1 << len(devices)) - 1
        self.whole = sum(1 << at for at, device in enumerate(devices) if device.partition.whole)
        """Those that may be given whole."""
        self.by_model = _masks(devices, "model")
        self.islands = tuple(_masks(devices, "island").values())
        self.nests = (self.islands, tuple(_masks(devices, "numa").values()), tuple(_masks(devices, "switch").values()))
        """Groups that share a path, from the fastest path to the next: NVLink island, NUMA node, PCIe switch."""
        self._by_island = sorted(range(len(devices)), key=lambda at: (devices[at].island, at))
        self._chosen: dict[tuple[int, int], int] = {}
        self._ordered: dict[int, tuple[int, ...]] = {}
        self._accepted: dict[tuple[str, int, int], int] = {}

    def accepted(self, model: str, least_bytes: int, most_bytes: int) -> int:
        """The devices of `model`, given whole or not, whose memory lies in the range (`most_bytes` -1: no upper bound)."""
        key = (model, least_bytes, most_bytes)
        mask = self._accepted.get(key)
        if mask is None:
            mask = 0
            for at, device in enumerate(self.devices):
                high_enough = device.memory_bytes >= least_bytes
                if device.model == model and high_enough and (most_bytes < 0 or device.memory_bytes <= most_bytes):
                    mask |= 1 << at
            self._accepted[key] = mask
        return mask

    def choose(self, free: int, count: int) -> int:
        """
        `count` devices out of `free` that are near each other: in one island if one has room, the fullest such island first, and
        within it by NUMA node and switch in the same way. Bits of `free` must be at least `count`.
        """
        key = (free, count)
        chosen = self._chosen.get(key)
        if chosen is None:
            if len(self._chosen) >= limits.DEVICE_CHOICES_MAX:
                self._chosen.clear()
            chosen = self._chosen[key] = _nearest(self.nests, 0, free, count)
        return chosen

    def groups_of(self, free: int, size: int) -> int:
        """How many groups of `size` devices, each inside one island, `free` holds."""
        return sum((free & island).bit_count() // size for island in self.islands)

    def choose_together(self, free: int, count: int, size: int) -> int:
        """As `choose`, `count // size` groups each inside one island: all in one where that has room, else in as few as may be."""
        if any((free & island).bit_count() >= count for island in self.islands):
            return self.choose(free, count)
        taken, rooms = 0, [free & island for island in self.islands]
        while taken.bit_count() < count:
            wanted = count - taken.bit_count()
            enough = [room for room in rooms if room.bit_count() // size * size >= wanted]
            pick = min(enough, key=lambda room: (room.bit_count(), room & -room)) if enough else max(rooms, key=int.bit_count)
            rooms.remove(pick)
            taken |= self.choose(pick, min(wanted, pick.bit_count() // size * size))
        return taken

    def in_order(self, mask: int) -> tuple[int, ...]:
        """The positions of a mask's devices, island by island: equal runs of them are as near as the mask allows."""
        ordered = self._ordered.get(mask)
        if ordered is None:
            if len(self._ordered) >= limits.DEVICE_CHOICES_MAX:
                self._ordered.clear()
            ordered = self._ordered[mask] = tuple([at for at in self._by_island if mask >> at & 1])
        return ordered


def layout_of(facts: NodeFacts, known: dict[tuple[DevicePlace, ...], Layout]) -> Layout:
    """The layout of a machine; one object per distinct build in `known`. Devices past GPUS_PER_NODE_MAX are not used."""
    devices = tuple(
        DevicePlace(d.model, d.memory_bytes, d.island, d.numa, d.switch, d.partition) for d in facts.devices[: limits.GPUS_PER_NODE_MAX]
    )
    layout = known.get(devices)
    if layout is None:
        layout = known[devices] = Layout(devices)
    return layout


def _masks(devices: tuple[DevicePlace, ...], field: str) -> dict[str, int]:
    masks: dict[str, int] = {}
    for at, device in enumerate(devices):
        key = str(getattr(device, field))
        masks[key] = masks.get(key, 0) | 1 << at
    return masks


def _nearest(nests: tuple[tuple[int, ...], ...], depth: int, free: int, count: int) -> int:
    if free.bit_count() == count or depth == len(nests):
        return _lowest(free, count)
    parts = [part for part in (free & group for group in nests[depth]) if part]
    taken = 0
    while True:
        wanted = count - taken.bit_count()
        if not wanted:
            return taken
        fitting = [part for part in parts if part.bit_count() >= wanted]
        if fitting:
            tightest = min(fitting, key=lambda part: (part.bit_count(), part & -part))
            return taken | _nearest(nests, depth + 1, tightest, wanted)
        largest = max(parts, key=lambda part: (part.bit_count(), -(part & -part)))
        parts.remove(largest)
        taken |= largest


def _lowest(mask: int, count: int) -> int:
    """The `count` lowest set bits of `mask`."""
    kept = 0
    for _ in range(count):
        bit = mask & -mask
        kept |= bit
        mask ^= bit
    return kept

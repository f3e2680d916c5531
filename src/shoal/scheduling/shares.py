"""
Parts of GPUs: what is held of each device, what still fits there, and where the next part should go.

    MIG        an instance covers memory slices from its start on; starts are the product's (`facts.mig`), two never overlap, and compute
               slices are counted. `fixed` GPUs give the instances they are cut into; on `reshape` ones any start is possible that no
               held instance covers, and none that an idle one of the found cut covers unless nothing is held there (then it goes).
    soft       thousandths and bytes, added up; beside shares of the same tenant only, and not more than the device takes at a time

What is held is a multiset of pieces per device, so that taking and giving back are exact inverses, also where a claim and the one who
is stopped for it overlap for a while. Tables over all devices are worked out from it once somebody asks for a part, and kept up then:
a fleet where nobody does pays nothing. Owned by `columns`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.base import limits
from shoal.facts.mig import Geometry, Profile, geometry_of
from shoal.model.part import DevicePart, Partition, PartMode
from shoal.planning.partition import best_start, mig_charge, room_left, share_charge, share_held, starts_for
from shoal.scheduling.asks import PieceAsk
from shoal.scheduling.devices import DevicePlace

WHOLE: Final = 1_000
"""Thousandths of a device."""
EMPTY_GPU: Final = 1 << 12
"""How loosely a part sits on a GPU that nobody shares yet: above any figure of one that is shared (`tightness`)."""


class Piece(NamedTuple):
    """A part of the device at bit `at` of its node. `thousandths` and `memory_bytes` are those of a soft share, or 0."""

    at: int
    mode: PartMode
    profile: str = ""
    start: int = 0
    thousandths: int = 0
    memory_bytes: int = 0
    tenant: str = ""
    capped: bool = False


Pieces = tuple[Piece, ...]


def piece_of(part: DevicePart, at: int, tenant: str) -> Piece:
    """What a record says that somebody holds, as it is counted here."""
    if part.mode == "mig":
        return Piece(at, "mig", part.profile, part.start)
    return Piece(at, part.mode, "", 0, part.thousandths, part.memory_bytes, tenant, part.capped)


def part_of(piece: Piece, uuid: str, device: DevicePlace) -> DevicePart:
    """The record of a piece."""
    if piece.mode == "mig":
        geometry = known_geometry(device)
        profile = geometry.named(piece.profile)
        memory_bytes, charge = profile.memory_mib << 20, mig_charge(geometry, profile)
        return DevicePart(device=uuid, mode="mig", profile=piece.profile, start=piece.start, memory_bytes=memory_bytes, charge=charge)
    charge = share_charge(piece.thousandths, piece.memory_bytes, device.memory_bytes)
    return DevicePart(
        device=uuid,
        mode=piece.mode,
        thousandths=piece.thousandths,
        memory_bytes=piece.memory_bytes,
        capped=piece.capped,
        charge=charge,
    )


# --- one device -------------------------------------------------------------------------------------------------------------
@lru_cache(maxsize=1_024)
def profile_of(model: str, memory_bytes: int, name: str) -> Profile | None:
    """A MIG profile of a device by its name; None where the product has none, or is not known."""
    geometry = geometry_of(model, memory_bytes)
    return None if geometry is None else next((p for p in geometry.profiles if p.name == name), None)


def known_geometry(device: DevicePlace) -> Geometry:
    """How a device that has MIG can be cut."""
    geometry = geometry_of(device.model, device.memory_bytes)
    assert geometry is not None
    return geometry


def may_hold(device: DevicePlace, ask: PieceAsk) -> bool:
    """Could the device ever hold such a part, were nothing on it?"""
    if ask.profile:
        partition = device.partition
        profile = None if partition.mig == "off" else profile_of(device.model, device.memory_bytes, ask.profile)
        if profile is None:
            return False
        return partition.mig == "reshape" or any(one.profile == ask.profile for one in partition.instances)
    thousandths, memory_bytes = share_held(ask.thousandths, ask.memory_bytes, device.memory_bytes)
    return device.partition.soft != "off" and thousandths <= WHOLE and memory_bytes <= device.memory_bytes


def charge_of_piece(ask: PieceAsk, model: str, memory_bytes: int) -> int:
    """What one such part of a device of this model and memory is charged, in thousandths of a GPU."""
    if ask.profile:
        geometry, profile = geometry_of(model, memory_bytes), profile_of(model, memory_bytes, ask.profile)
        assert geometry is not None
        assert profile is not None
        return mig_charge(geometry, profile)
    return share_charge(*share_held(ask.thousandths, ask.memory_bytes, memory_bytes), memory_bytes)


def charge_of_held(device: DevicePlace, pieces: Pieces) -> int:
    """What all that is held of a device counts for, in thousandths of it."""
    charges = (
        mig_charge(known_geometry(device), known_geometry(device).named(piece.profile))
        if piece.mode == "mig"
        else share_charge(piece.thousandths, piece.memory_bytes, device.memory_bytes)
        for piece in pieces
    )
    return sum(charges)


_Instances = tuple[tuple[str, int], ...]
"""(profile, start) of instances that are held, ascending."""


def starts_on(device: DevicePlace, held: _Instances, name: str) -> tuple[int, ...]:
    """Where an instance of a profile can be had beside those that are held, lowest first."""
    return _starts(device.model, device.memory_bytes, device.partition, held, name)


@lru_cache(maxsize=limits.DEVICE_CHOICES_MAX)
def _starts(model: str, memory_bytes: int, partition: Partition, held: _Instances, name: str) -> tuple[int, ...]:
    geometry, profile = geometry_of(model, memory_bytes), profile_of(model, memory_bytes, name)
    if geometry is None or profile is None or partition.mig == "off":
        return ()
    placed = tuple((geometry.named(profile_name), start) for profile_name, start in held)
    starts = starts_for(geometry, placed, profile)
    cut = {(one.profile, one.start) for one in partition.instances}
    if partition.mig == "fixed":
        return tuple(start for start in starts if (name, start) in cut)
    if not held:
        return starts
    idle = tuple((geometry.named(p), start) for p, start in sorted(cut - set(held)) if _is_profile(geometry, p))
    blocked = {slot for idle_profile, start in idle for slot in range(start, start + idle_profile.memory)}
    return tuple(s for s in starts if (name, s) in cut or blocked.isdisjoint(range(s, s + profile.memory)))


def _is_profile(geometry: Geometry, name: str) -> bool:
    return any(profile.name == name for profile in geometry.profiles)


@lru_cache(maxsize=limits.DEVICE_CHOICES_MAX)
def _mig_room(device: DevicePlace, held: _Instances, name: str, most: int) -> tuple[int, int]:
    """(how many instances still fit, at most `most`; how much the first one spoils, in slices that could have been made)."""
    geometry, profile = known_geometry(device), profile_of(device.model, device.memory_bytes, name)
    assert profile is not None
    spoilt = 0
    for count in range(most):
        start = start_on(device, held, name)
        if start is None:
            return count, spoilt
        placed = tuple((geometry.named(p), s) for p, s in held)
        if not count:
            spoilt = room_left(geometry, placed) - room_left(geometry, (*placed, (profile, start)))
        held = tuple(sorted((*held, (name, start))))
    return most, spoilt


def start_on(device: DevicePlace, held: _Instances, name: str) -> int | None:
    """The start for an instance that leaves most possible beside it; None where none fits."""
    geometry, profile = known_geometry(device), profile_of(device.model, device.memory_bytes, name)
    assert profile is not None
    placed = tuple((geometry.named(p), s) for p, s in held)
    return best_start(geometry, placed, profile, starts_on(device, held, name))


def instances_of(pieces: Pieces) -> _Instances:
    """The instances among what is held of a device."""
    return tuple(sorted((piece.profile, piece.start) for piece in pieces if piece.mode == "mig"))


def soft_free(device: DevicePlace, pieces: Pieces) -> tuple[int, int, int]:
    """(thousandths, bytes, shares) that are free of a device for its tenant; below 0 while a claim waits for what another still has."""
    soft = [piece for piece in pieces if piece.mode != "mig"]
    if len(soft) < len(pieces):
        return 0, 0, 0
    thousandths = WHOLE - sum(piece.thousandths for piece in soft)
    return thousandths, device.memory_bytes - sum(piece.memory_bytes for piece in soft), device.partition.shares_max - len(soft)


def room_on(device: DevicePlace, pieces: Pieces, ask: PieceAsk, most: int) -> tuple[int, int]:
    """
    (how many such parts still fit on a device, at most `most`; how tightly the first would sit: 0 leaves nothing, EMPTY_GPU above all).
    """
    if ask.profile:
        if any(piece.mode != "mig" for piece in pieces):
            return 0, 0
        count, spoilt = _mig_room(device, instances_of(pieces), ask.profile, most)
        return count, min(spoilt, EMPTY_GPU - 1) if pieces else EMPTY_GPU
    if any(piece.tenant != ask.tenant for piece in pieces):
        return 0, 0
    thousandths, memory_bytes = share_held(ask.thousandths, ask.memory_bytes, device.memory_bytes)
    free_thousandths, free_bytes, shares = soft_free(device, pieces)
    counts = (most, shares, free_thousandths // max(1, thousandths), free_bytes // max(1, memory_bytes))
    if min(free_thousandths, free_bytes) < 0:
        return 0, 0
    if not pieces:
        return max(0, min(counts)), EMPTY_GPU
    left = max(free_thousandths - thousandths, (free_bytes - memory_bytes) * WHOLE // max(1, device.memory_bytes))
    return max(0, min(counts)), left


def piece_on(device: DevicePlace, at: int, pieces: Pieces, ask: PieceAsk) -> Piece:
    """The part that the ask gets on a device where one fits."""
    if ask.profile:
        start = start_on(device, instances_of(pieces), ask.profile)
        assert start is not None
        return Piece(at, "mig", ask.profile, start)
    mode = device.partition.soft
    assert mode != "off"
    thousandths, memory_bytes = share_held(ask.thousandths, ask.memory_bytes, device.memory_bytes)
    return Piece(at, mode, "", 0, thousandths, memory_bytes, ask.tenant, ask.thousandths > 0)


# --- all devices ------------------------------------------------------------------------------------------------------------
class PartTable:
    """What is held of parts, by node and device. `tight` is kept by `rooms`: per need and row, how tightly its first part would sit."""

    def __init__(self) -> None:
        self.by_node: dict[str, dict[int, Pieces]] = {}
        self.tight: dict[object, NDArray[np.int64]] = {}

    def copy(self) -> PartTable:
        """One to try things out on."""
        other = PartTable()
        other.by_node = dict(self.by_node)
        return other

    def on(self, node_id: str) -> dict[int, Pieces]:
        """Held pieces by device of a node; not to be written to."""
        return self.by_node.get(node_id, _NONE)

    def put(self, node_id: str, pieces: dict[int, Pieces]) -> None:
        """Exactly these are held on a node now."""
        if pieces:
            self.by_node[node_id] = pieces
        else:
            self.by_node.pop(node_id, None)

    def add(self, node_id: str, piece: Piece) -> None:
        mine = dict(self.on(node_id))
        mine[piece.at] = tuple(sorted((*mine.get(piece.at, ()), piece)))
        self.by_node[node_id] = mine

    def drop(self, node_id: str, piece: Piece) -> bool:
        """The exact inverse of `add`; true if nothing is held of the device any more."""
        mine = dict(self.on(node_id))
        left = list(mine[piece.at])
        left.remove(piece)
        if left:
            mine[piece.at] = tuple(left)
        else:
            del mine[piece.at]
        self.put(node_id, mine)
        return not left


_NONE: dict[int, Pieces] = {}


def room_for(devices: tuple[DevicePlace, ...], held: dict[int, Pieces], open_mask: int, ask: PieceAsk, most: int) -> tuple[int, int]:
    """(how many parts fit on the open devices of a node, at most `most`; how tightly the first would sit)."""
    count, tight = 0, EMPTY_GPU + 1
    while open_mask and count < most:
        bit = open_mask & -open_mask
        open_mask ^= bit
        at = bit.bit_length() - 1
        fits, left = room_on(devices[at], held.get(at, ()), ask, most)
        if fits:
            count += fits
            tight = min(tight, left)
    return count, tight


def choose_pieces(devices: tuple[DevicePlace, ...], held: dict[int, Pieces], open_mask: int, ask: PieceAsk, count: int) -> Pieces:
    """
    `count` parts on the open devices of a node that has room for them, one after another: each on the GPU that is shared already where it
    sits most tightly, else on the first empty one.
    """
    found: list[Piece] = []
    held = dict(held)
    for _ in range(count):
        best: tuple[int, int] | None = None
        rest = open_mask
        while rest:
            bit = rest & -rest
            rest ^= bit
            at = bit.bit_length() - 1
            fits, left = room_on(devices[at], held.get(at, ()), ask, 1)
            if fits and (best is None or (left, at) < best):
                best = (left, at)
        assert best is not None
        piece = piece_on(devices[best[1]], best[1], held.get(best[1], ()), ask)
        found.append(piece)
        held[piece.at] = tuple(sorted((*held.get(piece.at, ()), piece)))
    return tuple(found)

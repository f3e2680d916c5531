"""
Are parts of GPUs given out rightly? From the records alone: instances are laid over each other, shares are added up. Used by `check`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from shoal.facts.mig import Geometry, Profile, geometry_of
from shoal.model.node import Device, Node
from shoal.model.part import DevicePart
from shoal.planning.partition import mig_charge, share_charge, share_held
from shoal.scheduling.asks import MemberAsk

Held = tuple[DevicePart, str]
"""A part, and the project that has it."""


def part_charge(part: DevicePart, device: Device) -> int:
    """What a part of a device is to be charged, in thousandths of a GPU; what it says itself where its profile is unknown."""
    if part.mode != "mig":
        return share_charge(part.thousandths, part.memory_bytes, device.memory_bytes)
    found = _profile(part, device)
    return part.charge if found is None else mig_charge(*found)


def parts_asked_faults(parts: tuple[DevicePart, ...], asked: MemberAsk, devices: Mapping[str, Device]) -> list[str]:
    """Whether a member gets the parts that it asks for, each charged as it should be."""
    faults = [] if len(parts) == asked.pieces else [f"{len(parts)} parts of GPUs for {asked.pieces} asked"]
    for part in parts:
        device, ask = devices.get(part.device), asked.piece
        if device is None or ask is None:
            continue
        if part.charge != part_charge(part, device):
            faults.append(f"part of {part.device} is charged {part.charge} and not {part_charge(part, device)}")
        held = (0, 0) if ask.profile else share_held(ask.thousandths, ask.memory_bytes, device.memory_bytes)
        soft = (part.thousandths, part.memory_bytes, part.capped) == (*held, ask.thousandths > 0)
        right = part.profile == ask.profile if ask.profile else part.mode != "mig" and soft
        if not right:
            faults.append(f"another part of {part.device} than asked")
    return faults


def part_faults(node: Node, parts: Iterable[Held], whole: Collection[str], fresh: Collection[str] | None = None) -> list[str]:
    """
    What is wrong with the parts held of a node's devices beside those held `whole`; of the devices in `fresh` alone, where it is given.

    A device that is not there any more is passed over: who still runs on it is told so elsewhere.
    """
    by_device: dict[str, list[Held]] = {}
    for part, project in parts:
        by_device.setdefault(part.device, []).append((part, project))
    faults = []
    for device in node.facts.devices:
        held = by_device.get(device.uuid)
        if held is not None and (fresh is None or device.uuid in fresh):
            if device.uuid in whole:
                faults.append(f"device {device.uuid} of {node.id} is given whole and in parts")
            faults += [f"device {device.uuid} of {node.id}: {fault}" for fault in _device_faults(device, held)]
        elif fresh is not None and device.uuid in fresh and device.uuid in whole and not device.partition.whole:
            faults.append(f"device {device.uuid} of {node.id} is given whole, and is there in parts only")
    return faults


def _device_faults(device: Device, held: list[Held]) -> list[str]:
    modes = {part.mode for part, _ in held}
    if len(modes) > 1:
        return [f"parts of several kinds: {', '.join(sorted(modes))}"]
    return _mig_faults(device, [part for part, _ in held]) if "mig" in modes else _soft_faults(device, held)


def _mig_faults(device: Device, parts: list[DevicePart]) -> list[str]:
    faults = [] if device.partition.mig != "off" else ["instances of a GPU that is not cut"]
    taken: set[int] = set()
    compute = 0
    geometry = geometry_of(device.model, device.memory_bytes)
    for part in parts:
        found = _profile(part, device)
        if found is None:
            faults.append(f"there is no profile {part.profile}")
            continue
        profile = found[1]
        slots = set(range(part.start, part.start + profile.memory))
        if part.start not in profile.starts:
            faults.append(f"{part.profile} cannot start at {part.start}")
        if device.partition.mig == "fixed" and (part.profile, part.start) not in {(i.profile, i.start) for i in device.partition.instances}:
            faults.append(f"it has no {part.profile} at {part.start}")
        if taken & slots:
            faults.append(f"{part.profile} at {part.start} lies over another instance")
        taken |= slots
        compute += profile.compute
    if geometry is not None and compute > geometry.compute:
        faults.append(f"{compute} compute slices of {geometry.compute}")
    return faults


def _profile(part: DevicePart, device: Device) -> tuple[Geometry, Profile] | None:
    geometry = geometry_of(device.model, device.memory_bytes)
    profile = None if geometry is None else next((p for p in geometry.profiles if p.name == part.profile), None)
    return None if geometry is None or profile is None else (geometry, profile)


def _soft_faults(device: Device, held: list[Held]) -> list[str]:
    faults = [] if {part.mode for part, _ in held} == {device.partition.soft} else ["shares of a GPU that is not shared in that way"]
    thousandths, memory_bytes = sum(part.thousandths for part, _ in held), sum(part.memory_bytes for part, _ in held)
    projects = sorted({project for _, project in held})
    if thousandths > 1_000:
        faults.append(f"{thousandths} thousandths are given")
    if memory_bytes > device.memory_bytes:
        faults.append(f"{memory_bytes} bytes of {device.memory_bytes} are given")
    if len(held) > device.partition.shares_max:
        faults.append(f"{len(held)} shares of {device.partition.shares_max}")
    if len(projects) > 1:
        faults.append(f"shared by the projects {', '.join(projects)}")
    return faults

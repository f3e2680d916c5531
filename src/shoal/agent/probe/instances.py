"""
MIG instances of one machine: found, made where a job asks for one, taken away when it has ended. Used by the probes of real GPUs.

An instance is known by its place on its GPU; the driver's numbers for it change with every one that is made. Where the node may reshape,
one that is in the way of a new one and in which nothing runs is taken away first: it is left from a job that ended while no agent ran.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from shoal.agent.probe.protocol import PartFailed
from shoal.facts.mig import Geometry, Profile, geometry_of
from shoal.model.node import Device
from shoal.model.part import DevicePart, MigInstance


class Instance(NamedTuple):
    """An instance as the driver lists it. `slices` are compute slices; `start` and `size` count memory slices."""

    number: int
    slices: int
    start: int
    size: int
    uuid: str
    """Empty for one that no task could see: it lacks its compute instance."""


class MigDoor(Protocol):
    """The calls to the driver; handles are opaque, each raises NvmlFailed."""

    def instances(self, handle: Any) -> tuple[Instance, ...]: ...

    def make_instance(self, handle: Any, slices: int, start: int, size: int) -> str:
        """The UUID of the new instance, with one compute instance over all of it."""
        ...

    def drop_instance(self, handle: Any, number: int) -> None:
        """With its compute instances. Fails while a process has it open."""
        ...


def cut_of(instances: tuple[Instance, ...], geometry: Geometry | None) -> tuple[MigInstance, ...]:
    """What the driver lists, in the names of profiles, ascending by start; those of no known profile are left out."""
    named = ((instance, profile_like(geometry, instance)) for instance in instances if instance.uuid)
    found = [MigInstance(profile=p.name, start=i.start, uuid=i.uuid) for i, p in named if p is not None]
    return tuple(sorted(found, key=lambda one: (one.start, one.profile)))


def profile_like(geometry: Geometry | None, instance: Instance) -> Profile | None:
    """The profile that an instance is of."""
    profiles = () if geometry is None else geometry.profiles
    return next((p for p in profiles if (p.compute, p.memory) == (instance.slices, instance.size)), None)


class Instances:
    """See module. `failed` is the error that the door raises."""

    def __init__(self, door: MigDoor, failed: type[Exception]) -> None:
        self._door = door
        self._failed = failed

    def find(self, handle: Any, device: Device, part: DevicePart) -> str | None:
        """The instance of a part, if it is there."""
        wanted = _wanted(device, part)
        for instance in self._list(handle):
            if (instance.slices, instance.start, instance.size) == (wanted.compute, part.start, wanted.memory) and instance.uuid:
                return instance.uuid
        return None

    def make(self, handle: Any, device: Device, part: DevicePart) -> str:
        """The instance of a part, made if it is not there and the device may be reshaped. Raises PartFailed."""
        found = self.find(handle, device, part)
        if found is not None:
            return found
        if device.partition.mig != "reshape":
            raise PartFailed(f"GPU {device.index} has no {part.profile} at {part.start}, and its instances are fixed")
        wanted = _wanted(device, part)
        slots = range(part.start, part.start + wanted.memory)
        try:
            for instance in self._door.instances(handle):
                if max(instance.start, slots.start) < min(instance.start + instance.size, slots.stop):
                    self._door.drop_instance(handle, instance.number)
            return self._door.make_instance(handle, wanted.compute, part.start, wanted.memory)
        except self._failed as failure:
            raise PartFailed(f"{part.profile} at {part.start} of GPU {device.index} could not be made: {failure}") from failure

    def drop(self, handle: Any, device: Device, part: DevicePart) -> None:
        """The instance goes, where the device may be reshaped and it is there. Raises PartFailed."""
        if device.partition.mig != "reshape":
            return
        wanted = _wanted(device, part)
        try:
            for instance in self._door.instances(handle):
                if (instance.slices, instance.start, instance.size) == (wanted.compute, part.start, wanted.memory):
                    self._door.drop_instance(handle, instance.number)
        except self._failed as failure:
            raise PartFailed(f"{part.profile} at {part.start} of GPU {device.index} does not go: {failure}") from failure

    def _list(self, handle: Any) -> tuple[Instance, ...]:
        try:
            return self._door.instances(handle)
        except self._failed as failure:
            raise PartFailed(f"the driver does not list its MIG instances: {failure}") from failure


def _wanted(device: Device, part: DevicePart) -> Profile:
    geometry = geometry_of(device.model, device.memory_bytes)
    found = None if geometry is None else next((p for p in geometry.profiles if p.name == part.profile), None)
    if found is None:
        raise PartFailed(f"GPU {device.index}, {device.product or device.model}, has no MIG profile {part.profile}")
    return found

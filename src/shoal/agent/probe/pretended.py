"""
GPUs that are not there, for drills, demos and tests: `--pretend h100:8,a100:4`. To everything above they behave as real ones do.
`a100:2+mig` or `l40s:4+mps` are such as may be given in parts (`formats.partition` has the forms).

Product, memory, islands, switches and NUMA places are those of the usual machine with that GPU (`facts.gpus`); UUIDs depend on the
node's name alone, so that a restarted agent finds "the same" devices. While processes hold a device it looks busy: memory fills
over the first half minute, utilisation wavers like a training loop's. The numbers are a function of device and time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from shoal.agent.devices import instance_key
from shoal.agent.probe.protocol import DeviceUse, PartFailed
from shoal.base.clock import Clock
from shoal.base.rng import Rng
from shoal.facts.gpus import Gpu, gpu_named
from shoal.facts.mig import geometry_of
from shoal.formats.partition import partition_of
from shoal.model.node import Device
from shoal.model.part import DevicePart, Partition

COUNT_MAX = 64
"""As limits.GPUS_PER_NODE_MAX: more is a typing error."""
FILL_MS = 30_000
WAVE_MS = 5_000
"""The figures change this often, as fast as anybody samples."""


class Group(NamedTuple):
    """So many pretended GPUs of one kind."""

    gpu: Gpu
    size: int
    parts: Partition = Partition()


def parse_pretend(text: str) -> tuple[Group, ...]:
    """`h100:8,a100:4+mig` as groups. Raises ValueError with an example."""
    groups: list[Group] = []
    for one in text.split(","):
        part, plus, parts = one.partition("+")
        name, _, count = part.strip().partition(":")
        if count and not count.isdigit():
            raise ValueError(f"pretended GPUs {part!r}: the count must be a number, for example h100:8")
        gpu = gpu_named(name)
        partition = partition_of(parts) if plus else Partition()
        geometry = geometry_of(gpu.model, gpu.memory_bytes)
        unknown = [i.profile for i in partition.instances if geometry is None or i.profile not in {p.name for p in geometry.profiles}]
        if partition.mig != "off" and (geometry is None or unknown):
            raise ValueError(f"pretended GPUs {one!r}: {gpu.name} has no {unknown[0] if geometry and unknown else 'MIG'}")
        groups.append(Group(gpu, int(count) if count else gpu.per_host, partition))
    total = sum(group.size for group in groups)
    if not 0 < total <= COUNT_MAX:
        raise ValueError(f"{total} pretended GPUs asked for, a node has 1 to {COUNT_MAX}")
    return tuple(groups)


class PretendedProbe:
    """See module. `holders` gives the live processes of those who hold a device, or a MIG instance by its `instance_key`."""

    pretended = True

    def __init__(self, node: str, spec: str, clock: Clock, holders: Callable[[str], tuple[int, ...]]) -> None:
        self._clock = clock
        self._holders = holders
        self._devices = make_devices(node, parse_pretend(spec))
        self._memory = {device.uuid: device.memory_bytes for device in self._devices}
        self._busy_since: dict[str, int] = {}
        self._made: dict[str, str] = {}
        """Instances by key, with their UUIDs."""
        for device in self._devices:
            for instance in device.partition.instances:
                self._made[f"{device.uuid}@{instance.start}"] = instance.uuid

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def driver(self) -> str | None:
        return "pretended"

    def use(self, uuids: tuple[str, ...]) -> dict[str, DeviceUse]:
        return {uuid: self._use(uuid) for uuid in uuids if uuid in self._memory}

    def processes(self, uuid: str) -> tuple[int, ...]:
        return self._holders(next((key for key, made in self._made.items() if made == uuid), uuid))

    def part_uuid(self, part: DevicePart) -> str | None:
        return self._made.get(instance_key(part)) if part.mode == "mig" else part.device

    def make_part(self, part: DevicePart) -> str:
        if part.mode != "mig":
            return part.device
        if instance_key(part) not in self._made and not self._may_reshape(part):
            raise PartFailed(f"GPU {part.device} has no instance at {part.start}, and its instances are fixed")
        return self._made.setdefault(instance_key(part), _instance_uuid(part.device, part.profile, part.start))

    def drop_part(self, part: DevicePart) -> None:
        if part.mode == "mig" and self._may_reshape(part):
            self._made.pop(instance_key(part), None)

    def _may_reshape(self, part: DevicePart) -> bool:
        return any(device.uuid == part.device and device.partition.mig == "reshape" for device in self._devices)

    def _use(self, uuid: str) -> DeviceUse:
        now_ms = self._clock.monotonic_ms()
        if not self._holders(uuid):
            self._busy_since.pop(uuid, None)
            return DeviceUse(0, 0)
        since_ms = self._busy_since.setdefault(uuid, now_ms)
        return pretended_use(uuid, self._memory[uuid], now_ms - since_ms)


def pretended_use(uuid: str, memory_bytes: int, busy_ms: int) -> DeviceUse:
    """What a device that has been held for `busy_ms` looks like: 55 to 98 percent busy, 40 to 85 percent full in the end."""
    level = Rng(int.from_bytes(hashlib.sha256(uuid.encode()).digest()[:8], "big"))
    full = 0.40 + 0.45 * level.stream("memory").unit()
    filled = min(1.0, 0.2 + 0.8 * busy_ms / FILL_MS)
    wave = level.stream(f"wave {busy_ms // WAVE_MS}").below(44)
    return DeviceUse(55 + wave, int(memory_bytes * full * filled))


def make_devices(node: str, groups: tuple[Group, ...]) -> tuple[Device, ...]:
    """The devices of a node: two per PCIe switch, the first half on NUMA node 0, islands as large as the product's."""
    total = sum(group.size for group in groups)
    devices: list[Device] = []
    island = -1
    for gpu, count, parts in groups:
        for place in range(count):
            island += 1 if place % gpu.island == 0 else 0
            index = len(devices)
            uuid = _uuid(node, index, gpu.name)
            devices.append(
                Device(
                    uuid=uuid,
                    index=index,
                    model=gpu.model,
                    product=gpu.products[0],
                    memory_bytes=gpu.memory_bytes,
                    island=island,
                    switch=index // 2,
                    numa=0 if index < -(-total // 2) else 1,
                    pci=f"00000000:{0x10 + 3 * index:02X}:00.0",
                    mig="off" if parts.mig == "off" else "on",
                    partition=_with_uuids(parts, uuid),
                )
            )
    return tuple(devices)


def _with_uuids(parts: Partition, device: str) -> Partition:
    named = tuple(replace(one, uuid=_instance_uuid(device, one.profile, one.start)) for one in parts.instances)
    return replace(parts, instances=named)


def _instance_uuid(device: str, profile: str, start: int) -> str:
    return _written("MIG", f"shoal pretended {device} {profile} {start}")


def _uuid(node: str, index: int, name: str) -> str:
    return _written("GPU", f"shoal pretended {node} {index} {name}")


def _written(kind: str, what: str) -> str:
    text = hashlib.sha256(what.encode()).hexdigest()
    return f"{kind}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"

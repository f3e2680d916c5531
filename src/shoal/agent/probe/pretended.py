"""
GPUs that are not there, for drills, demos and tests: `--pretend h100:8,a100:4`. To everything above they behave as real ones do.

Product, memory, islands, switches and NUMA places are those of the usual machine with that GPU (`facts.gpus`); UUIDs depend on the
node's name alone, so that a restarted agent finds "the same" devices. While processes hold a device it looks busy: memory fills
over the first half minute, utilisation wavers like a training loop's. The numbers are a function of device and time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from shoal.agent.probe.protocol import DeviceUse
from shoal.base.clock import Clock
from shoal.base.rng import Rng
from shoal.facts.gpus import Gpu, gpu_named
from shoal.model.node import Device

COUNT_MAX = 64
"""As limits.GPUS_PER_NODE_MAX: more is a typing error."""
FILL_MS = 30_000
WAVE_MS = 5_000
"""The figures change this often, as fast as anybody samples."""


def parse_pretend(text: str) -> tuple[tuple[Gpu, int], ...]:
    """`h100:8,a100:4` as rows and counts. Raises ValueError with an example."""
    groups: list[tuple[Gpu, int]] = []
    for part in text.split(","):
        name, _, count = part.strip().partition(":")
        if count and not count.isdigit():
            raise ValueError(f"pretended GPUs {part!r}: the count must be a number, for example h100:8")
        gpu = gpu_named(name)
        groups.append((gpu, int(count) if count else gpu.per_host))
    total = sum(count for _, count in groups)
    if not 0 < total <= COUNT_MAX:
        raise ValueError(f"{total} pretended GPUs asked for, a node has 1 to {COUNT_MAX}")
    return tuple(groups)


class PretendedProbe:
    """See module. `holders` gives the live processes of the allocation that holds a device."""

    pretended = True

    def __init__(self, node: str, spec: str, clock: Clock, holders: Callable[[str], tuple[int, ...]]) -> None:
        self._clock = clock
        self._holders = holders
        self._devices = make_devices(node, parse_pretend(spec))
        self._memory = {device.uuid: device.memory_bytes for device in self._devices}
        self._busy_since: dict[str, int] = {}

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def driver(self) -> str | None:
        return "pretended"

    def use(self, uuids: tuple[str, ...]) -> dict[str, DeviceUse]:
        return {uuid: self._use(uuid) for uuid in uuids if uuid in self._memory}

    def processes(self, uuid: str) -> tuple[int, ...]:
        return self._holders(uuid)

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


def make_devices(node: str, groups: tuple[tuple[Gpu, int], ...]) -> tuple[Device, ...]:
    """The devices of a node: two per PCIe switch, the first half on NUMA node 0, islands as large as the product's."""
    total = sum(count for _, count in groups)
    devices: list[Device] = []
    island = -1
    for gpu, count in groups:
        for place in range(count):
            island += 1 if place % gpu.island == 0 else 0
            index = len(devices)
            devices.append(
                Device(
                    uuid=_uuid(node, index, gpu.name),
                    index=index,
                    model=gpu.model,
                    product=gpu.products[0],
                    memory_bytes=gpu.memory_bytes,
                    island=island,
                    switch=index // 2,
                    numa=0 if index < -(-total // 2) else 1,
                    pci=f"00000000:{0x10 + 3 * index:02X}:00.0",
                )
            )
    return tuple(devices)


def _uuid(node: str, index: int, name: str) -> str:
    text = hashlib.sha256(f"shoal pretended {node} {index} {name}".encode()).hexdigest()
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"

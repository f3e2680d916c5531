"""
Real GPUs, by NVML. `Nvml` is the narrow door to the library: the dozen calls that are made, in plain types, so that recorded answers
of other machines can stand in for it (`tests/unit/agent/test_nvml.py`).

NVML is not asked about MIG instances yet: a GPU in MIG mode is shown with `mig: on` and is not handed out whole.
"""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

import msgspec

from shoal.agent.probe.protocol import DeviceGone, DeviceUse
from shoal.facts.gpus import model_of
from shoal.model.node import Device
from shoal.model.reason import Reason, ReasonCode

SINGLE_SWITCH = 10
"""NVML_TOPOLOGY_SINGLE: two devices behind one PCIe switch."""
P2P_OK = 0
"""NVML_P2P_STATUS_OK."""


class NvmlFailed(Exception):
    """An NVML call failed. `gone` is set when it says that the device is lost or not to be found."""

    def __init__(self, message: str, gone: bool = False) -> None:
        super().__init__(message)
        self.gone = gone


class Nvml(Protocol):
    """The calls used; handles are opaque. Each raises NvmlFailed."""

    def driver_version(self) -> str: ...

    def count(self) -> int: ...

    def handle(self, index: int) -> Any: ...

    def handle_by_uuid(self, uuid: str) -> Any: ...

    def uuid(self, handle: Any) -> str: ...

    def product(self, handle: Any) -> str: ...

    def memory(self, handle: Any) -> tuple[int, int]:
        """Total and used bytes."""
        ...

    def pci(self, handle: Any) -> str: ...

    def mig_on(self, handle: Any) -> bool: ...

    def utilisation(self, handle: Any) -> int: ...

    def compute_pids(self, handle: Any) -> tuple[int, ...]: ...

    def common_ancestor(self, one: Any, other: Any) -> int: ...

    def nvlink_p2p(self, one: Any, other: Any) -> int: ...


class NvmlProbe:
    """See module. `numa_of` gives the NUMA node of a PCI address."""

    pretended = False

    def __init__(self, nvml: Nvml, numa_of: Any) -> None:
        self._nvml = nvml
        self._numa_of = numa_of
        self._seen: dict[str, Device] = {}

    def driver(self) -> str | None:
        try:
            return self._nvml.driver_version()
        except NvmlFailed:
            return None

    def devices(self) -> tuple[Device, ...]:
        """Devices once seen stay in the answer, as broken, when they do not answer any more: a lost GPU must not look like no GPU."""
        handles, broken = self._handles()
        islands = _components(handles, lambda a, b: self._nvml.nvlink_p2p(a, b) == P2P_OK)
        switches = _components(handles, lambda a, b: self._nvml.common_ancestor(a, b) <= SINGLE_SWITCH)
        found: dict[str, Device] = {}
        for index, handle in handles.items():
            try:
                device = self._device(index, handle, islands[index], switches[index])
            except NvmlFailed as failure:
                broken[index] = str(failure)
                continue
            found[device.uuid] = device
        self._seen |= found
        for uuid, device in self._seen.items():
            if uuid not in found:
                found[uuid] = _broken(device, broken.get(device.index, "the driver does not list it any more"))
        return tuple(sorted(found.values(), key=lambda d: (d.index, d.uuid)))

    def use(self, uuids: tuple[str, ...]) -> dict[str, DeviceUse]:
        uses: dict[str, DeviceUse] = {}
        for uuid in uuids:
            with contextlib.suppress(NvmlFailed):
                handle = self._nvml.handle_by_uuid(uuid)
                uses[uuid] = DeviceUse(self._nvml.utilisation(handle), self._nvml.memory(handle)[1])
        return uses

    def processes(self, uuid: str) -> tuple[int, ...]:
        try:
            return self._nvml.compute_pids(self._nvml.handle_by_uuid(uuid))
        except NvmlFailed as failure:
            raise DeviceGone(f"GPU {uuid}: {failure}") from failure

    def _handles(self) -> tuple[dict[int, Any], dict[int, str]]:
        handles: dict[int, Any] = {}
        broken: dict[int, str] = {}
        try:
            count = self._nvml.count()
        except NvmlFailed:
            return handles, broken
        for index in range(count):
            try:
                handles[index] = self._nvml.handle(index)
            except NvmlFailed as failure:
                broken[index] = str(failure)
        return handles, broken

    def _device(self, index: int, handle: Any, island: int, switch: int) -> Device:
        product, pci = self._nvml.product(handle), self._nvml.pci(handle)
        return Device(
            uuid=self._nvml.uuid(handle),
            index=index,
            model=model_of(product),
            product=product,
            memory_bytes=self._nvml.memory(handle)[0],
            island=island,
            switch=switch,
            numa=self._numa_of(pci),
            pci=pci,
            mig="on" if self._nvml.mig_on(handle) else "off",
        )


def _components(handles: dict[int, Any], joined: Any) -> dict[int, int]:
    """Numbers the groups of devices that `joined` connects, by lowest index first. A pair that cannot be asked is not joined."""
    number: dict[int, int] = {}
    for index in handles:
        if index in number:
            continue
        number[index] = group = len(set(number.values()))
        todo = [index]
        while todo:
            one = todo.pop()
            for other in handles:
                if other not in number and _ask(joined, handles[one], handles[other]):
                    number[other] = group
                    todo.append(other)
    return number


def _ask(joined: Any, one: Any, other: Any) -> bool:
    try:
        return bool(joined(one, other))
    except NvmlFailed:
        return False


def _broken(device: Device, why: str) -> Device:
    reason = Reason(code=ReasonCode.DEVICE_LOST, message=f"GPU {device.index} ({device.uuid}): {why}")
    return msgspec.structs.replace(device, broken=reason)


def numa_from_sysfs(pci: str) -> int:
    """The NUMA node of a PCI device as NVML writes its address; 0 where the machine does not say."""
    domain, _, rest = pci.lower().partition(":")
    try:
        with open(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node") as file:
            return max(0, int(file.read()))
    except (OSError, ValueError):
        return 0

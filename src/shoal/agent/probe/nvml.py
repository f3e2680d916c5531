"""
Real GPUs, by NVML. `Nvml` is the narrow door to the library: the dozen calls that are made, in plain types, so that recorded answers
of other machines can stand in for it (`tests/unit/agent/test_nvml.py`).

A GPU in MIG mode is handed out in instances only: those it is cut into, or, where the node may reshape, those that jobs ask for. The mode
itself is the operator's: on older products a change of it needs a reset of the GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from shoal.agent.probe.instances import Instances, MigDoor, cut_of
from shoal.agent.probe.protocol import DeviceGone, DeviceUse, PartFailed
from shoal.facts.gpus import model_of
from shoal.facts.mig import geometry_of
from shoal.model.node import Device
from shoal.model.part import DevicePart, Partition
from shoal.model.reason import Reason, ReasonCode

MPS_SERVER = "nvidia-cuda-mps"
"""nvidia-cuda-mps-server as the kernel cuts it: it has the GPU open for its clients, and stays when the last is gone."""
SINGLE_SWITCH = 10
"""NVML_TOPOLOGY_SINGLE: two devices behind one PCIe switch."""
P2P_OK = 0
"""NVML_P2P_STATUS_OK."""


class NvmlFailed(Exception):
    """An NVML call failed. `gone` is set when it says that the device is lost or not to be found."""

    def __init__(self, message: str, gone: bool = False) -> None:
        super().__init__(message)
        self.gone = gone


class Nvml(MigDoor, Protocol):
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
    """
    See module. `numa_of` gives the NUMA node of a PCI address, `command_of` the name of a process; `parts` is how GPUs may be given in
    parts.
    """

    pretended = False

    def __init__(self, nvml: Nvml, numa_of: Callable[[str], int], command_of: Callable[[int], str], parts: Partition) -> None:
        self._nvml = nvml
        self._numa_of = numa_of
        self._command_of = command_of
        self._parts = parts
        self._instances = Instances(nvml, NvmlFailed)
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
            pids = self._nvml.compute_pids(self._nvml.handle_by_uuid(uuid))
        except NvmlFailed as failure:
            raise DeviceGone(f"GPU {uuid}: {failure}") from failure
        if self._parts.soft != "mps":
            return pids
        return tuple(pid for pid in pids if self._command_of(pid) != MPS_SERVER)

    # --- parts ----------------------------------------------------------------------------------------------------------------
    def part_uuid(self, part: DevicePart) -> str | None:
        if part.mode != "mig":
            return part.device
        return self._instances.find(*self._whole_of(part), part)

    def make_part(self, part: DevicePart) -> str:
        return part.device if part.mode != "mig" else self._instances.make(*self._whole_of(part), part)

    def drop_part(self, part: DevicePart) -> None:
        if part.mode == "mig":
            self._instances.drop(*self._whole_of(part), part)

    def _whole_of(self, part: DevicePart) -> tuple[Any, Device]:
        device = self._seen.get(part.device) or next((d for d in self.devices() if d.uuid == part.device), None)
        if device is None:
            raise PartFailed(f"this machine has no GPU {part.device}")
        try:
            return self._nvml.handle_by_uuid(part.device), device
        except NvmlFailed as failure:
            raise PartFailed(f"GPU {part.device}: {failure}") from failure

    def _partition(self, handle: Any, model: str, memory_bytes: int, mig_on: bool) -> Partition:
        """Of a GPU in MIG mode its instances, unless they are made as asked for; of any other what the node says."""
        if not mig_on:
            return self._parts if self._parts.mig == "off" else Partition()
        if self._parts.mig == "reshape":
            return self._parts
        return Partition(whole=False, mig="fixed", instances=cut_of(self._nvml.instances(handle), geometry_of(model, memory_bytes)))

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
        model, memory_bytes, mig_on = model_of(product), self._nvml.memory(handle)[0], self._nvml.mig_on(handle)
        return Device(
            uuid=self._nvml.uuid(handle),
            index=index,
            model=model,
            product=product,
            memory_bytes=memory_bytes,
            island=island,
            switch=switch,
            numa=self._numa_of(pci),
            pci=pci,
            mig="on" if mig_on else "off",
            partition=self._partition(handle, model, memory_bytes, mig_on),
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


def command_from_proc(pid: int) -> str:
    """The name of a process, of at most 15 characters; empty for one that is gone."""
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def numa_from_sysfs(pci: str) -> int:
    """The NUMA node of a PCI device as NVML writes its address; 0 where the machine does not say."""
    domain, _, rest = pci.lower().partition(":")
    try:
        with open(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node") as file:
            return max(0, int(file.read()))
    except (OSError, ValueError):
        return 0

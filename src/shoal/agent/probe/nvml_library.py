"""The NVIDIA management library behind `nvml.Nvml`: plain types out, `NvmlFailed` for every error. The only module that imports pynvml."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml

from shoal.agent.probe.instances import Instance
from shoal.agent.probe.nvml import NvmlFailed


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        gone = getattr(error, "value", None) in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NOT_FOUND)
        raise NvmlFailed(str(error), gone) from error


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


class NvmlLibrary:
    """Raises NvmlFailed when there is no library or no driver."""

    def __init__(self) -> None:
        _call(pynvml.nvmlInit)

    def driver_version(self) -> str:
        return _text(_call(pynvml.nvmlSystemGetDriverVersion))

    def count(self) -> int:
        return int(_call(pynvml.nvmlDeviceGetCount))

    def handle(self, index: int) -> Any:
        return _call(pynvml.nvmlDeviceGetHandleByIndex, index)

    def handle_by_uuid(self, uuid: str) -> Any:
        return _call(pynvml.nvmlDeviceGetHandleByUUID, uuid)

    def uuid(self, handle: Any) -> str:
        return _text(_call(pynvml.nvmlDeviceGetUUID, handle))

    def product(self, handle: Any) -> str:
        return _text(_call(pynvml.nvmlDeviceGetName, handle))

    def memory(self, handle: Any) -> tuple[int, int]:
        memory = _call(pynvml.nvmlDeviceGetMemoryInfo, handle)
        return int(memory.total), int(memory.used)

    def pci(self, handle: Any) -> str:
        return _text(_call(pynvml.nvmlDeviceGetPciInfo, handle).busId)

    def mig_on(self, handle: Any) -> bool:
        try:
            return int(_call(pynvml.nvmlDeviceGetMigMode, handle)[0]) == 1
        except NvmlFailed:
            return False  # products without MIG answer "not supported"

    def utilisation(self, handle: Any) -> int:
        try:
            return int(_call(pynvml.nvmlDeviceGetUtilizationRates, handle).gpu)
        except NvmlFailed as failure:
            if failure.gone:
                raise
            return 0  # not supported in MIG mode

    def compute_pids(self, handle: Any) -> tuple[int, ...]:
        return tuple(sorted({int(process.pid) for process in _call(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)}))

    def common_ancestor(self, one: Any, other: Any) -> int:
        return int(_call(pynvml.nvmlDeviceGetTopologyCommonAncestor, one, other))

    def nvlink_p2p(self, one: Any, other: Any) -> int:
        return int(_call(pynvml.nvmlDeviceGetP2PStatus, one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK))

    # --- MIG ------------------------------------------------------------------------------------------------------------------
    def instances(self, handle: Any) -> tuple[Instance, ...]:
        uuids = self._uuids(handle)
        found = []
        for _, info in _profiles(handle):
            for instance in _gpu_instances(handle, info):
                told = _call(pynvml.nvmlGpuInstanceGetInfo, instance)
                place, number = told.placement, int(told.id)
                found.append(Instance(number, int(info.sliceCount), int(place.start), int(place.size), uuids.get(number, "")))
        return tuple(sorted(found, key=lambda one: (one.start, one.number)))

    def make_instance(self, handle: Any, slices: int, start: int, size: int) -> str:
        for kind, info in _profiles(handle):
            if kind in _PLAIN and int(info.sliceCount) == slices and (start, size) in _placements(handle, info):
                placement = pynvml.c_nvmlGpuInstancePlacement_t(start, size)
                instance = _call(pynvml.nvmlDeviceCreateGpuInstanceWithPlacement, handle, info.id, ctypes.byref(placement))
                compute = _call(pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, _WHOLE_COMPUTE[slices], _SHARED_ENGINES)
                _call(pynvml.nvmlGpuInstanceCreateComputeInstance, instance, compute.id)
                number = int(_call(pynvml.nvmlGpuInstanceGetInfo, instance).id)
                return self._uuids(handle)[number]
        raise NvmlFailed(f"no profile of {slices} compute slices and {size} memory slices may start at {start}")

    def drop_instance(self, handle: Any, number: int) -> None:
        instance = _call(pynvml.nvmlDeviceGetGpuInstanceById, handle, number)
        for kind in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
            try:
                info = _call(pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, kind, _SHARED_ENGINES)
            except NvmlFailed:
                continue  # an instance of this size has no such part
            for compute in _compute_instances(instance, info):
                _call(pynvml.nvmlComputeInstanceDestroy, compute)
        _call(pynvml.nvmlGpuInstanceDestroy, instance)

    def _uuids(self, handle: Any) -> dict[int, str]:
        """By the number of the instance, the UUID by which tasks see it."""
        found: dict[int, str] = {}
        for index in range(int(_call(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle))):
            try:
                device = _call(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
            except NvmlFailed:
                continue  # numbers may have gaps
            found[int(_call(pynvml.nvmlDeviceGetGpuInstanceId, device))] = self.uuid(device)
        return found


_PLAIN = (
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE,
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2,
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE,
    pynvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE,
    pynvml.NVML_GPU_INSTANCE_PROFILE_4_SLICE,
    pynvml.NVML_GPU_INSTANCE_PROFILE_7_SLICE,
)
"""Those without media extensions or graphics; REV2 is 1g with twice the memory."""
_WHOLE_COMPUTE = {
    1: pynvml.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE,
    2: pynvml.NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE,
    3: pynvml.NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE,
    4: pynvml.NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE,
    7: pynvml.NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE,
}
_SHARED_ENGINES = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED


def _profiles(handle: Any) -> list[tuple[int, Any]]:
    """(kind, what the driver says of it) for every profile that this GPU has."""
    found = []
    for kind in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            found.append((kind, _call(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, kind)))
        except NvmlFailed:
            continue  # "not supported": the product has no such profile
    return found


def _gpu_instances(handle: Any, info: Any) -> list[Any]:
    count = ctypes.c_uint(0)
    room = (pynvml.c_nvmlGpuInstance_t * max(1, int(info.instanceCount)))()
    _call(pynvml.nvmlDeviceGetGpuInstances, handle, info.id, room, ctypes.byref(count))
    return list(room[: count.value])


def _compute_instances(instance: Any, info: Any) -> list[Any]:
    count = ctypes.c_uint(0)
    room = (pynvml.c_nvmlComputeInstance_t * max(1, int(info.instanceCount)))()
    _call(pynvml.nvmlGpuInstanceGetComputeInstances, instance, info.id, room, ctypes.byref(count))
    return list(room[: count.value])


def _placements(handle: Any, info: Any) -> set[tuple[int, int]]:
    count = ctypes.c_uint(0)
    _call(pynvml.nvmlDeviceGetGpuInstancePossiblePlacements, handle, info.id, None, ctypes.byref(count))
    room = (pynvml.c_nvmlGpuInstancePlacement_t * max(1, count.value))()
    _call(pynvml.nvmlDeviceGetGpuInstancePossiblePlacements, handle, info.id, room, ctypes.byref(count))
    return {(int(place.start), int(place.size)) for place in room[: count.value]}

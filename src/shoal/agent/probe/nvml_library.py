"""The NVIDIA management library behind `nvml.Nvml`: plain types out, `NvmlFailed` for every error. The only module that imports pynvml."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

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

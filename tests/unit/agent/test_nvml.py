"""
The NVML probe on answers of a machine with eight GPUs, called through the same door as the library.

The values are those that the driver prints for such a machine (memory as of 143,771 MiB); the file can be replaced by a real one of
`tools`-made answers without a change here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shoal.agent.probe.nvml import NvmlFailed, NvmlProbe
from shoal.agent.probe.protocol import DeviceGone
from shoal.model.reason import ReasonCode

RECORDED = json.loads((Path(__file__).parent / "nvml_h200x8.json").read_text())


class Recorded:
    """Answers from a record; `lost` GPUs answer as ones that fell off the bus, `mute` ones do not tell of their neighbours."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.record = record
        self.lost: set[int] = set()
        self.mute: set[int] = set()

    def driver_version(self) -> str:
        return str(self.record["driver"])

    def count(self) -> int:
        return len(self.record["gpus"])

    def handle(self, index: int) -> int:
        if index in self.lost:
            raise NvmlFailed("GPU is lost", True)
        return index

    def handle_by_uuid(self, uuid: str) -> int:
        for index, gpu in enumerate(self.record["gpus"]):
            if gpu["uuid"] == uuid and index not in self.lost:
                return index
        raise NvmlFailed("Not Found", True)

    def uuid(self, handle: int) -> str:
        return str(self._gpu(handle)["uuid"])

    def product(self, handle: int) -> str:
        return str(self._gpu(handle)["product"])

    def memory(self, handle: int) -> tuple[int, int]:
        total, used = self._gpu(handle)["memory"]
        return total, used

    def pci(self, handle: int) -> str:
        return str(self._gpu(handle)["pci"])

    def mig_on(self, handle: int) -> bool:
        return bool(self._gpu(handle)["mig"])

    def utilisation(self, handle: int) -> int:
        return int(self._gpu(handle)["utilisation"])

    def compute_pids(self, handle: int) -> tuple[int, ...]:
        return tuple(self._gpu(handle)["pids"])

    def common_ancestor(self, one: int, other: int) -> int:
        return 10 if any({one, other} <= set(group) for group in self.record["switches"]) else 40

    def nvlink_p2p(self, one: int, other: int) -> int:
        if {one, other} & self.mute:
            raise NvmlFailed("Unknown Error")
        return 0 if any({one, other} <= set(group) for group in self.record["nvlink"]) else 5

    def _gpu(self, handle: int) -> dict[str, Any]:
        if handle in self.lost:
            raise NvmlFailed("GPU is lost", True)
        return dict(self.record["gpus"][handle])


def probe_of(nvml: Recorded) -> NvmlProbe:
    return NvmlProbe(nvml, lambda pci: 0 if pci < "00000000:80" else 1)


def test_devices_have_model_memory_and_place() -> None:
    devices = probe_of(Recorded(RECORDED)).devices()
    assert [d.index for d in devices] == list(range(8))
    assert {(d.model, d.product, d.memory_bytes) for d in devices} == {("h200", "NVIDIA H200", 143_771 << 20)}
    assert [d.island for d in devices] == [0] * 8
    assert [d.switch for d in devices] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [d.numa for d in devices] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [d.mig for d in devices] == ["off"] * 6 + ["on", "off"]
    assert devices[1].pci == "00000000:18:00.0"
    assert not any(d.broken for d in devices)


def test_pairs_joined_by_bridges_are_islands_of_two() -> None:
    devices = probe_of(Recorded(RECORDED | {"nvlink": [[0, 1], [2, 3], [4, 5]]})).devices()
    assert [d.island for d in devices] == [0, 0, 1, 1, 2, 2, 3, 4]


def test_what_cannot_be_asked_is_not_joined() -> None:
    nvml = Recorded(RECORDED)
    nvml.mute = {7}
    assert [d.island for d in probe_of(nvml).devices()] == [0] * 7 + [1]


def test_a_lost_gpu_stays_in_sight_as_broken() -> None:
    nvml = Recorded(RECORDED)
    probe = probe_of(nvml)
    before = probe.devices()
    nvml.lost = {3}
    after = probe.devices()
    assert [d.uuid for d in after] == [d.uuid for d in before]
    broken = after[3].broken
    assert broken is not None
    assert broken.code is ReasonCode.DEVICE_LOST
    assert "GPU is lost" in broken.message
    assert [d.broken for d in after[:3]] == [None] * 3
    nvml.lost = set()
    assert probe.devices() == before


def test_use_and_processes_are_told_and_a_lost_gpu_is_no_zero() -> None:
    nvml = Recorded(RECORDED)
    probe = probe_of(nvml)
    uuids = tuple(gpu["uuid"] for gpu in RECORDED["gpus"])
    assert probe.use(uuids)[uuids[1]].utilisation == 97
    assert probe.processes(uuids[1]) == (4101,)
    assert probe.processes(uuids[0]) == ()
    nvml.lost = {1}
    assert uuids[1] not in probe.use(uuids)
    with pytest.raises(DeviceGone):
        probe.processes(uuids[1])


def test_without_a_driver_there_are_no_devices() -> None:
    class Dead(Recorded):
        def count(self) -> int:
            raise NvmlFailed("Driver Not Loaded")

        def driver_version(self) -> str:
            raise NvmlFailed("Driver Not Loaded")

    probe = probe_of(Dead(RECORDED))
    assert probe.devices() == ()
    assert probe.driver() is None

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

from shoal.agent.probe.instances import Instance
from shoal.agent.probe.nvml import MPS_SERVER, NvmlFailed, NvmlProbe
from shoal.agent.probe.protocol import DeviceGone, PartFailed
from shoal.formats.partition import partition_of
from shoal.model.part import DevicePart, MigInstance, Partition
from shoal.model.reason import ReasonCode

RECORDED = json.loads((Path(__file__).parent / "nvml_h200x8.json").read_text())


class Recorded:
    """Answers from a record; `lost` GPUs answer as ones that fell off the bus, `mute` ones do not tell of their neighbours."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.record = record
        self.lost: set[int] = set()
        self.mute: set[int] = set()
        self.cut: dict[int, list[Instance]] = {}
        self.open: set[str] = set()
        self.made = 0

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
        for index, cut in self.cut.items():
            if any(instance.uuid == uuid for instance in cut):
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

    def instances(self, handle: int) -> tuple[Instance, ...]:
        self._gpu(handle)
        return tuple(self.cut.get(handle, ()))

    def make_instance(self, handle: int, slices: int, start: int, size: int) -> str:
        """As the driver does it: never over another one, and with a number and UUID that are new each time."""
        cut = self.cut.setdefault(handle, [])
        if any(one.start < start + size and start < one.start + one.size for one in cut):
            raise NvmlFailed("Insufficient Resources")
        self.made += 1
        cut.append(Instance(self.made, slices, start, size, f"MIG-{self.made}"))
        return f"MIG-{self.made}"

    def drop_instance(self, handle: int, number: int) -> None:
        cut = self.cut.get(handle, [])
        if any(one.number == number and one.uuid in self.open for one in cut):
            raise NvmlFailed("In use by another client")
        self.cut[handle] = [one for one in cut if one.number != number]

    def _gpu(self, handle: int) -> dict[str, Any]:
        if handle in self.lost:
            raise NvmlFailed("GPU is lost", True)
        return dict(self.record["gpus"][handle])


def probe_of(nvml: Recorded, parts: str = "whole", commands: dict[int, str] | None = None) -> NvmlProbe:
    named = commands or {}
    return NvmlProbe(nvml, lambda pci: 0 if pci < "00000000:80" else 1, lambda pid: named.get(pid, "python"), partition_of(parts))


CUT = 6
"""The GPU of the record that is in MIG mode."""


def slice_of(profile: str, start: int) -> DevicePart:
    return DevicePart(device=RECORDED["gpus"][CUT]["uuid"], mode="mig", profile=profile, start=start)


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


# --- parts ----------------------------------------------------------------------------------------------------------------
def test_a_gpu_in_mig_mode_offers_its_instances_and_nothing_whole() -> None:
    nvml = Recorded(RECORDED)
    nvml.make_instance(CUT, 3, 4, 4)
    nvml.make_instance(CUT, 1, 0, 1)
    nvml.cut[CUT].append(Instance(9, 1, 1, 1, ""))  # without its compute instance nothing can run in it
    devices = probe_of(nvml).devices()
    found = (MigInstance(profile="1g.18gb", start=0, uuid="MIG-2"), MigInstance(profile="3g.71gb", start=4, uuid="MIG-1"))
    assert devices[CUT].partition == Partition(whole=False, mig="fixed", instances=found)
    assert {d.partition for d in devices if d.index != CUT} == {Partition()}


def test_fixed_instances_are_found_by_their_place_and_none_is_made_or_taken_away() -> None:
    nvml = Recorded(RECORDED)
    nvml.make_instance(CUT, 1, 0, 1)
    probe = probe_of(nvml)
    assert probe.make_part(slice_of("1g.18gb", 0)) == "MIG-1"
    probe.drop_part(slice_of("1g.18gb", 0))
    assert probe.part_uuid(slice_of("1g.18gb", 0)) == "MIG-1"
    assert probe.part_uuid(slice_of("1g.35gb", 0)) is None
    with pytest.raises(PartFailed, match=r"has no 1g\.18gb at 3, and its instances are fixed"):
        probe.make_part(slice_of("1g.18gb", 3))


def test_where_a_node_may_reshape_instances_are_made_once_and_taken_away() -> None:
    nvml = Recorded(RECORDED)
    probe = probe_of(nvml, "mig")
    assert probe.devices()[CUT].partition == Partition(whole=False, mig="reshape")
    assert probe.devices()[0].partition == Partition()
    assert probe.make_part(slice_of("2g.35gb", 4)) == probe.make_part(slice_of("2g.35gb", 4)) == "MIG-1"
    assert nvml.cut[CUT] == [Instance(1, 2, 4, 2, "MIG-1")]
    assert probe.processes("MIG-1") == ()
    for _ in range(2):
        probe.drop_part(slice_of("2g.35gb", 4))
    assert nvml.cut[CUT] == []
    assert probe.part_uuid(slice_of("2g.35gb", 4)) is None


def test_what_an_earlier_agent_left_goes_only_if_it_is_in_the_way_and_idle() -> None:
    nvml = Recorded(RECORDED)
    probe = probe_of(nvml, "mig")
    for start in (0, 1, 4):
        nvml.make_instance(CUT, 1, start, 1)
    probe.make_part(slice_of("1g.35gb", 0))
    assert [one.start for one in nvml.cut[CUT]] == [4, 0]
    nvml.open = {"MIG-3"}
    with pytest.raises(PartFailed, match=r"3g\.71gb at 4 of GPU 6 could not be made: In use by another client"):
        probe.make_part(slice_of("3g.71gb", 4))


def test_parts_of_what_is_not_there_or_cannot_be_cut_so_are_refused() -> None:
    nvml = Recorded(RECORDED)
    probe = probe_of(nvml, "mig")
    with pytest.raises(PartFailed, match=r"NVIDIA H200, has no MIG profile 1g\.10gb"):
        probe.make_part(slice_of("1g.10gb", 0))
    with pytest.raises(PartFailed, match="this machine has no GPU GPU-x"):
        probe.make_part(DevicePart(device="GPU-x", mode="mig", profile="1g.18gb"))
    nvml.lost = {CUT}
    with pytest.raises(PartFailed):
        probe.drop_part(slice_of("1g.18gb", 0))


def test_under_mps_a_gpu_is_shared_and_the_server_is_nobody_s_process() -> None:
    nvml = Recorded(RECORDED)
    uuid = RECORDED["gpus"][1]["uuid"]
    probe = probe_of(nvml, "mps=4", {4101: MPS_SERVER})
    assert probe.devices()[0].partition == Partition(soft="mps", shares_max=4)
    assert probe.devices()[CUT].partition == Partition(whole=False, mig="fixed")
    assert probe.processes(uuid) == ()
    assert probe_of(nvml, "time-slice=4", {4101: MPS_SERVER}).processes(uuid) == (4101,)
    share = DevicePart(device=uuid, mode="mps", thousandths=250)
    assert probe.make_part(share) == probe.part_uuid(share) == uuid

"""Pretended devices and the GPU table."""

from __future__ import annotations

import pytest

from shoal.agent.probe import machine
from shoal.agent.probe.pretended import PretendedProbe, make_devices, parse_pretend, pretended_use
from shoal.agent.probe.protocol import PartFailed
from shoal.facts.gpus import GPUS, gpu_named, model_of
from shoal.model.part import DevicePart
from shoal.testing.clock import SimulatedClock


def test_pretended_devices_look_like_the_usual_machine() -> None:
    devices = make_devices("n1", parse_pretend("h100:8"))
    assert {(d.model, d.product, d.memory_bytes) for d in devices} == {("h100", "NVIDIA H100 80GB HBM3", 81_559 << 20)}
    assert [d.island for d in devices] == [0] * 8
    assert [d.switch for d in devices] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [d.numa for d in devices] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert len({d.uuid for d in devices} | {d.pci for d in devices}) == 16


def test_the_same_node_has_the_same_devices_and_another_one_others() -> None:
    spec = parse_pretend("h100:2")
    assert make_devices("n1", spec) == make_devices("n1", spec)
    assert {d.uuid for d in make_devices("n1", spec)}.isdisjoint(d.uuid for d in make_devices("n2", spec))


def test_mixed_nodes_have_islands_of_their_own() -> None:
    devices = make_devices("n1", parse_pretend("h100-nvl:4,l40s:2"))
    assert [d.model for d in devices] == ["h100"] * 4 + ["l40s"] * 2
    assert [d.island for d in devices] == [0, 0, 1, 1, 2, 3]
    assert [d.index for d in devices] == list(range(6))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("h1000:8", "no GPU is called 'h1000'"),
        ("h100:x", "must be a number"),
        ("h100:0", "0 pretended"),
        ("h100:65", "1 to 64"),
    ],
)
def test_a_wrong_pretence_is_told(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_pretend(text)


def test_a_held_device_is_busy_and_fills_and_a_free_one_is_idle() -> None:
    clock = SimulatedClock()
    held: dict[str, tuple[int, ...]] = {}
    probe = PretendedProbe("n1", "h100:2", clock, lambda uuid: held.get(uuid, ()))
    one, other = (d.uuid for d in probe.devices())
    held[one] = (4711,)
    first = probe.use((one, other))
    clock.advance(60_000)
    later = probe.use((one, other))
    assert (first[other].utilisation, first[other].memory_bytes) == (0, 0)
    assert 0 < first[one].memory_bytes < later[one].memory_bytes < 81_559 << 20
    assert 55 <= later[one].utilisation <= 98
    assert probe.processes(one) == (4711,)
    held.clear()
    assert probe.use((one,))[one].memory_bytes == 0
    assert probe.processes(one) == ()


def test_pretended_use_wavers_within_its_bounds() -> None:
    values = {pretended_use("GPU-a", 80 << 30, t * 5_000).utilisation for t in range(100)}
    assert min(values) >= 55
    assert max(values) <= 98
    assert len(values) > 20


def test_names_and_products_in_the_table_are_unique() -> None:
    assert len({gpu.name for gpu in GPUS}) == len(GPUS)
    products = [product for gpu in GPUS for product in gpu.products]
    assert len(set(products)) == len(products)
    assert all(gpu_named(gpu.name) is gpu for gpu in GPUS)
    assert all(1 <= gpu.island <= gpu.per_host for gpu in GPUS)


@pytest.mark.parametrize(
    ("product", "want"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("nvidia l40s", "l40s"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("NVIDIA X200 99GB", "x200"),
        ("NVIDIA Graphics Device", "gpu"),
    ],
)
def test_a_product_has_a_word_that_jobs_ask_by(product: str, want: str) -> None:
    assert model_of(product) == want


def test_the_machine_is_read() -> None:
    assert machine.cpu_count() >= 1
    assert machine.memory_bytes() > 64 << 20
    assert len(machine.boot_id()) == 36
    assert machine.address_towards("http://127.0.0.1:7461") == "127.0.0.1"
    assert machine.address_towards("http://no.such.host.invalid:1") == "127.0.0.1"


# --- parts ----------------------------------------------------------------------------------------------------------------
def test_pretended_gpus_may_be_given_in_parts() -> None:
    devices = make_devices("n1", parse_pretend("h100:1+mps=4,h100:1+mig,a100:1+mig=3g.40gb@4/1g.10gb@0,h100:1"))
    assert [(d.partition.whole, d.partition.mig, d.partition.soft, d.mig) for d in devices] == [
        (True, "off", "mps", "off"),
        (False, "reshape", "off", "on"),
        (False, "fixed", "off", "on"),
        (True, "off", "off", "off"),
    ]
    assert [(i.profile, i.start) for i in devices[2].partition.instances] == [("1g.10gb", 0), ("3g.40gb", 4)]
    assert len({i.uuid for i in devices[2].partition.instances}) == 2
    assert all(i.uuid.startswith("MIG-") for i in devices[2].partition.instances)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("l40s:2+mig", "l40s has no MIG"),
        ("h100:1+mig=1g.5gb@0", r"h100 has no 1g\.5gb"),
        ("h100:1+halves", "give whole, mps"),
        ("h100:1+mps=99", "1 to 48"),
    ],
)
def test_parts_that_cannot_be_are_told(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_pretend(text)


def test_pretended_instances_come_and_go_and_only_their_own_processes_have_them_open() -> None:
    held: dict[str, tuple[int, ...]] = {}
    probe = PretendedProbe("n1", "h100:1+mig,h100:1+mig=1g.10gb@0", SimulatedClock(), lambda key: held.get(key, ()))
    made, cut = probe.devices()
    part = DevicePart(device=made.uuid, mode="mig", profile="1g.10gb", start=6)
    assert probe.part_uuid(part) is None
    uuid = probe.make_part(part)
    assert probe.make_part(part) == probe.part_uuid(part) == uuid
    held[f"{made.uuid}@6"] = (4711,)
    assert (probe.processes(uuid), probe.processes(cut.partition.instances[0].uuid)) == ((4711,), ())
    probe.drop_part(part)
    assert probe.part_uuid(part) is None
    fixed = DevicePart(device=cut.uuid, mode="mig", profile="1g.10gb", start=0)
    probe.drop_part(fixed)
    assert probe.make_part(fixed) == cut.partition.instances[0].uuid
    with pytest.raises(PartFailed, match="no instance at 1"):
        probe.make_part(DevicePart(device=cut.uuid, mode="mig", profile="1g.10gb", start=1))

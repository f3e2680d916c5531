"""Where a mesh lands, which rank every device gets, and what a place costs: each test one sentence."""

from __future__ import annotations

import pytest

from shoal.model.job import GpuAsk, Resources, Slice, Topology
from shoal.model.mesh import coordinates, gpus_of, mesh_text
from shoal.model.reason import ReasonCode
from shoal.model.values import CountRange
from shoal.testing.clusters import Cluster, a_host, places_of

EIGHT_OR_TWICE_FOUR = (Resources(nodes=CountRange(2, 2), gpus=GpuAsk(count=4)), Resources(nodes=CountRange(1, 1), gpus=GpuAsk(count=8)))
"""The split form is named first: only its speed speaks against it."""


def mesh(required: bool = False, **axes: int) -> Topology:
    return Topology(mesh=axes, required=required)


def eights(count: int, **fields: object) -> list:
    """Hosts with one island of eight."""
    return [a_host(f"n{i}", island=8, **fields) for i in range(count)]


def islands_of(cluster: Cluster, job: str) -> list[tuple[str, int]]:
    """(node, island inside it) of every device in rank order."""
    held = sorted((a for a in cluster.allocations.values() if a.job == job), key=lambda a: a.node_rank)
    where = {device.uuid: (node.id, device.island) for node in cluster.nodes.values() for device in node.facts.devices}
    ranked = [uuid for allocation in held for task in allocation.tasks for uuid in task.devices]
    assert ranked == [uuid for allocation in held for uuid in allocation.devices]
    return [where[uuid] for uuid in ranked]


def groups_of(places: list, size: int) -> list[set]:
    return [set(places[at : at + size]) for at in range(0, len(places), size)]


# --- the form ---------------------------------------------------------------------------------------------------------------
def test_ranks_run_along_tp_first_and_dp_last():
    axes = {"tp": 2, "pp": 2, "dp": 2}
    assert gpus_of(axes) == 8
    assert mesh_text(axes) == "tp=2,pp=2,dp=2"
    assert [tuple(coordinates(axes, gpu)[axis] for axis in ("tp", "pp", "dp")) for gpu in range(8)] == [
        (0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1), (1, 1, 1),
    ]  # fmt: skip


# --- inside hosts -----------------------------------------------------------------------------------------------------------
def test_groups_inside_a_host_each_get_one_island_and_devices_are_named_island_by_island():
    cluster = Cluster(a_host("n0"))
    first = cluster.submit(1)
    cluster.cycle()
    held = cluster.allocations[f"{first}.1.0"].devices
    job = cluster.submit(4, topology=mesh(tp=2, dp=2))
    cluster.cycle()
    assert held == ("n0-0",)
    assert islands_of(cluster, job) == [("n0", 1)] * 4
    other = cluster.submit(2, topology=mesh(tp=2))
    cluster.cycle()
    assert islands_of(cluster, other) == [("n0", 0)] * 2


def test_a_group_that_an_island_could_hold_waits_for_one_instead_of_being_split():
    cluster = Cluster(a_host("n0"))
    small = [cluster.submit(2), cluster.submit(2), cluster.submit(2), cluster.submit(2)]
    cluster.cycle()
    by_island = {islands_of(cluster, job)[0][1]: job for job in small}
    for job in by_island.values():
        cluster.end(job)  # two free on each island
    job = cluster.submit(4, topology=mesh(tp=4))
    cluster.cycle()
    assert cluster.gpus_of(job) == 0
    why = cluster.why(job)
    assert (why.reasons[0].code, why.reasons[0].resource) == (ReasonCode.TOPOLOGY, "gpu/h100")
    assert "4 h100 free on 1 node that have enough, but at most 2 on one island" in why.headline
    two = cluster.submit(4, topology=mesh(tp=2, dp=2))
    cluster.cycle()
    assert sorted(map(len, groups_of(islands_of(cluster, two), 2))) == [1, 1]


def test_a_group_that_no_island_can_hold_is_split_and_told_what_it_costs_unless_that_is_ruled_out():
    cluster = Cluster(*eights(2))
    strict = cluster.submit(4, nodes=2, topology=mesh(required=True, tp=8))
    cluster.cycle()
    assert cluster.gpus_of(strict) == 0
    assert cluster.why(strict).reasons[0].code is ReasonCode.FLEET_NEVER
    assert "no island of the fleet holds one" in cluster.why(strict).reasons[0].message
    split = cluster.submit(4, nodes=2, topology=mesh(tp=8))
    place = places_of(cluster.cycle())[split]
    assert "split 4+4 over one network path" in place.predicted
    assert "predicted speed 0.484" in cluster.why(split).headline
    assert cluster.attempts[f"{split}.1"].predicted == place.predicted


@pytest.mark.parametrize(("nics", "want"), [(0, 0.484), (1, 0.484), (8, 0.868)])
def test_the_predicted_speed_of_a_4_and_4_split_is_that_of_the_arithmetic(nics, want):
    """Specification, arithmetic section 9: one path 0.484, a rail per GPU 0.868."""
    cluster = Cluster(*eights(2, nics=nics))
    job = cluster.submit(4, nodes=2, topology=mesh(tp=8))
    place = places_of(cluster.cycle())[job]
    assert place.relative_speed is not None
    assert round(place.relative_speed, 3) == want


def test_the_way_that_does_not_split_is_taken_where_both_fit_and_the_other_where_it_does_not():
    cluster = Cluster(*eights(3))
    cluster.submit(4)
    cluster.cycle()
    whole = [cluster.submit(0, topology=mesh(tp=8), any_of=EIGHT_OR_TWICE_FOUR) for _ in range(2)]
    places = places_of(cluster.cycle())
    assert [(places[job].relative_speed, places[job].predicted, len(places[job].members)) for job in whole] == [(1.0, "", 1)] * 2


def test_two_halves_are_taken_where_no_whole_island_is_free():
    cluster = Cluster(*eights(2))
    halves = [cluster.submit(4) for _ in range(4)]
    cluster.cycle()
    for job in {cluster.nodes_of(job)[0]: job for job in halves}.values():
        cluster.end(job)
    split = cluster.submit(0, topology=mesh(tp=8), any_of=EIGHT_OR_TWICE_FOUR)
    place = places_of(cluster.cycle())[split]
    assert sorted(member.node for member in place.members) == ["n0", "n1"]
    assert round(place.relative_speed or 0, 3) == 0.484


def test_a_model_without_islands_loses_nothing_inside_one_host():
    cluster = Cluster(a_host("n0", model="l4", island=1))
    job = cluster.submit(8, topology=mesh(tp=8))
    assert places_of(cluster.cycle())[job].relative_speed == 1.0


# --- islands over hosts -----------------------------------------------------------------------------------------------------
def test_groups_stay_inside_islands_that_span_hosts_and_ranks_follow_them():
    """Two racks of NVL72 in small: three hosts of four GPUs each, all of a rack in one island."""
    hosts = [a_host(f"r{r}n{i}", 4, "gb200", topology=f"zone=a,island=r{r}") for r in range(2) for i in range(3)]
    cluster = Cluster(*hosts)
    job = cluster.submit(4, nodes=4, topology=mesh(tp=8, dp=2))
    place = places_of(cluster.cycle())[job]
    assert [member.node[:2] for member in place.members] == ["r0", "r0", "r1", "r1"]
    assert place.relative_speed == 1.0
    blocked = cluster.submit(4, nodes=2, topology=mesh(tp=8))
    cluster.cycle()
    why = cluster.why(blocked)
    assert cluster.gpus_of(blocked) == 0
    assert why.reasons[0].code is ReasonCode.TOPOLOGY
    assert "1 tensor parallel group of 2 nodes inside one island" in why.headline


def test_a_pipeline_lies_in_one_rack_where_the_whole_gang_cannot():
    racks = [a_host(f"r{r}n{i}", island=8, topology=f"rack=r{r}") for r, size in enumerate((3, 3, 1)) for i in range(size)]
    cluster = Cluster(*racks)
    job = cluster.submit(8, nodes=4, topology=mesh(tp=8, pp=2, dp=2))
    cluster.cycle()
    nodes = [node[:2] for node in cluster.nodes_of(job)]
    assert nodes[0] == nodes[1]
    assert nodes[2] == nodes[3]


# --- slices -----------------------------------------------------------------------------------------------------------------
def test_every_slice_lies_inside_one_domain_where_the_gang_need_not():
    racks = [a_host(f"r{r}n{i}", topology=f"rack=r{r}") for r, size in enumerate((3, 2, 3)) for i in range(size)]
    cluster = Cluster(*racks)
    job = cluster.submit(8, nodes=6, topology=Topology(slice=Slice(size=2, level="rack")))
    cluster.cycle()
    nodes = [node[:2] for node in cluster.nodes_of(job)]
    assert [len(set(nodes[at : at + 2])) for at in (0, 2, 4)] == [1, 1, 1]


def test_a_gang_whose_slices_cannot_be_made_says_how_many_can():
    racks = [a_host(f"r{r}n{i}", topology=f"rack=r{r}") for r in range(3) for i in range(4)]
    cluster = Cluster(*racks)
    cluster.submit(8, nodes=1)
    cluster.submit(8, nodes=1, level="rack", required=True, labels={"other": "rack"})
    cluster.cycle()
    for_ever = cluster.submit(8, nodes=5, topology=Topology(slice=Slice(size=5, level="rack")))
    job = cluster.submit(8, nodes=9, topology=Topology(slice=Slice(size=3, level="rack")))
    cluster.submit(8, nodes=1)
    cluster.cycle()
    assert cluster.why(for_ever).reasons[0].code is ReasonCode.FLEET_NEVER
    why = cluster.why(job)
    told = f"as 3 slices of 3 nodes inside one rack each; {why.reasons[0].nodes_fitting} nodes could take one member, and make 2 of them"
    assert told in why.headline
    assert "starts if the gang were 6 nodes or fewer" in why.hints


def test_a_range_of_nodes_takes_as_many_whole_slices_as_there_are():
    racks = [a_host(f"r{r}n{i}", topology=f"rack=r{r}") for r in range(3) for i in range(3)]
    cluster = Cluster(*racks)
    job = cluster.submit(8, nodes=(2, 8), topology=Topology(slice=Slice(size=2, level="rack")))
    cluster.cycle()
    assert len(cluster.nodes_of(job)) == 6

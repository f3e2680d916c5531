"""Never statements about meshes: no group is split that need not be, ranks and devices agree, slices hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shoal.model.job import GpuAsk, Resources, Slice, Topology
from shoal.model.node import Node
from shoal.model.reason import Reason, ReasonCode
from shoal.model.values import CountRange
from shoal.testing.clusters import Cluster, a_host, places_of


def _busy(cluster: Cluster, counts: list[int]) -> None:
    """Holds so many GPUs on each node, by jobs that only that node can take."""
    for at, count in enumerate(counts):
        for node in cluster.nodes:
            cluster.change_node(node, pool="filled" if node == f"n{at}" else "default")
        if count:
            cluster.submit(count, pool="filled")
            cluster.cycle()
    for node in cluster.nodes:
        cluster.change_node(node, pool="default")


def _with_broken(node: Node, mask: int) -> Node:
    """The node with these devices broken: any pattern of free ones, which jobs that pack well would not leave."""
    bad = Reason(code=ReasonCode.RESOURCES, message="broken")
    devices = tuple(replace(device, broken=bad) if mask >> at & 1 else device for at, device in enumerate(node.facts.devices))
    return replace(node, facts=replace(node.facts, devices=devices))


def _ways(groups: int) -> tuple[Resources, ...]:
    """A gang of `groups` groups of eight, on halves of nodes or on whole ones; the split way is named first."""
    halves = Resources(nodes=CountRange(2 * groups, 2 * groups), gpus=GpuAsk(count=4))
    return halves, Resources(nodes=CountRange(groups, groups), gpus=GpuAsk(count=8))


@given(st.lists(st.sampled_from([0, 0, 3, 4, 4, 4, 8]), min_size=3, max_size=8), st.integers(1, 2))
def test_a_tp_8_group_is_never_split_while_islands_enough_are_free(busy: list[int], groups: int):
    cluster = Cluster(*[a_host(f"n{at}", island=8) for at in range(len(busy))])
    _busy(cluster, busy)
    job = cluster.submit(0, topology=Topology(mesh={"tp": 8, "dp": groups}), any_of=_ways(groups))
    place = places_of(cluster.cycle()).get(job)
    if busy.count(0) >= groups:
        assert place is not None
        assert (place.relative_speed, place.predicted) == (1.0, "")
        assert all(len(member.devices) == 8 for member in place.members)
    elif sum(count <= 4 for count in busy) >= 2 * groups:
        assert place is not None
        assert place.relative_speed is not None
        assert round(place.relative_speed, 3) == 0.484
    else:
        assert place is None


@given(st.lists(st.integers(0, 255), min_size=1, max_size=4), st.sampled_from([(8, 2, 4), (8, 4, 2), (4, 2, 2), (4, 4, 1), (6, 2, 3)]))
def test_groups_inside_a_host_never_straddle_its_islands_and_wait_where_they_would(broken: list[int], ask: tuple[int, int, int]):
    gpus, tp, dp = ask
    cluster = Cluster(*[_with_broken(a_host(f"n{at}", island=4), mask) for at, mask in enumerate(broken)])
    columns = cluster.board.columns
    free = [[(int(columns.free_mask[row]) & island).bit_count() for island in columns.layouts[row].islands] for row in range(len(columns))]
    could = any(sum(count // tp * tp for count in islands) >= gpus for islands in free)
    job = cluster.submit(gpus, topology=Topology(mesh={"tp": tp, "dp": dp}))
    place = places_of(cluster.cycle()).get(job)
    assert (place is not None) == could
    if place is not None:
        (member,) = place.members
        islands = {device.uuid: device.island for device in cluster.nodes[member.node].facts.devices}
        assert all(len({islands[uuid] for uuid in member.devices[at : at + tp]}) == 1 for at in range(0, gpus, tp))


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=4), min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 3))
def test_slices_are_made_exactly_where_their_racks_have_room(racks: list[list[bool]], size: int, count: int):
    nodes = [a_host(f"r{r}n{i}", topology=f"rack=r{r}") for r, rack in enumerate(racks) for i in range(len(rack))]
    cluster = Cluster(*nodes)
    for r, rack in enumerate(racks):
        for i, closed in enumerate(rack):
            if closed:
                cluster.close(f"r{r}n{i}")
    job = cluster.submit(8, nodes=size * count, topology=Topology(slice=Slice(size=size, level="rack")))
    cluster.cycle()
    could = sum(rack.count(False) // size for rack in racks) >= count
    placed = cluster.nodes_of(job)
    assert (len(placed) == size * count) == could
    assert all(len({node[:2] for node in placed[at : at + size]}) == 1 for at in range(0, len(placed), size))

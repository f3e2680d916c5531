"""Which nodes and devices a gang gets: each test one sentence."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shoal.model.job import GpuAsk, GroupSpec, JobSpec, Resources
from shoal.model.node import Device, Node, NodeState
from shoal.model.reason import Reason, ReasonCode
from shoal.model.values import CountRange, Memory
from shoal.testing.clusters import GIB, Cluster, a_host, places_of


def hosts(count: int, gpus: int = 8, **fields: object) -> list:
    return [a_host(f"n{i}", gpus, **fields) for i in range(count)]


def racks(*sizes: int, gpus: int = 1) -> list:
    """`racks(4, 2)`: rack 0 with four hosts, rack 1 with two; hosts are r0n0, r0n1, ..."""
    return [a_host(f"r{r}n{i}", gpus, topology=f"block=b{r // 2},rack=r{r}") for r, size in enumerate(sizes) for i in range(size)]


def with_devices(node: Node, devices: tuple[Device, ...]) -> Node:
    return replace(node, facts=replace(node.facts, devices=devices))


# --- gangs ------------------------------------------------------------------------------------------------------------------
def test_a_gang_starts_whole_or_holds_nothing():
    cluster = Cluster(*hosts(4))
    first, second = cluster.submit(8, nodes=3), cluster.submit(8, nodes=2)
    cluster.cycle()
    assert cluster.gpus_of(first) == 24
    assert cluster.gpus_of(second) == 0
    cluster.end(first)
    cluster.cycle()
    assert cluster.gpus_of(second) == 16


def test_members_land_on_nodes_of_their_own():
    cluster = Cluster(*hosts(2))
    job = cluster.submit(2, nodes=2)
    cluster.cycle()
    assert sorted(cluster.nodes_of(job)) == ["n0", "n1"]


@pytest.mark.parametrize(("free", "want"), [(1, 0), (2, 2), (3, 3), (4, 4), (5, 4)])
def test_a_range_of_nodes_takes_as_many_as_fit_and_no_fewer_than_its_least(free, want):
    cluster = Cluster(*hosts(free))
    job = cluster.submit(8, nodes=(2, 4))
    cluster.cycle()
    assert len(cluster.nodes_of(job)) == want


def test_a_gang_takes_the_pool_with_enough_hosts_and_never_half_starts_in_the_smaller():
    """Platform case 3: pools of 1 and 2 free hosts, a job of 2 nodes."""
    cluster = Cluster(a_host("a0", pool="small"), a_host("b0", pool="large"), a_host("b1", pool="large"))
    job = cluster.submit(8, nodes=2)
    cluster.cycle()
    assert cluster.nodes_of(job) == ("b0", "b1")


def test_a_gang_is_not_spread_over_pools():
    cluster = Cluster(a_host("a0", pool="small"), a_host("b0", pool="large"))
    job = cluster.submit(8, nodes=2)
    cluster.cycle()
    assert cluster.nodes_of(job) == ()
    assert cluster.why(job).reasons[0].code == ReasonCode.FLEET_NEVER


# --- constraints ------------------------------------------------------------------------------------------------------------
def test_all_members_get_the_same_model():
    cluster = Cluster(a_host("n0", model="h100"), a_host("n1", model="a100"), a_host("n2", model="a100"))
    job = cluster.submit(8, nodes=2)
    plan = cluster.cycle()
    assert cluster.nodes_of(job) == ("n1", "n2")
    assert places_of(plan)[job].gpu_model == "a100"


def test_only_models_that_are_named_are_taken():
    cluster = Cluster(a_host("n0", model="h100"), a_host("n1", model="a100"))
    wanted, other = cluster.submit(1, models=("h200", "a100")), cluster.submit(1, models=("h200",))
    cluster.cycle()
    assert cluster.nodes_of(wanted) == ("n1",)
    assert cluster.nodes_of(other) == ()


def test_a_mixed_node_gives_devices_of_one_model_only():
    host = a_host("n0", 4, "h100")
    others = (replace(d, uuid=f"n0-a{d.index}", index=4 + d.index, model="a100") for d in host.facts.devices)
    cluster = Cluster(with_devices(host, (*host.facts.devices, *others)))
    job, big = cluster.submit(4, models=("a100",)), cluster.submit(5)
    cluster.cycle()
    assert cluster.gpus_of(job) == 4
    assert all(uuid.startswith("n0-a") for a in cluster.allocations.values() for uuid in a.devices)
    assert cluster.gpus_of(big) == 0


def test_device_memory_is_a_range():
    cluster = Cluster(a_host("n0", gpu_memory=40, model="a100"), a_host("n1", gpu_memory=80, model="a100"))
    job = cluster.submit(1, gpu_memory=48)
    cluster.cycle()
    assert cluster.nodes_of(job) == ("n1",)


@pytest.mark.parametrize("ask", [{"cpus": 65}, {"memory": 1025}])
def test_cpu_and_memory_bound_a_member_too(ask):
    cluster = Cluster(*hosts(1), a_host("big", cpus=128, memory=2048))
    job = cluster.submit(1, **ask)
    cluster.cycle()
    assert cluster.nodes_of(job) == ("big",)


def test_cpu_only_jobs_that_name_no_cpus_hold_a_core_per_task():
    cluster = Cluster(a_host("n0", 0, cpus=2))
    jobs = [cluster.submit(0) for _ in range(3)]
    cluster.cycle()
    assert [len(cluster.nodes_of(job)) for job in jobs] == [1, 1, 0]


def test_gpus_per_task_are_multiplied_by_the_tasks_of_a_node():
    cluster = Cluster(*hosts(1))
    job = cluster.submit(GpuAsk(count=2, per="task"), tasks_per_node=3)
    cluster.cycle()
    assert cluster.gpus_of(job) == 6


@pytest.mark.parametrize("state", [s for s in NodeState if s is not NodeState.READY])
def test_only_ready_nodes_take_work(state):
    cluster = Cluster(a_host("n0", state=state), a_host("n1"))
    jobs = [cluster.submit(8), cluster.submit(8)]
    cluster.cycle()
    assert [cluster.nodes_of(job) for job in jobs] == [("n1",), ()]


def test_broken_and_dirty_devices_are_not_given_out():
    host = a_host("n0", 4)
    broken = replace(host.facts.devices[0], broken=Reason(code=ReasonCode.UNHEALTHY, message="row remap failed"))
    cluster = Cluster(with_devices(host, (broken, *host.facts.devices[1:])))
    cluster.board.mark_dirty("n0", ["n0-1"])
    jobs = [cluster.submit(1) for _ in range(4)]
    cluster.cycle()
    given = {uuid for allocation in cluster.allocations.values() for uuid in allocation.devices}
    assert given == {"n0-2", "n0-3"}
    cluster.board.mark_dirty("n0", [])
    cluster.cycle()
    assert sum(cluster.gpus_of(job) for job in jobs) == 3


def test_nodes_that_failed_to_prepare_a_job_are_avoided():
    cluster = Cluster(*hosts(2))
    job = cluster.submit(1, avoid=("n0",))
    cluster.cycle()
    assert cluster.nodes_of(job) == ("n1",)


def test_an_avoid_list_that_would_leave_no_node_is_passed_over():
    cluster = Cluster(*hosts(2))
    job = cluster.submit(8, nodes=2, avoid=("n0",))
    cluster.cycle()
    assert cluster.nodes_of(job) == ("n0", "n1")


def test_an_avoided_node_is_named_when_it_is_all_that_is_free():
    cluster = Cluster(*hosts(2))
    cluster.submit(8, avoid=("n0",))
    cluster.cycle()
    job = cluster.submit(8, avoid=("n0",))
    cluster.cycle()
    assert cluster.nodes_of(job) == ()
    reason = cluster.why(job).reasons[0]
    assert (reason.code, reason.blockers) == (ReasonCode.AVOIDED, ("n0",))


# --- packing ----------------------------------------------------------------------------------------------------------------
def test_the_fullest_node_that_fits_is_taken_so_that_big_holes_stay_whole():
    cluster = Cluster(*hosts(3))
    cluster.submit(6)
    cluster.cycle()
    job, whole = cluster.submit(2), cluster.submit(8, nodes=2)
    cluster.cycle()
    assert cluster.nodes_of(job) == ("n0",)
    assert cluster.gpus_of(whole) == 16


def test_jobs_without_gpus_go_where_fewest_gpus_are_free():
    cluster = Cluster(a_host("n0"), a_host("n1", 0))
    job = cluster.submit(0, cpus=4)
    cluster.cycle()
    assert cluster.nodes_of(job) == ("n1",)


def test_devices_of_one_island_are_kept_together():
    cluster = Cluster(*hosts(1))
    cluster.submit(1)
    cluster.cycle()
    cluster.submit(4)
    cluster.cycle()
    four = next(a.devices for a in cluster.allocations.values() if len(a.devices) == 4)
    assert {uuid[-1] for uuid in four} == {"4", "5", "6", "7"}


def test_the_fullest_island_with_room_is_used_first():
    cluster = Cluster(*hosts(1))
    cluster.submit(2)
    cluster.cycle()
    cluster.submit(2)
    cluster.cycle()
    used = {uuid[-1] for a in cluster.allocations.values() for uuid in a.devices}
    assert used == {"0", "1", "2", "3"}


# --- topology ---------------------------------------------------------------------------------------------------------------
def test_a_required_level_is_one_domain_or_nothing():
    cluster = Cluster(*racks(2, 2))
    job = cluster.submit(1, nodes=3, level="rack", required=True)
    cluster.cycle()
    assert cluster.nodes_of(job) == ()
    assert cluster.why(job).reasons[0].code == ReasonCode.FLEET_NEVER


def test_a_required_level_waits_for_a_domain_with_room():
    cluster = Cluster(*racks(2, 2))
    spread = [cluster.submit(1, nodes=1) for _ in range(4)]
    cluster.cycle()
    by_node = {cluster.nodes_of(job)[0]: job for job in spread}
    cluster.end(by_node["r0n0"])
    cluster.end(by_node["r1n0"])
    job = cluster.submit(1, nodes=2, level="rack", required=True)
    cluster.cycle()
    reason = cluster.why(job).reasons[0]
    assert (reason.code, reason.nodes_fitting, reason.largest_free) == (ReasonCode.TOPOLOGY, 2, 1)
    cluster.end(by_node["r1n1"])
    plan = cluster.cycle()
    assert cluster.nodes_of(job) == ("r1n0", "r1n1")
    assert places_of(plan)[job].domain == "rack=r1"


def test_the_tightest_domain_with_room_is_taken():
    cluster = Cluster(*racks(4, 2, 3))
    job = cluster.submit(1, nodes=2, level="block", required=True)
    cluster.cycle()
    assert cluster.nodes_of(job) == ("r1n0", "r1n1")


def test_a_gang_that_names_no_level_is_still_kept_near():
    cluster = Cluster(*racks(1, 3, 1))
    job = cluster.submit(1, nodes=3)
    cluster.cycle()
    assert {node[:2] for node in cluster.nodes_of(job)} == {"r1"}


def test_a_preferred_level_that_no_domain_meets_takes_the_fewest_domains():
    """C25: domains d0, d1 of 4x1, one node of d0 busy: G4 all in d1; G5 alone: four in d1 and one in d0."""
    for size, want in ((4, {"r1": 4}), (5, {"r0": 1, "r1": 4})):
        cluster = Cluster(*racks(4, 4))
        cluster.submit(1, models=("h100",))
        cluster.cycle()
        job = cluster.submit(1, nodes=size, level="rack")
        cluster.cycle()
        nodes = cluster.nodes_of(job)
        assert {rack: sum(n.startswith(rack) for n in nodes) for rack in want} == want
        assert len(nodes) == size


def test_what_is_left_over_goes_to_the_tightest_of_the_other_domains():
    cluster = Cluster(*(a_host(f"r{r}n{i}", 1, topology=f"rack=r{r}") for r, size in enumerate((3, 4, 1)) for i in range(size)))
    job = cluster.submit(1, nodes=5)
    cluster.cycle()
    assert sorted(node[:2] for node in cluster.nodes_of(job)) == ["r1", "r1", "r1", "r1", "r2"]


def test_racks_of_one_name_in_two_blocks_are_two_racks():
    cluster = Cluster(*(a_host(f"{b}{i}", 1, topology=f"block={b},rack=r0") for b in "ab" for i in range(2)))
    job = cluster.submit(1, nodes=3, level="rack", required=True)
    cluster.cycle()
    assert cluster.nodes_of(job) == ()


def test_a_level_inside_the_host_is_for_jobs_of_one_node():
    cluster = Cluster(*hosts(2))
    job = cluster.submit(4, nodes=2, level="island", required=True)
    cluster.cycle()
    assert cluster.nodes_of(job) == ()
    assert "only a job of one node" in cluster.why(job).headline


def test_a_required_island_waits_for_an_island():
    cluster = Cluster(*hosts(1))
    cluster.submit(3, level="island", required=True)
    cluster.submit(3, level="island", required=True)
    job = cluster.submit(2, level="island", required=True)
    cluster.cycle()
    assert cluster.gpus_of(job) == 0
    assert cluster.submit(2, level="island")
    cluster.cycle()
    assert len(cluster.running()) == 3, "preferred: two GPUs of two islands are better than none"


# --- alternatives and groups --------------------------------------------------------------------------------------------------
def alternatives(kind: str, *entries: Resources) -> JobSpec:
    return JobSpec(run="true", **{kind: entries})


def gpus(count: int, model: str) -> Resources:
    return Resources(gpus=GpuAsk(count=count, model=(model,)))


def test_ordered_alternatives_take_the_first_that_fits():
    cluster = Cluster(a_host("n0", model="a100"), a_host("n1", model="h100"))
    first = cluster.submit(spec=alternatives("ordered", gpus(8, "h100"), gpus(8, "a100")))
    second = cluster.submit(spec=alternatives("ordered", gpus(8, "h100"), gpus(8, "a100")))
    plan = cluster.cycle()
    assert (cluster.nodes_of(first), cluster.nodes_of(second)) == (("n1",), ("n0",))
    assert [places_of(plan)[job].alternative for job in (first, second)] == [0, 1]


def test_any_of_takes_the_alternative_that_leaves_least_behind():
    cluster = Cluster(a_host("n0", 8, "h100"), a_host("n1", 2, "a100"))
    job = cluster.submit(spec=alternatives("any_of", gpus(2, "h100"), gpus(2, "a100")))
    plan = cluster.cycle()
    assert cluster.nodes_of(job) == ("n1",)
    assert places_of(plan)[job].alternative == 1


def grouped(*groups: GroupSpec, **fields: object) -> JobSpec:
    return JobSpec(run="true", groups=groups, **fields)


LEADER = GroupSpec(name="leader", cpus=4)


def workers(low: int, high: int | None = None, count: int = 8) -> GroupSpec:
    return GroupSpec(name="workers", nodes=CountRange(low, high or low), gpus=GpuAsk(count=count))


def test_groups_of_a_job_start_together_or_not_at_all():
    cluster = Cluster(*hosts(2))
    job = cluster.submit(spec=grouped(LEADER, workers(2)))
    late = cluster.submit(spec=grouped(LEADER, workers(1)))
    cluster.cycle()
    assert len(cluster.nodes_of(job)) == 3
    assert cluster.nodes_of(late) == ()


def test_groups_may_share_a_node_and_lie_in_one_domain():
    cluster = Cluster(*racks(1, 2, gpus=8))
    job = cluster.submit(spec=grouped(LEADER, workers(2)))
    cluster.cycle()
    assert {node[:2] for node in cluster.nodes_of(job)} == {"r1"}


def test_members_come_in_the_order_of_the_groups():
    cluster = Cluster(*hosts(3))
    job = cluster.submit(spec=grouped(LEADER, workers(2)))
    plan = cluster.cycle()
    assert [member.group for member in places_of(plan)[job].members] == ["leader", "workers", "workers"]


@pytest.mark.parametrize(("free", "want"), [(1, 0), (2, 2), (3, 3), (5, 4)])
def test_a_group_with_a_range_grows_to_what_fits(free, want):
    cluster = Cluster(*hosts(free))
    job = cluster.submit(spec=grouped(LEADER, workers(2, 4)))
    cluster.cycle()
    assert cluster.gpus_of(job) == want * 8


@pytest.mark.parametrize(("sizes", "want"), [((2, 4), 4), ((2, 3), 3), ((3, 3), 3), ((2, 2), 2)])
def test_a_group_with_a_range_takes_the_domain_that_holds_most_of_it(sizes, want):
    cluster = Cluster(*racks(*sizes, gpus=8))
    wish = cluster.new_job(1, level="rack", required=True).spec.topology
    job = cluster.submit(spec=grouped(LEADER, workers(2, 4), topology=wish))
    cluster.cycle()
    assert cluster.gpus_of(job) == want * 8
    assert len({node[:2] for node in cluster.nodes_of(job)}) == 1


def test_groups_agree_on_one_model():
    cluster = Cluster(a_host("n0", 8, "h100"), a_host("n1", 8, "a100"))
    either = GroupSpec(name="either", gpus=GpuAsk(count=2, model=("h100", "a100")))
    one = GroupSpec(name="one", gpus=GpuAsk(count=2, model=("a100",)))
    job = cluster.submit(spec=grouped(either, one))
    cluster.cycle()
    assert cluster.nodes_of(job) == ("n1", "n1")


def test_what_a_failed_trial_took_is_there_for_the_next_job():
    """The first job's groups are seated and taken back; the second asks for just what one of them asked."""
    cluster = Cluster(*hosts(2))
    cluster.submit(spec=grouped(GroupSpec(name="whole", gpus=GpuAsk(count=8)), workers(2, count=4)))
    job = cluster.submit(4, nodes=2)
    cluster.cycle()
    assert cluster.gpus_of(job) == 8


def test_two_jobs_of_two_groups_never_hold_half_of_each():
    """C2: four nodes, groups {A, B} and {C, D} of two nodes each: one pair runs, the other holds nothing."""
    cluster = Cluster(*(a_host(f"n{i}", 1) for i in range(4)))
    pair = (
        GroupSpec(name="a", nodes=CountRange(2, 2), gpus=GpuAsk(count=1)),
        GroupSpec(name="b", nodes=CountRange(2, 2), gpus=GpuAsk(count=1)),
    )
    jobs = [cluster.submit(spec=grouped(*pair)) for _ in range(2)]
    cluster.cycle()
    assert [cluster.gpus_of(job) for job in jobs] == [4, 0]


def test_a_group_takes_the_jobs_own_ask_for_what_it_leaves_open():
    cluster = Cluster(*hosts(1))
    job = cluster.submit(spec=grouped(GroupSpec(name="a", cpus=2), memory=Memory(10 * GIB)))
    cluster.cycle()
    held = next(a for a in cluster.allocations.values() if a.job == job)
    assert (held.cpu_milli, held.memory_bytes) == (2_000, 10 * GIB)

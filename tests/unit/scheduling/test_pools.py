"""A job that asks for a pool: it lies there and nowhere else, and what is told of it speaks of that pool alone."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from shoal.model.job import GpuAsk, GroupSpec, JobSpec, Resources
from shoal.model.node import NodeState
from shoal.model.plan import Place, Plan
from shoal.model.reason import ReasonCode
from shoal.model.values import CountRange
from shoal.scheduling.check import check_plan
from shoal.scheduling.fit import could_ever_fit
from shoal.scheduling.policy import Policy
from shoal.testing.clusters import Cluster, a_host, a_queue, places_of, reserves_of

GIB = 1 << 30


def fleet() -> Cluster:
    """Three nodes in pool big, one in pool small (whose name comes last), two of another model in pool old."""
    return Cluster(
        *(a_host(f"b{i}", pool="big") for i in range(3)),
        a_host("s0", pool="small"),
        *(a_host(f"o{i}", 4, "a100", pool="old") for i in range(2)),
    )


@pytest.mark.parametrize("gpus", [0, 1, 8])
@pytest.mark.parametrize(("pool", "nodes"), [("big", {"b0", "b1", "b2"}), ("small", {"s0"})])
def test_a_job_starts_in_the_pool_that_it_names(gpus: int, pool: str, nodes: set[str]):
    cluster = fleet()
    job = cluster.submit(gpus, pool=pool)
    cluster.cycle()
    assert set(cluster.nodes_of(job)) <= nodes
    assert cluster.nodes_of(job)


@pytest.mark.parametrize("gpus", [0, 8])
def test_a_full_pool_makes_it_wait_whatever_other_pools_have(gpus: int):
    cluster = fleet()
    first = cluster.submit(gpus, pool="small", cpus=60)
    second = cluster.submit(gpus, pool="small", cpus=60)
    cluster.cycle()
    assert (cluster.nodes_of(first), cluster.nodes_of(second)) == (("s0",), ())
    cluster.end(first)
    cluster.cycle()
    assert cluster.nodes_of(second) == ("s0",)


def test_a_gang_goes_as_wide_as_its_pool_lets_it():
    cluster = fleet()
    job = cluster.submit(8, (2, 6), pool="big")
    cluster.cycle()
    assert cluster.nodes_of(job) == ("b0", "b1", "b2")


def test_a_pool_of_the_job_holds_for_its_alternatives_and_one_of_an_alternative_for_itself():
    cluster = fleet()
    entries = (Resources(gpus=GpuAsk(count=8), pool="small"), Resources(gpus=GpuAsk(count=4)))
    spec = JobSpec(run="true", pool="old", ordered=entries)
    jobs = [cluster.submit(spec=spec) for _ in range(4)]
    cluster.settle()
    assert [cluster.nodes_of(job) for job in jobs] == [("s0",), ("o0",), ("o1",), ()]


def test_a_pool_of_one_group_is_that_of_the_whole_gang():
    cluster = fleet()
    groups = (GroupSpec(name="head", cpus=1), GroupSpec(name="worker", gpus=GpuAsk(count=8), nodes=CountRange(2, 2), pool="big"))
    job = cluster.submit(spec=JobSpec(run="true", groups=groups))
    cluster.cycle()
    assert set(cluster.nodes_of(job)) <= {"b0", "b1", "b2"}
    assert len(cluster.nodes_of(job)) == 3


def test_a_model_that_is_elsewhere_is_no_option():
    cluster = fleet()
    job = cluster.submit(1, pool="old")
    cluster.cycle()
    assert cluster.nodes_of(job) == ("o0",)
    (place,) = [a for a in cluster.allocations.values() if a.job == job]
    assert place.gpu_model == "a100"


def test_a_node_that_moves_to_another_pool_takes_other_jobs():
    cluster = fleet()
    job = cluster.submit(8, nodes=2, pool="small")
    cluster.cycle()
    assert not cluster.running()
    cluster.change_node("b0", pool="small")
    cluster.cycle()
    assert set(cluster.nodes_of(job)) == {"b0", "s0"}


@pytest.mark.parametrize("gpus", [0, 8])
def test_it_starts_when_room_comes_back_in_its_pool_and_not_when_it_does_elsewhere(gpus: int):
    cluster = fleet()
    cluster.now_ms = 0
    for _ in range(3):
        cluster.submit(gpus, pool="big", cpus=64, limit_s=10)
    cluster.submit(gpus, pool="small", cpus=64, limit_s=90)
    cluster.settle()
    job = cluster.submit(gpus, pool="small", cpus=64, limit_s=5)
    assert reserves_of(cluster.cycle())[job].start_ms == 90_000
    assert cluster.why(job).earliest_start_ms == 90_000


@pytest.mark.parametrize("gpus", [0, 8])
def test_it_stops_jobs_of_its_pool_alone(gpus: int):
    cluster = fleet()
    cluster.policy = Policy(preempt=True)
    cluster.submit(gpus, pool="small", cpus=64)
    cluster.put(*(cluster.new_job(gpus, pool="big", cpus=64) for _ in range(3)))
    cluster.settle()
    (there,) = [job for job in cluster.running() if cluster.nodes_of(job) == ("s0",)]
    urgent = cluster.submit(gpus, pool="small", cpus=64, priority=1)
    cluster.cycle()
    assert cluster.evicted == [there]
    cluster.free()
    cluster.cycle()
    assert cluster.nodes_of(urgent) == ("s0",)


# --- what is told -----------------------------------------------------------------------------------------------------------
def test_why_speaks_of_the_pool_alone():
    cluster = fleet()
    holder = cluster.submit(6, pool="small", project="red")
    cluster.submit(8, pool="big", project="blue")
    cluster.cycle()
    job = cluster.submit(4, pool="small")
    cluster.cycle()
    why = cluster.why(job)
    reason = why.reasons[0]
    assert reason.code is ReasonCode.RESOURCES
    assert reason.message == "needs 1 node with 4 h100 in pool small; 2 h100 free there, no node can take a member now"
    assert (reason.asked, reason.free, reason.capacity) == (4, 2, 8)
    assert [(h.project, h.gpus) for h in reason.holders] == [("red", 6)]
    assert f"starts if job {cluster.jobs[holder].address} on s0 ended" in why.hints


def test_why_counts_cores_in_the_pool_where_no_gpus_are_asked_for():
    cluster = fleet()
    cluster.submit(0, pool="small", cpus=40)
    cluster.cycle()
    job = cluster.submit(0, pool="small", cpus=30)
    cluster.cycle()
    reason = cluster.why(job).reasons[0]
    assert reason.message == "needs 1 node with 30 cores in pool small; 24 cores free there, no node can take a member now"
    assert (reason.free, reason.capacity, reason.nodes_fitting) == (24_000, 64_000, 0)


def test_a_closed_node_of_another_pool_is_no_help():
    cluster = fleet()
    cluster.close("s0", NodeState.DRAINING)
    cluster.close("b0", NodeState.DRAINING)
    job = cluster.submit(8, pool="small")
    cluster.cycle()
    assert [hint for hint in cluster.why(job).hints if "came back" in hint] == ["starts if node s0 (DRAINING) came back"]


def test_a_gang_larger_than_its_pool_never_fits_though_the_fleet_is_large_enough():
    cluster = fleet()
    job = cluster.submit(8, nodes=4, pool="big")
    reason = cluster.why(job).reasons[0]
    assert (reason.code, reason.capacity, reason.nodes_asked) == (ReasonCode.FLEET_NEVER, 24, 4)
    assert "in pool big" in reason.message


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_pool_without_nodes_is_told_with_those_that_have_some(gpus: int):
    cluster = fleet()
    job = cluster.submit(gpus, pool="bgi")
    plan = cluster.cycle()
    assert not places_of(plan)
    reason = cluster.why(job).reasons[0]
    assert (reason.code, reason.message) == (
        ReasonCode.FLEET_NEVER,
        "asks for pool bgi, in which there is no node; nodes are in big, old, small",
    )
    assert could_ever_fit(cluster.nodes.values(), cluster.queues.values(), cluster.jobs[job]) is not None
    assert could_ever_fit((), (), cluster.jobs[job]) is not None


def test_a_model_that_the_pool_has_not_is_told_with_what_it_has():
    cluster = fleet()
    job = cluster.submit(1, models=("a100",), pool="big")
    assert "asks for a100, and pool big has h100" in cluster.why(job).reasons[0].message


def test_a_quota_still_counts_the_whole_queue():
    cluster = fleet()
    cluster.put(a_queue("q", gpu=(8, 0)))
    cluster.submit(8, queue="q", pool="big")
    second = cluster.submit(8, queue="q", pool="small")
    cluster.settle()
    assert cluster.gpus_in("q") == 8
    assert cluster.why(second).reasons[0].code is ReasonCode.QUOTA


# --- checks -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("gpus", [0, 4])
def test_a_plan_that_leaves_the_pool_is_not_legal(gpus: int):
    cluster = fleet()
    job = cluster.submit(gpus, pool="small")
    (place,) = (d for d in cluster.plan().decisions if isinstance(d, Place))
    (member,) = place.members
    elsewhere = replace(place, members=(replace(member, node="b0", devices=tuple(f"b0-{i}" for i in range(gpus))),))
    (fault,) = check_plan(cluster.snapshot(), Plan(version=cluster.version, decisions=(elsewhere,)))
    assert fault == f"job {cluster.jobs[job].address} on b0: pool small was asked for, and it is in pool big"


def test_capacity_of_pools_adds_up_to_the_fleets():
    columns = fleet().board.columns
    assert columns.pools == ("big", "old", "small")
    for resource, whole in columns.capacity.items():
        assert sum(columns.capacity_in(pool, resource) for pool in columns.pools) == whole
    assert np.count_nonzero(columns.in_pool("big")) == 3
    assert columns.models_in("old") == ("a100",)

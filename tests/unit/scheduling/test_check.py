"""Illegal plans and worlds, each told in words: the check must fail where it should."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shoal.model.attempt import AllocationState
from shoal.model.job import JobState
from shoal.model.node import NodeState
from shoal.model.plan import Place, PlacedMember, Plan
from shoal.model.snapshot import Snapshot
from shoal.scheduling.check import check_plan, check_snapshot
from shoal.testing.clusters import Cluster, a_host, a_queue


def world() -> tuple[Cluster, str, Place]:
    """A job of 2 x 4 that may be placed, on three nodes of which the last holds another job, and a plan for it."""
    cluster = Cluster(
        a_host("n0", topology="rack=a"), a_host("n1", topology="rack=a"), a_host("n2", topology="rack=b"), a_queue("q", gpu=(8,))
    )
    cluster.submit(8, cpus=60)
    cluster.cycle()
    job = cluster.submit(4, nodes=2, cpus=10, queue="q")
    (place,) = (d for d in cluster.plan().decisions if isinstance(d, Place))
    return cluster, job, place


def faults_of(cluster: Cluster, *places: Place) -> str:
    plan = Plan(version=cluster.version, decisions=places)
    whole, local = check_plan(cluster.snapshot(), plan), check_plan(cluster.board.records, plan)
    assert whole == local
    return "; ".join(whole)


def with_member(place: Place, at: int, **changes: object) -> Place:
    members = list(place.members)
    members[at] = replace(members[at], **changes)
    return replace(place, members=tuple(members))


def test_what_the_cycle_says_is_legal():
    cluster, _, place = world()
    assert faults_of(cluster, place) == ""


def test_illegal_places_are_named():
    cluster, _, place = world()
    busy = next(iter(cluster.allocations.values()))
    first = place.members[0]
    cases = {
        "is given twice": with_member(place, 0, node=busy.node, devices=busy.devices[:4]),
        "is not there or broken": with_member(place, 0, devices=(*first.devices[:3], "ghost")),
        "two members on one node": with_member(place, 1, node=first.node),
        "gets 1": replace(place, members=place.members[:1]),
        "3 GPUs for 4 asked": with_member(place, 0, devices=first.devices[:3]),
        "other CPU or memory": with_member(place, 0, cpu_milli=0),
        "and says a100": replace(place, gpu_model="a100"),
        "has no alternative 3": replace(place, alternative=3),
        "has no group x": with_member(place, 0, group="x"),
        "node nowhere is not there": with_member(place, 0, node="nowhere"),
        "job nobody is not there": replace(place, job="nobody"),
        "millicores": with_member(place, 0, node=busy.node, cpu_milli=10_000),
    }
    for want, illegal in cases.items():
        assert want in faults_of(cluster, illegal), want


def test_two_decisions_about_one_job_are_one_too_many():
    cluster, job, place = world()
    assert f"job {job} has 2 decisions" in faults_of(cluster, place, place)


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"state": JobState.HELD}, "not a queued job"),
        ({"queue": "gone"}, "queue gone, which is not there"),
    ],
)
def test_a_job_that_changed_since_is_named(change, want):
    cluster, job, place = world()
    cluster.change_job(job, **change)
    assert want in faults_of(cluster, place)


def test_a_node_that_closed_since_is_named():
    cluster, _, place = world()
    cluster.close(place.members[0].node, NodeState.DRAINING)
    assert "takes no work" in faults_of(cluster, place)


def test_a_quota_that_was_cut_since_is_named():
    cluster, _, place = world()
    cluster.put(a_queue("q", gpu=(7,)))
    assert "queue q is 1000 of gpu short" in faults_of(cluster, place)


def test_a_required_domain_that_is_left_is_named():
    cluster, job, place = world()
    spec = cluster.jobs[job].spec
    wish = cluster.new_job(1, level="rack", required=True).spec.topology
    cluster.change_job(job, spec=replace(spec, topology=wish))
    outside = next(name for name in ("n2", "n1", "n0") if cluster.nodes[name].topology != cluster.nodes[place.members[0].node].topology)
    moved = with_member(place, 1, node=outside, devices=tuple(f"{outside}-{i}" for i in range(4)))
    assert "must lie in one rack" in faults_of(cluster, moved)


def test_an_array_over_its_limit_is_named():
    cluster = Cluster(a_host("n0"))
    _, elements = cluster.submit_array("0-2%1")
    places = [
        Place(job=element, members=(PlacedMember(node="n0", devices=(f"n0-{i}",)),), gpu_model="h100")
        for i, element in enumerate(elements[:2])
    ]
    assert "may run 1 at once and would run 2" in faults_of(cluster, *places)


# --- worlds -----------------------------------------------------------------------------------------------------------------
def whole(cluster: Cluster, **changes: object) -> str:
    return "; ".join(check_snapshot(replace(cluster.snapshot(), **changes)))


def test_a_world_in_order_has_no_faults():
    cluster, _, _ = world()
    cluster.cycle()
    assert whole(cluster) == ""
    assert check_snapshot(Snapshot(version=0)) == ()


def test_broken_worlds_are_named():
    cluster, job, _ = world()
    cluster.cycle()
    held = tuple(a for a in cluster.snapshot().allocations if a.job == job)
    double = replace(held[0], id="other", job_number=99, job=held[0].job)
    assert "is in 2 live allocations" in whole(cluster, allocations=(*cluster.snapshot().allocations, double))
    greedy = replace(held[0], cpu_milli=65_000)
    assert "millicores and gives" in whole(cluster, allocations=(greedy,))
    older = replace(held[0], attempt=0, id="older", devices=())
    assert "more than one attempt" in whole(cluster, allocations=(*cluster.snapshot().allocations, older))
    half = tuple(a for a in cluster.snapshot().allocations if a.id != held[1].id)
    assert "is being prepared and holds 1 of 2 members" in whole(cluster, allocations=half)
    assert "is unknown" in whole(cluster, jobs=())
    released = replace(held[1], state=AllocationState.RELEASED)
    assert "holds 1 of 2" in whole(cluster, allocations=(*half, released))


def test_a_gang_that_starts_may_lose_a_member_that_is_done_once_it_is_committed_and_not_before():
    cluster, job, _ = world()
    cluster.cycle()
    held = [a for a in cluster.snapshot().allocations if a.job == job]
    cluster.put(replace(held[1], state=AllocationState.RELEASED, exits={1: 0}))
    assert cluster.jobs[job].state is JobState.STARTING
    assert "is being prepared and holds 1 of 2 members" in whole(cluster)
    committed = tuple(replace(attempt, committed_ms=1) if attempt.job == job else attempt for attempt in cluster.snapshot().attempts)
    assert whole(cluster, attempts=committed) == ""
    few = tuple(replace(attempt, members=attempt.members[:1]) for attempt in committed)
    assert "was started with 1 nodes, and asks for 2" in whole(cluster, attempts=few)


def test_a_quota_tree_that_hangs_together_wrongly_is_named():
    cluster = Cluster()
    assert "under gone, which is not there" in whole(cluster, queues=(a_queue("a", "gone"),))
    assert "in a circle" in whole(cluster, queues=(a_queue("a", "b"), a_queue("b", "a")))
    assert whole(cluster, queues=(a_queue("a", "default"), a_queue("b", "a"))) == ""

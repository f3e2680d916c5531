"""Moves before stops: case C22, who has the right, who is moved, never more than the gang gets, and that a claim keeps each new place."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.model.plan import Evict, Move, Plan
from shoal.model.reason import ReasonCode
from shoal.scheduling.check import check_plan
from shoal.scheduling.policy import Policy
from shoal.testing.clusters import Cluster, a_host, a_queue, places_of, reserves_of


def scattered(a_gpus: int, nodes: int = 6, policy: Policy | None = None, **small: object) -> Cluster:
    """C22: six jobs of one GPU on each of six nodes, all of B, which is guaranteed the rest."""
    queues = [a_queue("pool"), a_queue("a", "pool", gpu=(a_gpus,)), a_queue("b", "pool", gpu=(8 * nodes - a_gpus,))]
    cluster = Cluster(*(a_host(f"n{i}", 8) for i in range(nodes)), *queues, policy=policy)
    wall = cluster.submit(2, nodes=nodes, queue="b", preemptible=False)
    cluster.cycle()
    for _ in range(6 * nodes):
        cluster.submit(1, queue="b", **small)
    cluster.cycle()
    cluster.end(wall)
    return cluster


def moves_of(plan: Plan) -> dict[str, Move]:
    return {decision.job: decision for decision in plan.decisions if isinstance(decision, Move)}


def test_c22_six_moves_with_a_right_and_all_run():
    cluster = scattered(a_gpus=8)
    whole = cluster.submit(8, queue="a")
    plan = cluster.cycle()
    moves = moves_of(plan)
    (cleared,) = {member.node for member in reserves_of(plan)[whole].members}
    assert len(moves) == 6
    assert all(member.node != cleared for move in moves.values() for member in move.members)
    assert all(move.reason.code is ReasonCode.MOVED for move in moves.values())
    assert not any(isinstance(decision, Evict) for decision in plan.decisions)
    assert len(cluster.claims) == 7
    cluster.free()
    assert {whole, *moves} == places_of(cluster.cycle()).keys()
    assert not cluster.claims
    assert (cluster.gpus_of(whole), cluster.gpus_in("b")) == (8, 36)


def test_c22_no_move_without_a_right():
    cluster = scattered(a_gpus=0)
    cluster.submit(8, queue="a")
    for _ in range(10):
        cluster.cycle()
    assert not cluster.moved
    assert not cluster.evicted


def test_nobody_is_moved_who_may_not_be_stopped():
    cluster = scattered(a_gpus=8, preemptible=False)
    cluster.submit(8, queue="a")
    assert not moves_of(cluster.cycle())


def test_nobody_is_moved_where_somebody_would_have_no_place():
    """Twelve GPUs are free; the first gang takes eight of them, and the four left are no room for another six jobs."""
    cluster = scattered(a_gpus=16)
    first, second = cluster.submit(8, queue="a"), cluster.submit(8, queue="a")
    cluster.settle()
    assert cluster.gpus_of(first) == 8
    assert cluster.gpus_of(second) == 0
    assert len(cluster.moved) == 6


def test_never_more_gpus_are_moved_than_the_gang_gets():
    """A gang of two members of four GPUs would have to go, eight in all, for four that are asked for."""
    queues = [a_queue("pool"), a_queue("a", "pool", gpu=(4,)), a_queue("b", "pool", gpu=(20,))]
    cluster = Cluster(*(a_host(f"n{i}", 6) for i in range(4)), *queues)
    cluster.submit(3, nodes=4, queue="b")
    cluster.cycle()
    cluster.submit(4, queue="a")
    for _ in range(5):
        cluster.cycle()
    assert not cluster.moved


def test_within_a_queue_a_higher_priority_moves_a_lower_one_before_it_stops_it():
    cluster = Cluster(a_host("n0", 2), a_host("n1", 2))
    jobs = [cluster.submit(1) for _ in range(4)]
    cluster.cycle()
    for node in ("n0", "n1"):
        cluster.end(next(job for job in jobs if cluster.nodes_of(job) == (node,)))
    high = cluster.submit(2, priority=1)
    plan = cluster.cycle()
    assert len(moves_of(plan)) == 1
    assert not any(isinstance(decision, Evict) for decision in plan.decisions)
    cluster.free()
    cluster.cycle()
    assert cluster.gpus_of(high) == 2
    assert len(cluster.running()) == 3


def test_moves_can_be_turned_off():
    cluster = scattered(a_gpus=8, policy=Policy(move=False))
    cluster.submit(8, queue="a")
    assert not moves_of(cluster.cycle())


def test_a_plan_with_a_bad_move_is_found_out():
    cluster = scattered(a_gpus=8)
    cluster.submit(8, queue="a")
    plan = cluster.plan()
    move = next(iter(moves_of(plan).values()))
    others = tuple(decision for decision in plan.decisions if decision is not move)

    def faults(bad: Move) -> str:
        return "; ".join(check_plan(cluster.snapshot(), replace(plan, decisions=(*others, bad))))

    there = reserves_of(plan)[move.beneficiary].members[0]
    twice = replace(move.members[0], node=there.node, devices=there.devices[:1])
    assert "is given to job" in faults(replace(move, members=(twice,)))
    assert "would go on with 0" in faults(replace(move, members=()))
    assert "kept no room" in faults(replace(move, beneficiary="nobody"))
    broken = "; ".join(check_plan(cluster.snapshot(), replace(plan, decisions=others)))
    assert "holds it and stays" in broken


def test_claimed_room_is_given_to_nobody_else():
    cluster = scattered(a_gpus=8)
    cluster.submit(8, queue="a")
    before = cluster.plan()
    stolen = next(iter(moves_of(before).values())).members[0]
    cluster.cycle()
    other = cluster.submit(1, queue="b")
    place = next(iter(places_of(before).values()), None)
    assert place is None
    taken = replace(reserves_of(before)[next(iter(reserves_of(before)))], job=other, members=(stolen,))
    evil = replace(before, decisions=(replace(next(iter(moves_of(before).values())), job=other, members=(stolen,)), taken))
    assert any("is claimed for job" in fault for fault in check_plan(cluster.snapshot(), evil))

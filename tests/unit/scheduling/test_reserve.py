"""Reservations and backfill: when a blocked gang will start, and who may pass it. Cases C3, C4, C20 of the specification among them."""

from __future__ import annotations

import pytest

from shoal.base.rng import Rng
from shoal.model.attempt import AllocationState
from shoal.model.job import JobState
from shoal.model.node import NodeState
from shoal.model.reason import ReasonCode
from shoal.scheduling.board import Board
from shoal.scheduling.cycle import schedule
from shoal.scheduling.policy import Policy
from shoal.testing.clusters import Cluster, a_host, a_queue, a_reservation, places_of, reserves_of

CONSERVATIVE = Policy(reserve="conservative")
WAITING = Policy(preempt=False)
"""Nobody is stopped: what these cases ask is when somebody starts who waits."""


def hosts(count: int, gpus: int = 8, **fields: object) -> list[object]:
    return [a_host(f"n{i}", gpus, **fields) for i in range(count)]


def test_c20_a_big_job_starts_when_the_runner_ends_and_only_what_ends_before_passes_it():
    cluster = Cluster(*hosts(4), policy=WAITING)
    cluster.now_ms = 0
    cluster.submit(8, nodes=3, limit_s=100)
    cluster.cycle()
    big = cluster.submit(8, nodes=4, limit_s=50, priority=10)
    short = cluster.submit(8, limit_s=90)
    long = cluster.submit(8, limit_s=120)
    assert reserves_of(cluster.cycle())[big].start_ms == 100_000
    assert cluster.why(big).earliest_start_ms == 100_000
    cluster.pass_time(400_000)
    assert [cluster.started_ms(job) for job in (short, big, long)] == [0, 100_000, 150_000]


@pytest.mark.parametrize("policy", [Policy(), CONSERVATIVE])
def test_c3_a_stream_of_small_jobs_does_not_starve_a_big_one(policy):
    """Quota 10 on 10 nodes of 1; 60 s jobs that end 6 s apart, and one more every 6 s for ever; BIG needs all ten."""
    cluster = Cluster(*hosts(10, 1), a_queue("q", gpu=(10, 0)), policy=policy)
    for at_s in range(0, 60, 6):
        cluster.now_ms = at_s * 1_000
        cluster.submit(1, limit_s=60, queue="q")
        cluster.cycle()
    arrived_ms = cluster.now_ms
    big = cluster.submit(1, nodes=10, limit_s=60, queue="q")
    idle_ms = 0
    while cluster.started_ms(big) is None:
        assert cluster.now_ms <= arrived_ms + 60_000
        cluster.submit(1, limit_s=60, queue="q")
        cluster.cycle()
        idle_ms += 6_000 * (10 - cluster.gpus_in("q"))
        cluster.pass_time(cluster.now_ms + 6_000)
    assert idle_ms <= 10 * 60_000


def test_c3_variant_small_jobs_that_end_before_the_big_one_starts_are_let_through():
    cluster = Cluster(*hosts(10, 1), a_queue("q", gpu=(10, 0)))
    for _ in range(9):
        cluster.submit(1, limit_s=60, queue="q")
    cluster.cycle()
    big = cluster.submit(1, nodes=10, limit_s=60, queue="q")
    long = cluster.submit(1, limit_s=61, queue="q")
    short = cluster.submit(1, limit_s=60, queue="q")
    cluster.cycle()
    assert cluster.gpus_of(short) == 1
    assert cluster.gpus_of(long) == cluster.gpus_of(big) == 0
    why = cluster.why(long)
    assert cluster.started_ms(long) is None
    assert ReasonCode.EXPECTED in [reason.code for reason in why.reasons]


def test_without_reservations_the_stream_does_starve_it():
    """The case can fail."""
    cluster = Cluster(*hosts(2, 1), policy=Policy(reserve="none"))
    cluster.submit(1, limit_s=60)
    cluster.cycle()
    big = cluster.submit(1, nodes=2, limit_s=60)
    small = cluster.submit(1, limit_s=600)
    cluster.cycle()
    assert cluster.gpus_of(small) == 1
    assert cluster.gpus_of(big) == 0


def test_a_long_job_may_use_what_a_reservation_leaves():
    """The head will take n0; a job without any limit starts on n1, and on the GPUs of n0 that the head leaves."""
    cluster = Cluster(*hosts(2))
    cluster.submit(6, limit_s=100)
    cluster.submit(6, limit_s=200)
    cluster.cycle()
    head = cluster.submit(6)
    endless = [cluster.submit(2), cluster.submit(2), cluster.submit(1)]
    plan = cluster.cycle()
    assert reserves_of(plan)[head].start_ms == 101_000
    assert [cluster.gpus_of(job) for job in endless] == [2, 2, 0]


def test_a_long_job_does_not_use_what_a_reservation_needs():
    cluster = Cluster(*hosts(1))
    cluster.submit(6, limit_s=100)
    cluster.cycle()
    head, endless, short = cluster.submit(8), cluster.submit(2), cluster.submit(2, limit_s=100)
    plan = cluster.cycle()
    assert set(places_of(plan)) == {short}
    assert set(reserves_of(plan)) == {head}
    why = cluster.why(endless)
    assert why.earliest_start_ms is None


def test_cores_and_memory_are_kept_too():
    cluster = Cluster(a_host("n0", 0, cpus=10))
    cluster.submit(0, cpus=4, limit_s=100)
    cluster.cycle()
    head, three, two = cluster.submit(0, cpus=8), cluster.submit(0, cpus=3), cluster.submit(0, cpus=2)
    plan = cluster.cycle()
    assert set(places_of(plan)) == {two}
    assert reserves_of(plan)[head].start_ms == 101_000
    assert cluster.gpus_of(three) == 0


@pytest.mark.parametrize(("policy", "want"), [(Policy(), True), (CONSERVATIVE, False)])
def test_easy_keeps_room_for_the_head_alone_and_conservative_for_those_behind_too(policy, want):
    """The head gets n0 from 100 s to 200 s, the pair behind it both nodes from then on; a job of 250 s on n1 delays the pair."""
    cluster = Cluster(a_host("n0"), a_host("n1", 4), policy=policy)
    cluster.now_ms = 0
    cluster.submit(8, limit_s=100)
    cluster.cycle()
    head, pair, long = cluster.submit(8, limit_s=100), cluster.submit(4, nodes=2, limit_s=10), cluster.submit(4, limit_s=250)
    plan = cluster.cycle()
    assert (long in places_of(plan)) is want
    starts = {job: reserve.start_ms for job, reserve in reserves_of(plan).items()}
    assert starts[head] == 100_000
    assert starts.get(pair) == (None if want else 200_000)


def test_conservative_gives_a_start_to_jobs_of_one_shape_one_after_another():
    cluster = Cluster(*hosts(1), policy=CONSERVATIVE)
    cluster.now_ms = 0
    cluster.submit(8, limit_s=100)
    cluster.cycle()
    jobs = [cluster.submit(8, limit_s=10) for _ in range(3)]
    assert [reserves_of(cluster.cycle())[job].start_ms for job in jobs] == [100_000, 110_000, 120_000]
    assert [cluster.why(job).earliest_start_ms for job in jobs] == [100_000, 110_000, 120_000]


def test_no_more_reservations_than_the_policy_says():
    cluster = Cluster(*hosts(1), policy=Policy(reserve="conservative", reservations=2))
    cluster.submit(8, limit_s=100)
    cluster.cycle()
    jobs = [cluster.submit(8, limit_s=10) for _ in range(5)]
    plan = cluster.cycle()
    assert list(reserves_of(plan)) == jobs[:2]
    assert cluster.why(jobs[4]).earliest_start_ms == 121_000, "what has no reservation itself is not counted"


def test_quota_is_part_of_a_reservation():
    """There is room, but the queue may start 8 more only when its own job has ended."""
    cluster = Cluster(*hosts(4), a_queue("q", gpu=(16, 0)))
    cluster.now_ms = 0
    cluster.submit(8, limit_s=50, queue="q")
    cluster.submit(4, limit_s=80, queue="q")
    cluster.cycle()
    head = cluster.submit(12, nodes=1, queue="q")
    pair = cluster.submit(6, nodes=2, queue="q")
    small = cluster.submit(4, limit_s=51, queue="q")
    plan = cluster.cycle()
    assert head not in reserves_of(plan), "no node has 12"
    assert reserves_of(plan)[pair].start_ms == 50_000
    assert small not in places_of(plan), "it would still hold quota that the pair needs"
    shorter = cluster.submit(4, limit_s=50, queue="q")
    assert shorter in places_of(cluster.cycle())


def test_quota_that_another_queue_borrows_comes_back_when_its_job_ends():
    queues = (a_queue("top"), a_queue("a", "top", gpu=(8,)), a_queue("b", "top", gpu=(8,)))
    cluster = Cluster(*hosts(2), *queues, policy=WAITING)
    cluster.now_ms = 0
    cluster.submit(6, nodes=2, limit_s=70, queue="b")
    cluster.cycle()
    mine = cluster.submit(1, nodes=2, queue="a", priority=1)
    mine_too = cluster.submit(3, nodes=2, queue="a")
    plan = cluster.cycle()
    assert mine in places_of(plan)
    assert reserves_of(plan)[mine_too].start_ms == 70_000


def test_topology_is_part_of_a_reservation():
    """Two nodes are free at 50 s, but of one rack only at 80 s."""
    nodes = [a_host(f"n{i}", topology=f"rack=r{i // 2}") for i in range(4)]
    cluster = Cluster(*nodes)
    cluster.now_ms = 0
    for limit_s in (50, 80, 50, 90):
        cluster.submit(8, limit_s=limit_s)
        cluster.cycle()
    gang = cluster.submit(8, nodes=2, level="rack", required=True)
    loose = cluster.submit(8, nodes=2, queue="default", priority=-1)
    plan = cluster.cycle()
    reserve = reserves_of(plan)[gang]
    assert reserve.start_ms == 80_000
    assert [member.node for member in reserve.members] == ["n0", "n1"]
    assert cluster.why(loose).earliest_start_ms == 90_000


def test_groups_of_a_gang_are_reserved_together():
    from shoal.model.job import GpuAsk, GroupSpec
    from shoal.model.values import CountRange

    cluster = Cluster(*hosts(2, cpus=8))
    cluster.now_ms = 0
    cluster.submit(8, limit_s=40, cpus=8)
    cluster.submit(8, limit_s=60, cpus=8)
    cluster.cycle()
    groups = (GroupSpec(name="lead", cpus=4, gpus=GpuAsk(count=0)), GroupSpec(name="work", gpus=GpuAsk(count=8), nodes=CountRange(2, 2)))
    gang = cluster.submit(0, groups=groups)
    assert reserves_of(cluster.cycle())[gang].start_ms == 60_000


def test_reservations_stand_while_the_world_does():
    cluster = Cluster(*hosts(4), policy=CONSERVATIVE)
    for limit_s in (100, 200, 300, 400):
        cluster.submit(8, limit_s=limit_s)
        cluster.cycle()
    for _ in range(6):
        cluster.submit(8, nodes=2, limit_s=30)
    first = reserves_of(cluster.cycle())
    for later_ms in (10_000, 50_000, 99_000):
        cluster.now_ms = 1_000 + later_ms
        assert reserves_of(cluster.cycle()) == first


def test_a_job_without_a_limit_never_ends_and_its_room_is_not_waited_for():
    cluster = Cluster(*hosts(2))
    cluster.submit(8)
    cluster.submit(8, limit_s=100)
    cluster.cycle()
    pair, small = cluster.submit(8, nodes=2), cluster.submit(8, limit_s=30)
    plan = cluster.cycle()
    assert not places_of(plan)
    assert pair not in reserves_of(plan)
    assert reserves_of(plan)[small].start_ms == 101_000
    why = cluster.why(pair)
    assert why.earliest_start_ms is None
    assert any("no time limit" in hint for hint in why.hints)


def test_room_on_its_way_back_is_waited_for_and_nobody_long_takes_it():
    """What is being stopped has no end that is known, but gives back before anything else."""
    cluster = Cluster(*hosts(2))
    ending = cluster.submit(8)
    cluster.cycle()
    cluster.change_job(ending, state=JobState.CANCELLING)
    pair, small = cluster.submit(8, nodes=2), cluster.submit(8, limit_s=5)
    plan = cluster.cycle()
    assert reserves_of(plan)[pair].start_ms == cluster.now_ms
    assert not cluster.gpus_of(small)
    reasons = {reason.code: reason for reason in cluster.why(pair).reasons}
    assert reasons[ReasonCode.EXPECTED].message == "starts as soon as job 1 has given back what it holds"


def test_room_on_a_silent_node_is_not_waited_for():
    from msgspec.structs import replace

    cluster = Cluster(*hosts(1))
    runs = cluster.submit(8, limit_s=100)
    cluster.cycle()
    held = next(a for a in cluster.allocations.values() if a.job == runs)
    cluster.put(replace(held, state=AllocationState.LOST))
    job = cluster.submit(8)
    assert job not in reserves_of(cluster.cycle())


def test_no_room_is_kept_for_a_start_past_the_window():
    cluster = Cluster(*hosts(2), policy=Policy(reserve_window_ms=60_000))
    cluster.submit(8, limit_s=100)
    cluster.cycle()
    pair, small = cluster.submit(8, nodes=2), cluster.submit(8, limit_s=200)
    plan = cluster.plan()
    assert pair not in reserves_of(plan)
    assert small in places_of(plan)
    assert cluster.why(pair).earliest_start_ms == 201_000


def test_an_earliest_start_names_the_jobs_it_goes_by():
    cluster = Cluster(*hosts(2))
    cluster.submit(8, limit_s=100)
    cluster.submit(8, limit_s=200)
    cluster.cycle()
    pair = cluster.submit(8, nodes=2)
    reasons = {reason.code: reason for reason in cluster.why(pair).reasons}
    assert reasons[ReasonCode.EXPECTED].message == (
        "starts in 3m20s at the earliest that is known, when jobs 1, 2 will have ended by time limit"
    )
    assert reasons[ReasonCode.EXPECTED].blockers == ("1", "2")
    assert reasons[ReasonCode.EXPECTED].until_ms == 201_000


def test_a_job_that_fits_but_is_kept_out_is_told_for_whom():
    cluster = Cluster(*hosts(2))
    cluster.submit(8, limit_s=100)
    cluster.cycle()
    cluster.submit(8, nodes=2, limit_s=50)
    long = cluster.submit(8, limit_s=500)
    cluster.cycle()
    why = cluster.why(long)
    assert why.reasons[0].code is ReasonCode.RESERVED
    assert why.reasons[0].blockers == ("2",)
    assert why.earliest_start_ms == 151_000


def test_a_job_that_overran_its_limit_is_expected_any_moment():
    cluster = Cluster(*hosts(1))
    cluster.submit(8, limit_s=10)
    cluster.cycle()
    cluster.now_ms += 50_000
    job = cluster.submit(8)
    assert reserves_of(cluster.cycle())[job].start_ms == cluster.now_ms


def test_a_nodes_many_ends_are_thinned_out_and_room_is_never_told_too_early():
    """64 jobs of one core, a second apart: the start told for half the node is at most a sixteenth too late, and never too early."""
    cluster = Cluster(a_host("n0", 0, cpus=64))
    cluster.now_ms = 0
    for at in range(64):
        cluster.submit(0, cpus=1, limit_s=100 + at)
    cluster.cycle()
    head = cluster.submit(0, cpus=30)
    start_ms = reserves_of(cluster.cycle())[head].start_ms
    assert 129_000 <= start_ms <= 133_000


def test_a_shape_that_no_node_has_room_for_is_not_tried_again_until_one_has_although_room_is_kept_for_another():
    cluster = Cluster(*hosts(2), policy=WAITING)
    first, _ = (cluster.submit(6, limit_s=3_600) for _ in range(2))
    cluster.cycle()
    big, late = cluster.submit(8, nodes=2, limit_s=600), cluster.submit(4, limit_s=7_200)
    plan = cluster.cycle()
    assert list(reserves_of(plan)) == [big]
    assert plan.counters["attempts"] == 2
    cluster.cycle()  # its need is new in the first; from the second on the table says what there was before anything was kept
    assert cluster.cycle().counters["attempts"] == 0, "nothing has moved"
    cluster.end(first)
    plan = cluster.cycle()
    assert late not in places_of(plan), "there is room now, but it would still run when the big one starts"
    assert plan.counters["attempts"] == 2


def test_who_finds_room_but_would_delay_a_reservation_is_tried_again_each_time():
    cluster = Cluster(*hosts(2), policy=WAITING)
    cluster.submit(6, limit_s=3_600)
    cluster.cycle()
    cluster.submit(8, nodes=2, limit_s=600)
    cluster.submit(4, limit_s=7_200)
    assert [cluster.cycle().counters["attempts"] for _ in range(2)] == [2, 1]


def test_a_reservation_that_is_remembered_is_the_one_that_a_new_board_finds():
    rng, cluster, remembered = Rng(5), Cluster(*hosts(6), policy=WAITING), 0
    for step in range(150):
        size = 1 + rng.below(8)
        cluster.submit(size, nodes=1 + rng.below(6), limit_s=30 + rng.below(300), cpus=size, memory=size)
        if step % 7 == 6:
            cluster.change_node("n0", state=NodeState.CORDONED if step % 2 else NodeState.READY)
        if step % 11 == 10:
            start_s = cluster.now_ms // 1_000 + 50 + rng.below(300)
            cluster.put(a_reservation("wires", start_s, start_s + 60, nodes=(f"n{rng.below(6)}",)))
        anew = schedule(Board.of(cluster.snapshot()), WAITING, cluster.now_ms, Rng(cluster.version))
        before = cluster.board.recall
        plan = cluster.cycle()
        remembered += bool(reserves_of(plan)) and cluster.board.recall is before
        assert (places_of(plan), reserves_of(plan)) == (places_of(anew), reserves_of(anew))
        if step % 3 == 2:
            cluster.pass_time(cluster.now_ms + rng.below(200_000))
    assert remembered > 20


def test_who_has_ended_before_another_reservation_begins_is_not_counted_with_it():
    """
    SMALL ends as GANG begins, and MID runs through both. Quota takes SMALL with MID and MID with GANG: so SMALL starts at once, and is
    not told a start that the next cycle takes back.
    """
    queues = (a_queue("top", gpu=(20,)), a_queue("q", "top", gpu=(12, 0)), a_queue("other", "top", gpu=(4,)))
    cluster = Cluster(*hosts(5, 4), *queues, policy=Policy(preempt=False, reserve="conservative"))
    cluster.now_ms = 0
    for gpus, limit_s in ((2, 2), (1, 2), (4, 2), (3, 3), (3, 3)):
        cluster.submit(gpus, queue="other", limit_s=limit_s)
    cluster.cycle()
    asks = ((4, 2, 3), (1, 1, 3), (2, 1, 1), (3, 1, 3), (1, 1, 2))
    gang, _, _, mid, small = [cluster.submit(gpus, nodes=nodes, queue="q", limit_s=limit_s) for gpus, nodes, limit_s in asks]
    plan = cluster.cycle()
    assert small in places_of(plan)
    assert {job: made.start_ms for job, made in reserves_of(plan).items()} == {gang: 2_000, mid: 1_000}

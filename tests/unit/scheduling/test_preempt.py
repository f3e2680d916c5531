"""Who is stopped for whom: cases C6, C7, C9-C12, C21, C23, C24, C26 and C28 of the specification, costs, claims, and that it settles."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.model.job import JobState
from shoal.model.plan import Evict
from shoal.model.reason import ReasonCode
from shoal.model.values import Duration
from shoal.scheduling.policy import Policy
from shoal.testing.clusters import Cluster, a_host, a_queue, places_of, reserves_of


def hosts(count: int, gpus: int = 8, **fields: object) -> list[object]:
    return [a_host(f"n{i}", gpus, **fields) for i in range(count)]


def evicts_of(plan) -> dict[str, Evict]:
    return {decision.job: decision for decision in plan.decisions if isinstance(decision, Evict)}


def test_c6_preempt_and_readmit_for_ever():
    cluster = Cluster(
        *hosts(10, 30), a_queue("top"), a_queue("A", "top", gpu=(150,)), a_queue("B", "top", gpu=(150,)), a_queue("BE", "top", gpu=(0,))
    )
    a1 = cluster.submit(25, nodes=10, queue="A")
    be1 = cluster.submit(5, nodes=10, queue="BE")
    cluster.cycle()
    assert cluster.gpus_of(a1) == 250
    assert cluster.gpus_of(be1) == 50
    a2 = cluster.submit(5, nodes=10, queue="A", priority=1)
    for _ in range(200):
        cluster.cycle()
        cluster.free()
    assert cluster.evicted == [a1]
    assert cluster.gpus_of(a2) == 50
    assert cluster.gpus_of(be1) == 50


def fair_swap(asked: int) -> tuple[int, int, int]:
    cluster = Cluster(*hosts(1), a_queue("top"), a_queue("lender", "top", gpu=(8,)), a_queue("P1", "top", gpu=(0,)), a_queue("P2", "top"))
    cluster.put(a_queue("P2", "top", gpu=(0,)))
    for _ in range(4):
        cluster.submit(2, queue="P1")
    cluster.cycle()
    cluster.submit(asked, queue="P2")
    for _ in range(200):
        cluster.cycle()
        cluster.free()
    return len(cluster.evicted), cluster.gpus_in("P1"), cluster.gpus_in("P2")


def test_c7_fair_swap_once():
    assert fair_swap(4) == (2, 4, 4)


def test_c7_variant_one_stays_idle_rather_than_flap():
    assert fair_swap(3) == (2, 4, 3)


def test_c9_a_failed_preemption_touches_nobody_and_names_who_is_not_preemptible():
    cluster = Cluster(*hosts(2))
    fixed = cluster.submit(8, preemptible=False)
    for _ in range(4):
        cluster.submit(2)
    cluster.cycle()
    high = cluster.submit(8, nodes=2, priority=10)
    for _ in range(5):
        cluster.cycle()
    assert not cluster.evicted
    assert any(cluster.jobs[fixed].address in hint and "not preemptible" in hint for hint in cluster.why(high).hints)


def test_c10_free_plus_freed():
    cluster = Cluster(*hosts(2, 1))
    low = cluster.submit(1)
    cluster.cycle()
    high = cluster.submit(1, nodes=2, priority=10)
    cluster.settle()
    assert cluster.evicted == [low]
    assert cluster.gpus_of(high) == 2


def test_c11_no_node_can_offer_enough_below_its_priority():
    cluster = Cluster(*hosts(4))
    for _ in range(4):
        cluster.submit(6, priority=10)
    cluster.cycle()
    for _ in range(4):
        cluster.submit(2)
    cluster.cycle()
    mid = cluster.submit(8, priority=5)
    for _ in range(5):
        cluster.cycle()
    assert not cluster.evicted
    assert any("below priority 5" in hint and "2 " in hint for hint in cluster.why(mid).hints)


def test_c12_hard_topology_survives_preemption():
    cluster = Cluster(*(a_host(f"n{i}", 1, topology=f"rack=r{i // 2}") for i in range(4)))
    lows = [cluster.submit(1, avoid=("n1", "n2", "n3")), cluster.submit(1, avoid=("n0", "n1", "n3"))]
    cluster.cycle()
    assert [cluster.nodes_of(low) for low in lows] == [("n0",), ("n2",)]
    high = cluster.submit(1, nodes=2, priority=10, level="rack", required=True)
    cluster.settle()
    assert len(cluster.evicted) == 1
    assert cluster.nodes_of(high) in (("n0", "n1"), ("n2", "n3"))


def test_c21_zero_weights_and_equal_claims_do_not_displace():
    cluster = Cluster(
        *hosts(1, 4),
        a_queue("top"),
        a_queue("C", "top", gpu=(4,)),
        a_queue("A", "top", gpu=(0,), weight=0),
        a_queue("B", "top", gpu=(0,), weight=0),
    )
    cluster.submit(4, queue="A")
    cluster.cycle()
    cluster.submit(4, queue="B")
    for _ in range(1_000):
        cluster.cycle()
    assert not cluster.evicted


def test_c23_siblings_meet_at_their_fair_share():
    cluster = Cluster(*hosts(1), a_queue("parent", gpu=(8,)), a_queue("a", "parent"), a_queue("b", "parent"))
    for _ in range(8):
        cluster.submit(1, queue="a")
    cluster.cycle()
    for _ in range(6):
        cluster.submit(1, queue="b")
    cluster.settle()
    assert (cluster.gpus_in("a"), cluster.gpus_in("b"), len(cluster.evicted)) == (4, 4, 4)


def test_c24_all_victims_in_one_plan():
    cluster = Cluster(*hosts(4))
    lows = [cluster.submit(8) for _ in range(4)]
    cluster.cycle()
    high = cluster.submit(8, nodes=4, priority=10)
    assert sorted(evicts_of(cluster.cycle())) == sorted(lows)
    cluster.free()
    cluster.cycle()
    assert cluster.gpus_of(high) == 32


def test_c24_variant_nobody_is_stopped_for_what_can_never_be():
    cluster = Cluster(*hosts(4))
    for _ in range(4):
        cluster.submit(8)
    cluster.cycle()
    cluster.submit(8, nodes=5, priority=10)
    for _ in range(20):
        cluster.cycle()
    assert not cluster.evicted


def test_c26_fit_beats_hopeless_preemption():
    cluster = Cluster(a_host("n0", 4, "a100"), a_host("n1", 4, "h100"))
    cluster.submit(4, models=("a100",), preemptible=False)
    cluster.cycle()
    job = cluster.submit(4, models=("a100", "h100"), priority=5)
    assert job in places_of(cluster.cycle())


def test_c28_what_is_being_freed_counts():
    cluster = Cluster(*hosts(2))
    ending, low = cluster.submit(8), cluster.submit(8)
    cluster.cycle()
    cluster.change_job(ending, state=JobState.COMPLETING)
    high = cluster.submit(8, priority=10, tolerance=Duration(30_000))
    cluster.cycle()
    assert not cluster.evicted
    cluster.now_ms += 10_000
    cluster.end(ending)
    cluster.cycle()
    assert cluster.gpus_of(high) == 8
    assert cluster.gpus_of(low) == 8


def test_who_would_rather_wait_does_not_preempt_for_what_comes_soon_enough():
    def evicted(tolerance_s: int) -> int:
        cluster = Cluster(*hosts(2), policy=Policy(patience_max_ms=0))
        cluster.submit(8, limit_s=10, priority=20)
        cluster.submit(8)
        cluster.cycle()
        cluster.submit(8, priority=10, tolerance=Duration(tolerance_s * 1_000))
        cluster.cycle()
        return len(cluster.evicted)

    assert (evicted(30), evicted(5)) == (0, 1)


def waits_for_a_known_start(limit_s: int, **policy: int) -> bool:
    """A node ends in `limit_s`; another is held by a job that has run for 20 minutes since its checkpoint and needs 10 to come back."""
    cluster = Cluster(*hosts(2), policy=Policy(**policy))
    cluster.now_ms = 1_200_000
    ending, low = cluster.submit(8, limit_s=limit_s, priority=20), cluster.submit(8)
    cluster.cycle()
    cluster.change_job(low, started_ms=0)
    cluster.change_job(ending, started_ms=cluster.now_ms)
    cluster.submit(8, priority=10)
    plan = cluster.cycle()
    assert bool(reserves_of(plan)), "it waits for room that is kept, or room is freed for it"
    return not cluster.evicted


def test_patience_waits_for_a_known_start_where_that_costs_less_than_stopping():
    """(start - now) x 8 GPUs against (20 + 10 min) x 8 GPUs, and never longer than ten minutes."""
    assert waits_for_a_known_start(599)
    assert not waits_for_a_known_start(601)
    assert waits_for_a_known_start(1_799, patience_max_ms=7_200_000)
    assert not waits_for_a_known_start(1_801, patience_max_ms=7_200_000)
    assert not waits_for_a_known_start(60, patience_max_ms=0)


def test_patience_holds_for_a_guarantee_too():
    def evicted(limit_s: int) -> int:
        cluster = Cluster(*hosts(2), a_queue("top"), a_queue("A", "top", gpu=(8,)), a_queue("B", "top", gpu=(0,)))
        for _ in range(2):
            cluster.submit(8, queue="B", limit_s=limit_s)
        cluster.cycle()
        cluster.submit(8, queue="A")
        cluster.cycle()
        return len(cluster.evicted)

    assert (evicted(300), evicted(1_200)) == (0, 1)


def test_the_second_of_a_queue_has_patience_too_and_its_room_is_kept():
    cluster = Cluster(*hosts(2))
    for _ in range(2):
        cluster.submit(8, limit_s=300, priority=20)
    cluster.cycle()
    both = [cluster.submit(8, priority=10, nodes=n) for n in (1, 1)]
    assert set(reserves_of(cluster.cycle())) >= {both[0]}
    assert not cluster.evicted


def test_nobody_is_stopped_before_he_has_run_as_long_as_his_queue_lets_everybody():
    cluster = Cluster(*hosts(1), a_queue("q", min_run_ms=600_000))
    low = cluster.submit(8, queue="q")
    cluster.cycle()
    cluster.change_job(low, started_ms=cluster.now_ms, state=JobState.RUNNING)
    high = cluster.submit(8, queue="q", priority=1)
    may_ms = cluster.now_ms + 600_000
    plan = cluster.cycle()
    assert not evicts_of(plan)
    assert plan.next_at_ms == may_ms, "time alone brings the right, so the cycle wants to be asked then"
    cluster.now_ms = may_ms - 1
    assert not evicts_of(cluster.cycle())
    cluster.now_ms = may_ms
    assert list(evicts_of(cluster.cycle())) == [low]
    cluster.free()
    cluster.cycle()
    assert cluster.gpus_of(high) == 8


def test_the_policy_says_how_long_where_the_queue_does_not():
    def evicted(policy_ms: int, **queue: int) -> int:
        cluster = Cluster(*hosts(1), a_queue("q", **queue), policy=Policy(min_run_ms=policy_ms))
        low = cluster.submit(8, queue="q")
        cluster.cycle()
        cluster.change_job(low, started_ms=cluster.now_ms, state=JobState.RUNNING)
        cluster.now_ms += 60_000
        cluster.submit(8, queue="q", priority=1)
        cluster.cycle()
        return len(cluster.evicted)

    assert (evicted(0), evicted(60_001), evicted(60_001, min_run_ms=0), evicted(0, min_run_ms=60_000)) == (1, 0, 1, 1)


def test_an_array_stops_no_more_than_its_limit_lets_it_use():
    cluster = Cluster(*hosts(4, 2))
    lows = [cluster.submit(2) for _ in range(4)]
    cluster.cycle()
    cluster.submit_array("0-3%2", 2, priority=1)
    for _ in range(6):
        cluster.cycle()
    assert len(cluster.evicted) == 2
    cluster.free()
    for _ in range(6):
        cluster.cycle()
    assert len(cluster.evicted) == 2
    assert sum(cluster.gpus_of(low) for low in lows) == 4


def test_victims_are_those_that_lose_least_work():
    """(8 GPUs, 50 min since its checkpoint), (8, 5), (16, 2); restart 10 min: 480, 120 and 192 GPU-minutes; arithmetic section 16."""
    cluster = Cluster(*hosts(2, 16))
    minute = 60_000
    cluster.now_ms = 100 * minute
    jobs = [cluster.submit(8), cluster.submit(8), cluster.submit(16)]
    cluster.cycle()
    for job, since in zip(jobs, (50, 5, 2), strict=True):
        cluster.change_job(job, started_ms=0, checkpointed_ms=(100 - since) * minute)
    cluster.submit(8, priority=1)
    cluster.cycle()
    assert cluster.evicted == [jobs[1]]


def test_who_reports_no_checkpoints_is_charged_as_the_median_of_its_queue():
    cluster = Cluster(*hosts(3))
    jobs = [cluster.submit(8) for _ in range(3)]
    cluster.cycle()
    cluster.now_ms = 10_000_000
    for job, saved_ms in zip(jobs, (5_000_000, 6_000_000, None), strict=True):
        cluster.change_job(job, started_ms=0, checkpointed_ms=saved_ms)
    cluster.submit(8, priority=1)
    cluster.cycle()
    assert cluster.evicted == [jobs[1]], "silence is neither spared nor punished"


def test_who_has_reported_nothing_since_its_start_is_charged_as_the_median_too():
    """A checkpoint of an attempt before this one is no word about this one: else to report once would make dear for ever."""
    cluster = Cluster(*hosts(4))
    jobs = [cluster.submit(8) for _ in range(4)]
    cluster.cycle()
    cluster.now_ms = 10_000_000
    for job, saved_ms in zip(jobs, (8_000_000, 7_500_000, 6_000_000, 900_000), strict=True):
        cluster.change_job(job, started_ms=1_000_000, checkpointed_ms=saved_ms)
    for _ in range(3):
        cluster.submit(8, priority=1)
    cluster.cycle()
    assert cluster.evicted == [jobs[0], jobs[1], jobs[3]], "the last counts as the second, 7,500 s"


def test_why_tells_what_is_saved_and_who_may_save_before_it_is_stopped():
    cluster = Cluster(*hosts(1))
    low = cluster.submit(8)
    cluster.cycle()
    cluster.change_job(low, state=JobState.RUNNING, started_ms=cluster.now_ms)
    cluster.now_ms += 600_000
    cluster.change_job(low, checkpointed_ms=cluster.now_ms - 90_000)
    assert cluster.why(low).headline.endswith("; saved 1m30s ago")
    high = cluster.submit(8, priority=1)
    cluster.cycle()
    reason = cluster.jobs[low].reason
    assert reason is not None
    assert "may save" not in cluster.why(high).headline
    cluster.change_job(low, reason=replace(reason, until_ms=cluster.now_ms + 120_000))
    assert cluster.why(high).headline.endswith("; 1 may save first, for up to 2m")
    assert "left time to save" in cluster.why(low).headline


def test_the_freed_room_goes_to_the_preemptor_alone():
    cluster = Cluster(*hosts(1))
    low = cluster.submit(8)
    cluster.cycle()
    high = cluster.submit(8, priority=1)
    plan = cluster.cycle()
    assert list(reserves_of(plan)) == [high]
    assert evicts_of(plan)[low].beneficiary == high
    assert "job 2 of its queue" in evicts_of(plan)[low].reason.message
    higher = cluster.submit(8, priority=2)
    cluster.free()
    why = cluster.why(high)
    assert why.reasons[0].code is ReasonCode.FREEING
    cluster.cycle()
    assert cluster.gpus_of(high) == 8
    assert not cluster.claims
    assert cluster.gpus_of(higher) == 0


def test_while_its_room_is_freed_nobody_preempts_twice_for_it():
    cluster = Cluster(*hosts(2))
    for _ in range(2):
        cluster.submit(8)
    cluster.cycle()
    cluster.submit(8, priority=1)
    for _ in range(5):
        cluster.cycle()
    assert len(cluster.evicted) == 1


def test_nothing_started_in_a_cycle_is_stopped_in_it():
    cluster = Cluster(*hosts(1, 4))
    small, big = cluster.submit(2, priority=5), cluster.submit(4, priority=4)
    low = cluster.submit(2)
    plan = cluster.cycle()
    assert {small, low} <= set(places_of(plan))
    assert not evicts_of(plan)
    assert big


def test_a_guarantee_is_taken_back_whole_from_who_borrowed_it():
    """Two of B's six are borrowed, and they are one gang: it goes, since A is owed its eight."""
    cluster = Cluster(*hosts(6, 2), a_queue("top"), a_queue("A", "top", gpu=(8,)), a_queue("B", "top", gpu=(4,)))
    cluster.submit(1, nodes=6, queue="B")
    cluster.cycle()
    a = cluster.submit(2, nodes=4, queue="A")
    cluster.settle()
    assert len(cluster.evicted) == 1
    assert cluster.gpus_of(a) == 8


def test_preemption_can_be_turned_off():
    cluster = Cluster(*hosts(1), policy=Policy(preempt=False))
    cluster.submit(8)
    cluster.cycle()
    cluster.submit(8, priority=1)
    assert not evicts_of(cluster.cycle())


def test_what_is_owed_to_the_last_of_many_asks_is_taken_back_too_once_those_before_it_are_known():
    """
    Its queue asks for more than its guarantee six times, which gives no right to anything, and behind that for just that much.

    All of them are known not to fit when the time comes at which somebody may be stopped.
    """
    queues = a_queue("top"), a_queue("mine", "top", gpu=(2,)), a_queue("other", "top", gpu=(14,), min_run_ms=300_000)
    cluster = Cluster(*hosts(2), *queues)
    for _ in range(16):
        cluster.submit(1, queue="other")
    cluster.cycle()
    for job in tuple(cluster.jobs.values()):
        cluster.change_job(job.id, state=JobState.RUNNING, started_ms=cluster.now_ms)
    for gpus in range(3, 9):
        cluster.submit(gpus, queue="mine")
    owed = cluster.submit(2, queue="mine")
    while not cluster.evicted:
        plan = cluster.cycle()
        assert cluster.evicted or plan.next_at_ms is not None, "nobody else would ask for another cycle"
        cluster.now_ms = max(cluster.now_ms, plan.next_at_ms or 0)
    assert {evict.beneficiary for evict in evicts_of(plan).values()} == {owed}
    assert 300_000 <= cluster.now_ms <= 303_000

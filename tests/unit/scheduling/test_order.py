"""Whose turn it is: between queues by fair share, inside one by priority, age and number."""

from __future__ import annotations

import gc

import pytest

from shoal.base.rng import Rng
from shoal.model.reason import ReasonCode
from shoal.scheduling.cycle import schedule
from shoal.scheduling.policy import Policy
from shoal.testing.clusters import Cluster, a_host, a_queue, places_of


def shares(capacity: int, queues: list, demand: dict[str, int], policy: Policy | None = None) -> dict[str, int]:
    """GPUs by queue after one-GPU jobs have filled a fleet of so many GPUs."""
    cluster = Cluster(*(a_host(f"n{i}", min(8, capacity - 8 * i)) for i in range(-(-capacity // 8))), *queues, policy=policy)
    for name, count in demand.items():
        cluster.put(*(cluster.new_job(1, queue=name) for _ in range(count)))
    cluster.settle()
    return {name: cluster.gpus_in(name) for name in demand}


@pytest.mark.parametrize(
    ("capacity", "queues", "demand", "want"),
    [
        pytest.param(16, [a_queue("a"), a_queue("b")], {"a": 40, "b": 40}, {"a": 8, "b": 8}, id="equal weights share equally"),
        pytest.param(
            100,
            [a_queue("a", weight=3000), a_queue("b", weight=2000), a_queue("c", weight=1000)],
            {"a": 70, "b": 30, "c": 40},
            {"a": 52, "b": 30, "c": 18},
            id="a satisfied queue's rest goes by weight (52.5, 30, 17.5)",
        ),
        pytest.param(
            128,
            [a_queue("top"), *(a_queue(n, "top", gpu=(q,), weight=q * 1000) for n, q in zip("abcd", (48, 32, 32, 16), strict=True))],
            {"a": 90, "b": 10, "c": 40, "d": 30},
            {"a": 59, "b": 10, "c": 39, "d": 20},
            id="guarantees first, then the rest by weight (59, 10, 39.33, 19.67)",
        ),
        pytest.param(
            100,
            [a_queue("top", gpu=(80,)), a_queue("a", "top", gpu=(10,), weight=3000), a_queue("b", "top", gpu=(10,), weight=1000)],
            {"a": 100, "b": 100},
            {"a": 70, "b": 30},
            id="10+10 guaranteed of 100, weights 3:1, give 70/30",
        ),
        pytest.param(
            8, [a_queue("a", weight=0), a_queue("b")], {"a": 8, "b": 5}, {"a": 3, "b": 5}, id="weight 0 takes what nobody else wants"
        ),
        pytest.param(
            12,
            [a_queue("x"), a_queue("x1", "x"), a_queue("x2", "x"), a_queue("y")],
            {"x1": 20, "x2": 20, "y": 20},
            {"x1": 3, "x2": 3, "y": 6},
            id="splitting a queue in two gains nothing",
        ),
        pytest.param(
            12, [a_queue("x"), a_queue("x1", "x")], {"x": 20, "x1": 20}, {"x": 6, "x1": 6}, id="a parent's own jobs share with its children"
        ),
    ],
)
def test_shares(capacity, queues, demand, want):
    assert shares(capacity, queues, demand) == want


def test_the_order_in_which_queues_are_listed_changes_no_share():
    """Arithmetic section 0, finding 9: a documented fair-share loop gives 83.8/16.2 in one order and 70/30 in another."""
    queues = [a_queue("top", gpu=(80,)), a_queue("a", "top", gpu=(10,), weight=3000), a_queue("b", "top", gpu=(10,), weight=1000)]
    demand = {"a": 100, "b": 100}
    assert shares(100, queues, demand) == shares(100, queues[::-1], dict(reversed(demand.items())))


def test_the_dominant_resource_counts():
    """DRF: cpu-heavy and memory-heavy users, 9 cores and 18 GiB; (1 core, 4 GiB) x 3 and (3 cores, 1 GiB) x 2."""
    cluster = Cluster(a_host("n0", 0, cpus=9, memory=18), a_queue("a"), a_queue("b"))
    jobs = {"a": [cluster.submit(0, cpus=1, memory=4, queue="a") for _ in range(5)]}
    jobs["b"] = [cluster.submit(0, cpus=3, memory=1, queue="b") for _ in range(5)]
    cluster.settle()
    assert {name: sum(job in cluster.running() for job in mine) for name, mine in jobs.items()} == {"a": 3, "b": 2}


def test_inside_a_queue_priority_then_age_then_number_decides():
    cluster = Cluster(a_host("n0", 1))
    late = cluster.submit(1, queued_ms=20)
    early = cluster.submit(1, queued_ms=10)
    same = cluster.submit(1, queued_ms=20)
    urgent = cluster.submit(1, queued_ms=30, priority=5)
    order = []
    for _ in range(4):
        cluster.cycle()
        (running,) = cluster.running()
        order.append(running)
        cluster.end(running)
    assert order == [urgent, early, late, same]


def test_raising_a_queued_jobs_priority_changes_the_order_in_the_next_cycle():
    """Platform case 43."""
    cluster = Cluster(a_host("n0", 1))
    runner = cluster.submit(1)
    cluster.cycle()
    first, second = cluster.submit(1), cluster.submit(1)
    assert (cluster.why(first).position, cluster.why(second).position) == (1, 2)
    cluster.change_job(second, priority=10)
    assert (cluster.why(first).position, cluster.why(second).position) == (2, 1)
    cluster.end(runner)
    cluster.cycle()
    assert cluster.running() == (second,)


@pytest.mark.parametrize(("across", "want"), [(False, {"a": 4, "b": 4}), (True, {"a": 0, "b": 8})])
def test_priority_reaches_across_queues_only_by_policy(across, want):
    cluster = Cluster(a_host("n0"), a_queue("a"), a_queue("b"), policy=Policy(priority_across_queues=across))
    for name, priority in (("a", 0), ("b", 9)):
        cluster.put(*(cluster.new_job(1, queue=name, priority=priority) for _ in range(8)))
    cluster.cycle()
    assert {name: cluster.gpus_in(name) for name in want} == want


def test_best_effort_lets_others_pass_a_job_that_does_not_fit():
    cluster = Cluster(a_host("n0", 4))
    cluster.submit(8)
    small = cluster.submit(1)
    cluster.cycle()
    assert cluster.running() == (small,)


def test_a_strict_queue_stops_at_its_head():
    cluster = Cluster(a_host("n0"), a_queue("q", order="strict"), a_queue("other"))
    runner = cluster.submit(4, queue="other")
    cluster.cycle()
    head, small = cluster.submit(8, queue="q"), cluster.submit(1, queue="q")
    plan = cluster.cycle()
    assert not places_of(plan)
    reason = cluster.why(small).reasons[0]
    assert (reason.code, cluster.why(small).ahead) == (ReasonCode.BEHIND, (cluster.jobs[head].address,))
    cluster.end(runner)
    cluster.cycle()
    assert cluster.running() == (head,)


def test_a_strict_head_holds_back_only_what_could_take_its_model():
    """C5: X is full, Y is free. J1 on X waits; J2 on Y starts at once; J3 on X must not pass J1."""
    cluster = Cluster(a_host("x", 4, "h100"), a_host("y", 4, "a100"), a_queue("q", order="strict"))
    cluster.submit(3, models=("h100",))
    cluster.cycle()
    cluster.submit(4, queue="q", models=("h100",))
    second = cluster.submit(4, queue="q", models=("a100",))
    third = cluster.submit(1, queue="q", models=("h100",))
    cluster.cycle()
    assert cluster.gpus_of(second) == 4
    assert cluster.gpus_of(third) == 0


@pytest.mark.parametrize("without_gpus_first", [False, True])
def test_in_a_strict_queue_a_job_without_gpus_passes_nobody_and_nobody_passes_it(without_gpus_first: bool):
    """Both nodes have too few cores for the head; what stands behind it would fit."""
    cluster = Cluster(a_host("x", 4, cpus=8), a_host("y", 4, "a100", cpus=8), a_queue("q", order="strict"))
    for model in ("h100", "a100"):
        cluster.submit(1, models=(model,), cpus=2)
    cluster.settle()
    asks = [{"gpus": 0, "cpus": 7}, {"gpus": 1, "models": ("a100",)}] if without_gpus_first else [{"gpus": 4}, {"gpus": 0, "cpus": 1}]
    head, behind = (cluster.submit(queue="q", **ask) for ask in asks)
    assert not places_of(cluster.cycle())
    assert cluster.why(behind).ahead == (cluster.jobs[head].address,)
    assert "it is strict" in cluster.why(behind).headline
    cluster.put(a_queue("q"))
    assert list(places_of(cluster.cycle())) == [behind], "best-effort lets it by"


def test_an_array_at_its_limit_holds_up_nobody_in_a_strict_queue():
    cluster = Cluster(a_host("x", 4), a_queue("q", order="strict"))
    _, elements = cluster.submit_array("0-3%1", queue="q")
    behind = cluster.submit(1, queue="q")
    cluster.cycle()
    assert set(cluster.running()) == {elements[0], behind}


def test_one_small_job_passes_two_hundred_that_cannot_be_placed():
    """Platform case 9: the small job starts in the first cycle, and each blocked shape is tried once, not two hundred times."""
    cluster = Cluster(a_host("n0", 4))
    cluster.put(*(cluster.new_job(8, priority=9) for _ in range(200)))
    small = cluster.submit(1)
    plan = cluster.cycle()
    assert cluster.running() == (small,)
    assert plan.counters["attempts"] == 2


def test_a_shape_that_failed_for_one_queue_is_not_tried_for_the_others():
    cluster = Cluster(a_host("n0", 4), *(a_queue(f"q{i}") for i in range(20)))
    cluster.put(*(cluster.new_job(8, queue=f"q{i}") for i in range(20)))
    assert cluster.plan().counters["attempts"] == 1


def test_a_quota_that_leaves_nothing_is_asked_once_per_size_not_once_per_job():
    cluster = Cluster(a_host("n0"), a_queue("q", gpu=(2,)), a_queue("other"))
    cluster.submit(2, queue="q")
    cluster.cycle()
    cluster.put(*(cluster.new_job(gpus, queue="q", cpus=cpus) for cpus in range(1, 8) for gpus in (4, 2, 1)))
    assert cluster.plan().counters["attempts"] <= 3


def test_a_shape_that_failed_is_not_tried_again_until_a_node_may_take_more():
    cluster = Cluster(a_host("n0", 8))
    cluster.submit(4)
    cluster.cycle()
    cluster.submit(8)
    assert cluster.cycle().counters["attempts"] == 1
    other = cluster.submit(1)
    assert cluster.cycle().counters["attempts"] == 1
    cluster.submit(8)
    assert cluster.cycle().counters["attempts"] == 0
    cluster.end(other)
    assert cluster.cycle().counters["attempts"] == 1


def test_ten_thousand_equal_jobs_behind_a_wall_cost_one_try_and_hold_up_nobody():
    """C4: the fleet is full for an hour; a CPU-only job behind 10,000 blocked ones starts at once, and each shape is tried once."""
    cluster = Cluster(a_host("n0"), a_host("n1"))
    cluster.put(*(cluster.new_job(8) for _ in range(10_000)))
    cluster.cycle()
    cpu_only = cluster.submit(0)
    plan = schedule(cluster.board, cluster.policy, cluster.now_ms, Rng(1))
    assert list(places_of(plan)) == [cpu_only]
    assert plan.counters["attempts"] <= 2


def test_a_cycle_leaves_nothing_to_the_garbage_collector():
    """At hundreds of cycles a second, circles of objects would bring a walk over all of memory, and with it the slowest cycles."""
    cluster = Cluster(*(a_host(f"n{i}") for i in range(4)), a_queue("top"), a_queue("a", "top"), a_queue("b", "top", order="strict"))
    for queue in ("a", "b", "default"):
        cluster.put(*(cluster.new_job(gpus, queue=queue) for gpus in (1, 8, 16, 2)))
    gc.collect()
    gc.disable()
    try:
        schedule(cluster.board, cluster.policy, cluster.now_ms, Rng(1))
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_a_job_that_failed_on_room_only_planned_for_is_tried_again():
    """A plan that is not carried out must not leave others believing in it."""
    cluster = Cluster(a_host("n0", 8))
    first, second = cluster.submit(8), cluster.submit(4)
    assert list(places_of(cluster.plan())) == [first]
    cluster.commit((), (cluster.jobs[first],))
    cluster.cycle()
    assert cluster.running() == (second,)

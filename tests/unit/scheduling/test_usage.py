"""Use that decays: closed forms against sums over small steps, and shares that look back."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shoal.base.limits import HALF_LIFE_MS
from shoal.model.attempt import Allocation, AllocationState
from shoal.model.queue import QueueUsage
from shoal.scheduling.order import Contest
from shoal.scheduling.policy import Policy
from shoal.scheduling.usage import UsageBook
from shoal.testing.clusters import Cluster, a_host, a_queue

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
GPU_HOUR = 1_000 * HOUR_MS
"""In the book's unit: thousandths x milliseconds."""


def holding(name: str, begun_ms: int, gpus: int = 1, queue: str = "q") -> Allocation:
    return Allocation(
        id=name,
        job=name,
        job_number=1,
        project="default",
        queue=queue,
        attempt=1,
        node="n",
        node_rank=0,
        devices=tuple(f"{name}-{at}" for at in range(gpus)),
        gpu_model="h100",
        claimed_ms=begun_ms,
    )


def test_half_is_left_after_a_half_life() -> None:
    """arithmetic section 10: 1,000 GPU-hours are 500 after seven days."""
    book = UsageBook()
    burst = holding("a", 0, gpus=8)
    book.begin(burst)
    book.end(burst, 1)  # An instant, so that nothing decays on the way: 8 GPUs for a millisecond.
    assert book.seen("q", 1)["gpu"] == pytest.approx(8_000)
    assert book.seen("q", HALF_LIFE_MS + 1)["gpu"] == pytest.approx(4_000)
    assert book.seen("q", 3 * HALF_LIFE_MS + 1)["gpu"] == pytest.approx(1_000)


def test_steady_use_settles_where_the_formula_says() -> None:
    """arithmetic section 10: 10 GPU-hours a day settle at 101.0."""
    book = UsageBook()
    for day in range(365):
        one = holding(f"d{day}", day * DAY_MS, gpus=10)
        book.begin(one)
        book.end(one, day * DAY_MS + HOUR_MS)
    assert book.seen("q", 365 * DAY_MS)["gpu"] / GPU_HOUR == pytest.approx(10 * 7 / math.log(2), rel=0.08)
    assert 10 * 7 / math.log(2) == pytest.approx(101.0, abs=0.05)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(1, 4)), min_size=1, max_size=8), st.randoms())
def test_the_closed_form_is_the_sum_over_small_steps(spans: list[tuple[int, int, int]], rng: random.Random) -> None:
    """In whatever order starts and ends are heard of, and also while some still run."""
    now_ms, step_ms = 40 * HOUR_MS, HOUR_MS // 50
    book = UsageBook(half_life_ms=10 * HOUR_MS)
    told = []
    for at, (begin, length, gpus) in enumerate(spans):
        one = holding(str(at), begin * HOUR_MS, gpus)
        end_ms = (begin + length) * HOUR_MS
        told.append((one, end_ms))
    order = list(told)
    rng.shuffle(order)
    for one, _ in order:
        book.begin(one)
    for one, end_ms in order:
        if end_ms <= now_ms:
            book.end(one, end_ms)
    rate = math.log(2) / (10 * HOUR_MS)
    summed = 0.0
    for one, end_ms in told:
        for at_ms in range(one.claimed_ms, min(end_ms, now_ms), step_ms):
            summed += len(one.devices) * 1_000 * step_ms * math.exp(-rate * (now_ms - at_ms - step_ms / 2))
    assert book.seen("q", now_ms)["gpu"] == pytest.approx(summed, rel=1e-4)


def test_a_queue_without_anything_running_keeps_no_rounding() -> None:
    book = UsageBook()
    for at in range(1_000):
        one = holding(str(at), at * 1_000, gpus=3)
        book.begin(one)
        book.end(one, at * 1_000 + 700)
    assert book.seen("q", 400 * HALF_LIFE_MS)["gpu"] < 1e-9


def test_what_was_stored_goes_on_after_a_start() -> None:
    book = UsageBook()
    ended, runs = holding("a", 0, gpus=4), holding("b", HOUR_MS, gpus=2)
    book.begin(ended)
    book.begin(runs)
    book.end(ended, 5 * HOUR_MS)
    (record,) = book.to_store(6 * HOUR_MS)
    assert book.to_store(6 * HOUR_MS) == ()
    again = UsageBook()
    again.learn(record)
    again.begin(runs)
    for now_ms in (6 * HOUR_MS, 50 * HOUR_MS, 40 * DAY_MS):
        assert again.seen("q", now_ms)["gpu"] == pytest.approx(book.seen("q", now_ms)["gpu"], rel=1e-6)


def cluster(*queues: object, policy: Policy) -> Cluster:
    return Cluster(a_host("n1", gpus=8), *queues, policy=policy)  # type: ignore[arg-type]


def used(cluster: Cluster, queue: str, gpus: int, hours: int) -> None:
    """Jobs of a queue have used so much until now."""
    amount = gpus * 1_000 * hours * HOUR_MS
    cluster.board.usage.learn(QueueUsage(id=queue, used={"gpu": amount, "gpu/h100": amount}, at_ms=cluster.now_ms))


def turns(cluster: Cluster, count: int) -> list[str]:
    """Whose turn it is, one after another, each placed."""
    cluster.board.begin_cycle(cluster.now_ms)
    contest, found = Contest(cluster.board, cluster.policy), []
    for _ in range(count):
        candidate = contest.next()
        assert candidate is not None
        found.append(candidate.queue)
        cluster.board.quota.add(candidate.queue, (("gpu", 1_000), ("gpu/h100", 1_000)))
        contest.placed()
    return found


@pytest.mark.parametrize("kind", ["decayed", "fair-tree"])
def test_who_has_used_less_of_late_goes_first(kind: str) -> None:
    world = cluster(a_queue("a"), a_queue("b"), policy=Policy(fair_share=kind))  # type: ignore[arg-type]
    used(world, "a", gpus=8, hours=100)
    for queue in ("a", "b"):
        for _ in range(4):
            world.submit(queue=queue)
    assert turns(world, 4)[:2] == ["b", "b"]
    assert turns(cluster_like(world, "dominant"), 4) == ["a", "b", "a", "b"]


def cluster_like(world: Cluster, kind: str) -> Cluster:
    again = cluster(*world.queues.values(), policy=Policy(fair_share=kind))  # type: ignore[arg-type]
    for job in world.jobs.values():
        again.put(replace(job, version=0))
    return again


def test_in_a_fair_tree_all_below_the_better_queue_goes_first() -> None:
    """Slurm's promise: where A ranks above B, every job below A goes before every job below B, however B's own are ranked."""
    world = cluster(
        a_queue("a"), a_queue("b"), a_queue("a1", parent="a"), a_queue("a2", parent="a"), a_queue("b1", parent="b"),
        policy=Policy(fair_share="fair-tree"),
    )  # fmt: skip
    used(world, "a1", gpus=8, hours=50)
    used(world, "b1", gpus=8, hours=60)
    for queue in ("a1", "a2", "b1"):
        for _ in range(2):
            world.submit(queue=queue)
    assert turns(world, 6) == ["a2", "a2", "a1", "a1", "b1", "b1"]


def test_weights_divide_what_was_used() -> None:
    world = cluster(a_queue("a", weight=3_000), a_queue("b", weight=1_000), policy=Policy(fair_share="fair-tree"))
    used(world, "a", gpus=8, hours=20)
    used(world, "b", gpus=8, hours=10)
    for queue in ("a", "b"):
        world.submit(queue=queue)
    assert turns(world, 2) == ["a", "b"]


@settings(max_examples=40)
@given(
    st.permutations(["a", "b", "c", "d"]), st.lists(st.integers(0, 90), min_size=4, max_size=4), st.sampled_from(["decayed", "fair-tree"])
)
def test_the_order_in_which_queues_are_listed_changes_nobodys_turn(order: list[str], hours: list[int], kind: str) -> None:
    def play(names: list[str]) -> list[str]:
        world = cluster(*(a_queue(name) for name in names), policy=Policy(fair_share=kind))  # type: ignore[arg-type]
        for name in names:
            used(world, name, gpus=8, hours=hours["abcd".index(name)])
        for name in sorted(names):
            for _ in range(3):
                world.submit(queue=name)
        return turns(world, 12)

    assert play(order) == play(sorted(order))


def test_the_board_hears_of_starts_and_ends() -> None:
    world = cluster(a_queue("a"), policy=Policy(fair_share="decayed"))
    allocation = replace(holding("j", world.now_ms, gpus=4, queue="a"), node="n1")
    world.put(allocation)
    (held,) = world.allocations.values()
    world.put(replace(held, state=AllocationState.STARTED))  # Nothing is counted twice.
    world.now_ms += HOUR_MS
    (held,) = world.allocations.values()
    world.put(replace(held, state=AllocationState.RELEASED, released_ms=world.now_ms))
    assert world.board.usage.seen("a", world.now_ms)["gpu"] / GPU_HOUR == pytest.approx(4.0, rel=0.01)
    assert list(world.board.usage.changed) == ["a"]

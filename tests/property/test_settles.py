"""
Preemption settles: in random worlds in which nothing arrives any more, a fixed point is reached, and each eviction lowers the measure.

The measure is the vector of how far queues are over their guarantee, sorted downwards, then the negative sum of running priorities; it is
taken where the gang and its victims have all moved, so a victim's loss is judged together with the gang's gain. Moves stop nobody: each
lets one gang more run, of which there are only so many. Patience and least running times only put off what would be done at once, the
first until a known start, the second until a time that the plan names (`next_at_ms`), to which the clock is then set.

Worlds have all of these: priorities, guarantees, weights (0 too), gangs, required domains, time limits (so known starts), jobs that may not
be stopped, least running times, checkpoints, moves. `make settle-long` plays 10,000 of them (`SETTLE_WORLDS`); CI plays 300.
"""

from __future__ import annotations

import os

import pytest

from shoal.base.rng import Rng
from shoal.model.job import JobState
from shoal.model.plan import Evict, Move
from shoal.scheduling.standing import claim_of
from shoal.testing.clusters import Cluster, a_host, a_queue, places_of

WORLDS = int(os.environ.get("SETTLE_WORLDS", "300"))
CYCLES_MAX = 60
BATCH = 100


def a_world(seed: int) -> Cluster:
    """Nodes, a tree of one or two levels with odd weights and guarantees, jobs that come in two waves with a cycle in between."""
    rng = Rng(seed)
    nodes = [a_host(f"n{i}", rng.choice([2, 4, 8]), topology=f"rack=r{i % 2}") for i in range(1 + rng.below(5))]
    names = ["a", "b", "c", "d"][: 2 + rng.below(3)]
    flat = rng.below(3) == 0
    queues = [] if flat else [a_queue("top", gpu=(rng.below(16),)), a_queue("side", "top", weight=1_000 * (1 + rng.below(3)))]
    for at, name in enumerate(names):
        parent = None if flat else rng.choice(["top", "top", "side"])
        quota = {"gpu": (rng.below(9), rng.choice([None, None, 4]))} if rng.below(4) else {}
        young = {"min_run_ms": 300_000} if at == 0 and rng.below(3) == 0 else {}
        queues.append(a_queue(name, parent, weight=1_000 * rng.choice([0, 1, 1, 2, 3]), **quota, **young))
    cluster = Cluster(*nodes, *queues)
    for wave in range(2):
        for _ in range(4 + rng.below(8)):
            first_come = wave == 0 and rng.below(4) > 0
            cluster.now_ms += rng.below(3) * 60_000
            gpus, count = rng.choice([1, 1, 2, 2, 3, 4]), rng.choice([1, 1, 1, 2, 3])
            cluster.submit(
                gpus,
                nodes=count,
                queue=names[0] if first_come else rng.choice(names),
                priority=rng.choice([0, 0, 0, 1, 2]),
                preemptible=rng.below(6) > 0,
                **({"limit_s": 60 * (1 + rng.below(60))} if rng.below(2) else {}),
                **({"level": "rack", "required": True} if rng.below(5) == 0 else {}),
            )
        cluster.cycle()
        cluster.free()
        _let_run(cluster, rng)
    return cluster


def _let_run(cluster: Cluster, rng: Rng) -> None:
    """Everybody placed runs since now; some have saved since."""
    for job in sorted(cluster.jobs.values(), key=lambda job: job.id):
        if job.state is JobState.STARTING:
            saved = {"checkpointed_ms": cluster.now_ms + rng.below(5) * 60_000} if rng.below(2) else {}
            cluster.change_job(job.id, state=JobState.RUNNING, started_ms=cluster.now_ms, **saved)


def run_until_quiet(cluster: Cluster) -> int:
    """Cycles until nothing is placed, moved, stopped or claimed any more, and time alone would bring nothing."""
    for cycle in range(CYCLES_MAX):
        if _is_quiet(cluster):
            return cycle
    raise AssertionError(f"still moving after {CYCLES_MAX} cycles; {len(cluster.evicted)} evictions")


def _is_quiet(cluster: Cluster) -> bool:
    """One more cycle; True if it changed nothing, looked at everybody, and neither a claim nor a time is awaited."""
    plan = cluster.cycle()
    cluster.free()
    still = not any(plan.counters[what] for what in ("placed", "evicted", "moved")) and not cluster.claims
    if still and plan.next_at_ms is not None and plan.next_at_ms > cluster.now_ms:
        cluster.now_ms = plan.next_at_ms
    return still and plan.next_at_ms is None


@pytest.mark.parametrize("first", range(0, WORLDS, BATCH))
def test_a_world_without_arrivals_comes_to_rest(first):
    stopped = moved = 0
    for seed in range(first, min(first + BATCH, WORLDS)):
        cluster = a_world(seed)
        run_until_quiet(cluster)
        stopped, moved = stopped + len(cluster.evicted), moved + len(cluster.moved)
        jobs = len(cluster.jobs)
        assert len(cluster.evicted) <= jobs * 4, (seed, cluster.evicted)
        for _ in range(3):
            plan = cluster.cycle()
            assert not any(isinstance(decision, Evict | Move) for decision in plan.decisions), seed
    assert stopped > 0, "worlds in which nobody is ever stopped prove nothing"
    assert moved > 0 or first > 0, "nor do worlds in which nobody is ever moved, which are a few in each hundred and in some none"


@pytest.mark.parametrize("first", range(0, WORLDS, BATCH))
def test_each_eviction_lowers_the_measure(first):
    looked_at = 0
    for seed in range(first, min(first + BATCH, WORLDS)):
        cluster = a_world(seed)
        for _ in range(CYCLES_MAX):
            plan = cluster.plan()
            gainers = list(dict.fromkeys(d.beneficiary for d in plan.decisions if isinstance(d, Evict)))
            moves = [d for d in plan.decisions if isinstance(d, Move)]
            for gainer in gainers[:1] if not places_of(plan) and not moves else []:  # Others were judged on what these moved.
                victims = [d.job for d in plan.decisions if isinstance(d, Evict) and d.beneficiary == gainer]
                across = [victim for victim in victims if cluster.jobs[victim].queue != cluster.jobs[gainer].queue]
                looked_at += len(across)
                if across:
                    _assert_lower(cluster, gainer, victims, across, seed)
                assert all(cluster.jobs[v].priority < cluster.jobs[gainer].priority for v in victims if v not in across)
            if _is_quiet(cluster):
                break
    assert looked_at > 0


def _assert_lower(cluster: Cluster, gainer: str, victims: list[str], across: list[str], seed: int) -> None:
    """Where the ways part, the furthest over of the two sides is less far over than before, all victims gone."""
    board = cluster.board
    quota, capacity = board.quota, board.columns.capacity
    for victim in across:
        mine, theirs = _apart(cluster, cluster.jobs[gainer].queue, cluster.jobs[victim].queue)
        before = max(claim_of(vertex, capacity) for vertex in (mine, theirs))
        lost = [(cluster.jobs[v].queue, board.horizon.charge_of(v)) for v in victims]
        gpus = board.pending.filed(gainer).lane.state.gpus_least
        gain = (("gpu", gpus * 1_000), ("gpu/h100", gpus * 1_000))
        for queue, charge in lost:
            quota.remove(queue, charge)
        quota.add(cluster.jobs[gainer].queue, gain)
        after = max(claim_of(vertex, capacity) for vertex in (mine, theirs))
        quota.remove(cluster.jobs[gainer].queue, gain)
        for queue, charge in lost:
            quota.add(queue, charge)
        assert after < before, (seed, gainer, victims, before, after)


def _apart(cluster: Cluster, mine: str, theirs: str):
    ways = []
    for name in (mine, theirs):
        way = [cluster.board.quota.vertices[name]]
        while way[-1].parent is not None:
            way.append(way[-1].parent)
        ways.append(way[::-1])
    at = next(i for i, (x, y) in enumerate(zip(*ways, strict=False)) if x is not y)
    return ways[0][at], ways[1][at]


def test_running_jobs_are_whole_in_the_end():
    cluster = a_world(7)
    run_until_quiet(cluster)
    assert not [job for job in cluster.jobs.values() if job.state is JobState.PREEMPTING]


@pytest.mark.parametrize("first", range(0, WORLDS, BATCH))
def test_no_eviction_without_gain_and_nobody_stopped_in_halves(first):
    """Whoever others are stopped or moved for runs in the next cycle, on the room that was kept; who is moved runs again with it."""
    looked_at = 0
    for seed in range(first, min(first + BATCH, WORLDS)):
        cluster = a_world(seed)
        for _ in range(CYCLES_MAX):
            plan = cluster.cycle()
            going = [d for d in plan.decisions if isinstance(d, Evict | Move)]
            cluster.free()
            after = cluster.cycle()
            cluster.free()
            for decision in going:
                looked_at += 1
                assert decision.beneficiary in places_of(after), (seed, decision)
                assert not isinstance(decision, Move) or decision.job in places_of(after), (seed, decision)
            if _is_quiet(cluster):
                break
    assert looked_at > 0

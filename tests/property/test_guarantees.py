"""
Guarantees kept: in random worlds of preemptible borrowers nobody waits longer than alone on his guarantee and the reclaim bound.

`sim.audit` judges; that it can say no is seen by worlds in which nothing is reclaimed, and by what it calls the tenant's own doing.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shoal.base.rng import Rng
from shoal.formats.scenario import read_scenario
from shoal.formats.workload import NodeKind, TraceJob, node_of
from shoal.model.queue import Queue
from shoal.scheduling.policy import Policy
from shoal.sim.audit import Audit, Played, Watch, audit, cell_of
from shoal.sim.replay import Course, Replay
from shoal.sim.scenario import play
from shoal.testing.clusters import a_queue, an_ask


def a_world(seed: int) -> tuple[tuple[TraceJob, ...], tuple[Any, ...], tuple[Queue, ...]]:
    """Tenants with guarantees that lend all of them, and two who own nothing and take what is idle; jobs of whole cells."""
    rng = Rng(seed)
    nodes = tuple(node_of(f"n{at}", NodeKind()) for at in range(2 + rng.below(3)))
    cell = (1, 2, 4, 8)[rng.below(4)]
    left, queues = len(nodes) * 8 // cell, [a_queue("free", "pool", gpu=(0,)), a_queue("spare", "pool", gpu=(0,))]
    for name in ("a", "b", "c"):
        cells = rng.below(left // 2 + 1)
        left -= cells
        queues.append(a_queue(name, "pool", gpu=(cells * cell,), weight=(500, 1_000, 3_000)[rng.below(3)]))
    jobs = []
    for _ in range(12 + rng.below(30)):
        queue = queues[rng.below(len(queues))]
        most = max(1, queue.spec.quotas["gpu"].nominal // 1_000 // cell)
        spec = an_ask(cell, nodes=min(1 + rng.below(most), len(nodes)) if cell == 8 else 1, priority=rng.below(3))
        run_ms = (1 + rng.below(120)) * 60_000
        limit_ms = run_ms * (1 + rng.below(3))
        jobs.append(TraceJob(
            submit_ms=rng.below(7_200) * 1_000, run_ms=run_ms, limit_ms=limit_ms, spec=spec, queue=queue.id,
            stop_ms=rng.below(30) * 1_000,
        ))  # fmt: skip
    jobs.sort(key=lambda job: job.submit_ms)
    return tuple(jobs), nodes, (a_queue("pool", gpu=(left * cell,)), *queues)


def audited(seed: int, policy: Policy | None = None) -> Audit:
    jobs, nodes, queues = a_world(seed)
    course = Course(policy=policy or Policy())
    replay = Replay(nodes, queues, jobs, course)
    watch = Watch(replay, jobs)
    replay.run()
    return audit(Played(jobs, nodes, queues, course, watch.waits()))


FEW = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@FEW
@given(st.integers(0, 100_000))
def test_nobody_waits_longer_than_alone_and_the_reclaim_bound(seed):
    found = audited(seed)
    assert found.cell_gpus
    assert found.kept, [tenant for tenant in found.tenants if tenant.broken_count]


@FEW
@given(st.integers(0, 100_000))
def test_without_patience_what_is_owed_is_back_when_the_slowest_has_stopped(seed):
    found = audited(seed, Policy(patience_max_ms=0))
    assert found.kept, [tenant for tenant in found.tenants if tenant.broken_count]
    assert all(tenant.bound_s < 30 for tenant in found.tenants)


def test_broken_promises_are_seen_where_nothing_is_reclaimed():
    seeds = range(12)
    assert all(audited(seed).kept for seed in seeds)
    broken = [tenant for seed in seeds for tenant in audited(seed, Policy(preempt=False)).tenants if tenant.broken_count]
    assert len(broken) >= 3
    assert all(one.waited_s > one.alone_s + tenant.bound_s and one.owed_s > tenant.bound_s for tenant in broken for one in tenant.broken)


A_AND_B = """
name: a lends, b borrows
cluster:
  - nodes: n[0-1]
queues:
  - {name: pool}
  - {name: a, parent: pool, gpus: 8}
  - {name: idle, parent: pool, gpus: 8}
  - {name: b, parent: pool, gpus: 0}
jobs:
  - {name: b1, queue: b, gpus: 8, runs: 1h, time: 1h}
  - {name: b2, queue: b, gpus: 8, runs: 1h, time: 1h, %s}
  - {name: mine, at: 1s, queue: a, gpus: %s, runs: 10m, time: 10m}
  - {name: next, at: 1s, queue: a, gpus: %s, runs: 10m, time: 10m}
expect:
  - {at: end, jobs: {mine: SUCCEEDED}}
"""


def a_play(b2: str = "priority: 0", gpus: str = "8", **policy: Any) -> Audit:
    scenario = read_scenario(A_AND_B % (b2, gpus, gpus), "here")
    found = play(replace(scenario, policy=policy), audited=True).audit
    assert found is not None
    return found


def test_what_was_waited_alone_too_is_no_broken_promise():
    """`next` waits for `mine`, 10 minutes, and would alone."""
    found = a_play()
    (mine, _) = found.tenants
    assert (found.cell_gpus, mine.queue, mine.promised, mine.broken_count, mine.longest_owed_s) == (8, "a", 2, 0, 0.0)


def test_a_broken_promise_is_told_with_its_figures():
    (mine, _) = a_play(preempt=False).tenants
    assert mine.broken_count == 2
    assert mine.broken[0].job == "mine#3"
    assert (mine.broken[0].waited_s, mine.broken[0].alone_s, mine.broken[0].owed_s) == (3_599, 0, 3_599)
    assert mine.broken[1].alone_s == 600


@pytest.mark.parametrize(
    ("b2", "gpus", "cell", "promised", "why"),
    [
        pytest.param("preemptible: false", "8", 0, 0, "cannot be stopped", id="what cannot be stopped is not given back"),
        pytest.param("priority: 0", "4", 4, 2, "", id="a cell is what divides all"),
        pytest.param("cpus: 100, nodes: 1", "1", 1, 2, "", id="cores that go with the GPUs of a node"),
        pytest.param("priority: 0", "1, cpus: 100", 0, 0, "more cores", id="cores of others break the cells"),
    ],
)
def test_promises_are_made_where_there_are_cells(b2, gpus, cell, promised, why):
    found = a_play(b2, gpus)
    assert found.cell_gpus == cell
    assert why in found.why
    assert sum(tenant.promised for tenant in found.tenants) == promised


def test_a_shape_wider_than_a_cell_is_not_promised():
    jobs, nodes, queues = a_world(4)
    wide = tuple(replace(job, spec=an_ask(2 * cell_of(jobs, nodes, queues)[0])) if at % 2 else job for at, job in enumerate(jobs))
    found = audit(Played(wide, nodes, queues, Course(), {}))
    assert sum(tenant.unpromised for tenant in found.tenants) == sum(job.queue in "abc" for job in wide[1::2])

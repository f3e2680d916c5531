"""
Case C6 for other priorities and sizes: after at most one decision to stop anybody nothing changes any more, through 200 cycles, and nobody
who was stopped comes back at the cost of the one he was stopped for.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.model.plan import Evict
from shoal.testing.clusters import Cluster, a_host, a_queue

CYCLES = 200


def a_cohort(guarantees: tuple[int, int]) -> Cluster:
    """Thirty GPUs; A and B are guaranteed some, BE nothing."""
    a, b = guarantees
    hosts = [a_host(f"n{i}", 1) for i in range(30)]
    return Cluster(*hosts, a_queue("top"), a_queue("A", "top", gpu=(a,)), a_queue("B", "top", gpu=(b,)), a_queue("BE", "top", gpu=(0,)))


@settings(max_examples=40, deadline=None)
@given(
    guarantees=st.tuples(st.integers(0, 15), st.integers(0, 15)),
    first=st.integers(1, 29),
    asked=st.integers(1, 30),
    priorities=st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)),
)
def test_c6_preempt_and_stay(guarantees, first, asked, priorities):
    cluster = a_cohort(guarantees)
    of_a1, of_be1, of_a2 = priorities
    a1 = cluster.submit(1, nodes=first, queue="A", priority=of_a1)
    be1 = cluster.submit(1, nodes=30 - first, queue="BE", priority=of_be1)
    cluster.cycle()
    a2 = cluster.submit(1, nodes=asked, queue="A", priority=of_a2)
    decisions: list[dict[str, str]] = []
    states = []
    for _ in range(CYCLES if asked % 5 == 0 else CYCLES // 8):
        plan = cluster.cycle()
        stopped = {d.job: d.beneficiary for d in plan.decisions if isinstance(d, Evict)}
        decisions += [stopped] if stopped else []
        cluster.free()
        states.append(tuple(cluster.gpus_of(job) for job in (a1, be1, a2)))
    assert len(decisions) <= 1, decisions
    assert len(set(states[2:])) == 1, states[:8]
    assert all(cluster.gpus_of(gainer) for stopped in decisions for gainer in stopped.values())

"""
What must hold of parts of GPUs whatever happens: nothing is given twice, what is free is exact, soft shares stay inside one project.

Every cycle of a `Cluster` is checked from the records (`check_plan`, `check_snapshot`), and what is free is compared here with sums over
the allocations.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shoal.base.rng import Rng
from shoal.facts.mig import A100_80GB, geometry_of
from shoal.model.attempt import HOLDING
from shoal.model.job import GpuAsk, JobState
from shoal.model.reason import Reason, ReasonCode
from shoal.model.values import Memory
from shoal.planning.partition import mig_charge, starts_for
from shoal.scheduling.board import Board
from shoal.scheduling.check import check_snapshot
from shoal.scheduling.policy import Policy
from shoal.scheduling.shares import soft_free
from shoal.testing.clusters import GIB, Cluster, a_host, a_queue

SOME = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
MIB = 1 << 20
PROFILES = tuple(profile.name for profile in A100_80GB.profiles)


def a_cluster(**policy: Any) -> Cluster:
    return Cluster(
        a_host("n0", 2, "l40s", gpu_memory=48, parts="mps"),
        a_host("n1", 1, "l40s", gpu_memory=48, parts="time-slice=3"),
        a_host("n2", 1, "a100", parts="mig"),
        a_host("n3", 2, "a100", parts="mig=1g.10gb@6/1g.10gb@5/2g.20gb@2"),
        a_host("n4", 2, "a100"),
        a_queue("top"),
        a_queue("a", "top", gpu=(2, 1)),
        a_queue("b", "top", gpu=(1,)),
        policy=Policy(**policy),
    )


parts = st.one_of(
    st.builds(lambda name, count: GpuAsk(count=count, mig=name), st.sampled_from(PROFILES), st.sampled_from([1, 1, 1, 2, 3])),
    st.builds(lambda share: GpuAsk(share=share), st.sampled_from([1, 100, 250, 333, 500, 1_000])),
    st.builds(lambda mib: GpuAsk(share_memory=Memory(mib * MIB)), st.sampled_from([1, 999, 8_192, 24_577, 49_152])),
    st.builds(lambda s, mib: GpuAsk(share=s, share_memory=Memory(mib * MIB)), st.sampled_from([50, 700]), st.sampled_from([64, 40_000])),
    st.builds(lambda count: GpuAsk(count=count), st.sampled_from([1, 1, 2])),
)
jobs = st.fixed_dictionaries(
    {
        "gpus": parts,
        "project": st.sampled_from(["p", "q"]),
        "queue": st.sampled_from(["default", "a", "b"]),
        "priority": st.integers(0, 2),
    },
    optional={"nodes": st.sampled_from([(1, 2), 2]), "time_limit_ms": st.sampled_from([2_000, 60_000])},
)
steps = st.one_of(
    st.tuples(st.just("submit"), jobs),
    st.tuples(st.just("submit"), jobs),
    st.tuples(st.just("submit"), jobs),
    st.tuples(st.just("cycle")),
    st.tuples(st.just("cycle")),
    st.tuples(st.just("end"), st.integers(0, 99)),
    st.tuples(st.just("free")),
    st.tuples(st.just("break"), st.integers(0, 4)),
    st.tuples(st.just("dirty"), st.integers(0, 4)),
    st.tuples(st.just("node"), st.integers(0, 4)),
    st.tuples(st.just("wait"), st.integers(1, 4_000)),
)


def take_step(cluster: Cluster, step: tuple[Any, ...], dirty: set[str]) -> None:
    match step:
        case ("submit", fields):
            cluster.submit(**fields)
        case ("cycle",):
            cluster.cycle()
        case ("end", number):
            live = sorted(job.id for job in cluster.jobs.values() if job.state in (JobState.STARTING, JobState.QUEUED))
            if live:
                cluster.end(live[number % len(live)])
        case ("free",):
            cluster.free()
        case ("break", number):
            node = cluster.nodes[f"n{number}"]
            first = node.facts.devices[0]
            broken = None if first.broken else Reason(code=ReasonCode.UNHEALTHY, message="fell off the bus")
            devices = (replace(first, broken=broken), *node.facts.devices[1:])
            cluster.change_node(node.id, facts=replace(node.facts, devices=devices))
        case ("dirty", number):
            dirty ^= {f"n{number}-0"}
            cluster.board.mark_dirty(f"n{number}", dirty & {f"n{number}-0"})
        case ("node", number):
            node = cluster.nodes[f"n{number}"]
            if not cluster.board.held_on.get(node.id):
                cluster.commit((), (node,))
                cluster.put(node)
        case ("wait", milliseconds):
            cluster.now_ms += milliseconds


def assert_exact(cluster: Cluster) -> None:
    """The board's figures are what the records of holders leave."""
    columns = cluster.board.columns
    for row, node in enumerate(columns.nodes):
        held = [a for a in cluster.allocations.values() if a.node == node.id and a.state in HOLDING]
        claims = [claim for claim in cluster.claims.values() if claim.node == node.id]
        for at, device in enumerate(node.facts.devices):
            mine = [part for holder in (*held, *claims) for part in holder.parts if part.device == device.uuid]
            whole = any(device.uuid in holder.devices for holder in (*held, *claims))
            pieces = columns.parts_at(row).get(at, ())
            assert len(pieces) == len(mine)
            if device.partition.soft != "off":
                free = soft_free(columns.layouts[row].devices[at], pieces)
                assert free[0] == 1_000 - sum(part.thousandths for part in mine)
                assert free[1] == device.memory_bytes - sum(part.memory_bytes for part in mine)
            is_free, is_shared = int(columns.free_mask[row]) >> at & 1, int(columns.shared_mask[row]) >> at & 1
            assert not (is_free and is_shared)
            assert not is_free or (not whole and not mine)
            assert not is_shared or (mine and not whole)


@SOME
@given(st.lists(steps, max_size=30), st.booleans())
def test_parts_are_exact_through_any_history_and_a_rebuilt_board_is_the_same(history, preempt):
    cluster = a_cluster(preempt=preempt)
    dirty: set[str] = set()
    for step in history:
        take_step(cluster, step, dirty)
        rebuilt = Board.of(cluster.snapshot())
        for device in sorted(dirty):
            rebuilt.mark_dirty(device.partition("-")[0], (device,))
        rebuilt.pending.advance(cluster.board.pending.now_ms)
        assert cluster.board.contents() == rebuilt.contents()
        assert_exact(cluster)
        assert check_snapshot(cluster.snapshot()) == () or step[0] == "end"


@pytest.mark.parametrize("seed", range(4))
def test_c13_after_a_thousand_random_starts_and_ends_what_is_free_is_exact(seed):
    """And what a queue is charged is the sum over its parts; when all have ended, everything is free again."""
    cluster, rng = a_cluster(preempt=False), Rng(seed)
    asks = [GpuAsk(mig=name, count=1) for name in PROFILES]
    asks += [GpuAsk(share_memory=Memory(mib * MIB)) for mib in (1, 700, 2_000, 9_999)] + [GpuAsk(share=s) for s in (7, 130, 500)]
    empty = Board.of(cluster.snapshot()).contents()["nodes"]
    moved = 0
    while moved < 1_000:
        for _ in range(4):
            cluster.submit(asks[rng.below(len(asks))], project="pq"[rng.below(2)], queue=("default", "a", "b")[rng.below(3)])
        moved += cluster.cycle().counters["placed"]
        running = cluster.running()
        for _ in range(min(len(running), 1 + rng.below(4))):
            cluster.end(running[rng.below(len(running))])
            moved += 1
        assert_exact(cluster)
        for queue in ("default", "a", "b"):
            mine = [a for a in cluster.allocations.values() if a.queue == queue and a.state in HOLDING]
            charged = cluster.board.quota.vertices[queue].held.get("gpu", 0)
            assert charged == sum(1_000 * len(a.devices) + sum(part.charge for part in a.parts) for a in mine)
        for job in [job.id for job in cluster.jobs.values() if job.state is JobState.QUEUED][20:]:
            cluster.end(job)
    for job in cluster.running():
        cluster.end(job)
    assert cluster.board.contents()["nodes"] == empty


@given(st.lists(st.tuples(st.sampled_from(PROFILES), st.booleans()), max_size=20))
def test_where_instances_come_and_go_one_starts_exactly_where_geometry_has_a_place(moves):
    cluster = Cluster(a_host("n0", 1, "a100", parts="mig"))
    geometry = geometry_of("a100", 80 * GIB)
    assert geometry is not None
    for name, leave in moves:
        running = cluster.running()
        if leave and running:
            cluster.end(running[0])
        held = [part for a in cluster.allocations.values() if a.state in HOLDING for part in a.parts]
        placed = tuple((geometry.named(part.profile), part.start) for part in held)
        fits = bool(starts_for(geometry, placed, geometry.named(name)))
        job = cluster.submit(GpuAsk(mig=name, count=1))
        cluster.cycle()
        assert bool(cluster.nodes_of(job)) == fits
        if not fits:
            cluster.end(job)
        else:
            part = cluster.allocations[f"{job}.1.0"].parts[0]
            assert part.charge == mig_charge(geometry, geometry.named(name))

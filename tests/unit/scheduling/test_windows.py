"""Reservations in time: which windows meet a span, which overlap, who is kept out, and when somebody may start after all."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shoal.model.attempt import AllocationState
from shoal.model.codec import decode_json, encode_json
from shoal.model.job import Elastic, JobState, Stop
from shoal.model.node import NodeState
from shoal.model.plan import Move, Place, PlacedMember, Plan, Resize
from shoal.model.reason import Reason, ReasonCode
from shoal.model.reservation import DAY_MS, Reservation, ReservationSpec
from shoal.model.snapshot import Snapshot
from shoal.model.values import Duration
from shoal.scheduling.check import check_plan
from shoal.scheduling.policy import Policy
from shoal.scheduling.windows import FOREVER, Window, Windows, window_meeting, windows_overlap
from shoal.testing.clusters import Cluster, a_host, a_queue, a_reservation, places_of, reserves_of

HOUR_MS = 3_600_000
WAITING = Policy(preempt=False)


def a_spec(start_h: int, end_h: int, repeat: str | None = None) -> ReservationSpec:
    return ReservationSpec(nodes=("n0",), start_ms=start_h * HOUR_MS, end_ms=end_h * HOUR_MS, repeat=repeat)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("repeat", "span_h", "want_h"),
    [
        (None, (0, 10), None),
        (None, (0, 11), (10, 12)),
        (None, (11, 40), (10, 12)),
        (None, (12, 40), None),
        ("daily", (12, 34), None),
        ("daily", (12, 35), (34, 36)),
        ("daily", (35, 36), (34, 36)),
        ("daily", (36, 58), None),
        ("weekly", (12, 178), None),
        ("weekly", (12, 179), (178, 180)),
    ],
)
def test_the_first_window_that_meets_a_span(repeat, span_h, want_h):
    want = None if want_h is None else Window(want_h[0] * HOUR_MS, want_h[1] * HOUR_MS)
    assert window_meeting(a_spec(10, 12, repeat), span_h[0] * HOUR_MS, span_h[1] * HOUR_MS) == want


specs = st.builds(
    lambda start, length, repeat: a_spec(start, start + length, repeat),
    st.integers(0, 200),
    st.integers(1, 20),
    st.sampled_from([None, "daily", "weekly"]),
)


@given(specs, specs)
@settings(max_examples=50)
def test_two_overlap_if_some_hour_is_in_both(one, other):
    """Hour by hour until a week after both have begun: by then every pattern of the two has been seen."""
    hours = range(420)
    inside = [[window_meeting(spec, hour * HOUR_MS, (hour + 1) * HOUR_MS) is not None for hour in hours] for spec in (one, other)]
    assert windows_overlap(one, other) is any(a and b for a, b in zip(*inside, strict=True))


@settings(max_examples=50)
@given(st.lists(specs, min_size=1, max_size=3), st.integers(0, 300), st.integers(1, 30))
def test_a_postponed_start_is_the_first_that_meets_no_window(found, start_h, length_h):
    cluster = Cluster(a_host("n0"))
    windows = Windows(cluster.board.columns)
    for at, spec in enumerate(found):
        windows.put(Reservation(id=f"r{at}", spec=spec))
    row, length_ms = np.array([0]), length_h * HOUR_MS
    told = int(windows.postponed(row, np.array([start_h * HOUR_MS]), length_ms, ())[0])
    free = (h for h in range(start_h, start_h + 24 * 20) if windows.closed(h * HOUR_MS, h * HOUR_MS + length_ms, ()) is None)
    first = next(free, None)
    assert first is None or told == first * HOUR_MS
    assert first is not None or told > (start_h + 24) * HOUR_MS


def test_a_job_that_would_run_into_a_window_goes_elsewhere_or_waits_and_is_told_what_would_fit():
    cluster = Cluster(a_host("n0"), a_reservation("firmware", 101, 201, nodes=("n0",), reason="new firmware"))
    long, endless, short = cluster.submit(8, limit_s=101), cluster.submit(8), cluster.submit(8, limit_s=100)
    assert set(places_of(cluster.cycle())) == {short}
    cluster.end(short)
    for job in (long, endless):
        why = cluster.why(job)
        assert why.reasons[0].code is ReasonCode.MAINTENANCE
        assert "reservation firmware (new firmware) has 1 node from in 1m40s to in 3m20s" in why.headline
        assert "starts now with a time limit of at most 1m40s (shoal update --time)" in why.hints
        assert why.earliest_start_ms == 201_000
    plan = cluster.plan()
    assert plan.next_at_ms == 201_000
    cluster.now_ms = 201_000
    assert set(places_of(cluster.cycle())) == {long}


def test_an_earliest_start_lies_behind_a_window_that_the_gang_would_meet():
    """The runner ends at 100 s; 60 s fit before the window at 150 s only without the gang's full 70 s."""
    cluster = Cluster(a_host("n0"), a_host("n1"), a_reservation("wires", 150, 300, pool="default"), policy=WAITING)
    cluster.now_ms = 0
    cluster.submit(8, limit_s=100)
    cluster.cycle()
    pair, shorter = cluster.submit(8, nodes=2, limit_s=70), cluster.submit(8, nodes=2, limit_s=50)
    assert reserves_of(cluster.cycle())[pair].start_ms == 300_000
    assert cluster.why(pair).earliest_start_ms == 300_000
    assert cluster.why(shorter).earliest_start_ms == 100_000


def test_who_may_use_a_reservation_is_told_by_user_project_and_queue():
    for allowed in ({"users": ("ada",)}, {"users": ("user/ada",)}, {"projects": ("default",)}, {"queues": ("q",)}):
        cluster = Cluster(a_host("n0"), a_queue("q"), a_reservation("course", 0, 500, nodes=("n0",), **allowed))
        owner = "user/ada" if allowed.get("users") == ("user/ada",) else "ada"
        job = cluster.submit(8, queue="q", owner=owner)
        assert set(places_of(cluster.cycle())) == {job}, allowed
    cluster = Cluster(a_host("n0"), a_queue("q"), a_reservation("course", 0, 500, nodes=("n0",), users=("eve",), queues=("other",)))
    cluster.submit(8, queue="q")
    assert not places_of(cluster.cycle())


def test_jobs_of_one_shape_that_differ_in_what_they_may_use_are_not_taken_for_each_other():
    cluster = Cluster(a_host("n0"), a_reservation("course", 0, 500, nodes=("n0",), users=("eve",)))
    first, second = cluster.submit(4, owner="ada"), cluster.submit(4, owner="eve")
    assert set(places_of(cluster.cycle())) == {second}
    cluster.commit((), (cluster.reservations["course"],))
    assert set(places_of(cluster.cycle())) == {first}


def test_nobody_is_stopped_for_room_on_a_node_that_is_about_to_be_worked_on():
    cluster = Cluster(a_host("n0"), a_queue("q"))
    low = cluster.submit(8, queue="q", limit_s=1_000)
    cluster.cycle()
    cluster.put(a_reservation("firmware", 100, 200, nodes=("n0",)))
    high = cluster.submit(8, queue="q", priority=9, limit_s=500)
    assert not cluster.cycle().counters["evicted"]
    cluster.commit((), (cluster.reservations["firmware"],))
    assert cluster.cycle().counters["evicted"] == 1, "the case can fail"
    assert cluster.jobs[low].state is JobState.PREEMPTING
    assert cluster.jobs[high].state is JobState.QUEUED


def test_a_domain_and_a_pool_take_in_nodes_that_join_later():
    cluster = Cluster(a_host("n0", topology="rack=a"), a_reservation("wires", 50, 100, domain="rack=b"))
    cluster.put(a_host("n1", topology="rack=b"))
    jobs = [cluster.submit(8, limit_s=200) for _ in range(2)]
    cluster.cycle()
    assert [cluster.nodes_of(job) for job in jobs] == [("n0",), ()]
    cluster.change_node("n1", topology=(("rack", "a"),))
    cluster.cycle()
    assert cluster.nodes_of(jobs[1]) == ("n1",)


def test_a_plan_that_runs_into_a_window_is_not_legal():
    cluster = Cluster(a_host("n0"))
    job = cluster.submit(1, limit_s=100)
    plan = cluster.plan()
    assert isinstance(plan.decisions[0], Place)
    cluster.put(a_reservation("firmware", 100, 200, nodes=("n0",)))
    told = check_plan(cluster.snapshot(), plan)
    assert (
        told
        == check_plan(cluster.board.records, plan)
        == (f"job {cluster.jobs[job].address} would be on n0 when reservation firmware begins",)
    )
    member = PlacedMember(node="n0", group="", devices=plan.decisions[0].members[0].devices, cpu_milli=0, memory_bytes=0)
    early = Plan(version=plan.version, at_ms=0, decisions=(Place(job=job, members=(member,), gpu_model="h100", domain=None),))
    assert check_plan(cluster.snapshot(), early) == (), "from 0 s it ends as the window begins"


def test_a_snapshot_written_before_there_were_reservations_is_read():
    cluster = Cluster(a_host("n0"), a_reservation("firmware", 100, 200, nodes=("n0",)))
    text = encode_json(cluster.snapshot())
    assert decode_json(text, Snapshot) == cluster.snapshot()
    old = text.replace(b'"reservations":' + encode_json(cluster.snapshot().reservations) + b",", b"")
    assert old != text
    assert decode_json(old, Snapshot).reservations == ()


def test_a_node_that_takes_no_work_is_told_as_that_and_not_as_reserved():
    cluster = Cluster(a_host("n0"), a_reservation("firmware", 100, 200, nodes=("n0",)))
    cluster.close("n0", NodeState.CORDONED)
    job = cluster.submit(8)
    cluster.cycle()
    assert cluster.why(job).reasons[0].code is not ReasonCode.MAINTENANCE


def test_a_time_that_never_comes_is_none():
    cluster = Cluster(a_host("n0"), a_reservation("nightly", 100, 7_300, nodes=("n0",), repeat="daily"))
    cluster.now_ms = 200_000
    job = cluster.submit(8, limit_s=DAY_MS // 1_000 - 7_000)
    plan = cluster.cycle()
    assert not places_of(plan)
    assert plan.next_at_ms is None
    assert cluster.why(job).earliest_start_ms is None
    assert cluster.board.windows.postponed(np.array([0]), np.array([200_000]), DAY_MS, ())[0] == FOREVER


def test_who_is_moved_goes_on_where_no_window_stops_him_from_starting():
    """Three nodes have room for who is moved; on n1 and n2 is work to be done before he would be through."""
    for closed, moves in ((("n1", "n2"), 1), (("n1", "n2", "n3"), 0)):
        queues = (a_queue("pool"), a_queue("a", "pool", gpu=(4,)), a_queue("b", "pool", gpu=(12,)))
        cluster = Cluster(*(a_host(f"n{at}", 4) for at in range(4)), *queues)
        wall = cluster.submit(3, nodes=4, queue="b", preemptible=False)
        cluster.cycle()
        for _ in range(4):
            cluster.submit(1, queue="b", limit_s=1_000)
        cluster.cycle()
        cluster.end(wall)
        cluster.put(a_reservation("firmware", 900, 2_000, nodes=closed))
        cluster.submit(4, queue="a", limit_s=100)
        found = [decision for decision in cluster.cycle().decisions if isinstance(decision, Move)]
        assert len(found) == moves
        assert all(member.node not in closed for move in found for member in move.members)


def test_the_time_that_it_takes_to_stop_counts_before_a_window():
    """60 s of work fit before the window at 100 s; not once the other has used 50 s to save and stop."""
    for grace_s, evicted in ((5, 1), (50, 0)):
        cluster = Cluster(a_host("n0"), a_queue("q"))
        cluster.now_ms = 0
        cluster.submit(8, queue="q", limit_s=1_000, stop=Stop(grace=Duration(grace_s * 1_000)))
        cluster.cycle()
        cluster.put(a_reservation("firmware", 100, 200, nodes=("n0",)))
        cluster.submit(8, queue="q", priority=9, limit_s=60)
        assert cluster.cycle().counters["evicted"] == evicted


def an_elastic_pair(how: Literal["in_place", "restart"], nodes: int, **fields: Any) -> tuple[Cluster, str]:
    """A gang of one node or more runs on two nodes, and the others are free."""
    cluster = Cluster(*(a_host(f"n{at}", 1) for at in range(nodes)), policy=Policy(preempt=False, estimate="history"))
    wall = cluster.submit(1, nodes=nodes - 2)
    cluster.cycle()
    job = cluster.submit(1, nodes=(1, nodes), elastic=Elastic(how=how), **fields)
    cluster.cycle()
    cluster.end(wall)
    held = [replace(one, state=AllocationState.STARTED) for one in cluster.allocations.values() if one.job == job]
    cluster.put(replace(cluster.jobs[job], state=JobState.RUNNING, started_ms=cluster.now_ms), *held)
    return cluster, job


def growth_of(plan: Plan) -> tuple[str, ...]:
    return tuple(member.node for decision in plan.decisions if isinstance(decision, Resize) for member in decision.members)


@pytest.mark.parametrize(("how", "grows"), [("in_place", 1), ("restart", 0)])
def test_growth_keeps_off_nodes_that_are_somebody_elses_before_the_end(how, grows):
    """By its limit, whatever its kind's runs took; and who starts again has his whole limit before him."""
    cluster, job = an_elastic_pair(how, 4, limit_s=1_000, expected_ms=5_000)
    mine = cluster.nodes_of(job)
    soon, late = sorted({f"n{at}" for at in range(4)} - set(mine))
    cluster.now_ms += 500_000
    now_s = cluster.now_ms // 1_000
    cluster.change_job(job, checkpointed_ms=cluster.now_ms)
    assert growth_of(cluster.plan())[2:] == (soon, late), "the case can fail"
    cluster.put(a_reservation("soon", now_s + 100, now_s + 200, nodes=(soon,)))
    cluster.put(a_reservation("late", now_s + 700, now_s + 800, nodes=(late,)))
    assert growth_of(cluster.plan())[2:] == (late,)[:grows]
    cluster.put(a_reservation("late", now_s + 2_000, now_s + 3_000, nodes=(late,)))
    assert growth_of(cluster.plan())[2:] == (late,)
    cluster.put(a_reservation("home", now_s + 700, now_s + 800, nodes=mine[:1]))
    assert growth_of(cluster.plan())[2:] == (late,)[:grows], "it would not start again at home"


def test_a_move_or_growth_that_runs_into_a_window_is_not_legal():
    cluster, job = an_elastic_pair("in_place", 3, limit_s=1_000)
    plan = cluster.plan()
    (growth,) = (decision for decision in plan.decisions if isinstance(decision, Resize))
    node = growth.members[-1].node
    cluster.put(a_reservation("firmware", 500, 600, nodes=(node,)))
    told = f"job {cluster.jobs[job].address} would be on {node} when reservation firmware begins"
    assert told in check_plan(cluster.snapshot(), plan)
    reason = Reason(code=ReasonCode.MOVED, message="goes on there")
    move = Move(job=job, members=growth.members, beneficiary="nobody", reason=reason)
    assert told in check_plan(cluster.snapshot(), replace(plan, decisions=(move,)))

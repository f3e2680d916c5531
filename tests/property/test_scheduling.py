"""
What must hold of the cycle whatever happens: INV of the specification, and that equal pictures give equal judgements.

A history is a list of small steps (submit, cycle, end, node away and back, quota cut, ...) with numbers that pick among what is there,
so that every history makes sense and hypothesis can shrink it.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shoal.base.rng import Rng
from shoal.model.attempt import HOLDING, AllocationState
from shoal.model.codec import encode_json
from shoal.model.job import ENDED, LIVE, Dependency, GroupSpec, JobState
from shoal.model.node import NodeState
from shoal.model.snapshot import Snapshot
from shoal.scheduling.asks import shape_of
from shoal.scheduling.board import Board
from shoal.scheduling.check import check_plan, check_snapshot
from shoal.scheduling.cycle import schedule
from shoal.scheduling.fit import could_ever_fit
from shoal.scheduling.policy import Policy
from shoal.testing.clusters import Cluster, a_host, a_queue, a_reservation, places_of, reserves_of

SOME = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
QUEUES = ("default", "a", "b", "b1", "strict")


def a_cluster() -> Cluster:
    """Two pools, two racks, two models, a tree of queues with every kind of limit."""
    return Cluster(
        a_host("n0", 4, topology="rack=r0"),
        a_host("n1", 4, topology="rack=r0"),
        a_host("n2", 8, topology="rack=r1"),
        a_host("n3", 2, "a100", topology="rack=r1", cpus=8),
        a_host("n4", 0, cpus=4),
        a_host("n5", 4, pool="other"),
        a_queue("top"),
        a_queue("a", "top", gpu=(6, 4)),
        a_queue("b", "top", gpu=(8, None, 4), weight=2000),
        a_queue("b1", "b", gpu=(2,)),
        a_queue("strict", order="strict"),
    )


asks = st.fixed_dictionaries(
    {"gpus": st.sampled_from([0, 1, 1, 2, 4, 8]), "nodes": st.sampled_from([1, 1, 1, 2, (1, 3), (2, 4), 6])},
    optional={
        "models": st.sampled_from([("h100",), ("a100",), ("h200", "a100")]),
        "cpus": st.integers(1, 10),
        "memory": st.integers(1, 600),
        "level": st.sampled_from(["rack", "island", "nowhere"]),
        "required": st.booleans(),
        "avoid": st.sampled_from([("n0",), ("n2", "n1")]),
        "pool": st.sampled_from(["default", "other", "none"]),
        "groups": st.sampled_from([(GroupSpec(name="lead", cpus=1), GroupSpec(name="work"))]),
    },
)
submits = st.fixed_dictionaries(
    {
        "queue": st.sampled_from([*QUEUES, "gone"]),
        "priority": st.integers(-1, 2),
        "not_before_ms": st.sampled_from([0, 0, 0, 2_000, 9_000]),
    },
    optional={"time_limit_ms": st.sampled_from([1_000, 3_000, 60_000])},
)
steps = st.one_of(
    st.tuples(st.just("submit"), asks, submits),
    st.tuples(st.just("submit"), asks, submits),
    st.tuples(st.just("cycle")),
    st.tuples(st.just("cycle")),
    st.tuples(st.just("end"), st.integers(0, 99), st.sampled_from([JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED])),
    st.tuples(st.just("release_one"), st.integers(0, 99), st.sampled_from(list(AllocationState))),
    st.tuples(st.just("free")),
    st.tuples(st.just("requeue"), st.integers(0, 99)),
    st.tuples(st.just("hold"), st.integers(0, 99)),
    st.tuples(st.just("change"), st.integers(0, 99), submits),
    st.tuples(st.just("depend"), st.integers(0, 99), st.sampled_from(["after", "afterok", "afternotok", "afterany"])),
    st.tuples(st.just("array"), st.sampled_from(["0-3", "0-3%1", "0-5%2"])),
    st.tuples(st.just("node"), st.integers(0, 5), st.sampled_from(list(NodeState))),
    st.tuples(st.just("move"), st.integers(0, 5), st.sampled_from(["default", "other"])),
    st.tuples(st.just("break"), st.integers(0, 5)),
    st.tuples(st.just("remove_node"), st.integers(0, 5)),
    st.tuples(st.just("quota"), st.sampled_from(["a", "b", "strict"]), st.integers(0, 12)),
    st.tuples(st.just("drop_queue"), st.sampled_from(["b1", "strict"])),
    st.tuples(st.just("wait"), st.integers(1, 4_000)),
    st.tuples(
        st.just("reserve"), st.integers(0, 5), st.integers(-5, 40), st.integers(1, 20), st.sampled_from([(), ("a",), ("b1", "default")])
    ),
    st.tuples(st.just("unreserve"), st.integers(0, 9)),
)


class Story:
    """Carries out steps on a cluster; `pick` takes the n-th of what is there, if anything is."""

    def __init__(self) -> None:
        self.cluster = a_cluster()
        self._spare = dict(self.cluster.nodes)

    def pick(self, number: int, *states: JobState) -> str | None:
        found = sorted(job.id for job in self.cluster.jobs.values() if (not states or job.state in states) and not job.is_array)
        return found[number % len(found)] if found else None

    def do(self, step: tuple[Any, ...]) -> None:
        getattr(self, step[0])(*step[1:])

    def submit(self, ask: dict[str, Any], fields: dict[str, Any]) -> None:
        self.cluster.submit(**ask, **fields)

    def array(self, text: str) -> None:
        self.cluster.submit_array(text)

    def cycle(self) -> None:
        self.cluster.cycle()

    def end(self, number: int, state: JobState) -> None:
        job = self.pick(number, JobState.QUEUED, *sorted(LIVE))
        if job is not None:
            self.cluster.end(job, state)

    def release_one(self, number: int, state: AllocationState) -> None:
        held = sorted(a.id for a in self.cluster.allocations.values() if a.state in HOLDING)
        if held:
            allocation = self.cluster.allocations[held[number % len(held)]]
            self.cluster.put(replace(allocation, state=state), replace(self.cluster.jobs[allocation.job], state=JobState.COMPLETING))

    def free(self) -> None:
        self.cluster.free()

    def requeue(self, number: int) -> None:
        job = self.pick(number, *sorted(LIVE))
        if job is not None:
            self.cluster.change_job(job, state=JobState.QUEUED, not_before_ms=self.cluster.now_ms + 500)

    def hold(self, number: int) -> None:
        job = self.pick(number, JobState.QUEUED, JobState.HELD)
        if job is not None:
            held = self.cluster.jobs[job].state is JobState.HELD
            self.cluster.change_job(job, state=JobState.QUEUED if held else JobState.HELD)

    def change(self, number: int, fields: dict[str, Any]) -> None:
        job = self.pick(number, JobState.QUEUED)
        if job is not None:
            self.cluster.change_job(job, **fields)

    def depend(self, number: int, condition: str) -> None:
        other = self.pick(number)
        if other is not None:
            self.cluster.submit(1, depends_on=(Dependency(job=other, condition=condition),))

    def node(self, number: int, state: NodeState) -> None:
        name = f"n{number}"
        if name in self.cluster.nodes:
            self.cluster.change_node(name, state=state)
        else:
            self.cluster.put(self._spare[name])

    def move(self, number: int, pool: str) -> None:
        """To another pool, once nothing is on the node any more."""
        name = f"n{number}"
        if name in self.cluster.nodes and not self.cluster.board.held_on.get(name):
            self.cluster.change_node(name, pool=pool)

    def remove_node(self, number: int) -> None:
        name = f"n{number}"
        if name in self.cluster.nodes and not self.cluster.board.held_on.get(name):
            self.cluster.commit((), (self.cluster.nodes[name],))

    def quota(self, name: str, gpus: int) -> None:
        if name in self.cluster.queues:
            spec = self.cluster.queues[name].spec
            self.cluster.put(a_queue(name, spec.parent, gpu=(gpus,), weight=spec.weight, order=spec.order))

    def drop_queue(self, name: str) -> None:
        if name in self.cluster.queues:
            self.cluster.commit((), (self.cluster.queues[name],))

    def reserve(self, number: int, from_s: int, length_s: int, queues: tuple[str, ...]) -> None:
        start_s = max(0, self.cluster.now_ms // 1_000 + from_s)
        where: dict[str, Any] = {"domain": "rack=r1"} if number == 5 else {"nodes": (f"n{number}",)}
        self.cluster.put(a_reservation(f"w{number}", start_s, start_s + length_s, queues=queues, **where))

    def unreserve(self, number: int) -> None:
        name = f"w{number}"
        if name in self.cluster.reservations:
            self.cluster.commit((), (self.cluster.reservations[name],))

    def wait(self, milliseconds: int) -> None:
        self.cluster.now_ms += milliseconds


def _break(story: Story, number: int) -> None:
    node = story.cluster.nodes.get(f"n{number}")
    if node is not None and node.facts.devices:
        from shoal.model.reason import Reason, ReasonCode

        first = node.facts.devices[0]
        broken = None if first.broken else Reason(code=ReasonCode.UNHEALTHY, message="fell off the bus")
        devices = (replace(first, broken=broken), *node.facts.devices[1:])
        story.cluster.change_node(node.id, facts=replace(node.facts, devices=devices))


setattr(Story, "break", _break)


@SOME
@given(st.lists(steps, max_size=25))
def test_an_incremental_board_equals_a_rebuilt_one_and_judges_the_same(history):
    """And in every cycle on the way: no device twice, quota kept, gangs whole (Cluster.cycle checks it)."""
    story = Story()
    for step in history:
        story.do(step)
        cluster = story.cluster
        rebuilt = Board.of(cluster.snapshot())
        rebuilt.pending.advance(cluster.board.pending.now_ms)
        assert cluster.board.contents() == rebuilt.contents()
        assert check_snapshot(cluster.snapshot()) == () or step[0] in ("release_one", "requeue", "end")
    mine, other = story.cluster.board, Board.of(story.cluster.snapshot())
    for at_ms in (story.cluster.now_ms, story.cluster.now_ms + 10_000):
        assert _places(mine, at_ms) == _places(other, at_ms)


def _places(board: Board, now_ms: int) -> bytes:
    """A board that remembers failed shapes tells no reason for them again; what it places is the same."""
    return encode_json(list(places_of(schedule(board, Policy(), now_ms, Rng(7))).values()))


@SOME
@given(st.lists(st.tuples(asks, submits), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_equal_snapshots_give_equal_plans_in_whatever_order_their_records_come(jobs, random):
    cluster = a_cluster()
    for ask, fields in jobs:
        cluster.submit(**ask, **fields)
    snapshot = cluster.snapshot()
    mixed = {name: tuple(random.sample(getattr(snapshot, name), len(getattr(snapshot, name)))) for name in ("jobs", "nodes", "queues")}
    plans = [schedule(Board.of(s), Policy(), 10_000, Rng(3)) for s in (snapshot, snapshot, replace(snapshot, **mixed))]
    assert encode_json(plans[0]) == encode_json(plans[1]) == encode_json(plans[2])


@SOME
@given(st.lists(st.tuples(asks, submits), min_size=1, max_size=10))
def test_with_quiet_cycles_every_feasible_job_runs(jobs):
    """Nothing arrives any more, what runs ends after each cycle: then only jobs that could never fit are left."""
    cluster = a_cluster()
    for ask, fields in jobs:
        cluster.submit(**ask, **{**fields, "queue": "default"})
    cluster.now_ms = 10_000
    for _ in range(len(jobs) + 1):
        cluster.cycle()
        for job in cluster.running():
            cluster.end(job)
    left = [job for job in cluster.jobs.values() if job.state not in ENDED]
    for job in left:
        assert could_ever_fit(cluster.nodes.values(), cluster.queues.values(), job) is not None, shape_of(job)


@SOME
@given(st.lists(st.tuples(asks, submits), min_size=1, max_size=15))
def test_a_job_that_still_waits_after_its_cycle_gets_a_reason_and_one_without_a_reason_starts(jobs):
    cluster = a_cluster()
    for ask, fields in jobs:
        cluster.submit(**ask, **fields)
    cluster.settle()
    for job in cluster.jobs.values():
        if job.state is JobState.QUEUED:
            why = cluster.why(job.id)
            assert why.reasons
            assert why.headline
            behind = why.reasons[0].code == "behind"
            strict = job.queue in cluster.queues and cluster.queues[job.queue].spec.order == "strict"
            assert not behind or strict, why


@SOME
@given(
    st.permutations(["a", "b", "c", "d"]),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3), st.integers(0, 30)), min_size=4, max_size=4),
)
def test_the_order_of_queues_changes_nobodys_share(order, numbers):
    rows = dict(zip("abcd", numbers, strict=True))

    def held(names: list[str]) -> dict[str, int]:
        queues = [a_queue("top", gpu=(4,))]
        queues += [a_queue(n, "top", gpu=(rows[n][0],), weight=rows[n][1] * 1000) for n in names]
        cluster = Cluster(*(a_host(f"n{i}") for i in range(4)), *queues)
        jobs = {n: [cluster.new_job(1, queue=n) for _ in range(rows[n][2])] for n in sorted(names)}
        snapshot = cluster.snapshot()
        board = Board.of(Snapshot(version=1, nodes=snapshot.nodes, queues=tuple(queues), jobs=tuple(job for n in names for job in jobs[n])))
        plan = schedule(board, Policy(), 0, Rng(1))
        placed = places_of(plan)
        return {n: sum(job.id in placed for job in jobs[n]) for n in sorted(names)}

    assert held(list(order)) == held(list("abcd"))


@pytest.mark.parametrize("seed", [1])
def test_c1_of_two_big_gangs_one_runs_and_the_other_holds_nothing(seed):
    """C1: 1,000 interleavings of who comes when and when cycles run; the second starts within one cycle after the first ended."""
    rng = Rng(seed)
    nodes = tuple(a_host(f"n{i}") for i in range(4))
    for _ in range(1_000):
        cluster = Cluster(*nodes)
        moves = ["G1", "G2", "cycle", "cycle", "small"][: 4 + rng.below(2)]
        rng.shuffle(moves)
        gangs: dict[str, str] = {}
        for move in moves:
            if move == "cycle":
                cluster.cycle()
            elif move == "small":
                cluster.end(cluster.submit(8))
            else:
                gangs[move] = cluster.submit(8, nodes=4)
        cluster.cycle()
        held = {gang: cluster.gpus_of(job) for gang, job in gangs.items()}
        assert sorted(held.values()) == [0, 32]
        first = max(held, key=lambda gang: held[gang])
        second = next(gang for gang in held if gang != first)
        cluster.end(gangs[first])
        cluster.cycle()
        assert cluster.gpus_of(gangs[second]) == 32


@SOME
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=10),
    st.sampled_from(["easy", "conservative"]),
)
def test_where_jobs_run_exactly_to_their_limits_a_start_that_was_told_is_when_it_happens(jobs, reserve):
    """Told of the first gang (EASY) or of every gang (conservative), on nodes that are all alike and with nobody coming later."""
    cluster = Cluster(*(a_host(f"n{i}") for i in range(4)), policy=Policy(reserve=reserve, reservations=64))
    cluster.now_ms = 0
    for nodes, tens in jobs:
        cluster.submit(8, nodes=nodes, limit_s=10 * tens)
    told = {job: made.start_ms for job, made in reserves_of(cluster.cycle()).items()}
    waiting = [job.id for job in cluster.jobs.values() if job.state is JobState.QUEUED]
    assert list(told) == (waiting if reserve == "conservative" else waiting[:1])
    assert all(cluster.why(job).earliest_start_ms == start_ms for job, start_ms in told.items())
    cluster.pass_time(10**7)
    assert {job: cluster.started_ms(job) for job in told} == told


@SOME
@given(st.lists(steps, max_size=20))
def test_an_illegal_twin_of_a_legal_plan_is_caught(history):
    """The check is seen to fail: each plan with one member's devices given to another member is refused."""
    story = Story()
    for step in history:
        story.do(step)
    cluster = story.cluster
    plan = cluster.plan()
    places = [place for place in places_of(plan).values() if any(member.devices for member in place.members)]
    for place in places:
        at = next(i for i, member in enumerate(place.members) if member.devices)
        members = list(place.members)
        members[at] = replace(members[at], devices=(*members[at].devices[1:], "ghost"))
        twin = replace(plan, decisions=tuple(replace(place, members=tuple(members)) if d is place else d for d in plan.decisions))
        assert check_plan(cluster.snapshot(), twin)

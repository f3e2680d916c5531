"""
Everything at once: worlds with whole GPUs, MIG instances and soft shares of two projects, gangs, leaders and workers, slices, meshes,
alternatives, arrays, elastic gangs, limits of users, priorities, guarantees, windows, dependencies, failures, and people and machines that
interfere, under every policy. Hypothesis draws and shrinks them; a replay plays them through the cycle and the lifecycle.
`WHOLE_WORLDS=1000` makes it long.

A replay with `check` looks at INV, at each plan, and at the board against one built anew, after every write. What must hold beyond that
is looked at here from the records alone, in words of its own, whenever all of a moment has happened.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shoal.base.errors import Invalid
from shoal.base.rng import Rng
from shoal.facts.mig import geometry_of
from shoal.formats import yaml
from shoal.formats.scenario import Scenario, read_scenario, reservation_of
from shoal.model.attempt import HOLDING, Allocation
from shoal.model.change import ChangeSet
from shoal.model.codec import encode_json
from shoal.model.job import GpuAsk, Job, JobState
from shoal.model.plan import Evict, Move
from shoal.model.queue import QueueSpec
from shoal.model.reason import ReasonCode
from shoal.model.snapshot import Snapshot
from shoal.model.values import CountRange
from shoal.scheduling.board import Board
from shoal.scheduling.cycle import schedule
from shoal.scheduling.fit import could_ever_fit
from shoal.sim.deeds import deed_of
from shoal.sim.policies import policy_of
from shoal.sim.replay import BASE_MS, Course, Replay

EXAMPLES = int(os.environ.get("WHOLE_WORLDS", "30"))
SOME = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
HEALED_S = 3_000
"""From here on every node works, nobody does anything, and no window is open."""
NODES = ("n0", "n1", "n2", "n3", "g0", "s0", "c0")
CLUSTER = (
    {"nodes": "n[0-1]", "gpus": 4, "model": "h100", "topology": {"rack": "r1"}},
    {"nodes": "n[2-3]", "gpus": 4, "model": "h100", "topology": {"rack": "r2"}},
    {"nodes": "g0", "gpus": 2, "model": "a100", "parts": "mig"},
    {"nodes": "s0", "gpus": 2, "model": "l40s", "gpu_memory": "48GiB", "parts": "mps=3"},
    {"nodes": "c0", "gpus": 0, "cpus": 8},
)


# --- worlds -----------------------------------------------------------------------------------------------------------------
def seconds(first: int, last: int) -> st.SearchStrategy[str]:
    return st.integers(first, last).map(lambda count: f"{count}s")


ASKS = st.one_of(
    st.fixed_dictionaries({"gpus": st.integers(1, 4), "nodes": st.sampled_from([1, 1, 2, 3, "1..3"])}),
    st.fixed_dictionaries(
        {"gpus": st.integers(1, 4), "nodes": st.just(2), "topology": st.sampled_from(["rack", {"level": "rack", "required": True}])}
    ),
    st.fixed_dictionaries(
        {"gpus": st.integers(1, 2), "nodes": st.sampled_from(["1..3", "2..4"]), "elastic": st.sampled_from(["in_place", "restart"])}
    ),
    st.fixed_dictionaries(
        {"gpus": st.sampled_from([{"mig": name, "count": n} for name in ("1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb") for n in (1, 2)])}
    ),
    st.fixed_dictionaries(
        {
            "gpus": st.sampled_from(
                [{"share": 100}, {"share": 400}, {"share": 1000}, {"share_memory": "20GiB"}, {"share": 10, "share_memory": "40GiB"}]
            ),
            "project": st.sampled_from(["p", "q"]),
        }
    ),
    st.fixed_dictionaries({"cpus": st.integers(1, 8)}),
    st.fixed_dictionaries({"gpus": st.integers(1, 2), "array": st.sampled_from(["0-2", "0-4%2", "0-3%1"])}),
    st.fixed_dictionaries({"gpus": st.just({"share": 300}), "array": st.just("0-5%3"), "project": st.sampled_from(["p", "q"])}),
    st.just({"groups": [{"name": "lead", "cpus": 1}, {"name": "work", "nodes": 2, "gpus": 2}]}),
    st.just({"nodes": 4, "gpus": 2, "topology": {"slice": {"size": 2, "level": "rack"}}}),
    st.sampled_from([{"nodes": 2, "gpus": 4, "topology": {"mesh": {"tp": tp, "dp": 8 // tp}}} for tp in (2, 4, 8)]),
    st.sampled_from(
        [
            {"any_of": [{"gpus": 4, "nodes": 3}, {"gpus": {"mig": "3g.40gb"}}, {"gpus": {"share": 500}}]},
            {"ordered": [{"gpus": "h200:8"}, {"gpus": "h100:4", "nodes": 2}, {"gpus": 1}]},
        ]
    ),
)
BEHAVIOURS = st.fixed_dictionaries(
    {"at": seconds(0, 200), "runs": seconds(1, 150), "queue": st.sampled_from(["a", "b", "default"]), "priority": st.integers(0, 2)},
    optional={
        "owner": st.sampled_from(["ada", "ben"]),
        "prepares_in": seconds(0, 8),
        "stops_in": seconds(0, 40),
        "exit_code": st.just(1),
        "retry": st.just({"limit": 1, "backoff": "5s"}),
        "time": seconds(20, 200),
        "preemptible": st.just(False),
        "tolerance": seconds(0, 100),
    },
)
JOBS = st.lists(
    st.tuples(ASKS, BEHAVIOURS, st.sampled_from([None, None, None, None, "afterok", "afterany", "afternotok"])), min_size=1, max_size=14
)
TIMES = seconds(5, 900)
EVENTS = st.one_of(
    st.fixed_dictionaries(
        {
            "at": TIMES,
            "node": st.sampled_from(NODES),
            "does": st.sampled_from(["silent", "back", "reboot", "drain", "cordon", "resume", "break", "repair"]),
        }
    ),
    st.fixed_dictionaries({"at": TIMES, "cancel": st.integers(0, 13).map("j{}".format), "mode": st.sampled_from(["graceful", "force"])}),
    st.tuples(TIMES, st.sampled_from(["hold", "release", "requeue"]), st.integers(0, 13)).map(lambda t: {"at": t[0], t[1]: f"j{t[2]}"}),
    st.fixed_dictionaries({"at": TIMES, "update": st.integers(0, 13).map("j{}".format), "priority": st.integers(0, 4)}),
    st.fixed_dictionaries({"at": TIMES, "resize": st.integers(0, 13).map("j{}".format), "size": st.integers(1, 4)}),
)
RESERVATIONS = st.lists(
    st.fixed_dictionaries(
        {"nodes": st.sampled_from(["n0", "n[2-3]", "g0", "s0"]), "from": seconds(0, 300), "users": st.sampled_from([[], ["ben"]])}
    ),
    max_size=2,
)
QUEUES = st.tuples(
    st.fixed_dictionaries(
        {"gpus": st.integers(2, 12)},
        optional={
            "borrow": st.integers(0, 8),
            "order": st.just("strict"),
            "min_run": seconds(1, 120),
            "limits": st.sampled_from([{"gpus_per_user": 6}, {"running_jobs": 3}, {"running_jobs_per_user": 2}]),
        },
    ),
    st.fixed_dictionaries({"gpus": st.integers(2, 12)}, optional={"lend": st.integers(0, 8), "weight": st.sampled_from([0, 2_000])}),
)
POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "fair_share": st.sampled_from(["decayed", "fair-tree"]),
        "packing": st.sampled_from(["spread", "fragmentation", "value"]),
        "reserve": st.sampled_from(["none", "conservative"]),
        "preempt": st.just(False),
        "move": st.just(False),
        "patience_max_ms": st.just(0),
        "age_unit_ms": st.just(60_000),
        "priority_across_queues": st.just(True),
        "near_by_default": st.just(False),
    },
)


def a_world(jobs: list[Any], events: list[Any], queues: Any, windows: list[Any], policy: dict[str, Any]) -> Scenario:
    """The scenario of what was drawn; in the end all nodes are brought back and everybody who was held is let go."""
    listed = []
    for at, (ask, behaviour, condition) in enumerate(jobs):
        job = {"name": f"j{at}", **behaviour, **ask}
        if condition is not None and at:
            other = f"j{at - 1}"
            job |= {"depends_on": f"{condition}:{other}", "at": "200s"}
        listed.append(job)
    healed = [{"at": f"{HEALED_S}s", "node": list(NODES), "does": does} for does in ("back", "resume", "repair")]
    a, b = ({"name": name, "parent": "root", **fields} for name, fields in zip("ab", queues, strict=True))
    text = yaml.dump(
        {
            "name": "world",
            "cluster": list(CLUSTER),
            "queues": [{"name": "root"}, a, b],
            "reservations": [{"name": f"w{at}", "to": "600s", **window} for at, window in enumerate(windows)],
            "jobs": listed,
            "events": [*events, *healed, {"at": f"{HEALED_S}s", "release": "j*"}],
            "policy": policy,
            "expect": [],
        }
    )
    return read_scenario(text, "world")


class Watched(Replay):
    """A replay that is looked at when all of a moment has happened."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        course = Course(policy=policy_of(scenario.policy), seed=seed, shuffle=seed > 0, check=True, keep_ended=True)
        super().__init__(scenario.nodes, scenario.queues, scenario.jobs, course)
        self.write(ChangeSet(put=tuple(reservation_of(entry, BASE_MS) for entry in scenario.reservations)))
        self.gainers: dict[str, int] = {}
        """For whom others are stopped or moved, since when; until he starts."""
        self.hopes: list[tuple[str, int, int]] = []
        """(gainer, when others were stopped for him, when he started)."""
        self.instants = 0
        self.at_rest = lambda _: self.look()
        for event in scenario.events:
            deed = deed_of(event, lambda at_ms, why: None)
            self.plan_deed(event.at.ms, lambda replay, deed=deed: _gently(deed, replay))

    def _evict(self, evict: Evict | Move) -> None:
        super()._evict(evict)
        if evict.beneficiary:
            self.gainers.setdefault(evict.beneficiary, self.now_ms)

    def _place(self, place: Any) -> None:
        super()._place(place)
        if place.job in self.gainers:
            self.hopes.append((place.job, self.gainers.pop(place.job), self.now_ms))

    def look(self) -> None:
        held = [a for members in self.world.members.values() for a in members.values() if a.state in HOLDING]
        devices_are_held_once(self, held)
        quota_is_kept(self)
        gangs_are_whole(self, held)
        self.instants += 1
        if self.instants % 9 == 0:
            order_of_records_is_nothing(self)


def _gently(deed: Any, replay: Replay) -> None:
    with contextlib.suppress(Invalid):
        deed(replay)


# --- what must hold ---------------------------------------------------------------------------------------------------------
def devices_are_held_once(replay: Watched, held: list[Allocation]) -> None:
    """A whole GPU by one; instances on slices of their own at starts of the product; shares of one project and no more than there is."""
    whole: set[str] = set()
    parts: dict[str, list[tuple[Any, str]]] = {}
    for allocation in held:
        assert not whole & set(allocation.devices), (allocation.id, replay.time_ms)
        whole |= set(allocation.devices)
        for part in allocation.parts:
            parts.setdefault(part.device, []).append((part, allocation.project))
    assert not whole & set(parts)
    known = {device.uuid: device for node in replay.world.nodes.values() for device in node.facts.devices}
    for uuid, mine in parts.items():
        device = known[uuid]
        assert len({part.mode for part, _ in mine}) == 1
        if mine[0][0].mode == "mig":
            geometry = geometry_of(device.model, device.memory_bytes)
            assert geometry is not None
            slots: set[int] = set()
            for part, _ in mine:
                profile = geometry.named(part.profile)
                assert part.start in profile.starts
                covered = set(range(part.start, part.start + profile.memory))
                assert not slots & covered, (uuid, mine)
                slots |= covered
            assert sum(geometry.named(part.profile).compute for part, _ in mine) <= geometry.compute
        else:
            assert len({project for _, project in mine}) == 1, "soft shares of two projects"
            assert sum(part.thousandths for part, _ in mine) <= 1_000
            assert sum(part.memory_bytes for part, _ in mine) <= device.memory_bytes
            assert len(mine) <= device.partition.shares_max


def quota_is_kept(replay: Watched) -> None:
    board = replay.world.board
    for name, vertex in board.quota.vertices.items():
        for resource in vertex.named:
            left = board.quota.available(name, resource)
            assert left is None or left >= 0, f"at {replay.time_ms} ms {name} holds {-left} of {resource} too much"


def gangs_are_whole(replay: Watched, held: list[Allocation]) -> None:
    """Who runs has as many members as its least, of each group, and no more than its most."""
    by_job: dict[str, list[Allocation]] = {}
    for allocation in held:
        if not allocation.leaving:
            by_job.setdefault(allocation.job, []).append(allocation)
    for job in replay.world.jobs.values():
        if job.state is JobState.RUNNING and not job.is_array:
            low, high = sizes(job)
            assert low <= len(by_job.get(job.id, [])) <= high, (job.spec.name, replay.time_ms)
        if job.state in (JobState.QUEUED, JobState.HELD):
            assert job.id not in by_job, "who waits holds nothing"


def sizes(job: Job) -> tuple[int, int]:
    spec = job.spec
    if spec.groups:
        counts = [(g.nodes.low, g.nodes.high) if g.nodes else (1, 1) for g in spec.groups]
        return sum(low for low, _ in counts), sum(high for _, high in counts)
    ways = [way.nodes or spec.nodes for way in (*(spec.any_of or ()), *(spec.ordered or ()))] or [spec.nodes]
    return min(way.low if way else 1 for way in ways), max(way.high if way else 1 for way in ways)


def order_of_records_is_nothing(replay: Watched) -> None:
    """The same records in another order are the same board, and give the same plan to the byte, twice."""
    snapshot = replay.world.snapshot()
    names = ("jobs", "attempts", "allocations", "nodes", "queues", "claims", "reservations")
    rng, mixed = Rng(replay.instants), {}
    for name in names:
        records = list(getattr(snapshot, name))
        rng.shuffle(records)
        mixed[name] = tuple(records)
    plans = [plan_of(replay, one) for one in (snapshot, snapshot, replace(snapshot, **mixed))]
    assert plans[0] == plans[1] == plans[2]


def plan_of(replay: Watched, snapshot: Snapshot) -> bytes:
    return encode_json(schedule(Board.of(snapshot), replay.course.policy, replay.now_ms, Rng(5)))


def who_could_run_has_run(replay: Watched) -> None:
    """
    Nothing is left to happen: who waits could never start, or waits for what cannot come any more, or stands in a strict queue behind
    somebody for whom the fleet is too small (nodes may join; a quota or limit that is too small holds up nobody).
    """
    world = replay.world
    assert world.gpu_milli_held == 0
    waiting = [job for job in world.jobs.values() if not job.is_array and job.id not in world.board.gates]
    never = {job.id: could_ever_fit(world.nodes.values(), world.queues.values(), job, replay.course.policy) for job in waiting}
    walls = {job.queue for job in waiting if (reason := never[job.id]) is not None and reason.code is ReasonCode.FLEET_NEVER}
    for job in waiting:
        spec = world.queues[job.queue].spec if job.queue in world.queues else QueueSpec()
        limit = spec.limits.gpus_per_user
        behind = spec.order == "strict" and job.queue in walls
        over = limit is not None and least_gpus(job) > limit
        assert never[job.id] is not None or behind or over, f"{job.spec.name} is {job.state} at the end"


def least_gpus(job: Job) -> int:
    """Whole GPUs of its smallest way to run; none for parts, of which a world's limit leaves room for any."""

    def of(nodes: CountRange | None, gpus: GpuAsk | None) -> int:
        whole = gpus is not None and gpus.mig is None
        return (nodes.low if nodes else 1) * (gpus.count if gpus is not None and whole else 0)

    spec = job.spec
    if spec.groups:
        return sum(of(group.nodes, group.gpus) for group in spec.groups)
    ways = (*(spec.any_of or ()), *(spec.ordered or ()))
    return min((of(way.nodes or spec.nodes, way.gpus or spec.gpus) for way in ways), default=of(spec.nodes, spec.gpus))


# --- tests ------------------------------------------------------------------------------------------------------------------
@SOME
@given(JOBS, st.lists(EVENTS, max_size=12), QUEUES, RESERVATIONS, POLICIES, st.integers(0, 9))
def test_whatever_happens_devices_quotas_and_gangs_hold_and_everybody_who_can_runs(jobs, events, queues, windows, policy, seed) -> None:
    replay = Watched(a_world(jobs, events, queues, windows, policy), seed)
    replay.run()
    assert replay.instants > 0
    who_could_run_has_run(replay)


@SOME
@given(JOBS, QUEUES, POLICIES)
def test_where_nobody_interferes_who_others_are_stopped_for_starts(jobs, queues, policy) -> None:
    """No eviction without gain: the one that others were stopped or moved for starts as soon as they may have stopped."""
    replay = Watched(a_world(jobs, [], queues, [], policy), 0)
    replay.run()
    assert not replay.gainers
    for gainer, since_ms, start_ms in replay.hopes:
        assert start_ms - since_ms <= 60_000, (gainer, since_ms - BASE_MS, start_ms - BASE_MS)


@settings(SOME, max_examples=max(5, EXAMPLES // 4))
@given(JOBS, st.lists(EVENTS, max_size=8), QUEUES, RESERVATIONS, POLICIES, st.integers(0, 9))
def test_the_same_world_comes_out_the_same_to_the_byte(jobs, events, queues, windows, policy, seed) -> None:
    ends = []
    for _ in range(2):
        replay = Watched(a_world(jobs, events, queues, windows, policy), seed)
        told: list[bytes] = []
        replay.world.listeners.append(lambda row, told=told: told.append(encode_json(row)))
        replay.run()
        ends.append(told)
    assert ends[0] == ends[1]

"""
Elastic gangs in random worlds: whatever grows, shrinks, is drained, lost or asked for in whatever order, a gang that runs has at least its
least, no queue holds more than it may, nobody surplus stands in the way of who waits, and in the end everything is given back.

A replay looks at INV, at every plan and at the board after every write; what is looked at here beyond that is quota, sizes and waiting.
`ELASTIC_WORLDS=1000` makes it long.
"""

from __future__ import annotations

import contextlib
import os

import pytest

from shoal.base.errors import Invalid
from shoal.base.rng import Rng
from shoal.formats.scenario import Scenario, read_scenario
from shoal.model.event import EventRow, JobResized
from shoal.model.job import ENDED, JobState
from shoal.scheduling.grow import staying
from shoal.scheduling.policy import Policy
from shoal.sim.deeds import deed_of
from shoal.sim.replay import Course, Deed, Replay

WORLDS = int(os.environ.get("ELASTIC_WORLDS", "60"))
NODES = 8


def a_world(seed: int) -> Scenario:
    """Nodes of two GPUs, two queues with quotas, elastic gangs of both kinds and others, and people and machines that interfere."""
    draw = Rng(seed).stream("world")
    lines = [f"name: world {seed}", "cluster:", f'  - {{nodes: "n[0-{NODES - 1}]", gpus: 2}}', "queues:", "  - {name: top}"]
    for name in ("a", "b"):
        borrow = f", borrow: {draw.below(6)}" if draw.below(2) else ""
        lines.append(f"  - {{name: {name}, parent: top, gpus: {4 + draw.below(8)}{borrow}}}")
    lines.append("jobs:")
    for number in range(4 + draw.below(6)):
        lines.append(f"  - {{name: j{number}, {_a_job(draw)}}}")
    lines.append("events:")
    for _ in range(4 + draw.below(12)):
        lines.append(f"  - {{at: {draw.below(120)}s, {_an_event(draw)}}}")
    lines += ["  - {at: 400s, node: 'n[0-7]', does: resume}", "expect: []"]
    return read_scenario("\n".join(lines), f"world-{seed}")


def _a_job(draw: Rng) -> str:
    common = f"at: {draw.below(60)}s, queue: {draw.choice(['a', 'b'])}, priority: {draw.below(3)}, gpus: {1 + draw.below(2)}"
    timing = f"runs: {20 + draw.below(200)}s, prepares_in: {draw.below(4)}s, stops_in: {draw.below(4)}s"
    low = 1 + draw.below(3)
    if draw.below(3):
        how = draw.choice(["in_place", "in_place", "restart"])
        return f"{common}, nodes: {low}..{low + 1 + draw.below(5)}, elastic: {how}, {timing}"
    return f"{common}, nodes: {low}, {timing}"


def _an_event(draw: Rng) -> str:
    node, job = f"n{draw.below(NODES)}", f"j{draw.below(4)}"
    kind = draw.below(6)
    if kind < 3:
        return f"resize: {job}" + (f", size: {1 + draw.below(6)}" if draw.below(4) else "")
    if kind == 3:
        return f"node: {node}, does: {draw.choice(['drain', 'resume', 'cordon'])}"
    return f"node: {node}, does: reboot" if kind == 4 else f"cancel: {job}, mode: {draw.choice(['graceful', 'force'])}"


class _Watch:
    """Looks at every write that says something, and at every moment at which all has happened."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self.faults: list[str] = []
        self.resized = 0
        replay.world.listeners.append(self._hear)
        replay.at_rest = self._rest

    def _hear(self, row: EventRow) -> None:
        self.resized += isinstance(row.body, JobResized)
        board = self._replay.world.board
        for name, vertex in board.quota.vertices.items():
            for resource in vertex.named:
                left = board.quota.available(name, resource)
                if left is not None and left < 0:
                    self.faults.append(f"{name} holds {-left} of {resource} too much")

    def _rest(self, replay: Replay) -> None:
        board = replay.world.board
        for job in board.jobs.values():
            if job.state is not JobState.RUNNING or job.spec.elastic is None or job.spec.nodes is None:
                continue
            size = len(staying(board, job.id))
            if not job.spec.nodes.low <= size <= job.nodes_most:
                self.faults.append(f"at {replay.time_ms} ms {job.spec.name} has {size} of {job.spec.nodes.low}..{job.nodes_most} nodes")


def _ignore(at_ms: int, why: str) -> None:
    """A verb that does not fit the state is no fault."""


def _gently(deed: Deed) -> Deed:
    """The deed, where it can be done: sizes are drawn without a look at the job, which may not have arrived."""

    def do(replay: Replay) -> None:
        with contextlib.suppress(Invalid):
            deed(replay)

    return do


@pytest.mark.parametrize("first", range(0, WORLDS, 20))
def test_sizes_and_quotas_hold_whatever_happens_and_all_is_given_back(first: int) -> None:
    resized = 0
    for seed in range(first, min(first + 20, WORLDS)):
        scenario = a_world(seed)
        course = Course(policy=Policy(preempt=True), seed=seed, shuffle=True, check=True, keep_ended=True)
        replay = Replay(scenario.nodes, scenario.queues, scenario.jobs, course)
        watch = _Watch(replay)
        for event in scenario.events:
            replay.plan_deed(event.at.ms, _gently(deed_of(event, _ignore)))
        replay.run()
        resized += watch.resized
        assert not watch.faults, (seed, watch.faults[:3])
        assert replay.world.gpu_milli_held == 0, seed
        late = [job.spec.name for job in replay.world.jobs.values() if job.state not in ENDED and _could_run(scenario, job.spec.name)]
        assert not late, (seed, late)
    assert resized > 20, "too little is resized for this to say anything"


def _could_run(scenario: Scenario, name: str) -> bool:
    """Whether its queue alone guarantees enough for its least."""
    told = next(job for job in scenario.jobs if job.spec.name == name)
    quota = next(queue for queue in scenario.queues if queue.id == told.queue).spec.quotas["gpu"].nominal
    low = told.spec.nodes.low if told.spec.nodes is not None else 1
    return low * (told.spec.gpus.count if told.spec.gpus is not None else 0) * 1_000 <= quota

"""
Screens against transcripts in `golden/`, which are reviewed as prose.

To write them anew after a wanted change: SHOAL_WRITE_GOLDEN=1, then read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shoal.base.errors import Fault, Invalid, NotFound
from shoal.model import event as ev
from shoal.model.event import EventRow
from shoal.model.job import ArrayPlace, GpuAsk, GroupSpec, Job, JobEnd, JobSpec, JobState, Usage
from shoal.model.node import Device, DeviceState, Node, NodeFacts, NodeState
from shoal.model.queue import QueueSpec, Quota
from shoal.model.reason import Holder, Reason, ReasonCode
from shoal.model.values import ArrayList, CountRange
from shoal.model.wire import DeviceView, Explanation, JobView, NodeView, PartView, QueueView, RankView, Sample
from shoal.render.events import event_line
from shoal.render.faults import error_lines
from shoal.render.jobs import job_screen, job_table
from shoal.render.look import Look, width_of
from shoal.render.nodes import legend, node_grid, node_screen
from shoal.render.queues import queue_tree
from shoal.render.why import explanation_screen

NOW = 1_700_000_000_000
WIDE = Look(width=100, now_ms=NOW)
NARROW = Look(width=60, now_ms=NOW, unicode=False)
GOLDEN = Path(__file__).parent / "golden"
GANG = JobSpec(name="train", run="#!/bin/bash\npython train.py\necho done\n", nodes=CountRange(2, 2), gpus=GpuAsk(count=8, model=("h100",)))


def job(number: int, state: JobState, spec: JobSpec = GANG, **more: Any) -> Job:
    times = {"created_ms": NOW - 200_000, "queued_ms": NOW - 200_000, **more}
    ident = f"01890000-0000-7000-8000-{number:012d}"
    return Job(id=ident, number=number, project="default", owner="user/anna", spec=spec, queue="research", state=state, **times)


WAITING = job(14, JobState.QUEUED, reason=Reason(code=ReasonCode.RESOURCES, message="asks for 16 h100 on 2 nodes; 1 of 2 nodes has 8 free"))
FAILED = job(
    12,
    JobState.FAILED,
    started_ms=NOW - 180_000,
    ended_ms=NOW - 9_000,
    attempt=2,
    retries=1,
    outcome=JobEnd(exit_code=137, signal=9, task=1, node="n2"),
    usage=Usage(cpu_ms=70_000, memory_bytes_max=3 << 30, gpu_busy_ms=50_000),
    avoid=("n3",),
    time_limit_ms=3_600_000,
)
JOBS = (
    WAITING,
    job(13, JobState.RUNNING, JobSpec(name="odd \x1b[31mname", run="x", cpus=4), started_ms=NOW - 65_000, attempt=1),
    FAILED,
    job(11, JobState.RUNNING, JobSpec(name="sweep", run="x", array=ArrayList.parse("0-9%2"))),
    job(20, JobState.SUCCEEDED, ended_ms=NOW, array=ArrayPlace(array=11, array_id="x", index=3, count=10), outcome=JobEnd(exit_code=0)),
    job(9, JobState.HELD, JobSpec(name="parts", groups=(GroupSpec(name="a", gpus=GpuAsk(count=1)), GroupSpec(name="b", cpus=2)))),
)


def job_view() -> JobView:
    sample = Sample(
        allocation=f"{FAILED.id}.2.0",
        job=FAILED.id,
        at_ms=NOW,
        cpu_ms=5_000,
        memory_bytes=3 << 29,
        gpus=(("GPU-1", 50, 1), ("GPU-2", 70, 1)),
    )
    places = (("n1", 0, ("GPU-1", "GPU-2"), "RELEASED"), ("n2", 1, ("GPU-3",), "STOPPING"))
    ranks = (
        RankView(rank=0, node="n1", gpus=(0, 4), devices=("GPU-1", "GPU-2")),
        RankView(rank=1, node="n1", gpus=(3,), devices=("GPU-9",), parts=("1g.10gb@6",)),
        RankView(rank=2, node="n2", gpus=(1,), devices=("GPU-3",)),
    )
    return JobView(job=FAILED, places=places, samples=(sample,), ranks=ranks)


def why() -> Explanation:
    reason = Reason(
        code=ReasonCode.QUOTA,
        message="queue research has used its quota",
        resource="gpu/h100",
        asked=16,
        free=8,
        capacity=64,
        quota_short_by=8,
        nodes_asked=2,
        nodes_fitting=1,
        since_ms=NOW - 60_000,
        holders=(Holder(project="vision", queue="vision", jobs=3, gpus=24), Holder(project="lab", queue="lab-a", jobs=1, gpus=1)),
        blockers=tuple(str(n) for n in range(20, 32)),
        largest_domain="rack r1",
        largest_free=8,
        hints=("Ask for 1 node of 8 GPUs: it starts now.",),
    )
    return Explanation(
        job="14",
        state="QUEUED",
        headline="Waits for quota: research holds 8 of its 16 h100 and this job asks for 16.",
        reasons=(reason, Reason(code=ReasonCode.BACKOFF, message="failed a moment ago", until_ms=NOW + 30_000)),
        queue="research",
        position=2,
        ahead=("9",),
        earliest_start_ms=NOW + 7_200_000,
        hints=("Raise its priority above 5.",),
    )


def node(name: str, states: tuple[tuple[str, str | None], ...], state: NodeState = NodeState.READY, **more: Any) -> NodeView:
    devices = tuple(
        Device(uuid=f"GPU-{name}-{at}", index=at, model="h100", memory_bytes=80 << 30, island=at // 4) for at in range(len(states))
    )
    views = tuple(
        DeviceView(uuid=device.uuid, index=device.index, model="h100", memory_bytes=80 << 30, state=DeviceState(told), job=holder)
        for device, (told, holder) in zip(devices, states, strict=True)
    )
    facts = NodeFacts(hostname=name, address="10.0.0.1", cpus=64, memory_bytes=512 << 30, pretended=True, devices=devices, kernel="6.1")
    record = Node(
        id=name, facts=facts, state=state, topology=(("rack", "r1"),), labels={"disk": "nvme"}, joined_ms=NOW - 86_400_000, **more
    )
    return NodeView(node=record, devices=views, cpu_milli_free=60_500, memory_bytes_free=400 << 30, jobs=("12",), last_seen_ms=NOW - 3_000)


NODES = (
    node("n1", (("TAKEN", "12"),) * 3 + (("FREE", None),) * 5),
    node(
        "n2",
        (("DIRTY", None), ("BROKEN", None), *((("TAKEN", "130_17"),) * 6)),
        NodeState.DRAINING,
        reason=Reason(code=ReasonCode.BY_HAND, message="new fans (anna)"),
    ),
    node("cpu1", ()),
)
HELD = (PartView(part="3g.40gb@4", charge=500, job="12"), PartView(part="1g.10gb@0", charge=143))
IN_PARTS = replace(NODES[0], devices=(replace(NODES[0].devices[0], job=None, gives="mig", parts=HELD), *NODES[0].devices[1:]))
H100 = "gpu/h100"
QUEUES = (
    QueueView(name="root", parent=None, spec=QueueSpec(), used={H100: 20_000}, running_jobs=3, pending_jobs=5, pending_gpus=16),
    QueueView(
        name="research",
        parent="root",
        spec=QueueSpec(parent="root", weight=2000, quotas={H100: Quota(nominal=16_000, borrowing_limit=8_000, lending_limit=0)}),
        used={H100: 20_000},
        borrowed={H100: 4_000},
        running_jobs=2,
    ),
    QueueView(
        name="prod",
        parent="root",
        spec=QueueSpec(parent="root", order="strict", closed=True, quotas={H100: Quota(nominal=8_000), "memory": Quota(nominal=1 << 40)}),
        used={H100: 2_000},
    ),
    QueueView(name="prod-batch", parent="prod", spec=QueueSpec(parent="prod")),
)
EVENTS = (
    EventRow(kind="job", subject="x", project="default", at_ms=NOW, body=ev.JobSubmitted(number=12, name="train"), actor="user/anna"),
    EventRow(kind="job", subject="x", project="default", at_ms=NOW, body=ev.JobPlaced(attempt=1, nodes=("n1", "n2"), gpus=16)),
    EventRow(
        kind="job",
        subject="x",
        project="default",
        at_ms=NOW,
        body=ev.TaskExited(allocation="x.1.0", attempt=1, rank=3, exit_code=137, signal=9, oom=True),
    ),
    EventRow(kind="node", subject="n2", project="", at_ms=NOW, body=ev.NodeStateChanged(before=NodeState.READY, after=NodeState.LOST)),
)


def faults() -> Invalid:
    many = tuple(Fault(f"unknown key 'k{at}'", f"/k{at}", at + 1, 1) for at in range(14))
    return Invalid("x", (Fault("the text 'x' is not one of a, b", "/per", 3, 7, allowed=("a", "b")), *many))


SCREENS: dict[str, Callable[[], list[str]]] = {
    "jobs-wide": lambda: job_table(JOBS, WIDE),
    "jobs-narrow": lambda: job_table(JOBS, NARROW),
    "jobs-none": lambda: job_table((), WIDE),
    "job": lambda: job_screen(job_view(), WIDE),
    "why": lambda: explanation_screen(why(), WIDE),
    "why-narrow": lambda: explanation_screen(why(), NARROW),
    "nodes-wide": lambda: [*node_grid(NODES, WIDE), legend(WIDE)],
    "nodes-narrow": lambda: node_grid(NODES, NARROW),
    "node": lambda: node_screen(NODES[1], WIDE),
    "node-in-parts": lambda: [*node_grid([IN_PARTS], WIDE), *node_screen(IN_PARTS, WIDE)],
    "queues": lambda: queue_tree(QUEUES, WIDE),
    "queues-ascii": lambda: queue_tree(QUEUES, NARROW),
    "events": lambda: [event_line(row, WIDE, "12" if row.kind == "job" else None) for row in EVENTS],
    "faults": lambda: error_lines(faults(), "job.yaml", WIDE),
    "error": lambda: error_lines(NotFound("no job 99 in project default; `shoal jobs -a` lists those that there are"), "", NARROW),
}


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_is_as_its_transcript(name: str) -> None:
    text = "\n".join(SCREENS[name]()) + "\n"
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("SHOAL_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", [name for name in SCREENS if "narrow" in name])
def test_narrow_screens_keep_to_the_width_and_to_ascii(name: str) -> None:
    for line in SCREENS[name]():
        assert line.isascii()
        assert width_of(line) <= NARROW.width or " " not in line.strip()


def test_colours_change_no_width_and_are_off_by_default() -> None:
    plain, painted = job_table(JOBS, WIDE), job_table(JOBS, Look(width=100, now_ms=NOW, colour=True))
    assert all("\x1b" not in line for line in plain)
    assert [width_of(line) for line in painted] == [width_of(line) for line in plain]
    assert "\x1b[31mFAILED\x1b[0m" in "\n".join(painted)


def test_the_explanation_of_a_waiting_job_fits_one_screen() -> None:
    assert len(explanation_screen(why(), WIDE)) <= 24

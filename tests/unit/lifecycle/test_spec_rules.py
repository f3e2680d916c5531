"""What a job may ask: each rule broken once, with where the fault stands and what it names."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.base import limits
from shoal.formats.moment import resolve_moment
from shoal.lifecycle.spec_rules import check_spec
from shoal.model.job import (
    Checkpoint,
    Dependency,
    Elastic,
    GpuAsk,
    GroupSpec,
    JobSpec,
    Mount,
    OnDisconnect,
    Resources,
    Retry,
    Slice,
    Stop,
    Topology,
    WorkDir,
)
from shoal.model.values import ArrayList, CountRange, Duration, Memory, MemoryRange

DAY_MS = 86_400_000


def spec(**fields: Any) -> JobSpec:
    return JobSpec(**{"run": "python train.py", **fields})


GOOD: dict[str, dict[str, Any]] = {
    "the smallest": {},
    "a gang with everything": {
        "name": "Grösse 7, try 2",
        "nodes": CountRange(2, 4),
        "tasks_per_node": 4,
        "gpus": GpuAsk(count=8, model=("h100", "h200"), memory=MemoryRange(80 * 10**9)),
        "cpus": 64,
        "memory": Memory(1 << 40),
        "time": Duration(DAY_MS),
        "begin": "2026-12-01T08:00:00+01:00",
        "env": {"A_1": ""},
        "secrets": {"token": "wandb-key"},
        "mounts": (Mount(source="/data", target="/data"), Mount(source="/models", target="/m")),
        "depends_on": (Dependency(job="12"), Dependency(job="12_3"), Dependency(job="01900000-0000-7000-8000-000000000012")),
        "retry": Retry(limit=3, exit_codes=(75, 137)),
        "stop": Stop(signal="SIGUSR1", grace=Duration(0)),
        "checkpoint": Checkpoint(signal="USR2", every=Duration(60_000)),
        "topology": Topology(level="rack", required=True),
        "labels": {"team": "vision"},
    },
    "groups with commands of their own": {
        "run": None,
        "groups": (GroupSpec(name="head", run="a"), GroupSpec(name="worker", run=("b", "c"))),
    },
    "a MIG instance": {"gpus": GpuAsk(count=1, mig="1g.10gb+me", model=("h100",))},
    "a share": {"gpus": GpuAsk(share=250)},
    "a share for each task, by memory": {"gpus": GpuAsk(share_memory=Memory(1 << 30), count=1, per="task"), "tasks_per_node": 4},
    "groups that share the job's command": {"groups": (GroupSpec(name="head"), GroupSpec(name="worker", run="b"))},
    "an array of gangs": {"array": ArrayList("0-3%2", (0, 1, 2, 3), 2), "nodes": CountRange(2, 2)},
    "alternatives": {"any_of": (Resources(gpus=GpuAsk(count=8)), Resources(gpus=GpuAsk(count=4), nodes=CountRange(2, 2)))},
    "a GPU per task": {"tasks_per_node": 8, "gpus": GpuAsk(count=1, per="task")},
    "a pool": {"pool": "big", "any_of": (Resources(pool="small"), Resources(cpus=8))},
    "groups in one pool": {"groups": (GroupSpec(name="a", pool="x"), GroupSpec(name="b"), GroupSpec(name="c", pool="x"))},
    "no GPUs": {"tasks_per_node": 3, "gpus": GpuAsk(count=0)},
    "a gang larger than any fleet": {"nodes": CountRange(16_384, 16_384), "gpus": GpuAsk(count=8)},
}

BAD: list[tuple[str, dict[str, Any], str]] = [
    # names
    ("/name", {"name": ""}, "has 0 characters"),
    ("/name", {"name": "x" * 129}, "has 129 characters"),
    ("/name", {"name": "a\nb"}, "printable"),
    ("/queue", {"queue": "no/slash"}, "'no/slash' is no name"),
    ("/user", {"user": "Anna Example"}, "no Unix user"),
    ("/labels/a~1b", {"labels": {"a/b": "x"}}, "'a/b' is no name"),
    # what runs
    ("/run", {"run": None}, "run is missing"),
    ("/run", {"run": "  \n"}, "run is empty"),
    ("/run", {"run": ()}, "run is empty"),
    ("/run", {"run": ("", "x")}, "run is empty"),
    ("/run", {"run": "a\0b"}, "NUL"),
    ("/run", {"run": ("echo", "x" * 70_000)}, "70,000; at most 65,536"),
    ("/setup", {"setup": ""}, "setup is empty"),
    ("/groups/1/run", {"run": None, "groups": (GroupSpec(name="a", run="x"), GroupSpec(name="b"))}, "run is missing"),
    ("/groups/1/name", {"groups": (GroupSpec(name="a"), GroupSpec(name="a"))}, "'a' is there twice"),
    ("/groups", {"groups": tuple(GroupSpec(name=f"g{i}") for i in range(65))}, "65; at most 64"),
    ("/array", {"interactive": True, "array": ArrayList("0", (0,))}, "exclude each other"),
    ("/retry/limit", {"interactive": True, "retry": Retry(limit=1)}, "exclude each other"),
    # resources
    ("/nodes", {"nodes": CountRange(1, 16_385)}, "16,385; at most 16,384"),
    ("/tasks_per_node", {"tasks_per_node": 0}, "is 0; at least 1"),
    ("/tasks_per_node", {"tasks_per_node": -4}, "is -4; at least 1"),
    ("/tasks_per_node", {"nodes": CountRange(1_000, 1_000), "tasks_per_node": 200}, "200,000; at most 131,072"),
    ("/cpus", {"cpus": 0}, "cpus is 0; at least 1"),
    ("/cpus", {"cpus": -1}, "cpus is -1"),
    ("/pool", {"pool": "a b"}, "pool 'a b' is no name"),
    ("/any_of/0/pool", {"any_of": (Resources(pool=""),)}, "pool '' is no name"),
    (
        "/groups/2/pool",
        {"groups": (GroupSpec(name="a"), GroupSpec(name="b", pool="x"), GroupSpec(name="c", pool="y"))},
        "groups name the pools x and y; a gang lies in one pool",
    ),
    ("/groups/1/pool", {"pool": "x", "groups": (GroupSpec(name="a"), GroupSpec(name="b", pool="y"))}, "the pools x and y"),
    ("/memory", {"memory": Memory(0)}, "memory is 0B"),
    ("/memory", {"memory": Memory(2**60)}, "memory is 1024PiB"),
    ("/gpus/count", {"gpus": GpuAsk(count=-1)}, "gpus.count is -1; at least 0"),
    ("/gpus/count", {"gpus": GpuAsk(count=65)}, "65; at most 64"),
    ("/gpus/count", {"gpus": GpuAsk(model=("h100",))}, "asks for none"),
    ("/gpus/count", {"gpus": GpuAsk(count=8), "tasks_per_node": 3}, "use a multiple of 3"),
    ("/gpus/count", {"gpus": GpuAsk(count=9, per="task"), "tasks_per_node": 8}, "is 72; at most 64"),
    ("/gpus/model/0", {"gpus": GpuAsk(count=1, model=("h 100",))}, "'h 100' is no name"),
    ("/gpus/mig", {"gpus": GpuAsk(count=1, mig="1g")}, "'1g' is no profile"),
    ("/gpus/mig", {"gpus": GpuAsk(count=1, mig="1g.10gb", share=500)}, "a MIG instance is not shared"),
    ("/gpus/count", {"gpus": GpuAsk(mig="1g.10gb")}, "asks for none"),
    ("/gpus/share", {"gpus": GpuAsk(share=1001)}, "is 1,001; at most 1,000"),
    ("/gpus/share", {"gpus": GpuAsk(share=0)}, "is 0; at least 1"),
    ("/gpus/share_memory", {"gpus": GpuAsk(share_memory=Memory(0))}, "above 0"),
    ("/gpus/count", {"gpus": GpuAsk(count=2, share=500), "tasks_per_node": 2}, "a task has one share"),
    ("/gpus/count", {"gpus": GpuAsk(share=500), "tasks_per_node": 2}, "use a multiple of 2"),
    ("/any_of/1/gpus/count", {"any_of": (Resources(), Resources(gpus=GpuAsk(count=99)))}, "99; at most 64"),
    ("/ordered/0/gpus/count", {"tasks_per_node": 4, "ordered": (Resources(gpus=GpuAsk(count=2)),)}, "multiple of 4"),
    ("/ordered", {"any_of": (Resources(),), "ordered": (Resources(),)}, "exclude each other"),
    ("/groups/0/gpus/count", {"groups": (GroupSpec(name="a", gpus=GpuAsk(count=1), tasks_per_node=2),)}, "multiple of 2"),
    # time
    ("/time", {"time": Duration(0)}, "time is 0s; at least 1ms"),
    ("/time", {"time": Duration(367 * DAY_MS)}, "time is 367d; at most 366d"),
    ("/begin", {"begin": "tomorrow"}, "'tomorrow'"),
    ("/begin", {"begin": "2026-12-01T08:00:00"}, "add a zone"),
    ("/begin", {"begin": "2026-13-01T08:00:00Z"}, "month"),
    ("/begin", {"begin": "+2"}, "2h30m"),
    ("/stop/grace", {"stop": Stop(grace=Duration(2 * DAY_MS))}, "at most 1d"),
    ("/on_disconnect/stop_after", {"on_disconnect": OnDisconnect(stop_after=Duration(0))}, "at least"),
    # variables, files
    ("/env/1A", {"env": {"1A": "x"}}, "no name of a variable"),
    ("/env/A=B", {"env": {"A=B": "x"}}, "no name of a variable"),
    ("/env/A", {"env": {"A": "x\0y"}}, "NUL"),
    ("/env/A", {"env": {"A": "x" * 70_000}}, "70,000; at most 65,536"),
    ("/env", {"env": {f"A{i}": "" for i in range(1_001)}}, "1,001; at most 1,000"),
    ("/groups/0/env/A-B", {"groups": (GroupSpec(name="a", env={"A-B": ""}),)}, "no name of a variable"),
    ("/secrets/..~1x", {"secrets": {"../x": "key"}}, "no plain file name"),
    ("/secrets/x", {"secrets": {"x": "a key"}}, "'a key' is no name"),
    ("/mounts/0/source", {"mounts": (Mount(source="data", target="/data"),)}, "absolute path"),
    ("/mounts/0/target", {"mounts": (Mount(source="/data", target="/a/../etc"),)}, "absolute path"),
    ("/mounts/0/target", {"mounts": (Mount(source="/data", target="/"),)}, "root directory"),
    ("/mounts/1/target", {"mounts": (Mount(source="/a", target="/x"), Mount(source="/b", target="/x/"))}, "two mounts"),
    ("/workdir/blob", {"workdir": WorkDir(blob="abc")}, "SHA-256"),
    # order, ends
    ("/priority", {"priority": 1_000_001}, "at most 1,000,000"),
    ("/priority", {"priority": -1_000_001}, "at least -1,000,000"),
    ("/depends_on/0/job", {"depends_on": (Dependency(job="train"),)}, "'train' is no job"),
    ("/depends_on", {"depends_on": tuple(Dependency(job="1") for _ in range(1_001))}, "1,001; at most 1,000"),
    ("/retry/limit", {"retry": Retry(limit=-1)}, "is -1; at least 0"),
    ("/retry/exit_codes/0", {"retry": Retry(limit=1, exit_codes=(0,))}, "at least 1"),
    ("/stop/signal", {"stop": Stop(signal="STOP")}, "no signal"),
    ("/checkpoint/signal", {"checkpoint": Checkpoint(signal="15")}, "no signal"),
    ("/nodes", {"elastic": Elastic()}, "needs a range of nodes"),
    ("/groups", {"elastic": Elastic(), "nodes": CountRange(1, 2), "groups": (GroupSpec(name="a"),)}, "exclude each other"),
    ("/elastic/signal", {"elastic": Elastic(signal="USR1"), "nodes": CountRange(1, 2)}, "in_place"),
    ("/elastic/signal", {"elastic": Elastic(how="in_place", signal="STOP"), "nodes": CountRange(1, 2)}, "no signal"),
    # not in this version
    ("/isolation", {"isolation": "vm"}, "not available in this version"),
    ("/image", {"image": "pytorch:2"}, "not available in this version"),
    ("/hold_on_failure", {"hold_on_failure": Duration(2 * 86_400_000)}, "at most"),
    ("/topology/level", {"topology": Topology(required=True)}, "needs a level"),
    # meshes and slices
    ("/topology/mesh/sp", {"topology": Topology(mesh={"sp": 8})}, "no axis 'sp'; there are tp, ep, pp, dp"),
    ("/topology/mesh/tp", {"topology": Topology(mesh={"tp": 0})}, "at least 1"),
    (
        "/topology/mesh",
        {"gpus": GpuAsk(count=8), "nodes": CountRange(2, 2), "topology": Topology(mesh={"tp": 8, "dp": 4})},
        "tp=8,dp=4 multiplies to 32, and 2 x 8 GPUs make 16",
    ),
    ("/topology/mesh", {"topology": Topology(mesh={"tp": 8})}, "multiplies to 8, and 1 x 0 GPUs make 0"),
    (
        "/topology/mesh/tp",
        {"gpus": GpuAsk(count=4), "nodes": CountRange(3, 3), "topology": Topology(mesh={"tp": 6, "dp": 2})},
        "one must divide the other",
    ),
    ("/nodes", {"gpus": GpuAsk(count=8), "nodes": CountRange(1, 2), "topology": Topology(mesh={"tp": 8})}, "a mesh has one size"),
    ("/nodes", {"nodes": CountRange(5, 5), "topology": Topology(slice=Slice(size=2, level="rack"))}, "use a multiple of 2"),
    ("/topology/slice/size", {"topology": Topology(slice=Slice(size=0, level="rack"))}, "at least 1"),
    (
        "/topology/slice",
        {"gpus": GpuAsk(count=8), "topology": Topology(slice=Slice(size=1, level="rack"), mesh={"tp": 8})},
        "exclude each other",
    ),
]


@pytest.mark.parametrize("fields", GOOD.values(), ids=GOOD)
def test_a_good_spec_has_no_fault(fields: dict[str, Any]) -> None:
    assert check_spec(spec(**fields)) == ()


@pytest.mark.parametrize(("pointer", "fields", "words"), BAD, ids=[f"{pointer} {words}" for pointer, _, words in BAD])
def test_a_broken_rule_is_one_fault_with_its_place_and_the_actual_value(pointer: str, fields: dict[str, Any], words: str) -> None:
    faults = check_spec(spec(**fields))
    assert [(f.pointer, words in f.message) for f in faults] == [(pointer, True)], faults
    assert len(faults[0].message) < 300


def test_all_faults_are_told_at_once() -> None:
    faults = check_spec(spec(name="", priority=2_000_000, cpus=0, image="x", env={"": ""}))
    assert {f.pointer for f in faults} == {"/name", "/priority", "/cpus", "/image", "/env/"}


@pytest.mark.parametrize(
    ("text", "want_ms"),
    [
        ("+2h", 7_201_000),
        ("+0s", 1_000),
        ("now", 1_000),
        ("1970-01-01T00:00:05Z", 5_000),
        ("1970-01-01 01:00:05+01:00", 5_000),
        ("2026-12-01T08:00Z", 1_796_112_000_000),
        ("1970-01-01T00:00:05.250Z", 5_250),
    ],
)
def test_begin_is_a_time_with_a_zone_or_counts_from_now(text: str, want_ms: int) -> None:
    assert resolve_moment(text, now_ms=1_000) == want_ms


def test_the_largest_job_is_within_the_largest_counts() -> None:
    assert limits.NODES_PER_JOB_MAX * 8 == limits.TASKS_PER_JOB_MAX

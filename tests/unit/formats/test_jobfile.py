"""Job files: short forms, several jobs in a file, all faults at once with their places, settings laid over."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.base.errors import Fault, Invalid
from shoal.formats.jobfile import decode_spec, expand, read_job, read_jobs
from shoal.model.job import Dependency, GpuAsk, JobSpec, Mount, Retry, Topology, WorkDir
from shoal.model.values import CountRange, Duration, Memory, MemoryRange

ANY_13 = Dependency(job="13", condition="afterany")


def only(text: str) -> JobSpec:
    (spec,) = read_job(text, "job.yaml")
    return spec


def faults(text: str, *settings: str) -> list[tuple[str, int | None, str]]:
    with pytest.raises(Invalid) as caught:
        read_jobs(text, "job.yaml", settings)
    return [(fault.pointer, fault.line, fault.message) for fault in caught.value.faults]


def test_the_smallest_file_is_a_job() -> None:
    assert only("run: echo hello\n") == JobSpec(run="echo hello")


def test_a_whole_file_reads_as_written() -> None:
    text = """
    name: train
    run: |
      torchrun train.py
    nodes: 2..4
    tasks_per_node: 8
    gpus: {count: 8, model: [H100, h200], memory: 80GB}
    cpus: 64
    memory: 512GiB
    time: 2h30m
    queue: research
    preemptible: false
    env: {LR: 0.10, PORT: 0800, DEBUG: true, NAME: no}
    secrets: [HF_TOKEN]
    depends_on: afterok:12:13_4
    """
    assert only(text) == JobSpec(
        name="train",
        run="torchrun train.py\n",
        nodes=CountRange(2, 4),
        tasks_per_node=8,
        gpus=GpuAsk(count=8, model=("h100", "h200"), memory=MemoryRange(80 * 10**9)),
        cpus=64,
        memory=Memory(512 << 30),
        time=Duration(9_000_000),
        queue="research",
        preemptible=False,
        env={"LR": "0.10", "PORT": "0800", "DEBUG": "true", "NAME": "no"},
        secrets={"HF_TOKEN": "HF_TOKEN"},
        depends_on=(Dependency(job="12"), Dependency(job="13_4")),
    )


@pytest.mark.parametrize(
    ("written", "want"),
    [
        ("8", GpuAsk(count=8)),
        ("'8'", GpuAsk(count=8)),
        ("h100", GpuAsk(count=1, model=("h100",))),
        ("H100:8", GpuAsk(count=8, model=("h100",))),
        ("h100,h200:4", GpuAsk(count=4, model=("h100", "h200"))),
        ("h100:80GB:2", GpuAsk(count=2, model=("h100",), memory=MemoryRange(80 * 10**9))),
        ("a100:24GB..40GB", GpuAsk(count=1, model=("a100",), memory=MemoryRange(24 * 10**9, 40 * 10**9))),
        ("{model: h100}", GpuAsk(count=1, model=("h100",))),
        ("{count: 2, memory: 80GB..}", GpuAsk(count=2, memory=MemoryRange(80 * 10**9))),
        ("{mig: 1g.10gb}", GpuAsk(count=1, mig="1g.10gb")),
        ("{share: 250, model: l40s}", GpuAsk(share=250, model=("l40s",))),
    ],
)
def test_short_forms_of_gpus(written: str, want: GpuAsk) -> None:
    assert only(f"run: x\ngpus: {written}\n").gpus == want
    assert only(f"run: x\nany_of:\n  - gpus: {written}\n").any_of[0].gpus == want


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("depends_on: 12", {"depends_on": (Dependency(job="12"),)}),
        ("depends_on: 12_3", {"depends_on": (Dependency(job="12_3"),)}),
        ("depends_on: afterok:12:13", {"depends_on": (Dependency(job="12"), Dependency(job="13"))}),
        ("depends_on: 'after:12,afterany:13'", {"depends_on": (Dependency(job="12", condition="after"), ANY_13)}),
        ("depends_on: [12, afterany:13]", {"depends_on": (Dependency(job="12"), ANY_13)}),
        ("depends_on: {job: 12, condition: afternotok}", {"depends_on": (Dependency(job="12", condition="afternotok"),)}),
        ("workdir: .", {"workdir": WorkDir(path=".")}),
        ("mounts: ['/a:/b']", {"mounts": (Mount(source="/a", target="/b"),)}),
        ("mounts: ['/data:/data:ro']", {"mounts": (Mount(source="/data", target="/data", read_only=True),)}),
        ("topology: rack", {"topology": Topology(level="rack")}),
        ("retry: 3", {"retry": Retry(limit=3)}),
        ("nodes: 4", {"nodes": CountRange(4, 4)}),
        ("nodes: 2..4", {"nodes": CountRange(2, 4)}),
    ],
)
def test_short_forms_of_other_keys(line: str, want: dict[str, Any]) -> None:
    assert only(f"run: x\n{line}\n") == JobSpec(run="x", **want)


@pytest.mark.parametrize(
    ("line", "indices", "at_once"), [("'0-7:2%2'", (0, 2, 4, 6), 2), ("[1, 3, 5]", (1, 3, 5), None), ("7", (7,), None)]
)
def test_forms_of_an_array(line: str, indices: tuple[int, ...], at_once: int | None) -> None:
    array = only(f"run: x\narray: {line}\n").array
    assert array is not None
    assert (array.indices, array.at_once) == (indices, at_once)


def test_a_command_in_list_form_keeps_numbers_as_written() -> None:
    assert only("run: [python, train.py, --lr, 0.10, --fast, true]\n").run == ("python", "train.py", "--lr", "0.10", "--fast", "true")


@pytest.mark.parametrize(("key", "written"), [("run", "true"), ("run", "007"), ("setup", "1.50"), ("name", "2024")])
def test_a_scalar_where_only_text_can_be_is_text_as_written(key: str, written: str) -> None:
    assert getattr(only(f"{key}: {written}\n"), key) == written
    with pytest.raises(Invalid, match="expected text"):
        decode_spec({key: True})


def test_several_jobs_in_a_file_keep_their_order_and_empty_parts_are_passed_over() -> None:
    assert [spec.name for spec in read_job("name: a\n---\n---\nname: b\n", "f")] == ["a", "b"]


def test_all_faults_of_all_jobs_are_told_at_once_with_their_places() -> None:
    text = "run: x\ngpu: 8\nnodes: 0\nmemory: 64\ngpus:\n  cuont: 2\n---\npreemptible: no\ntime: 12:30\nqueue:\nenv:\n"
    found = faults(text)
    assert [(pointer, line) for pointer, line, _ in found] == [
        ("/gpu", 2),
        ("/nodes", 3),
        ("/memory", 4),
        ("/gpus/cuont", 6),
        ("/preemptible", 8),
        ("/time", 9),
        ("/env", 11),
    ]
    words = [message for _, _, message in found]
    assert "did you mean 'gpus'?" in words[0]
    assert "did you mean 'count'?" in words[3]
    assert words[4] == "expected true or false, got the text 'no'"
    assert "for example 2h30m" in words[5]
    assert words[6].startswith("has no value; leave the key out or give a mapping")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("partition: gpu", "unknown key 'partition'; did you mean 'queue'?"),
        ("num_nodes: 2", "did you mean 'nodes'?"),
        ("commands: [a]", "did you mean 'run'?"),
        ("zzz: 1", "unknown key 'zzz'"),
        ("gpus: h100 x 8", "expected a count, h100:8, or a mapping such as {count: 8, model: h100}, got the text 'h100 x 8'"),
        ("gpus: true", "expected a count"),
        ("gpus: {count: 8.0}", "expected a whole number, got the number 8.0"),
        ("gpus: {per: nodes}", "the text 'nodes' is not one of node, task; did you mean 'node'?"),
        ("memory: 64", "must be text such as '64GiB'"),
        ("memory: '64'", "add a unit, for example 64GiB"),
        ("time: 90", "must be text such as '2h30m'"),
        ("queue: 2024", "expected text, got the number 2024; put it in quotes to make it text"),
        ("env: {A: [1]}", "expected text, got a list"),
        ("env: {A: }", "has no value; leave the key out or give text"),
        ("run: {a: b}", "expected text or a list, got a mapping"),
        ("depends_on: train", "expected the number of a job that exists"),
        ("depends_on: {condition: afterok}", "the key 'job' is missing"),
        ("array: 5-1", "must rise"),
        ("array: 0-999999999", "more than 10000 tasks"),
        ("groups: {a: {run: x}}", "expected a list, got a mapping"),
    ],
)
def test_a_fault_says_what_is_wanted(line: str, words: str) -> None:
    found = faults(f"{line}\n")
    assert len(found) == 1
    assert words in found[0][2]


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n---\n", "~\n"])
def test_a_file_without_a_job_says_what_the_smallest_is(text: str) -> None:
    assert "run: echo hello" in faults(text)[0][2]


@pytest.mark.parametrize("text", ["just words\n", "[1, 2]\n", "42\n"])
def test_a_document_that_is_no_mapping_is_a_fault(text: str) -> None:
    assert faults(text)[0][2].startswith("expected a mapping with keys such as")


def test_faults_of_the_server_get_the_lines_of_the_file() -> None:
    (job,) = read_jobs("run: x\ngpus: h100:8\nnodes: 2\n", "job.yaml")
    located = job.locate((Fault("too many", "/gpus/count"), Fault("odd", "/nodes"), Fault("whole", "")))
    assert [(fault.line, fault.column) for fault in located] == [(2, 7), (3, 8), (1, 1)]


def test_settings_are_laid_over_every_job_and_faults_name_them() -> None:
    jobs = read_jobs("run: x\ngpus: h100:8\n---\nrun: y\n", "f", ("gpus.count=4", "env.PORT=0800", "time=2h"))
    assert [job.spec.gpus for job in jobs] == [GpuAsk(count=4, model=("h100",)), GpuAsk(count=4)]
    assert [job.spec.env for job in jobs] == [{"PORT": "0800"}] * 2
    ((pointer, line, words),) = faults("run: x\n", "gpus.cuont=4")
    assert (pointer, line) == ("/gpus/cuont", None)
    assert words == "unknown key 'cuont'; did you mean 'count'? (from --set gpus.cuont=4)"
    with pytest.raises(Invalid, match="write key=value"):
        read_jobs("run: x\n", "f", ("gpus",))


def test_the_wire_takes_short_forms_and_tells_all_faults() -> None:
    assert decode_spec({"run": "x", "gpus": "h100:8", "env": {"A": 1}}).env == {"A": "1"}
    with pytest.raises(Invalid, match=r"^/env/A: expected text, got the number 1\.5.* \(and 1 more\)$") as caught:
        decode_spec({"env": {"A": 1.5}, "nodse": 2})
    assert [fault.pointer for fault in caught.value.faults] == ["/env/A", "/nodse"]


def test_what_is_not_understood_stays_for_the_shape_to_tell() -> None:
    raw = {"gpus": [1], "depends_on": "x y", "secrets": 5, "mounts": ["a"], "any_of": 3, "labels": 1}
    assert expand(raw) == raw

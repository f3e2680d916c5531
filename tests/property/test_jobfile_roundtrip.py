"""Whatever a spec holds, the file written from it reads back as the same spec; and no text or tree makes the reader fall over."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.base.errors import Invalid, Malformed, TooLarge
from shoal.formats import yaml
from shoal.formats.jobfile import decode_spec, expand, read_job, write_job
from shoal.model.codec import decode_json, encode_json, to_plain
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
    Stop,
    Topology,
    WorkDir,
)
from shoal.model.values import ArrayList, CountRange, Duration, Memory, MemoryRange

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

_LOOKS_LIKE_A_VALUE = ("", "no", "on", "~", "null", "12", "0800", "0o17", "0x1F", "1e3", ".inf", "12:30", "12_3", " x", "x ")
_LOOKS_LIKE_SYNTAX = ("- a", "a: b", "#c", "&a", "*a", "!t", "%d", "@x", "`", "'", '"', "{", "[", "? k", "|", ">")
_LINES = ("a\n", "\na", "a\n\n", "  a\nb", "a \nb", "\ta\nb", "é\u2028", "\x85", "\x07\0", "\r", "a\r\nb\r\n")
awkward = st.sampled_from([*_LOOKS_LIKE_A_VALUE, *_LOOKS_LIKE_SYNTAX, *_LINES])
words = st.one_of(awkward, st.text(max_size=30), st.from_regex(r"[a-z][a-z0-9-]{0,12}", fullmatch=True))
texts = st.dictionaries(words, words, max_size=3)
durations = st.builds(Duration, st.integers(0, 10**10))
memories = st.builds(Memory, st.integers(0, 1 << 50))
counts = st.tuples(st.integers(1, 50), st.integers(0, 50)).map(lambda pair: CountRange(pair[0], pair[0] + pair[1]))
ranges = st.tuples(st.integers(0, 1 << 40), st.one_of(st.none(), st.integers(0, 1 << 40))).map(
    lambda pair: MemoryRange(pair[0], None if pair[1] is None else pair[0] + pair[1])
)
gpus = st.builds(
    GpuAsk,
    count=st.integers(0, 64),
    model=st.lists(st.from_regex(r"[a-z][a-z0-9]{0,6}", fullmatch=True), max_size=2).map(tuple),
    memory=st.none() | ranges,
    per=st.sampled_from(["node", "task"]),
    share=st.none() | st.integers(1, 1000),
    share_memory=st.none() | memories,
).filter(lambda ask: ask.count > 0 or ask.share is not None or not (ask.model or ask.memory))
node_parts: dict[str, Any] = {
    "nodes": st.none() | counts,
    "tasks_per_node": st.none() | st.integers(1, 64),
    "gpus": st.none() | gpus,
    "cpus": st.none() | st.integers(0, 512),
    "memory": st.none() | memories,
    "pool": st.none() | words,
}
runs = st.one_of(st.none(), words, st.lists(words, max_size=3).map(tuple))
jobs = st.one_of(st.integers(1, 10**6).map(str), st.builds("{}_{}".format, st.integers(1, 999), st.integers(0, 99)))
meshes = st.dictionaries(words, st.integers(1, 99), max_size=2)
specs = st.builds(
    JobSpec,
    **node_parts,
    name=words,
    run=runs,
    setup=st.none() | words,
    queue=st.none() | words,
    priority=st.integers(-(10**6), 10**6),
    preemptible=st.booleans(),
    elastic=st.none()
    | st.builds(Elastic, how=st.sampled_from(("restart", "in_place")), signal=st.none() | st.sampled_from(("USR1", "HUP"))),
    time=st.none() | durations,
    begin=st.none() | words,
    env=texts,
    labels=texts,
    workdir=st.none() | st.builds(WorkDir, path=st.none() | words, ignore=st.lists(words, max_size=2).map(tuple), blob=st.none() | words),
    mounts=st.lists(st.builds(Mount, source=words, target=words, read_only=st.booleans()), max_size=2).map(tuple),
    secrets=texts,
    any_of=st.lists(st.builds(Resources, **node_parts), max_size=2).map(tuple),
    groups=st.lists(st.builds(GroupSpec, name=words, run=runs, env=texts, **node_parts), max_size=2).map(tuple),
    array=st.none() | st.sampled_from(["0-15", "0-15:4%2", "1,3,5-7", "7"]).map(ArrayList.parse),
    depends_on=st.lists(st.builds(Dependency, job=jobs, condition=st.sampled_from(["after", "afterany"])), max_size=3).map(tuple),
    topology=st.none() | st.builds(Topology, level=st.none() | words, required=st.booleans(), mesh=meshes),
    retry=st.builds(Retry, limit=st.integers(0, 9), exit_codes=st.lists(st.integers(1, 255), max_size=2).map(tuple), backoff=durations),
    checkpoint=st.none() | st.builds(Checkpoint, signal=st.none() | words, every=st.none() | durations, takes=st.none() | durations),
    stop=st.builds(Stop, signal=words, grace=durations),
    on_disconnect=st.builds(OnDisconnect, stop_after=durations),
    hold_on_failure=st.none() | durations,
    interactive=st.booleans(),
)


@QUICK
@given(specs)
def test_a_written_job_reads_back_equal(spec: JobSpec) -> None:
    text = write_job(spec)
    if yaml.parse(text, "written")[0].value is None:
        return
    assert read_job(text, "written") == (spec,), text


@QUICK
@given(specs)
def test_the_wire_form_of_a_spec_decodes_to_the_same_spec(spec: JobSpec) -> None:
    raw = to_plain(spec)
    assert decode_spec(raw) == spec
    assert decode_json(encode_json(spec), JobSpec) == spec


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=12,
)
keys = st.sampled_from([*JobSpec.__struct_fields__, "count", "model", "job", "path", "gpu", "nmae"])
trees = st.dictionaries(keys, plain | st.dictionaries(keys, plain, max_size=3), max_size=5)


@QUICK
@given(plain)
def test_any_plain_tree_survives_dump_and_parse(tree: Any) -> None:
    assert yaml.parse(yaml.dump(tree), "tree")[0].value == tree


@QUICK
@given(trees)
def test_opening_short_forms_twice_is_as_once_and_leaves_the_tree_alone(tree: dict[str, Any]) -> None:
    before = encode_json(tree)
    once = expand(tree)
    assert expand(once) == once
    assert encode_json(tree) == before


@QUICK
@given(trees)
def test_a_tree_without_a_fault_converts_and_one_with_faults_is_refused(tree: dict[str, Any]) -> None:
    try:
        spec = decode_spec(tree)
    except Invalid as error:
        told = [fault.message for fault in error.faults]
    else:
        told = [spec.name]
        assert isinstance(spec, JobSpec)
    assert told
    assert None not in told


@QUICK
@given(st.binary(max_size=200) | st.text(max_size=200) | st.text(alphabet="ab:-[]{}&*!|>'\"%@#?,\n\t ", max_size=60))
def test_the_reader_never_falls_over(data: bytes | str) -> None:
    told = "input"
    try:
        read_job(data, "input")
    except (Invalid, Malformed, TooLarge) as error:
        told = error.message
    assert "input" in told

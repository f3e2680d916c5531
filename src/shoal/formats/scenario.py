"""
Scenario files: a cluster, queues, jobs and events, and what must be true when. One YAML form, read strictly; docs/reference/scenario.md
tells it to people.

Pure reading: names are opened (`n[0-3]`), streams of jobs are written out, durations become numbers; nothing is played here (that is
`sim.scenario`). A job's own keys are those of a job file; the few beside them say how it behaves. All faults are told at once with their
lines, as for job files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from shoal.base import limits
from shoal.base.errors import Fault, Invalid
from shoal.base.units import parse_duration_ms
from shoal.formats import yaml
from shoal.formats.jobfile import JobFile, expand
from shoal.formats.partition import partition_of
from shoal.formats.scenario_sheet import DEEDS, Behaviour, Expectation, Happening, Nodes, QueueEntry, ReservationEntry, Sheet
from shoal.formats.shape import shape_faults
from shoal.formats.workload import NodeKind, TraceJob, in_order, node_of
from shoal.model.codec import convert
from shoal.model.job import JobSpec
from shoal.model.node import Node
from shoal.model.queue import Queue, QueueSpec, Quota
from shoal.model.reservation import Reservation, ReservationSpec

_NAMES = re.compile(r"([^\[\],\s]+)(?:\[(\d{1,6})-(\d{1,6})\])?")
_NAMED_JOB = re.compile(r"(?:(?P<condition>after|afterok|afternotok|afterany):)?(?P<job>[^:\s]+)")


class Span(msgspec.Struct, frozen=True):
    """From when through when an expectation holds; `last_ms` None: to the end, and `first_ms` None: at the end only."""

    first_ms: int | None
    last_ms: int | None


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario as it is played. `jobs` are in the order of the file, streams written out."""

    name: str
    source: str
    about: str = ""
    waits_for: str | None = None
    """What Shoal does not have yet and this scenario needs; it is then expected to fail."""
    policy: dict[str, Any] = {}
    interleavings: int = 1
    nodes: tuple[Node, ...] = ()
    queues: tuple[Queue, ...] = ()
    reservations: tuple[ReservationEntry, ...] = ()
    jobs: tuple[TraceJob, ...] = ()
    events: tuple[Happening, ...] = ()
    expect: tuple[tuple[Span, Expectation], ...] = ()


def read_scenario(text: bytes | str, source: str) -> Scenario:
    """
    The scenario of a file; `source` names it in messages.

    Raises: Invalid with all faults; Malformed for what is no text; TooLarge over limits.JOB_FILE_BYTES_MAX.
    """
    documents = [document for document in yaml.parse(text, source) if document.value is not None]
    if len(documents) != 1:
        raise Invalid(f"{source} holds {len(documents)} scenarios; a file holds one")
    document = documents[0]
    raw = _open_shorthands(document.value)
    faults = list(shape_faults(raw, Sheet))
    jobs: list[TraceJob] = []
    if not faults:
        for at, entry in enumerate(raw.get("jobs", [])):
            jobs += _jobs_of(entry, f"/jobs/{at}", faults)
    sheet = convert(raw, Sheet) if not faults else None
    if sheet is not None:
        faults += _rules(sheet, jobs)
    if faults or sheet is None:
        placed = JobFile(JobSpec(), source, document.places).locate(faults)
        raise Invalid(f"{source}: {len(faults)} fault{'s' if len(faults) > 1 else ''}", placed)
    return _opened(sheet, source, jobs)


def _opened(sheet: Sheet, source: str, jobs: Iterable[TraceJob]) -> Scenario:
    return Scenario(
        name=sheet.name,
        source=source,
        about=sheet.about,
        waits_for=sheet.waits_for,
        policy=sheet.policy,
        interleavings=sheet.interleavings,
        nodes=tuple(node for entry in sheet.cluster for node in nodes_of(entry)),
        queues=tuple(queue_of(entry) for entry in sheet.queues),
        reservations=sheet.reservations,
        jobs=in_order(jobs),
        events=tuple(sorted(sheet.events, key=lambda event: event.at.ms)),
        expect=tuple((_span(wanted.at), wanted) for wanted in sheet.expect),
    )


# --- what people may write shorter ---------------------------------------------------------------------------------------------
def _open_shorthands(raw: Any) -> Any:
    """
    `g1: RUNNING` becomes `g1: {state: RUNNING}`, `n[0-3]` in the cluster a mapping, and a list of nodes one text; what is not understood
    stays for `shape` to tell.
    """
    if not isinstance(raw, dict):
        return raw
    opened = dict(raw)
    for key in ("cluster", "reservations"):
        if isinstance(opened.get(key), list):
            opened[key] = [_open_nodes(entry) for entry in opened[key]]
    if isinstance(opened.get("events"), list):
        opened["events"] = [_open_event(entry) for entry in opened["events"]]
    if isinstance(opened.get("expect"), list):
        opened["expect"] = [_open_expectation(entry) for entry in opened["expect"]]
    return opened


def _open_nodes(raw: Any, key: str = "nodes") -> Any:
    if isinstance(raw, str):
        return {key: raw}
    names = raw.get(key) if isinstance(raw, dict) else None
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return {**raw, key: ",".join(names)}
    return raw


def _open_event(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    opened = dict(_open_nodes(raw, "node"))
    for key in ("add_nodes", "reserve"):
        if key in opened:
            opened[key] = _open_nodes(opened[key])
    return opened


def _open_expectation(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    opened = dict(raw)
    for key in ("jobs", "nodes"):
        if isinstance(opened.get(key), dict):
            opened[key] = {name: {"state": want} if isinstance(want, str) else want for name, want in opened[key].items()}
    if isinstance(opened.get("any_of"), list):
        opened["any_of"] = [_open_expectation(entry) for entry in opened["any_of"]]
    return opened


# --- parts ---------------------------------------------------------------------------------------------------------------------
def names_of(pattern: str) -> tuple[str, ...]:
    """`n[0-3]` as n0 to n3; several names or ranges with commas. Raises ValueError for what is no such pattern."""
    names: list[str] = []
    for part in pattern.split(","):
        match = _NAMES.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"nodes {pattern!r}: write a name, or a range such as n[0-3]")
        first, last = match[2], match[3]
        if first is None:
            names.append(match[1])
            continue
        count = int(last) - int(first) + 1
        if not 0 < count <= limits.NODES_PER_JOB_MAX:
            raise ValueError(f"nodes {pattern!r}: a range must rise and name at most {limits.NODES_PER_JOB_MAX:,} nodes")
        names += [f"{match[1]}{number:0{len(first)}}" for number in range(int(first), int(last) + 1)]
    return tuple(names)


def nodes_of(entry: Nodes) -> tuple[Node, ...]:
    """The nodes of one entry of `cluster`."""
    kind = NodeKind(
        gpus=entry.gpus,
        model=entry.model,
        cpus=entry.cpus,
        memory_bytes=entry.memory.bytes,
        gpu_memory_bytes=entry.gpu_memory.bytes,
        partition=partition_of(entry.parts),
    )
    return tuple(node_of(name, kind, entry.pool, tuple(entry.topology.items())) for name in names_of(entry.nodes))


def queue_of(entry: QueueEntry) -> Queue:
    """The queue of an entry."""
    quotas = dict(entry.quotas)
    if entry.gpus is not None or entry.borrow is not None or entry.lend is not None:
        quotas["gpu"] = Quota(nominal=(entry.gpus or 0) * 1_000, borrowing_limit=_milli(entry.borrow), lending_limit=_milli(entry.lend))
    spec = QueueSpec(
        parent=entry.parent,
        project=entry.project,
        weight=entry.weight,
        order=entry.order,
        quotas=quotas,
        closed=entry.closed,
        default_time_ms=entry.default_time.ms if entry.default_time else None,
        limits=entry.limits,
        min_run_ms=entry.min_run.ms if entry.min_run else None,
    )
    return Queue(id=entry.name, spec=spec)


def reservation_of(entry: ReservationEntry, base_ms: int) -> Reservation:
    """The reservation of an entry, where time 0 of the file is `base_ms`."""
    nodes = () if entry.nodes is None else names_of(entry.nodes)
    same: dict[str, Any] = {name: getattr(entry, name) for name in ("pool", "domain", "repeat", "users", "projects", "queues", "reason")}
    spec = ReservationSpec(nodes=nodes, start_ms=base_ms + entry.from_.ms, end_ms=base_ms + entry.to.ms, **same)
    return Reservation(id=entry.name, spec=spec)


def _milli(gpus: int | None) -> int | None:
    return None if gpus is None else gpus * 1_000


def _jobs_of(raw: dict[str, Any], pointer: str, faults: list[Fault]) -> list[TraceJob]:
    """The jobs of one entry, one for each of its `times`."""
    own = set(Behaviour.__struct_fields__)
    told = {key: value for key, value in raw.items() if key in own}
    asked = {"run": "true", **{key: value for key, value in raw.items() if key not in own}}
    if "depends_on" in asked:
        asked["depends_on"] = _dependencies(asked["depends_on"])
    asked = expand(asked)
    found = [*shape_faults(told, Behaviour, pointer), *shape_faults(asked, JobSpec, pointer)]
    if found:
        faults += found
        return []
    behaviour, spec = convert(told, Behaviour), convert(asked, JobSpec)
    if not 1 <= behaviour.times <= limits.ARRAY_TASKS_MAX:
        faults.append(Fault(f"times is {behaviour.times}; from 1 to {limits.ARRAY_TASKS_MAX:,} is possible", f"{pointer}/times"))
        return []
    name = spec.name
    return [_job(behaviour, _named(spec, name, number, behaviour.times), number) for number in range(behaviour.times)]


def _named(spec: JobSpec, name: str, number: int, times: int) -> JobSpec:
    return spec if times == 1 else msgspec.structs.replace(spec, name=f"{name}-{number + 1}")


def _job(behaviour: Behaviour, spec: JobSpec, number: int) -> TraceJob:
    return TraceJob(
        submit_ms=behaviour.at.ms + number * behaviour.every.ms,
        run_ms=None if behaviour.runs is None else behaviour.runs.ms,
        spec=spec,
        owner=behaviour.owner,
        queue=spec.queue or "default",
        project=behaviour.project,
        exit_code=behaviour.exit_code,
        prepare_ms=behaviour.prepares_in.ms,
        stop_ms=behaviour.stops_in.ms,
        save_ms=None if behaviour.saves_in is None else behaviour.saves_in.ms,
    )


def _dependencies(raw: Any) -> Any:
    """Names of jobs, with a condition before a colon; other forms stay as they are."""
    opened = []
    for part in raw if isinstance(raw, list) else [raw]:
        match = _NAMED_JOB.fullmatch(part) if isinstance(part, str) else None
        opened.append(part if match is None else {"job": match["job"], "condition": match["condition"] or "afterok"})
    return opened


def _span(text: str) -> Span:
    """Raises ValueError for what is none of the four forms of `at`."""
    if text == "end":
        return Span(None, None)
    if text == "always":
        return Span(0, None)
    first, dots, last = text.partition("..")
    first_ms = parse_duration_ms(first)
    return Span(first_ms, parse_duration_ms(last) if dots else first_ms)


# --- rules beyond types --------------------------------------------------------------------------------------------------------
def _rules(sheet: Sheet, jobs: list[TraceJob]) -> list[Fault]:
    names: Mapping[str, int] = _counted(job.spec.name for job in jobs)
    faults = [Fault(f"{count} jobs are named {name!r}; give each a name of its own", "/jobs") for name, count in names.items() if count > 1]
    faults += _cluster_rules(sheet)
    for at, entry in enumerate(sheet.reservations):
        faults += _reservation_rules(entry, f"/reservations/{at}")
    for at, event in enumerate(sheet.events):
        faults += _event_rules(event, f"/events/{at}")
    for at, wanted in enumerate(sheet.expect):
        faults += _tried(lambda wanted=wanted: _span(wanted.at), f"/expect/{at}/at")
    known = {entry.name for entry in sheet.queues} | {"default"}
    arrivals = {job.spec.name: job.submit_ms for job in jobs}
    for job in jobs:
        if job.queue not in known:
            faults.append(Fault(f"job {job.spec.name} is in queue {job.queue!r}, which is not among queues", "/queues"))
        for dependency in job.spec.depends_on:
            if dependency.job not in names:
                faults.append(Fault(f"job {job.spec.name} depends on {dependency.job!r}, which is no job of this file", "/jobs"))
            elif arrivals[dependency.job] > job.submit_ms:
                faults.append(Fault(f"job {job.spec.name} depends on {dependency.job!r}, which arrives after it", "/jobs"))
    if not 1 <= sheet.interleavings <= limits.ARRAY_TASKS_MAX:
        faults.append(Fault(f"interleavings is {sheet.interleavings}; from 1 to {limits.ARRAY_TASKS_MAX:,} is possible", "/interleavings"))
    return faults


def _cluster_rules(sheet: Sheet) -> list[Fault]:
    faults: list[Fault] = []
    seen: set[str] = set()
    for at, entry in enumerate(sheet.cluster):
        faults += _tried(lambda entry=entry: names_of(entry.nodes), f"/cluster/{at}/nodes")
        faults += _tried(lambda entry=entry: partition_of(entry.parts), f"/cluster/{at}/parts")
        if not 0 <= entry.gpus <= limits.GPUS_PER_NODE_MAX:
            faults.append(Fault(f"gpus is {entry.gpus}; from 0 to {limits.GPUS_PER_NODE_MAX} is possible", f"/cluster/{at}/gpus"))
        names = [] if faults else list(names_of(entry.nodes))
        faults += [Fault(f"there are two nodes {name!r}", f"/cluster/{at}/nodes") for name in names if name in seen]
        seen.update(names)
    queues = {entry.name for entry in sheet.queues} | {"default"}
    for at, queue in enumerate(sheet.queues):
        if queue.parent is not None and queue.parent not in queues:
            faults.append(Fault(f"queue {queue.name}: its parent {queue.parent!r} is not among queues", f"/queues/{at}/parent"))
    return faults


def _event_rules(event: Happening, pointer: str) -> list[Fault]:
    given = [name for name in DEEDS if getattr(event, name) is not None]
    if len(given) != 1:
        what = f"has {' and '.join(given)}" if given else "does nothing"
        return [Fault(f"this event {what}; give exactly one of {', '.join(DEEDS)}", pointer)]
    if (event.node is None) != (event.does is None):
        return [Fault("node and does go together, for example {node: n1, does: drain}", pointer)]
    if event.reserve is not None:
        return _reservation_rules(event.reserve, f"{pointer}/reserve")
    return _tried(lambda: names_of(event.node or "x"), f"{pointer}/node")


def _reservation_rules(entry: ReservationEntry, pointer: str) -> list[Fault]:
    if sum(where is not None for where in (entry.nodes, entry.pool, entry.domain)) != 1:
        return [Fault(f"reservation {entry.name}: give exactly one of nodes, pool and domain", pointer)]
    if entry.to.ms <= entry.from_.ms:
        return [Fault(f"reservation {entry.name} ends before it begins", f"{pointer}/to")]
    return _tried(lambda: names_of(entry.nodes or "x"), f"{pointer}/nodes")


def _tried(read: Any, pointer: str) -> list[Fault]:
    try:
        read()
    except ValueError as error:
        return [Fault(str(error), pointer)]
    return []


def _counted(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts

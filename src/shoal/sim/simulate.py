"""
Traces under policies: read a trace, put it on a fleet, play it once per policy, and give figures that can be laid side by side.

Called by `shoal simulate`. Nothing of wall-clock time is in the result, so the same trace, fleet, policies and seed give the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Literal

import msgspec
from msgspec.structs import replace

from shoal.base import limits
from shoal.base.errors import Invalid
from shoal.base.words import did_you_mean
from shoal.formats.gavel import Rates, is_gavel, read_gavel
from shoal.formats.openb import read_nodes, read_pods
from shoal.formats.philly import read_jobs_table
from shoal.formats.swf import read_swf
from shoal.formats.workload import NodeKind, TraceJob, Workload, node_of
from shoal.lifecycle.spec_rules import check_spec
from shoal.model.job import GpuAsk, JobSpec
from shoal.model.node import Node
from shoal.model.part import Partition
from shoal.model.queue import Queue, QueueSpec, Quota
from shoal.scheduling.quota import DEFAULT_QUEUE
from shoal.sim.audit import Audit, Played, Watch, audit
from shoal.sim.bars import Bar, bars_of
from shoal.sim.metrics import Metrics, metrics_of
from shoal.sim.policies import NamedPolicy
from shoal.sim.replay import Course, Replay
from shoal.sim.series import Series

Kind = Literal["swf", "openb", "philly", "gavel"]
PER_NODE = 8
INSTANTS_PER_LOOK = 200
"""Instants between two words of progress: a few times a second."""
_FLEET_PART = re.compile(r"(?P<nodes>\d{1,6})x(?:(?P<model>[A-Za-z][\w.-]*):)?(?P<gpus>\d{1,3})")

SHARED = Partition(soft="time-slice", shares_max=1_000)
"""GPUs of a fleet that says nothing of parts, for a trace with shares: as many as there are thousandths, no other limit."""
Progress = Callable[[str, int, int], None]
"""Hears the policy, how many jobs have arrived, and how many there are."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """On what and how a trace is played. `load` 2 makes arrivals come twice as fast."""

    nodes: tuple[Node, ...]
    parts: Partition | None = None
    """How every GPU may be given; None: as the nodes have it, and `SHARED` where jobs ask for shares and no node can give any."""
    policies: tuple[NamedPolicy, ...] = (NamedPolicy(name="default"),)
    seed: int = 0
    load: float = 1.0
    jobs: int | None = None
    """Only so many, from the start."""
    own_queues: bool = False
    """The trace's own queues; else all jobs are in one."""
    guarantees: dict[str, int] = {}
    """GPUs that queues of the trace are guaranteed, which they lend; with any, the trace's own queues are kept and the promises audited."""
    check: bool = False
    chart: bool = False
    """Keep what a picture needs: the course of time, and who ran where."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A trace under one policy."""

    policy: NamedPolicy
    metrics: Metrics
    cycles: int
    events: int = 0
    evictions: int = 0
    audit: Audit | None = None
    """With `Setting.guarantees`: whether they were kept."""
    series: Series | None = None
    """With `Setting.chart`."""
    bars: tuple[Bar, ...] = ()
    """With `Setting.chart`: the first BARS_MAX jobs that ended."""


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """A trace under each of its policies; `notes` say what was left out or changed."""

    trace: str
    jobs: int
    nodes: int
    gpus: int
    seed: int
    load: float
    notes: tuple[str, ...]
    runs: tuple[Run, ...]


# --- reading -----------------------------------------------------------------------------------------------------------------
def kind_of(first_lines: Iterable[str], source: str) -> Kind:
    """What a text is, by its first line that is no comment. Raises Invalid for what is none of the forms known here."""
    for line in first_lines:
        text = line.strip()
        if not text or text.startswith(";"):
            continue
        names = [name.strip() for name in text.split(",")]
        if "gpu_milli" in names:
            return "openb"
        if "duration" in names and ({"num_gpus", "num_gpu"} & set(names)):
            return "philly"
        if is_gavel(line):
            return "gavel"
        if len(text.split()) >= 18 and _is_number(text.split()[0]):
            return "swf"
        break
    raise Invalid(f"{source}: not a trace that is known here; SWF, openb pods, Gavel and tables with num_gpus and duration are")


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None


def read_trace(lines: Iterable[str], source: str, per_node: int, kind: Kind | None = None, rates: Rates | None = None) -> Workload:
    """
    The workload of a trace of any form; gangs are made for nodes of `per_node` GPUs. Raises Invalid.

    A Gavel trace counts its work in steps: `rates` says how fast they go.
    """
    rest = iter(lines)
    head = list(islice(rest, 1_000))
    known = kind or kind_of(head, source)
    every = chain(head, rest)
    if known == "swf":
        return read_swf(every, source, per_node)
    if known == "openb":
        return read_pods(every, source)
    if known == "gavel":
        if rates is None:
            raise Invalid(f"{source}: a Gavel trace counts work in steps; give --throughputs FILE, and --gpu MODEL, to make them seconds")
        return read_gavel(every, source, per_node, rates)
    return read_jobs_table(every, source, per_node)


def read_fleet(text: str) -> tuple[Node, ...]:
    """The nodes that `16x8`, `16xh100:8` or `16xh100:8,4xa100:4` names. Raises Invalid."""
    nodes: list[Node] = []
    for part in text.split(","):
        match = _FLEET_PART.fullmatch(part.strip())
        if match is None or not 0 < int(match["gpus"]) <= limits.GPUS_PER_NODE_MAX or int(match["nodes"]) == 0:
            raise Invalid(f"fleet {text!r}: write nodes x GPUs, for example 16x8 or 16xh100:8,4xa100:4")
        kind = NodeKind(gpus=int(match["gpus"]), model=(match["model"] or "gpu").lower())
        nodes += [node_of(f"n{number:05}", kind) for number in range(len(nodes), len(nodes) + int(match["nodes"]))]
    return tuple(nodes)


def read_node_table(lines: Iterable[str], source: str) -> tuple[Node, ...]:
    """The nodes of a file in openb's form. Raises Invalid."""
    return read_nodes(lines, source)


def fleet_for(workload: Workload, per_node: int = PER_NODE) -> tuple[Node, ...]:
    """A fleet of as many GPUs as the trace says that its machine had processors. Raises Invalid where it says none."""
    if not workload.processors:
        raise Invalid("this trace does not say on what it ran; give --fleet, for example --fleet 16x8")
    whole, rest = divmod(workload.processors, per_node)
    return read_fleet(",".join([f"{whole}x{per_node}"] * (whole > 0) + [f"1x{rest}"] * (rest > 0)))


# --- playing -----------------------------------------------------------------------------------------------------------------
def simulate(workload: Workload, source: str, setting: Setting, progress: Progress | None = None) -> Simulation:
    """Plays the workload once per policy. Raises Invalid for jobs that could not be submitted in life, with the first of them."""
    jobs, notes = _playable(workload, setting)
    setting = replace(setting, nodes=_parted(setting, jobs))
    runs = tuple(_run(jobs, setting, named, progress) for named in setting.policies)
    return Simulation(
        trace=source,
        jobs=len(jobs),
        nodes=len(setting.nodes),
        gpus=sum(len(node.facts.devices) for node in setting.nodes),
        seed=setting.seed,
        load=setting.load,
        notes=(*workload.notes, *notes),
        runs=runs,
    )


def _run(jobs: tuple[TraceJob, ...], setting: Setting, named: NamedPolicy, progress: Progress | None) -> Run:
    queues = _queues(jobs, setting, named)
    quiet = replace(named.policy, waits_per_plan=0)  # nobody reads why jobs wait, and what is placed does not depend on it
    course = Course(policy=quiet, seed=setting.seed, check=setting.check)
    replay = Replay(setting.nodes, queues, jobs, course)
    if setting.chart:
        replay.record.where = []
    if progress is not None:
        replay.at_rest = _Teller(progress, named.name, len(jobs)).look
    watch = Watch(replay, jobs) if setting.guarantees else None
    replay.run()
    left: dict[str, int] = {}
    for job in replay.world.jobs.values():
        left[str(job.state)] = left.get(str(job.state), 0) + 1
    return Run(
        policy=named,
        metrics=metrics_of(replay.record, replay.world.gpus, left),
        cycles=replay.cycles,
        events=replay.events,
        evictions=replay.evictions,
        audit=audit(Played(jobs, setting.nodes, queues, course, watch.waits())) if watch is not None else None,
        series=replay.record.over_time.series() if setting.chart else None,
        bars=bars_of(replay),
    )


def _queues(jobs: tuple[TraceJob, ...], setting: Setting, named: NamedPolicy) -> tuple[Queue, ...]:
    """The queues of a trace; where some have guarantees, under one that brings the rest of the fleet."""
    names = sorted({job.queue for job in jobs} | {DEFAULT_QUEUE})
    for unknown in sorted(set(setting.guarantees) - set(names)):
        raise Invalid(f"no job of this trace is in queue {unknown!r}{did_you_mean(unknown, names)}; there are {', '.join(names[:12])}")
    if not setting.guarantees:
        return tuple(Queue(id=name, spec=QueueSpec(order=named.order)) for name in names)
    gpus = sum(len(node.facts.devices) for node in setting.nodes)
    rest = max(0, gpus - sum(setting.guarantees.values()))
    top = next(name for name in ("fleet", "fleet.all", "fleet.all.of.it") if name not in names)
    quotas = {name: {"gpu": Quota(nominal=setting.guarantees.get(name, 0) * 1_000)} for name in names}
    below = (Queue(id=name, spec=QueueSpec(parent=top, order=named.order, quotas=quotas[name])) for name in names)
    return (Queue(id=top, spec=QueueSpec(quotas={"gpu": Quota(nominal=rest * 1_000)})), *below)


class _Teller:
    """Tells of progress now and then."""

    def __init__(self, progress: Progress, name: str, jobs: int) -> None:
        self._progress = progress
        self._name = name
        self._jobs = jobs
        self._instants = 0

    def look(self, replay: Replay) -> None:
        self._instants += 1
        if self._instants % INSTANTS_PER_LOOK == 0:
            self._progress(self._name, replay.arrived, self._jobs)


def _playable(workload: Workload, setting: Setting) -> tuple[tuple[TraceJob, ...], list[str]]:
    """The jobs as this version can run them, and what was changed for that."""
    if setting.load <= 0:
        raise Invalid(f"load {setting.load:g} cannot be; 1 plays the trace as it is, 2 twice as fast")
    changed: dict[int, JobSpec] = {}
    jobs: list[TraceJob] = []
    shares = 0
    for job in workload.jobs[: setting.jobs]:
        spec = changed.get(id(job.spec))
        if spec is None:
            spec = changed[id(job.spec)] = _whole(job.spec) if setting.parts == Partition() else job.spec
            _check(spec)
        shares += job.spec.gpus is not None and job.spec.gpus.share is not None
        queue = job.queue if setting.own_queues or setting.guarantees else DEFAULT_QUEUE
        submit_ms = job.submit_ms if setting.load == 1 else round(job.submit_ms / setting.load)
        same = spec is job.spec and queue == job.queue and submit_ms == job.submit_ms
        jobs.append(job if same else replace(job, spec=spec, queue=queue, submit_ms=submit_ms))
    notes = []
    if shares:
        given = "they get a whole one, since GPUs are not given in parts" if setting.parts == Partition() else "all are of one project"
        notes.append(f"{shares:,} jobs ask for a share of a GPU; {given}")
    if setting.load != 1:
        notes.append(f"arrivals come {setting.load:g} times as fast; the pattern of days is compressed with them")
    return tuple(jobs), notes


def _whole(spec: JobSpec) -> JobSpec:
    """A share of a GPU as a whole one."""
    if spec.gpus is None or spec.gpus.share is None:
        return spec
    return replace(spec, gpus=GpuAsk(count=1, model=spec.gpus.model))


def _parted(setting: Setting, jobs: tuple[TraceJob, ...]) -> tuple[Node, ...]:
    """The nodes, their GPUs given as the setting says."""
    if setting.parts is None:
        return shared_as_asked(setting.nodes, (job.spec for job in jobs))
    return _given_as(setting.nodes, setting.parts)


def shared_as_asked(nodes: tuple[Node, ...], specs: Iterable[JobSpec]) -> tuple[Node, ...]:
    """Nodes that do not say how their GPUs may be shared share them where some job asks for shares."""
    shared = any(spec.gpus is not None and spec.gpus.share is not None for spec in specs)
    if not shared or any(device.partition.soft != "off" for node in nodes for device in node.facts.devices):
        return nodes
    return _given_as(nodes, SHARED)


def _given_as(nodes: tuple[Node, ...], parts: Partition) -> tuple[Node, ...]:
    mig: Literal["on", "off"] = "off" if parts.mig == "off" else "on"
    return tuple(
        replace(node, facts=replace(node.facts, devices=tuple(replace(d, mig=mig, partition=parts) for d in node.facts.devices)))
        for node in nodes
    )


def _check(spec: JobSpec) -> None:
    faults = check_spec(spec)
    if faults:
        raise Invalid(f"a job of this trace cannot be submitted: {faults[0].message}", faults)

"""
What every trace is read into: jobs with the time they arrived and the time they ran, and what the reader left out or changed.

Pure records. `swf`, `openb`, `philly` and `scenario` give them; `sim.replay` plays them. A trace tells how many processors or GPUs a job
had; `ask_of` says it as a gang on nodes of a size, so that a job of one trace can be played on another fleet.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from shoal.model.job import GpuAsk, GroupSpec, JobSpec
from shoal.model.node import Device, Node, NodeFacts
from shoal.model.part import Partition
from shoal.model.values import CountRange, Memory

GIB = 1 << 30


class TraceJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One job of a trace. Times are milliseconds; `submit_ms` counts from the start of the trace."""

    submit_ms: int
    run_ms: int | None
    """How long its tasks work once started; None: until somebody stops them."""
    spec: JobSpec
    limit_ms: int | None = None
    """The time limit asked for, where `spec` has none: kept apart, so that jobs alike share one spec."""
    owner: str = "trace"
    queue: str = "default"
    project: str = "default"
    exit_code: int = 0
    prepare_ms: int = 0
    """From the claim of a node until the node says that it is prepared."""
    stop_ms: int = 0
    """From the wish to stop until the tasks are gone; a kill does not wait for it."""
    save_ms: int | None = None
    """From when it is asked to save until it says that it has, and then its next attempt goes on from there; None: it never says so."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A trace: jobs in the order in which they arrive, and what was left out or changed, in words."""

    jobs: tuple[TraceJob, ...] = ()
    notes: tuple[str, ...] = ()
    processors: int = 0
    """What the trace says its machine had; 0 where it does not."""


@lru_cache(maxsize=65_536)
def ask_of(count: int, per_node: int, models: tuple[str, ...] = ()) -> JobSpec:
    """
    A gang of `count` GPUs (or processors played as GPUs) on nodes of `per_node`: whole nodes, and the rest on one more.

    Jobs alike get the same object. `count` 0 is a job of one CPU.
    """
    if count <= 0:
        return JobSpec(run="true", cpus=1)
    whole, rest = divmod(count, per_node)
    full = GpuAsk(count=per_node, model=models)
    if whole == 0:
        return JobSpec(run="true", gpus=GpuAsk(count=count, model=models))
    if rest == 0:
        return JobSpec(run="true", nodes=CountRange(whole, whole), gpus=full)
    groups = (
        GroupSpec(name="whole", nodes=CountRange(whole, whole), gpus=full),
        GroupSpec(name="rest", nodes=CountRange(1, 1), gpus=GpuAsk(count=rest, model=models)),
    )
    return JobSpec(run="true", groups=groups)


@lru_cache(maxsize=65_536)
def share_of(thousandths: int, models: tuple[str, ...] = ()) -> JobSpec:
    """A job of one soft share of a GPU. Jobs alike get the same object."""
    return JobSpec(run="true", gpus=GpuAsk(share=thousandths, model=models))


class NodeKind(msgspec.Struct, frozen=True, kw_only=True):
    """What the nodes of one kind have. The defaults are those of a usual eight-GPU machine."""

    gpus: int = 8
    model: str = "gpu"
    cpus: int = 128
    memory_bytes: int = 1024 * GIB
    gpu_memory_bytes: int = 80 * GIB
    partition: Partition = Partition()


def node_of(name: str, kind: NodeKind, pool: str = "default", topology: tuple[tuple[str, str], ...] = ()) -> Node:
    """A READY node with its GPUs, four to an island."""
    devices = tuple(
        Device(
            uuid=f"{name}-{at}",
            index=at,
            model=kind.model,
            memory_bytes=kind.gpu_memory_bytes,
            island=at // 4,
            numa=at // 4,
            mig="off" if kind.partition.mig == "off" else "on",
            partition=kind.partition,
        )
        for at in range(kind.gpus)
    )
    facts = NodeFacts(hostname=name, address=name, cpus=kind.cpus, memory_bytes=kind.memory_bytes, devices=devices)
    return Node(id=name, facts=facts, pool=pool, topology=topology, epoch=1)  # its agent has registered: the next boot is another


def in_order(jobs: Iterable[TraceJob]) -> tuple[TraceJob, ...]:
    """By arrival; those of one moment as they stood."""
    return tuple(sorted(jobs, key=lambda job: job.submit_ms))


def with_memory(memory_bytes: int) -> Memory | None:
    """An amount of memory to ask for; none where a trace says nothing."""
    return Memory(memory_bytes) if memory_bytes > 0 else None

"""
The openb traces (Alibaba cluster-trace-gpu-v2023, as used by FGD): a table of nodes, and a table of pods with what each asks.

    nodes   sn,cpu_milli,memory_mib,gpu,model
    pods    name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time

`gpu_milli` below 1,000 is a share of one GPU and becomes `gpus.share`. `gpu_spec`
lists models with `|`. CPUs are asked for whole, so a pod's are rounded up. A pod ran from `scheduled_time`, or from its creation where it
never was scheduled, to its deletion.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from shoal.formats.tabular import Row, read_rows
from shoal.formats.workload import GIB, NodeKind, TraceJob, Workload, in_order, node_of, with_memory
from shoal.model.job import GpuAsk, JobSpec
from shoal.model.node import Node

POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "creation_time", "deletion_time", "scheduled_time")
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_MIB = 1 << 20
_GPU_MEMORY_BYTES = 16 * GIB
"""The tables do not tell a GPU's memory, and no pod asks for it."""


def read_nodes(lines: Iterable[str], source: str) -> tuple[Node, ...]:
    """The nodes of a table. Raises Invalid with the line of a fault."""
    return tuple(_node(row) for row in read_rows(lines, source, NODE_COLUMNS))


def _node(row: Row) -> Node:
    kind = NodeKind(
        gpus=int(row.number("gpu")),
        model=row.text("model").lower() or "none",
        cpus=int(row.number("cpu_milli")) // 1_000,
        memory_bytes=int(row.number("memory_mib")) * _MIB,
        gpu_memory_bytes=_GPU_MEMORY_BYTES,
    )
    return node_of(row.text("sn"), kind)


def read_pods(lines: Iterable[str], source: str) -> Workload:
    """The pods of a table as jobs of one node each. Raises Invalid with the line of a fault."""
    jobs: list[TraceJob] = []
    rounded = unscheduled = 0
    for row in read_rows(lines, source, POD_COLUMNS):
        jobs.append(_job(row))
        rounded += int(row.number("cpu_milli")) % 1_000 > 0
        unscheduled += not row.text("scheduled_time")
    notes = []
    if rounded:
        notes.append(f"{rounded:,} pods asked for parts of a CPU; rounded up to whole ones")
    if unscheduled:
        notes.append(f"{unscheduled:,} pods never started in the trace; they run from creation to deletion")
    return Workload(jobs=in_order(jobs), notes=tuple(notes))


def _job(row: Row) -> TraceJob:
    created_s, deleted_s = row.number("creation_time"), row.number("deletion_time")
    if deleted_s < created_s:
        raise row.fault(f"deletion_time {deleted_s:g} lies before creation_time {created_s:g}")
    started_s = row.number("scheduled_time", created_s)
    spec = _spec(
        -(-int(row.number("cpu_milli")) // 1_000),
        int(row.number("memory_mib")),
        int(row.number("num_gpu")),
        int(row.number("gpu_milli", 0)),
        row.text("gpu_spec"),
    )
    run_ms = max(0, round((deleted_s - started_s) * 1_000))
    return TraceJob(submit_ms=round(created_s * 1_000), run_ms=run_ms, spec=spec, owner=row.text("qos") or "trace")


@lru_cache(maxsize=65_536)
def _spec(cpus: int, memory_mib: int, gpus: int, gpu_milli: int, models: str) -> JobSpec:
    """Pods alike get the same object."""
    named = tuple(model.lower() for model in models.split("|") if model)
    ask = None
    if gpus == 1 and 0 < gpu_milli < 1_000:
        ask = GpuAsk(share=gpu_milli, model=named)
    elif gpus > 0:
        ask = GpuAsk(count=gpus, model=named)
    return JobSpec(run="true", gpus=ask, cpus=cpus or None, memory=with_memory(memory_mib * _MIB))

"""Rules of what a gang asks of its nodes: counts, GPUs, CPUs, memory; of the job, each alternative and each group. Used by `spec_rules`."""

from __future__ import annotations

import re

from shoal.base import limits
from shoal.base.errors import Fault
from shoal.base.units import format_memory
from shoal.lifecycle.layout import GroupLayout, alternatives, layout, overlaid
from shoal.lifecycle.names import name_faults
from shoal.model.job import GpuAsk, JobSpec, Resources

_PROFILE = re.compile(r"[1-9]g\.[1-9][0-9]{0,3}gb([+-][a-z.]{1,16})?")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def between(what: str, actual: int, low: int, high: int, pointer: str, advice: str = "") -> tuple[Fault, ...]:
    """A fault if `actual` lies outside low..high: it names the thing, the limit, the actual value, and what to do."""
    if low <= actual <= high:
        return ()
    bound = f"at least {low:,}" if actual < low else f"at most {high:,}"
    return (Fault(f"{what} is {actual:,}; {bound} is possible{'; ' + advice if advice else ''}", pointer),)


def check_resources(spec: JobSpec) -> tuple[Fault, ...]:
    """Every broken rule of the job's resources, those of its alternatives and groups included."""
    faults: list[Fault] = []
    if spec.any_of and spec.ordered:
        faults.append(
            Fault("any_of and ordered exclude each other: keep ordered to take the first that fits, any_of for the best", "/ordered")
        )
    entries, kind = alternatives(spec), "ordered" if spec.ordered else "any_of"
    faults += between(f"the count of {kind} entries", len(entries), 0, limits.ALTERNATIVES_PER_JOB_MAX, f"/{kind}")
    faults += between("the count of groups", len(spec.groups), 0, limits.GROUPS_PER_JOB_MAX, "/groups", "merge groups that run the same")
    written: list[tuple[Resources, str]] = [(spec, "")]
    written += [(entry, f"/{kind}/{i}") for i, entry in enumerate(entries)]
    written += [(group, f"/groups/{i}") for i, group in enumerate(spec.groups)]
    for asked, place in written:
        faults += _alone(asked, place)
    return tuple(faults) if faults else _together(spec, kind)


def _alone(asked: Resources, place: str) -> tuple[Fault, ...]:
    """Rules of each value by itself, at the place where it was written."""
    faults: list[Fault] = []
    if asked.nodes is not None:
        faults += between("nodes", asked.nodes.high, 1, limits.NODES_PER_JOB_MAX, f"{place}/nodes")
    if asked.tasks_per_node is not None:
        faults += between("tasks_per_node", asked.tasks_per_node, 1, limits.TASKS_PER_NODE_MAX, f"{place}/tasks_per_node")
    if asked.cpus is not None:
        faults += between("cpus", asked.cpus, 1, limits.CPUS_PER_NODE_MAX, f"{place}/cpus", "it counts the CPUs of one node")
    if asked.memory is not None and not 0 < asked.memory.bytes <= limits.MEMORY_BYTES_MAX:
        most = format_memory(limits.MEMORY_BYTES_MAX)
        faults.append(Fault(f"memory is {asked.memory.plain()}; above 0 and at most {most} per node is possible", f"{place}/memory"))
    if asked.pool is not None:
        faults += name_faults("pool", asked.pool, f"{place}/pool")
    if asked.gpus is not None:
        faults += _gpus(asked.gpus, f"{place}/gpus")
    return tuple(faults)


def _gpus(ask: GpuAsk, place: str) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    faults += _parts(ask, place)
    faults += between(
        "gpus.count", ask.count, 0, limits.GPUS_PER_NODE_MAX, f"{place}/count", "it counts the GPUs of one node: use more nodes"
    )
    if ask.count == 0 and not faults and (ask.model or ask.memory or ask.mig) and ask.share is None and ask.share_memory is None:
        faults.append(Fault("gpus names a model, memory or profile but asks for none: add count, for example count: 1", f"{place}/count"))
    faults += between("the count of models", len(ask.model), 0, limits.MODELS_PER_ASK_MAX, f"{place}/model")
    for i, model in enumerate(ask.model[: limits.MODELS_PER_ASK_MAX]):
        if not _MODEL.fullmatch(model):
            faults.append(Fault(f"GPU model {model[:80]!r} is no name; write it short, for example h100", f"{place}/model/{i}"))
    if ask.memory is not None and ask.memory.least_bytes > limits.MEMORY_BYTES_MAX:
        most = format_memory(limits.MEMORY_BYTES_MAX)
        faults.append(
            Fault(f"gpus.memory starts at {format_memory(ask.memory.least_bytes)}; at most {most} is possible", f"{place}/memory")
        )
    return tuple(faults)


def _parts(ask: GpuAsk, place: str) -> tuple[Fault, ...]:
    """A part of a GPU is an instance of a MIG profile, or a soft share: thousandths, bytes, or both."""
    faults: list[Fault] = []
    if ask.mig is not None and (ask.share is not None or ask.share_memory is not None):
        faults.append(Fault("gpus.mig and gpus.share exclude each other: a MIG instance is not shared", f"{place}/mig"))
    if ask.mig is not None and not _PROFILE.fullmatch(ask.mig):
        faults.append(Fault(f"gpus.mig {ask.mig[:80]!r} is no profile; write it as the driver does, for example 1g.10gb", f"{place}/mig"))
    if ask.share is not None:
        advice = "it counts thousandths of one GPU: 250 is a quarter; ask for whole GPUs with gpus.count"
        faults += between("gpus.share", ask.share, 1, 1_000, f"{place}/share", advice)
    if ask.share_memory is not None and not 0 < ask.share_memory.bytes <= limits.MEMORY_BYTES_MAX:
        most = format_memory(limits.MEMORY_BYTES_MAX)
        faults.append(
            Fault(f"gpus.share_memory is {ask.share_memory.plain()}; above 0 and at most {most} is possible", f"{place}/share_memory")
        )
    if (ask.share is not None or ask.share_memory is not None) and ask.count > 1 and ask.per == "node":
        message = f"gpus.count is {ask.count} beside a share: a task has one share of one GPU; use per: task with a task for each"
        faults.append(Fault(message, f"{place}/count"))
    return tuple(faults)


def _together(spec: JobSpec, kind: str) -> tuple[Fault, ...]:
    """Rules of the values as they work together, once each is good alone."""
    for index in range(len(alternatives(spec))) or (None,):
        place = "" if index is None else f"/{kind}/{index}"
        asked = spec if index is None else overlaid(spec, alternatives(spec)[index])
        groups = layout(spec, index)
        tasks = sum(group.nodes_high * group.tasks_per_node for group in groups)
        nodes = sum(group.nodes_high for group in groups)
        parts = [overlaid(asked, group) for group in spec.groups]
        faults = [
            *_one_pool(parts),
            *between("the job's count of nodes", nodes, 1, limits.NODES_PER_JOB_MAX, place or "/nodes"),
            *between(
                "the job's count of tasks", tasks, 1, limits.TASKS_PER_JOB_MAX, place or "/tasks_per_node", "use fewer tasks per node"
            ),
        ]
        for i, group in enumerate(groups):
            part = parts[i] if parts else asked
            faults += _split(group, part.gpus, f"/groups/{i}" if parts else place)
        if faults:
            return tuple(faults)
    return ()


def _one_pool(parts: list[Resources]) -> tuple[Fault, ...]:
    """The groups of a gang start together, on nodes of one pool."""
    first: str | None = None
    for i, part in enumerate(parts):
        if part.pool is not None and first is not None and part.pool != first:
            message = f"groups name the pools {first} and {part.pool}; a gang lies in one pool: name the same, or make them two jobs"
            return (Fault(message, f"/groups/{i}/pool"),)
        first = first or part.pool
    return ()


def _split(group: GroupLayout, ask: GpuAsk | None, place: str) -> tuple[Fault, ...]:
    if ask is None:
        return ()
    if ask.per == "task":
        what = f"gpus.count {ask.count} per task times tasks_per_node {group.tasks_per_node}"
        return between(what, group.gpus + group.parts, 0, limits.GPUS_PER_NODE_MAX, f"{place}/gpus/count", "use more nodes")
    if (group.gpus + group.parts) % group.tasks_per_node:
        count = group.gpus + group.parts
        message = (
            f"gpus.count is {count} and tasks_per_node is {group.tasks_per_node}: every task gets the same count of GPUs; "
            f"use a multiple of {group.tasks_per_node}, or per: task"
        )
        return (Fault(message, f"{place}/gpus/count"),)
    return ()

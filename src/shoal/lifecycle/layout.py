"""
How a gang is laid out: tasks per node, GPUs per task, ranks.

One entry per group; a job without groups is one group named "". Pure arithmetic on a spec that has passed `check_spec`.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from shoal.model.attempt import TaskPlace
from shoal.model.job import GpuAsk, JobSpec, Resources
from shoal.model.part import DevicePart
from shoal.model.plan import Place


class GroupLayout(msgspec.Struct, frozen=True, kw_only=True):
    """What each node of one group runs: whole `gpus`, `parts` of GPUs. (CPUs and memory where none are named: `scheduling.asks`.)"""

    name: str = ""
    nodes_low: int
    nodes_high: int
    tasks_per_node: int
    gpus: int = 0
    parts: int = 0

    @property
    def gpus_per_task(self) -> int:
        return self.gpus // self.tasks_per_node


def layout(spec: JobSpec, alternative: int | None = None) -> tuple[GroupLayout, ...]:
    """The groups of a job in rank order; with `alternative`, as that entry of `any_of` or `ordered` changes it."""
    asked = spec if alternative is None else overlaid(spec, alternatives(spec)[alternative])
    if not spec.groups:
        return (_group("", asked),)
    return tuple(_group(group.name, overlaid(asked, group)) for group in spec.groups)


def alternatives(spec: JobSpec) -> tuple[Resources, ...]:
    """The entries of `any_of` or `ordered`; at most one of the two is set."""
    return spec.any_of or spec.ordered


def overlaid(under: Resources, over: Resources) -> Resources:
    """`over`, with what it leaves open as `under` says: an alternative lies over the job, a group over both."""
    picked = {name: getattr(under, name) if getattr(over, name) is None else getattr(over, name) for name in Resources.__struct_fields__}
    return Resources(**picked)


def _group(name: str, ask: Resources) -> GroupLayout:
    tasks = ask.tasks_per_node or 1
    return GroupLayout(
        name=name,
        nodes_low=ask.nodes.low if ask.nodes else 1,
        nodes_high=ask.nodes.high if ask.nodes else 1,
        tasks_per_node=tasks,
        gpus=0 if in_parts(ask.gpus) else gpus_per_node(ask.gpus, tasks),
        parts=gpus_per_node(ask.gpus, tasks) if in_parts(ask.gpus) else 0,
    )


def gpus_per_node(ask: GpuAsk | None, tasks_per_node: int) -> int:
    """GPUs, or parts of them, of one node: `count` as it stands, or once per task with `per: task`. A share without a count is one."""
    if ask is None:
        return 0
    count = ask.count or int(ask.share is not None or ask.share_memory is not None)
    return count * tasks_per_node if ask.per == "task" else count


def in_parts(ask: GpuAsk | None) -> bool:
    """True if parts of GPUs are asked for, and not whole ones."""
    return ask is not None and (ask.mig is not None or ask.share is not None or ask.share_memory is not None)


def chosen(spec: JobSpec, place: Place) -> int | None:
    """Which alternative a placement is: the one it names, else the first that its members fit; None where there are none."""
    if place.alternative is not None or not alternatives(spec):
        return place.alternative
    for index in range(len(alternatives(spec))):
        if _is_laid_out(layout(spec, index), place):
            return index
    return None


def _is_laid_out(groups: tuple[GroupLayout, ...], place: Place) -> bool:
    for group in groups:
        members = [m for m in place.members if m.group == group.name]
        if not group.nodes_low <= len(members) <= group.nodes_high:
            return False
        if any((len(member.devices), len(member.parts)) != (group.gpus, group.parts) for member in members):
            return False
    return True


def task_places(first_rank: int, tasks: int, devices: tuple[str, ...], parts: tuple[DevicePart, ...] = ()) -> tuple[TaskPlace, ...]:
    """
    The tasks of one node: ranks from `first_rank` on, devices in equal contiguous runs (neighbours share a switch or an island), and so
    the parts of devices.
    """
    whole, pieces = len(devices) // tasks, len(parts) // tasks
    return tuple(
        TaskPlace(
            rank=first_rank + local,
            local_rank=local,
            devices=devices[local * whole : (local + 1) * whole],
            parts=parts[local * pieces : (local + 1) * pieces],
        )
        for local in range(tasks)
    )


def ranked(spec: JobSpec) -> JobSpec:
    """The spec of one element or attempt as agents get it: without what only the control plane uses."""
    return replace(spec, array=None, depends_on=(), any_of=(), ordered=())

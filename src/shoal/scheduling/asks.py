"""
A job's spec reduced to what placement looks at: its *shape*. Two jobs of one shape are the same question, asked once per cycle.

    Shape          alternatives, topology wish
    `-- Alternative    the gang as one entry of `any_of` or `ordered` has it (or as the job has it)
        `-- GroupAsk       low..high members alike
            `-- MemberAsk      what one node gives to one member

Everything is normalised (defaults filled in, `per: task` multiplied out, model lists without doubles), hashable, and holds no state.
Called by `pending` for each job that arrives, so the result is remembered by the parts of the spec that it depends on.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from shoal.model.job import GpuAsk, Job, JobSpec, Resources, Topology
from shoal.model.values import CountRange
from shoal.scheduling.policy import CPU_MILLI_WITH_GPUS, CPU_MILLI_WITHOUT_GPUS

_SHAPES_REMEMBERED = 65_536
"""Distinct asks kept in memory: more than the shapes of a large installation, about 50 MiB when full."""
ONE: CountRange = CountRange(1, 1)


class MemberAsk(NamedTuple):
    """What one node gives to one member. `most_bytes` -1: no upper bound on a device's memory; `models` in the order of preference."""

    gpus: int = 0
    models: tuple[str, ...] = ()
    least_bytes: int = 0
    most_bytes: int = -1
    cpu_milli: int = 0
    memory_bytes: int = 0


class GroupAsk(NamedTuple):
    """`low` to `high` members, each on a node of its own; how many is chosen at start."""

    name: str
    low: int
    high: int
    member: MemberAsk


class Alternative(NamedTuple):
    """One way to run the gang. `entry` is its place in `any_of` or `ordered`, None where the job has neither."""

    entry: int | None
    groups: tuple[GroupAsk, ...]

    @property
    def gpus_least(self) -> int:
        return sum(group.low * group.member.gpus for group in self.groups)


class Shape(NamedTuple):
    """
    Everything of an ask that placement looks at.

    `ordered`: the first alternative that fits is taken; otherwise the best of those that fit. `avoid` are nodes, ascending.
    """

    alternatives: tuple[Alternative, ...]
    ordered: bool = False
    level: str | None = None
    required: bool = False
    avoid: tuple[str, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        """Every model named in it, once, in order of appearance."""
        named = (m for a in self.alternatives for g in a.groups for m in g.member.models)
        return tuple(dict.fromkeys(named))


def shape_of(job: Job) -> Shape:
    """The shape of a job as it stands (its avoid list included)."""
    return shape_of_spec(job.spec, job.avoid)


def shape_of_spec(spec: JobSpec, avoid: tuple[str, ...] = ()) -> Shape:
    """The shape that a job of this spec has while it avoids these nodes."""
    groups = tuple((g.name, g.nodes, g.tasks_per_node, g.gpus, g.cpus, g.memory) for g in spec.groups)
    base = (spec.nodes, spec.tasks_per_node, spec.gpus, spec.cpus, spec.memory)
    level = (None, False) if spec.topology is None else _level_of(spec.topology)
    return _shape(base, groups, spec.any_of, spec.ordered, level, tuple(sorted(set(avoid))))


def _level_of(topology: Topology) -> tuple[str | None, bool]:
    return topology.level, topology.required and topology.level is not None


_Asked = tuple[CountRange | None, int | None, GpuAsk | None, int | None, object]


@lru_cache(maxsize=_SHAPES_REMEMBERED)
def _shape(
    base: _Asked,
    groups: tuple[tuple[object, ...], ...],
    any_of: tuple[Resources, ...],
    ordered: tuple[Resources, ...],
    level: tuple[str | None, bool],
    avoid: tuple[str, ...],
) -> Shape:
    entries = ordered or any_of
    whole = Resources(nodes=base[0], tasks_per_node=base[1], gpus=base[2], cpus=base[3], memory=base[4])  # type: ignore[arg-type]
    if entries:
        alternatives = tuple(_alternative(i, _overlay(whole, entry), groups) for i, entry in enumerate(entries))
    else:
        alternatives = (_alternative(None, whole, groups),)
    return Shape(alternatives, bool(ordered), level[0], level[1], avoid)


def _alternative(index: int | None, whole: Resources, groups: tuple[tuple[object, ...], ...]) -> Alternative:
    if not groups:
        return Alternative(index, (_group("", whole),))
    parts = []
    for name, nodes, tasks, gpus, cpus, memory in groups:
        own = Resources(nodes=nodes, tasks_per_node=tasks, gpus=gpus, cpus=cpus, memory=memory)  # type: ignore[arg-type]
        parts.append(_group(str(name), _overlay(whole, own)))
    return Alternative(index, tuple(parts))


def _overlay(under: Resources, over: Resources) -> Resources:
    """`over`, with what it leaves open as `under` says."""
    return Resources(
        nodes=over.nodes or under.nodes,
        tasks_per_node=over.tasks_per_node if over.tasks_per_node is not None else under.tasks_per_node,
        gpus=over.gpus if over.gpus is not None else under.gpus,
        cpus=over.cpus if over.cpus is not None else under.cpus,
        memory=over.memory or under.memory,
    )


def _group(name: str, asked: Resources) -> GroupAsk:
    nodes = asked.nodes or ONE
    return GroupAsk(name, nodes.low, nodes.high, _member(asked))


def _member(asked: Resources) -> MemberAsk:
    gpus = asked.gpus
    tasks = asked.tasks_per_node or 1
    count = 0 if gpus is None else gpus.count * (tasks if gpus.per == "task" else 1)
    memory_bytes = asked.memory.bytes if asked.memory else 0
    if gpus is None or count == 0:
        cpu_milli = CPU_MILLI_WITHOUT_GPUS * tasks if asked.cpus is None else asked.cpus * 1_000
        return MemberAsk(cpu_milli=cpu_milli, memory_bytes=memory_bytes)
    cpu_milli = CPU_MILLI_WITH_GPUS if asked.cpus is None else asked.cpus * 1_000
    least, most = (gpus.memory.least_bytes, gpus.memory.most_bytes) if gpus.memory else (0, None)
    models = tuple(dict.fromkeys(gpus.model))
    return MemberAsk(count, models, least, -1 if most is None else most, cpu_milli, memory_bytes)

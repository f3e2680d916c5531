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

from shoal.base import limits
from shoal.model.job import GpuAsk, Job, JobSpec, Resources, Topology
from shoal.model.mesh import sizes_of
from shoal.scheduling.policy import CPU_MILLI_WITH_GPUS, CPU_MILLI_WITHOUT_GPUS


class PieceAsk(NamedTuple):
    """
    A part of a GPU: an instance of a MIG profile, or a soft share of thousandths, of bytes, or of both (0: as the other says).

    A soft share lies beside those of one `tenant` (its project) only.
    """

    profile: str = ""
    thousandths: int = 0
    memory_bytes: int = 0
    tenant: str = ""


class MemberAsk(NamedTuple):
    """
    What one node gives to one member. `most_bytes` -1: no upper bound on a device's memory; `models` in the order of preference; `pool`
    empty: a node of any pool. `gpus` are whole ones; who asks for `pieces` of them asks for none.
    """

    gpus: int = 0
    models: tuple[str, ...] = ()
    least_bytes: int = 0
    most_bytes: int = -1
    cpu_milli: int = 0
    memory_bytes: int = 0
    pool: str = ""
    pieces: int = 0
    piece: PieceAsk | None = None

    @property
    def wants_gpus(self) -> bool:
        """True if it asks for GPUs or parts of them."""
        return self.gpus > 0 or self.pieces > 0


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

    @property
    def pool(self) -> str:
        """The pool that it names, empty for any."""
        return self.groups[0].member.pool


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
    slice: tuple[int, str] | None = None
    """(nodes of a run, the level that each run stays inside of)."""
    mesh: tuple[int, int, int, int] | None = None
    """Sizes of the axes in the order of `model.mesh.AXES`."""
    whole: bool = False
    """True: no tensor parallel group is ever split."""

    @property
    def gpus_least(self) -> int:
        """GPUs of the smallest way to run it."""
        return min(alternative.gpus_least for alternative in self.alternatives)

    @property
    def models(self) -> tuple[str, ...]:
        """Every model named in it, once, in order of appearance."""
        named = (m for a in self.alternatives for g in a.groups for m in g.member.models)
        return tuple(dict.fromkeys(named))

    @property
    def pools(self) -> tuple[str, ...]:
        """The pool of each alternative, once, in order; empty for any."""
        return tuple(dict.fromkeys(alternative.pool for alternative in self.alternatives))


_Where = tuple[str | None, bool, tuple[str, ...], tuple[int, str] | None, tuple[int, int, int, int] | None, bool]


def shape_of(job: Job) -> Shape:
    """The shape of a job as it stands (its avoid list and the size that it shall have included)."""
    return shape_of_spec(job.spec, job.avoid, job.project, job.size)


def shape_of_spec(spec: JobSpec, avoid: tuple[str, ...] = (), project: str = "", size: int | None = None) -> Shape:
    """The shape that a job of this spec and project has while it avoids these nodes and shall have at most `size` of its range."""
    groups = tuple((group.name, _asked(group)) for group in spec.groups) if spec.groups else ()
    where = _where(spec.topology, tuple(sorted(set(avoid))) if avoid else ())
    tenant = project if _asks_shares(spec) else ""  # Whole GPUs and instances are the same question, whoever asks.
    whole = _asked(spec)
    if size is not None and whole.nodes is not None:
        whole = whole._replace(nodes=(min(whole.nodes[0], size), min(whole.nodes[1], size)))
    return _shape(whole, groups, spec.any_of, spec.ordered, where, tenant)


def _asks_shares(spec: JobSpec) -> bool:
    asks = (part.gpus for part in (spec, *spec.groups, *spec.any_of, *spec.ordered))
    return any(ask is not None and (ask.share is not None or ask.share_memory is not None) for ask in asks)


def _where(topology: Topology | None, avoid: tuple[str, ...]) -> _Where:
    if topology is None:
        return (None, False, avoid, None, None, False)
    cut, level = topology.slice, topology.level
    mesh = sizes_of(topology.mesh) if topology.mesh else None
    runs = (cut.size, cut.level) if cut is not None else None
    return (level, topology.required and level is not None, avoid, runs, mesh, topology.required and mesh is not None)


class Asked(NamedTuple):
    """`Resources` as plain values: hashing these is what a job's arrival costs, and it is a tenth of hashing the record."""

    nodes: tuple[int, int] | None
    tasks_per_node: int | None
    gpus: GpuAsk | None
    cpus: int | None
    memory_bytes: int | None
    pool: str | None


def _asked(spec: Resources) -> Asked:
    nodes, memory = spec.nodes, spec.memory
    return Asked(
        None if nodes is None else (nodes.low, nodes.high),
        spec.tasks_per_node,
        spec.gpus,
        spec.cpus,
        None if memory is None else memory.bytes,
        spec.pool,
    )


@lru_cache(maxsize=limits.SHAPES_KEPT_MAX)
def _shape(
    whole: Asked,
    groups: tuple[tuple[str, Asked], ...],
    any_of: tuple[Resources, ...],
    ordered: tuple[Resources, ...],
    where: _Where,
    tenant: str,
) -> Shape:
    """`where` is what the fields of a `Shape` after `ordered` are."""
    entries = ordered or any_of
    if entries:
        alternatives = tuple(_alternative(i, _overlay(whole, _asked(entry)), groups, tenant) for i, entry in enumerate(entries))
    else:
        alternatives = (_alternative(None, whole, groups, tenant),)
    return Shape(alternatives, bool(ordered), *where)


def _alternative(entry: int | None, whole: Asked, groups: tuple[tuple[str, Asked], ...], tenant: str) -> Alternative:
    if not groups:
        return Alternative(entry, (_group("", whole, tenant),))
    parts = [_overlay(whole, own) for _, own in groups]
    pool = next((part.pool for part in parts if part.pool), None)  # The gang lies in one, so what one group names holds for all.
    named = [part if part.pool else part._replace(pool=pool) for part in parts]
    return Alternative(entry, tuple(_group(name, part, tenant) for (name, _), part in zip(groups, named, strict=True)))


def _overlay(under: Asked, over: Asked) -> Asked:
    """`over`, with what it leaves open as `under` says."""
    return under._replace(**{name: value for name, value in over._asdict().items() if value is not None})


def _group(name: str, asked: Asked, tenant: str) -> GroupAsk:
    low, high = asked.nodes or (1, 1)
    return GroupAsk(name, low, high, _member(asked, tenant))


def _member(asked: Asked, tenant: str) -> MemberAsk:
    gpus = asked.gpus
    tasks = asked.tasks_per_node or 1
    count = 0 if gpus is None else (gpus.count or _one_share(gpus)) * (tasks if gpus.per == "task" else 1)
    memory_bytes, pool = asked.memory_bytes or 0, asked.pool or ""
    if gpus is None or count == 0:
        cpu_milli = CPU_MILLI_WITHOUT_GPUS * tasks if asked.cpus is None else asked.cpus * 1_000
        return MemberAsk(cpu_milli=cpu_milli, memory_bytes=memory_bytes, pool=pool)
    cpu_milli = CPU_MILLI_WITH_GPUS if asked.cpus is None else asked.cpus * 1_000
    least, most = (gpus.memory.least_bytes, gpus.memory.most_bytes) if gpus.memory else (0, None)
    models = tuple(dict.fromkeys(gpus.model))
    piece = _piece(gpus, tenant)
    whole, pieces = (count, 0) if piece is None else (0, count)
    return MemberAsk(whole, models, least, -1 if most is None else most, cpu_milli, memory_bytes, pool, pieces, piece)


def _one_share(gpus: GpuAsk) -> int:
    """A share is one, unless a count says otherwise."""
    return 0 if gpus.share is None and gpus.share_memory is None else 1


def _piece(gpus: GpuAsk, tenant: str) -> PieceAsk | None:
    if gpus.mig is not None:
        return PieceAsk(profile=gpus.mig)
    if gpus.share is None and gpus.share_memory is None:
        return None
    memory_bytes = gpus.share_memory.bytes if gpus.share_memory is not None else 0
    return PieceAsk(thousandths=gpus.share or 0, memory_bytes=memory_bytes, tenant=tenant)

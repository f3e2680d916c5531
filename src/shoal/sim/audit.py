"""
Was every tenant as well off as alone? A replay is held against replays of each guaranteed queue by itself.

What is promised: where borrowers may be stopped, a job waits no longer than it would on a cluster of its queue's guarantee, and the
reclaim bound (docs/explanation/loop.md). `audit` is a function of a workload and of what `Watch` saw of its replay. A job's promise is
broken where both hold:

    1. it waited longer than alone + bound, over all its attempts, and
    2. for longer than the bound at a stretch it was *owed*: it could start but for room, what its queue held together with it was within
       the queue's guarantee, and the fleet was large enough for all guarantees.

The second leaves out what a tenant does to himself: who runs on borrowed room holds what his next job would have had alone. Such waits
are counted (`own`). Alone means: the same arrivals, run times, limits and policy on as many cells as the guarantee has.

**For which shapes.** A quota counts GPUs, and a count is no place: eight guaranteed GPUs on eight nodes are no room for a job of one node.
What is promised is a *cell*: the largest number of GPUs that divides every node, every guarantee, and what each job asks of a node
(cores and memory no more than the cell's part). Every hole is then made of whole cells, so a count of cells is as good as their places:
jobs of one cell are promised, and where a cell is a node, gangs of such nodes. (Gangs of several smaller cells need different nodes, which
is a shape.) A larger ask, a topology, groups, ranges, arrays and dependencies are not promised, and are counted (`unpromised`); in a strict
queue nor is anybody else, who may stand behind one of these. Where anything breaks the cells, nothing is promised and the reason is told.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from shoal.base import limits
from shoal.formats.workload import NodeKind, TraceJob, node_of
from shoal.model.job import JobSpec
from shoal.model.node import Node
from shoal.model.queue import Queue, QueueSpec
from shoal.scheduling.quota import Vertex
from shoal.scheduling.standing import is_closed
from shoal.sim.replay import Course, Replay

RESOURCE: Final = "gpu"
BROKEN_MAX: Final = 20
"""Broken promises told of one queue: a screen."""


class Waited(NamedTuple):
    """How one job of the workload waited: in all, and the longest stretch in which it was owed room; milliseconds."""

    total_ms: int = 0
    owed_ms: int = 0


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """A promise that was not kept. `job` is the name where the workload gives one, and its place in it."""

    job: str
    submit_s: float
    waited_s: float
    alone_s: float
    owed_s: float


class TenantAudit(msgspec.Struct, frozen=True, kw_only=True):
    """One guaranteed queue. Of its jobs `promised` were judged; `own` waited longer by what their own queue did."""

    queue: str
    gpus: int
    bound_s: float
    promised: int = 0
    unpromised: int = 0
    own: int = 0
    longest_owed_s: float = 0.0
    """Of the judged: how long one was owed room at a stretch. Kept promises have at most `bound_s` here."""
    broken_count: int = 0
    broken: tuple[Broken, ...] = ()
    """The first BROKEN_MAX."""


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """See module. `cell_gpus` 0: nothing is promised, `why` says what is in the way."""

    cell_gpus: int
    why: str = ""
    tenants: tuple[TenantAudit, ...] = ()

    @property
    def kept(self) -> bool:
        return not any(tenant.broken_count for tenant in self.tenants)


# --- watching ---------------------------------------------------------------------------------------------------------------
class Watch:
    """
    Looks at a replay whenever all of an instant has happened: who of a guaranteed queue waits, and is owed room.

    Cost: the waiting jobs of guaranteed queues, at each instant.
    """

    def __init__(self, replay: Replay, jobs: Sequence[TraceJob]) -> None:
        self._replay = replay
        self._place = {id(job): at for at, job in enumerate(jobs)}
        self._waits: dict[int, Waited] = {}
        self._since: dict[int, int] = {}
        self._owed_since: dict[int, int] = {}
        self._then = replay.at_rest
        replay.at_rest = self.look

    def look(self, replay: Replay) -> None:
        """As things stand until the next instant."""
        waiting: dict[int, bool] = {}
        board = replay.world.board
        enough = replay.world.gpus * 1_000 >= sum(quota_of(queue) for queue in board.queues.values())
        for name in sorted(board.pending.lines):
            vertex = board.quota.vertices.get(name)
            if vertex is None or not quota_of_spec(vertex.spec):
                continue
            for lane in board.pending.lines[name].lanes.values():
                asked = lane.state.gpus_least * 1_000
                owed = enough and _is_within(vertex, asked)
                for key in lane.keys:
                    place = self._place.get(id(replay.machines.told.get(key[3])))
                    if place is not None:
                        waiting[place] = owed
        self._note(waiting, replay.time_ms)
        if self._then is not None:
            self._then(replay)

    def waits(self) -> Mapping[int, Waited]:
        """By a job's place in the workload; who never waited is not in it. What still waits has waited until now."""
        self._note({}, self._replay.time_ms)
        return self._waits

    def _note(self, waiting: Mapping[int, bool], at_ms: int) -> None:
        for place in [place for place in self._owed_since if not waiting.get(place)]:
            owed_ms = at_ms - self._owed_since.pop(place)
            before = self._waits.get(place, Waited())
            self._waits[place] = before._replace(owed_ms=max(before.owed_ms, owed_ms))
        for place in [place for place in self._since if place not in waiting]:
            before = self._waits.get(place, Waited())
            self._waits[place] = before._replace(total_ms=before.total_ms + at_ms - self._since.pop(place))
        for place, owed in waiting.items():
            self._since.setdefault(place, at_ms)
            if owed:
                self._owed_since.setdefault(place, at_ms)


def _is_within(vertex: Vertex, asked: int) -> bool:
    """True if the queue takes work and would be within its own guarantee, which those above it bring too, with so much more."""
    return not is_closed(vertex) and vertex.held.get(RESOURCE, 0) + asked <= quota_of_spec(vertex.spec)


def quota_of(queue: Queue) -> int:
    """Thousandths of GPUs that a queue is guaranteed itself."""
    return quota_of_spec(queue.spec)


def quota_of_spec(spec: QueueSpec) -> int:
    """The same of what a person set."""
    quota = spec.quotas.get(RESOURCE)
    return quota.nominal if quota is not None else 0


# --- judging ----------------------------------------------------------------------------------------------------------------
class Played(NamedTuple):
    """What was played, and how its jobs waited (`Watch.waits`)."""

    jobs: Sequence[TraceJob]
    nodes: Sequence[Node]
    queues: Sequence[Queue]
    course: Course
    waits: Mapping[int, Waited]


def audit(played: Played) -> Audit:
    """
    What became of the promises to guaranteed queues in a replay. See module.

    Cost: a replay of each guaranteed queue's jobs.
    """
    parents = {queue.spec.parent for queue in played.queues}
    promised = [queue for queue in sorted(played.queues, key=lambda q: q.id) if quota_of(queue) and queue.id not in parents]
    cell, why = cell_of(played.jobs, played.nodes, played.queues)
    if not cell:
        return Audit(cell_gpus=0, why=why)
    return Audit(cell_gpus=cell, tenants=tuple(_tenant(played, queue, cell) for queue in promised))


def _tenant(played: Played, queue: Queue, cell: int) -> TenantAudit:
    jobs, nodes, queues, course, waits = played
    mine = [at for at, job in enumerate(jobs) if job.queue == queue.id]
    whole = all(len(node.facts.devices) in (0, cell) for node in nodes)
    judged = [at for at in mine if is_of_cells(jobs[at].spec, cell, whole)]
    if queue.spec.order == "strict" and len(judged) < len(mine):
        judged = []  # They may stand behind one to whom no place is promised.
    bound_ms = reclaim_bound_ms(jobs, queues, queue.id, course)
    places = {at: place for place, at in enumerate(mine)}
    alone = _alone([jobs[at] for at in mine], _cells(nodes, cell, quota_of(queue) // 1_000), queue, course)
    broken: list[Broken] = []
    own = longest = 0
    for at in judged:
        waited, by_itself = waits.get(at, Waited()), alone.get(places[at], Waited()).total_ms
        tolerance = jobs[at].spec.tolerance
        most_ms = max(bound_ms, tolerance.ms if tolerance is not None else 0)
        longest = max(longest, waited.owed_ms)
        if waited.total_ms <= by_itself + most_ms:
            continue
        if waited.owed_ms <= most_ms:
            own += 1
            continue
        broken.append(_broken(jobs[at], at, waited, by_itself))
    return TenantAudit(
        queue=queue.id,
        gpus=quota_of(queue) // 1_000,
        bound_s=bound_ms / 1_000,
        promised=len(judged),
        unpromised=len(mine) - len(judged),
        own=own,
        longest_owed_s=longest / 1_000,
        broken_count=len(broken),
        broken=tuple(broken[:BROKEN_MAX]),
    )


def _broken(job: TraceJob, at: int, waited: Waited, alone_ms: int) -> Broken:
    return Broken(
        job=f"{job.spec.name}#{at + 1}",
        submit_s=job.submit_ms / 1_000,
        waited_s=waited.total_ms / 1_000,
        alone_s=alone_ms / 1_000,
        owed_s=waited.owed_ms / 1_000,
    )


def reclaim_bound_ms(jobs: Iterable[TraceJob], queues: Iterable[Queue], queue: str, course: Course) -> int:
    """The longest that `queue` waits for what it lends: patience or others' least running time, and the longest stop with time to save."""
    others = [other for other in queues if other.id != queue]
    min_runs = (course.policy.min_run_ms if other.spec.min_run_ms is None else other.spec.min_run_ms for other in others)
    stops = (job.stop_ms + _saving_ms(job.spec) for job in jobs)
    return max(course.policy.patience_max_ms, *min_runs, 0) + max(stops, default=0)


def _saving_ms(spec: JobSpec) -> int:
    """The longest that a job is left to save before its stop."""
    if spec.checkpoint is None:
        return 0
    takes = spec.checkpoint.takes
    return min(max(spec.stop.grace.ms, takes.ms if takes is not None else 0), limits.CHECKPOINT_WAIT_MS_MAX)


def _alone(jobs: Sequence[TraceJob], nodes: Sequence[Node], queue: Queue, course: Course) -> Mapping[int, Waited]:
    """How the queue's jobs wait on cells of its own; by their place among them."""
    spec = replace(queue.spec, parent=None, quotas={}, weight=1_000)
    replay = Replay(nodes, (replace(queue, spec=spec),), jobs, replace(course, check=False, shuffle=False, keep_ended=False))
    watch = _Waits(replay, jobs)
    replay.run()
    return watch.waits()


class _Waits(Watch):
    """A watch over all queues: nothing is owed, everybody's waits count."""

    def look(self, replay: Replay) -> None:
        told, pending = replay.machines.told, replay.world.board.pending
        keys = (key[3] for line in pending.lines.values() for lane in line.lanes.values() for key in lane.keys)
        self._note({self._place[id(told[job])]: False for job in keys if job in told}, replay.time_ms)


# --- cells ------------------------------------------------------------------------------------------------------------------
def cell_of(jobs: Sequence[TraceJob], nodes: Sequence[Node], queues: Sequence[Queue]) -> tuple[int, str]:
    """GPUs of a cell (see module); 0 with what is in the way."""
    sizes = {len(node.facts.devices) for node in nodes if node.facts.devices}
    models = {device.model for node in nodes for device in node.facts.devices}
    if not sizes or len(models) > 1:
        return 0, f"guarantees of GPUs of any model are places only where there is one model; there are {len(models)}"
    kinds = sorted({resource for queue in queues for resource in queue.spec.quotas if resource != RESOURCE})
    if kinds:
        return 0, f"there are quotas for {', '.join(kinds)} too; cells are counted in GPUs of any model"
    guaranteed = [quota_of(queue) for queue in queues if quota_of(queue)]
    if sum(guaranteed) > 1_000 * sum(len(node.facts.devices) for node in nodes):
        return 0, f"{sum(guaranteed) / 1_000:g} GPUs are guaranteed, more than there are"
    if any(milli % 1_000 for milli in guaranteed):
        return 0, "a guarantee is no whole number of GPUs"
    stubborn = next((job for job in jobs if not job.spec.preemptible), None)
    if stubborn is not None:
        return 0, f"job {stubborn.spec.name} cannot be stopped: what it borrows is not given back"
    asks = {ask for job in jobs for ask in _asks(job.spec)}
    if None in asks:
        return 0, "parts of GPUs are on the nodes too"
    cell = math.gcd(*sizes, *(milli // 1_000 for milli in guaranteed), *(ask for ask in asks if ask is not None and ask > 0))
    least = min(nodes, key=lambda node: (node.facts.cpus, node.id))
    greedy = next((job for job in jobs if not _keeps_to_its_part(job.spec, least)), None)
    if greedy is not None:
        return 0, f"job {greedy.spec.name} asks for more cores or memory than go with its GPUs"
    return cell, ""


def _asks(spec: JobSpec) -> Iterable[int | None]:
    """GPUs that each of its groups or alternatives asks of a node; None for a part of one."""
    resources = (*spec.groups, *spec.any_of, *spec.ordered) or (spec,)
    for one in resources:
        gpus = one.gpus or spec.gpus
        if gpus is None:
            yield 0
        elif gpus.mig is not None or gpus.share is not None or gpus.share_memory is not None:
            yield None
        else:
            tasks = one.tasks_per_node or spec.tasks_per_node or 1
            yield gpus.count * (tasks if gpus.per == "task" else 1)


def _keeps_to_its_part(spec: JobSpec, node: Node) -> bool:
    for one in (*spec.groups, *spec.any_of, *spec.ordered) or (spec,):
        gpus, whole = one.gpus or spec.gpus, len(node.facts.devices)
        part = (gpus.count if gpus is not None else 0) or 0
        cpus, memory = one.cpus or spec.cpus or 0, one.memory or spec.memory
        if cpus * whole > part * node.facts.cpus or (memory.bytes if memory is not None else 0) * whole > part * node.facts.memory_bytes:
            return False
    return True


def is_of_cells(spec: JobSpec, cell: int, whole: bool) -> bool:
    """True for a job whose shape is promised: one cell, or, where cells are `whole` nodes, a fixed number of them."""
    low, high = (spec.nodes.low, spec.nodes.high) if spec.nodes is not None else (1, 1)
    plain = not (spec.groups or spec.any_of or spec.ordered or spec.array or spec.depends_on or spec.topology or spec.begin)
    return low == high and (high == 1 or whole) and plain and spec.elastic is None and list(_asks(spec)) == [cell]


def _cells(nodes: Sequence[Node], cell: int, gpus: int) -> tuple[Node, ...]:
    """A cluster of `gpus` in cells, each with its part of the smallest node."""
    least = min((node for node in nodes if node.facts.devices), key=lambda node: (len(node.facts.devices), node.id))
    parts, device = len(least.facts.devices) // cell, least.facts.devices[0]
    kind = NodeKind(
        gpus=cell,
        model=device.model,
        cpus=least.facts.cpus // parts,
        memory_bytes=least.facts.memory_bytes // parts,
        gpu_memory_bytes=device.memory_bytes,
    )
    return tuple(node_of(f"cell{at:05}", kind, pool=least.pool) for at in range(gpus // cell))

"""
Is this legal? Asked of a plan before it is enacted, and of a whole snapshot, by somebody who did not make it.

Looks at records, never at the board's columns: a device held twice is found by listing holders, not by trusting a mask. `check_plan`
looks only at the nodes and queue trees that a plan touches; given a `Snapshot` it first sorts the records by node, given `Records`
(the board's are `board.records`) it costs what the plan touches. `check_snapshot` is the oracle of property tests, of simulation and
of `shoal check`. Violations come in words; an empty tuple means legal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Protocol, TypeVar

from msgspec.structs import replace

from shoal.base import limits
from shoal.model.attempt import HOLDING, Allocation
from shoal.model.job import LIVE, Job, JobState
from shoal.model.node import Device, Node, NodeState
from shoal.model.plan import Move, Place, PlacedMember, Plan, Resize
from shoal.model.queue import Claim, Queue
from shoal.model.reservation import Reservation
from shoal.model.snapshot import Snapshot
from shoal.scheduling.admit import dependency_met
from shoal.scheduling.asks import Alternative, GroupAsk, MemberAsk, Shape, shape_of
from shoal.scheduling.check_clearing import clearing_faults
from shoal.scheduling.check_limits import check_limits
from shoal.scheduling.check_parts import part_charge, part_faults, parts_asked_faults
from shoal.scheduling.crowd import Count, gpus_milli_of, steps_of
from shoal.scheduling.quota import DEFAULT_QUEUE, Charge, QuotaTree, add_charges, charge_of, charge_of_allocation
from shoal.scheduling.windows import Window, ends_by, keepers_of

T = TypeVar("T")


class Records(Protocol):
    """Records by the keys that a check looks them up by."""

    @property
    def jobs(self) -> Mapping[str, Job]: ...

    @property
    def ended(self) -> Mapping[str, JobState]: ...

    @property
    def queues(self) -> Mapping[str, Queue]: ...

    @property
    def claims(self) -> Mapping[str, Claim]: ...

    @property
    def reservations(self) -> Mapping[str, Reservation]: ...

    def node(self, node_id: str) -> Node | None: ...

    def held_on(self, node_id: str) -> Iterable[Allocation]:
        """Allocations that hold room there."""
        ...

    def held_by(self, job_id: str) -> Iterable[Allocation]:
        """Allocations of a job that hold room."""
        ...

    def held_in(self, queue: str) -> Mapping[str, int]:
        """What a queue itself holds, by resource."""
        ...

    def live_elements(self, array_id: str) -> int:
        """Elements of an array that have started and not ended."""
        ...

    def running(self, queue: str, owner: str) -> Count:
        """What runs in a queue; of one user alone where one is named."""
        ...


class SnapshotRecords:
    """`Records` of a snapshot. Cost: the snapshot, once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.jobs = {job.id: job for job in snapshot.jobs}
        self.ended = snapshot.ended
        self.queues = {queue.id: queue for queue in snapshot.queues}
        self.claims = {claim.id: claim for claim in snapshot.claims}
        self.reservations = {reservation.id: reservation for reservation in snapshot.reservations}
        self._nodes = {node.id: node for node in snapshot.nodes}
        self._on: dict[str, list[Allocation]] = {}
        self._by: dict[str, list[Allocation]] = {}
        self._in: dict[str, dict[str, int]] = {}
        for held in snapshot.allocations:
            if held.state in HOLDING:
                self._on.setdefault(held.node, []).append(held)
                self._by.setdefault(held.job, []).append(held)
                mine = self._in.setdefault(held.queue, {})
                for resource, amount in charge_of_allocation(held):
                    mine[resource] = mine.get(resource, 0) + amount

    def node(self, node_id: str) -> Node | None:
        return self._nodes.get(node_id)

    def held_on(self, node_id: str) -> Iterable[Allocation]:
        return self._on.get(node_id, ())

    def held_by(self, job_id: str) -> Iterable[Allocation]:
        return self._by.get(job_id, ())

    def held_in(self, queue: str) -> Mapping[str, int]:
        return self._in.get(queue, {})

    def running(self, queue: str, owner: str) -> Count:
        found = (j for j in self.jobs.values() if j.state in LIVE and not j.is_array and j.queue == queue and owner in ("", j.owner))
        counts = [(gpus_milli_of(self._by.get(job.id, ())), steps_of(job)) for job in found]
        return Count(len(counts), sum(milli for milli, _ in counts), sum(milli * steps for milli, steps in counts))

    def live_elements(self, array_id: str) -> int:
        return sum(1 for job in self.jobs.values() if job.array and job.array.array_id == array_id and job.state in LIVE)


# --- a plan -----------------------------------------------------------------------------------------------------------------
def check_plan(world: Snapshot | Records, plan: Plan) -> tuple[str, ...]:
    """What is wrong with carrying out a plan on these records."""
    records: Records = SnapshotRecords(world) if isinstance(world, Snapshot) else world
    places = [decision for decision in plan.decisions if isinstance(decision, Place)]
    faults = [f"job {job} has {count} decisions" for job, count in _counts(d.job for d in plan.decisions).items() if count > 1]
    for place in places:
        faults.extend(_check_job(records, place))
    resizes = [decision for decision in plan.decisions if isinstance(decision, Resize)]
    taking: list[Place | Resize] = [*places, *(joining for resize in resizes if (joining := _joining(records, resize)) is not None)]
    faults.extend(_check_nodes(records, taking))
    faults.extend(_check_quota(records, taking))
    for resize in resizes:
        faults.extend(_check_resize(records, resize))
    faults.extend(_check_arrays(records, places))
    faults.extend(check_limits(records, places))
    moves = [decision for decision in plan.decisions if isinstance(decision, Move)]
    faults.extend(_check_windows(records, [*taking, *moves], plan.at_ms))
    faults.extend(clearing_faults(records, plan))
    return tuple(faults)


def _check_windows(records: Records, taking: list[Place | Resize | Move], at_ms: int | None) -> list[str]:
    """Nobody starts, goes on or grows on a node that is somebody else's before his time limit."""
    if at_ms is None or not records.reservations:
        return []
    faults: list[str] = []
    for decision, job in ((decision, records.jobs.get(decision.job)) for decision in taking):
        for node in (records.node(member.node) for member in decision.members):
            if job is None or node is None:
                continue
            goes_on = isinstance(decision, Resize) and job.in_place and job.started_ms is not None
            span = Window(at_ms, ends_by(job, job.started_ms if goes_on and job.started_ms is not None else at_ms))
            kept = keepers_of(job, node, span, records.reservations.values())
            faults.extend(f"job {job.address} would be on {node.id} when reservation {name} begins" for name in kept)
    return faults


def _joining(records: Records, resize: Resize) -> Resize | None:
    """The part of a resize that takes room: members on nodes where it has none."""
    here = {held.node for held in records.held_by(resize.job)}
    coming = tuple(member for member in resize.members if member.node not in here)
    return replace(resize, members=coming) if coming else None


def _check_resize(records: Records, resize: Resize) -> list[str]:
    """It runs, is elastic, stays in its range, keeps the devices that it has, and its new members are as it asked for."""
    job = records.jobs.get(resize.job)
    if job is None or job.state is not JobState.RUNNING or job.spec.elastic is None:
        return [f"job {resize.job} is to be resized and is no elastic job that runs"]
    staying = {held.node: held for held in records.held_by(job.id) if not held.leaving}
    faults = []
    least = job.spec.nodes.low if job.spec.nodes is not None else 1
    if not least <= len(resize.members) <= max(job.nodes_most, len(staying)):
        faults.append(f"job {job.address} takes {least} to {job.nodes_most} nodes and is to have {len(resize.members)}")
    kept = [member for member in resize.members if member.node in staying]
    if not kept or any(member.devices != staying[member.node].devices for member in kept):
        faults.append(f"job {job.address} is to keep members that it does not have")
    if resize.beneficiary is not None and not job.spec.preemptible:
        faults.append(f"job {job.address} is not preemptible and is to shrink for {resize.beneficiary}")
    group = shape_of(job).alternatives[0].groups[0]
    coming = [member for member in resize.members if member.node not in staying]
    for member in coming:
        faults.extend(f"job {job.address} on {member.node}: {fault}" for fault in _check_member(records, member, group.member))
    nodes = [node for member in resize.members if (node := records.node(member.node)) is not None]
    if coming and len({node.pool for node in nodes}) > 1:
        faults.append(f"job {job.address} would be spread over pools")
    models = {d.model for node in nodes for d in node.facts.devices for m in coming if m.node == node.id and d.uuid in m.devices}
    if models - {resize.gpu_model}:
        faults.append(f"job {job.address} has {resize.gpu_model or 'no GPUs'} and would get {', '.join(sorted(models))}")
    return faults


def _check_job(records: Records, place: Place) -> list[str]:
    job = records.jobs.get(place.job)
    if job is None:
        return [f"job {place.job} is not there"]
    faults = []
    if job.state is not JobState.QUEUED or job.is_array:
        faults.append(f"job {job.address} is {'an array' if job.is_array else job.state}, not a queued job")
    if any(True for _ in records.held_by(job.id)):
        faults.append(f"job {job.address} still holds something of an earlier attempt")
    if not all(dependency_met(dependency, records.jobs, records.ended) for dependency in job.spec.depends_on):
        faults.append(f"job {job.address} has an open dependency")
    return faults + _check_gang(records, job, place)


def _check_gang(records: Records, job: Job, place: Place) -> list[str]:
    """Sizes, devices per member, one model, one pool, one domain where that is required."""
    shape = shape_of(job)
    alternative = next((a for a in shape.alternatives if a.entry == place.alternative), None)
    if alternative is None:
        return [f"job {job.address} has no alternative {place.alternative}"]
    faults = [fault for group in alternative.groups for fault in _check_group(records, job, place, group)]
    faults.extend(_check_together(records, job, place, alternative))
    if shape.required and shape.level is not None:
        paths = {_path_to(records.node(member.node), shape.level) for member in place.members}
        inside = len(place.members) == 1 or (len(paths) == 1 and None not in paths)
        if not inside:
            faults.append(f"job {job.address} must lie in one {shape.level}")
    return faults + _check_runs(records, job, place, shape)


def _check_runs(records: Records, job: Job, place: Place, shape: Shape) -> list[str]:
    """Slices lie inside their level; a mesh has all its GPUs, and groups that may not be split are not."""
    nodes = [records.node(member.node) for member in place.members]
    if shape.slice is not None:
        size, level = shape.slice
        runs = [{_path_to(node, level) for node in nodes[at : at + size]} for at in range(0, len(nodes), size)]
        if len(nodes) % size or any(len(paths) > 1 or None in paths for paths in runs):
            return [f"job {job.address} must have each {size} nodes in one {level}"]
    if shape.mesh is None:
        return []
    gpus = [(node, uuid) for node, member in zip(nodes, place.members, strict=True) for uuid in member.devices]
    if len(gpus) != prod(shape.mesh):
        return [f"job {job.address} has a mesh of {prod(shape.mesh)} GPUs and gets {len(gpus)}"]
    tp = shape.mesh[0]
    groups = [{_island_of(node, uuid) for node, uuid in gpus[at : at + tp]} for at in range(0, len(gpus), tp)]
    split = shape.whole and any(len(islands) > 1 for islands in groups)
    return [f"job {job.address} must have each {tp} GPUs in one island"] if split else []


def _island_of(node: Node | None, uuid: str) -> object:
    """The island over several hosts that a device's node is in, or the one inside the host."""
    path = _path_to(node, "island")
    if node is None or path is not None:
        return path
    return node.id, next((device.island for device in node.facts.devices if device.uuid == uuid), None)


def _check_together(records: Records, job: Job, place: Place, alternative: Alternative) -> list[str]:
    faults = []
    unknown = {member.group for member in place.members} - {group.name for group in alternative.groups}
    if unknown:
        faults.append(f"job {job.address} has no group {', '.join(sorted(unknown))}")
    nodes = [node for member in place.members if (node := records.node(member.node)) is not None]
    if len({node.pool for node in nodes}) > 1:
        faults.append(f"job {job.address} is spread over pools")
    by_uuid = {device.uuid: device for node in nodes for device in node.facts.devices}
    given = [uuid for member in place.members for uuid in (*member.devices, *(part.device for part in member.parts))]
    models = {by_uuid[uuid].model for uuid in given if uuid in by_uuid}
    if models - {place.gpu_model}:
        faults.append(f"job {job.address} gets {', '.join(sorted(models))}, and says {place.gpu_model or 'none'}")
    return faults


def _check_group(records: Records, job: Job, place: Place, group: GroupAsk) -> list[str]:
    members = [member for member in place.members if member.group == group.name]
    faults = []
    if not group.low <= len(members) <= group.high:
        faults.append(f"job {job.address} asks for {group.low} to {group.high} nodes and gets {len(members)}")
    if len({member.node for member in members}) < len(members):
        faults.append(f"job {job.address} has two members on one node")
    for member in members:
        faults.extend(f"job {job.address} on {member.node}: {fault}" for fault in _check_member(records, member, group.member))
    return faults


def _check_member(records: Records, member: PlacedMember, asked: MemberAsk) -> list[str]:
    faults = []
    if len(member.devices) != asked.gpus:
        faults.append(f"{len(member.devices)} GPUs for {asked.gpus} asked")
    if (member.cpu_milli, member.memory_bytes) != (asked.cpu_milli, asked.memory_bytes):
        faults.append("other CPU or memory than asked")
    node = records.node(member.node)
    if node is not None and asked.pool not in ("", node.pool):
        faults.append(f"pool {asked.pool} was asked for, and it is in pool {node.pool}")
    devices = {device.uuid: device for device in node.facts.devices} if node else {}
    for uuid in (*member.devices, *(part.device for part in member.parts)):
        device = devices.get(uuid)
        if device is not None and not _accepts(asked, device):
            faults.append(f"{device.model} with {device.memory_bytes} bytes was not asked for")
    faults.extend(parts_asked_faults(member.parts, asked, devices))
    return faults


def _accepts(asked: MemberAsk, device: Device) -> bool:
    fits = device.memory_bytes >= asked.least_bytes and (asked.most_bytes < 0 or device.memory_bytes <= asked.most_bytes)
    return fits and (not asked.models or device.model in asked.models)


def _path_to(node: Node | None, level: str) -> tuple[tuple[str, str], ...] | None:
    """A node's domain at a level, with the way to it."""
    if node is None:
        return None
    at = next((i for i, (name, _) in enumerate(node.topology) if name == level), None)
    return None if at is None else node.topology[: at + 1]


def _check_nodes(records: Records, places: Sequence[Place | Resize]) -> list[str]:
    by_node: dict[str, list[tuple[PlacedMember, str]]] = {}
    for place in places:
        job = records.jobs.get(place.job)
        for member in place.members:
            by_node.setdefault(member.node, []).append((member, job.project if job is not None else ""))
    return [fault for node_id, members in by_node.items() for fault in _check_node(records, node_id, members)]


def _check_node(records: Records, node_id: str, placed: list[tuple[PlacedMember, str]]) -> list[str]:
    node = records.node(node_id)
    if node is None:
        return [f"node {node_id} is not there"]
    faults = [] if node.state is NodeState.READY else [f"node {node_id} is {node.state} and takes no work"]
    usable = {device.uuid for device in node.facts.devices if device.broken is None}
    held, members = list(records.held_on(node_id)), [member for member, _ in placed]
    used = [uuid for allocation in held for uuid in allocation.devices]
    taken = [uuid for member in members for uuid in member.devices]
    faults.extend(f"device {uuid} of {node_id} is not there or broken" for uuid in taken if uuid not in usable)
    faults.extend(f"device {uuid} of {node_id} is given twice" for uuid, n in _counts([*used, *taken]).items() if n > 1)
    parts = [(part, a.project) for a in held for part in a.parts] + [(part, project) for m, project in placed for part in m.parts]
    whole = {uuid for member in members for uuid in member.devices}
    fresh = {part.device for member in members for part in member.parts}
    faults.extend(f"device {uuid} of {node_id} is not there or broken" for uuid in sorted(fresh - usable))
    faults.extend(part_faults(node, parts, {*used, *taken}, whole | fresh))
    cpu = sum(a.cpu_milli for a in held) + sum(m.cpu_milli for m in members)
    memory = sum(a.memory_bytes for a in held) + sum(m.memory_bytes for m in members)
    faults.extend(_over(node, cpu, memory))
    return faults


def _over(node: Node, cpu_milli: int, memory_bytes: int) -> list[str]:
    faults = []
    if cpu_milli > node.facts.cpus * 1_000:
        faults.append(f"node {node.id} has {node.facts.cpus * 1_000} millicores and gives {cpu_milli}")
    if memory_bytes > node.facts.memory_bytes:
        faults.append(f"node {node.id} has {node.facts.memory_bytes} bytes of memory and gives {memory_bytes}")
    return faults


def _check_quota(records: Records, places: Sequence[Place | Resize]) -> list[str]:
    known = [(place, job) for place in places if (job := records.jobs.get(place.job)) is not None]
    queues = _trees_of(records, {job.queue for _, job in known})
    tree = QuotaTree(queues.values(), {name: records.held_in(name) for name in (*queues, DEFAULT_QUEUE)})
    faults = []
    for place, job in known:
        if job.queue not in tree.vertices:
            faults.append(f"job {job.address} is in queue {job.queue}, which is not there")
            continue
        charge = add_charges(*(_charge(records, place, member) for member in place.members))
        short = tree.short_of(job.queue, charge)
        if short is not None:
            faults.append(f"queue {job.queue} is {short[1]} of {short[0]} short for job {job.address}")
        tree.add(job.queue, charge)
    return faults


def _charge(records: Records, place: Place | Resize, member: PlacedMember) -> Charge:
    """From the facts, not from what the parts say of themselves."""
    node = records.node(member.node)
    devices = {device.uuid: device for device in node.facts.devices} if node is not None else {}
    parts = sum(part_charge(part, devices[part.device]) for part in member.parts if part.device in devices)
    return charge_of(len(member.devices), place.gpu_model, member.cpu_milli, member.memory_bytes, parts)


def _trees_of(records: Records, names: set[str]) -> dict[str, Queue]:
    """All queues that share a root with one of `names`."""
    roots = {_root_of(records.queues, name) for name in names}
    return {name: queue for name, queue in records.queues.items() if _root_of(records.queues, name) in roots}


def _root_of(queues: Mapping[str, Queue], name: str) -> str:
    for _ in range(limits.QUEUE_DEPTH_MAX):
        queue = queues.get(name)
        parent = None if queue is None else queue.spec.parent
        if parent is None or (parent not in queues and parent != DEFAULT_QUEUE):
            return name
        name = parent
    return name


def _check_arrays(records: Records, places: list[Place]) -> list[str]:
    jobs = [job for place in places if (job := records.jobs.get(place.job)) is not None]
    started = _counts(job.array.array_id for job in jobs if job.array is not None)
    faults = []
    for array_id, count in started.items():
        parent = records.jobs.get(array_id)
        at_once = parent.spec.array.at_once if parent is not None and parent.spec.array is not None else None
        running = 0 if at_once is None else records.live_elements(array_id) + count
        if at_once is not None and running > at_once:
            faults.append(f"array {array_id} may run {at_once} at once and would run {running}")
    return faults


# --- everything -------------------------------------------------------------------------------------------------------------
def check_snapshot(snapshot: Snapshot) -> tuple[str, ...]:
    """What is wrong with the world: INV of the specification, at one version."""
    held = [allocation for allocation in snapshot.allocations if allocation.state in HOLDING]
    faults = _check_holders(snapshot, held)
    faults.extend(_check_gangs(snapshot, held))
    faults.extend(_check_tree(snapshot.queues))
    return tuple(faults)


def _check_holders(snapshot: Snapshot, held: list[Allocation]) -> list[str]:
    faults: list[str] = []
    holders = _counts((allocation.node, uuid) for allocation in held for uuid in allocation.devices)
    faults.extend(f"device {uuid} of {node} is in {count} live allocations" for (node, uuid), count in holders.items() if count > 1)
    by_node: dict[str, list[Allocation]] = {}
    for allocation in held:
        by_node.setdefault(allocation.node, []).append(allocation)
    nodes = {node.id: node for node in snapshot.nodes}
    for node_id, mine in by_node.items():
        node = nodes.get(node_id)
        if node is not None:
            faults.extend(_over(node, sum(a.cpu_milli for a in mine), sum(a.memory_bytes for a in mine)))
            parts = [(part, a.project) for a in mine for part in a.parts]
            faults.extend(part_faults(node, parts, {uuid for a in mine for uuid in a.devices}))
    return faults


def _check_gangs(snapshot: Snapshot, held: list[Allocation]) -> list[str]:
    """
    A gang holds all its members until it is committed; none is smaller than its least; nobody holds for two attempts.

    Once it is committed, a member may have done its work before the last one has said that it started.
    """
    jobs = {job.id: job for job in snapshot.jobs}
    attempts = {(attempt.job, attempt.number): attempt for attempt in snapshot.attempts}
    by_job: dict[str, list[Allocation]] = {}
    for allocation in held:
        by_job.setdefault(allocation.job, []).append(allocation)
    faults = []
    for job_id, mine in by_job.items():
        if len({allocation.attempt for allocation in mine}) > 1:
            faults.append(f"job {mine[0].job_number} holds devices for more than one attempt")
        if job_id not in jobs:
            faults.append(f"job {mine[0].job_number} has ended or is unknown, and still holds {len(mine)} allocations")
    for job in jobs.values():
        attempt = attempts.get((job.id, job.attempt))
        if attempt is None or job.state not in (JobState.STARTING, JobState.RUNNING):
            continue
        least = min(sum(group.low for group in a.groups) for a in shape_of(job).alternatives)
        if len(attempt.members) < least:
            faults.append(f"job {job.address} was started with {len(attempt.members)} nodes, and asks for {least} at least")
        holding = sum(1 for allocation in by_job.get(job.id, ()) if allocation.attempt == job.attempt)
        if job.state is JobState.STARTING and attempt.committed_ms is None and holding != len(attempt.members):
            faults.append(f"job {job.address} is being prepared and holds {holding} of {len(attempt.members)} members")
    return faults


def _check_tree(queues: tuple[Queue, ...]) -> list[str]:
    by_name = {queue.id: queue for queue in queues}
    faults = []
    for queue in queues:
        parent, depth = queue.spec.parent, 0
        while parent is not None and depth <= limits.QUEUE_DEPTH_MAX:
            if parent not in by_name and parent != DEFAULT_QUEUE:
                faults.append(f"queue {queue.id} lies under {parent}, which is not there")
                break
            parent, depth = by_name[parent].spec.parent if parent in by_name else None, depth + 1
        if depth > limits.QUEUE_DEPTH_MAX:
            faults.append(f"queue {queue.id} lies deeper than {limits.QUEUE_DEPTH_MAX} levels, or in a circle")
    return faults


def _counts(items: Iterable[T]) -> dict[T, int]:
    counts: dict[T, int] = {}
    for item in items:
        counts[item] = counts.get(item, 0) + 1
    return counts

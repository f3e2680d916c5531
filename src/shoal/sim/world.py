"""
The records of a replay in memory, and the board that is moved with every change: what the store and the live picture are to the plane.

One writer, so nothing can conflict and versions count changes only. Jobs that have ended are forgotten unless somebody asks for them
(`keep_ended`): a trace has a million of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shoal.model.attempt import HOLDING, Allocation, Attempt
from shoal.model.change import Change, ChangeSet, Record
from shoal.model.event import EventRow
from shoal.model.job import ENDED, Job, JobState
from shoal.model.node import Node
from shoal.model.queue import Claim, Queue
from shoal.model.reservation import Reservation
from shoal.model.snapshot import Picture, Snapshot
from shoal.scheduling.board import Board


class World:
    """See module. Fields are for reading; `write` is the only way to move it."""

    def __init__(self, nodes: Iterable[Node], queues: Iterable[Queue], *, keep_ended: bool = False) -> None:
        self.jobs: dict[str, Job] = {}
        self.ended: dict[str, Job] = {}
        """Jobs that have ended, with `keep_ended`; elements of arrays always, since their parent's end is made from theirs."""
        self.attempts: dict[str, Attempt] = {}
        """The current one of each live job, by job id."""
        self.members: dict[str, dict[str, Allocation]] = {}
        """The allocations of the current attempt of each live job."""
        self.nodes = {node.id: node for node in nodes}
        self.queues = {queue.id: queue for queue in queues}
        self.claims: dict[str, Claim] = {}
        self.reservations: dict[str, Reservation] = {}
        self.version = 1
        self.gpu_milli_held = 0
        """Thousandths of GPUs that are held, in whole or in parts."""
        self.gpus = sum(len(node.facts.devices) for node in self.nodes.values())
        """Of all nodes, whether they take work or not."""
        self.stranded_milli = 0
        """Free thousandths of GPUs on nodes of which others are held."""
        self.broken_milli = 0
        """Free thousandths of GPUs of which others are held: no use to who asks for a whole one."""
        self._held_on: dict[str, int] = {}
        self._held_of: dict[str, int] = {}
        """Thousandths held of each GPU that is held in parts."""
        self.array_counts: dict[str, dict[JobState, int]] = {}
        """Of each array with live elements: how many are in which state."""
        self.arrays_moved: dict[str, None] = {}
        """Arrays of which an element has changed its state since somebody looked."""
        self.board = Board.of(self.snapshot())
        self.listeners: list[Callable[[EventRow], None]] = []
        self.on_end: Callable[[Job], None] = _unheard
        self._keep_ended = keep_ended

    def write(self, changes: ChangeSet) -> None:
        """Makes the whole set true."""
        self.version += 1
        for record in changes.put:
            self._put(record)
        for record in changes.delete:
            if isinstance(record, Node):
                self.stranded_milli -= self._stranded_on(record.id)
                self.gpus -= len(self.nodes.pop(record.id).facts.devices)
            elif isinstance(record, Queue):
                del self.queues[record.id]
            elif isinstance(record, Claim):
                del self.claims[record.id]
            elif isinstance(record, Reservation):
                del self.reservations[record.id]
        self.board.apply(Change(version=self.version, put=changes.put, delete=changes.delete))
        for record in changes.put:
            if isinstance(record, Job) and record.state in ENDED:
                self._forget(record)
        for listener in self.listeners:
            for row in changes.events:
                listener(row)

    def picture(self, job_id: str) -> Picture | None:
        """What the lifecycle judges on; None for a job that has ended and is forgotten."""
        job = self.jobs.get(job_id) or self.ended.get(job_id)
        if job is None:
            return None
        members = self.members.get(job_id)
        return Picture(job=job, attempt=self.attempts.get(job_id), allocations=tuple(members.values()) if members else ())

    def snapshot(self) -> Snapshot:
        """What a store would give."""
        live = [job for _, job in sorted(self.jobs.items())]
        wanted = sorted({dependency.job for job in live for dependency in job.spec.depends_on})
        held = [a for members in self.members.values() for a in members.values() if a.state in HOLDING]
        return Snapshot(
            version=self.version,
            jobs=tuple(live),
            attempts=tuple(sorted(self.attempts.values(), key=lambda attempt: attempt.id)),
            allocations=tuple(sorted(held, key=lambda allocation: allocation.id)),
            nodes=tuple(node for _, node in sorted(self.nodes.items())),
            queues=tuple(queue for _, queue in sorted(self.queues.items())),
            claims=tuple(claim for _, claim in sorted(self.claims.items())),
            reservations=tuple(reservation for _, reservation in sorted(self.reservations.items())),
            ended={job_id: self.ended[job_id].state for job_id in wanted if job_id in self.ended},
        )

    def miscounted(self, snapshot: Snapshot) -> list[str]:
        """Where the counts that are kept up differ from those of the records."""
        held: dict[str, int] = {}
        parts: dict[str, int] = {}
        for allocation in snapshot.allocations:
            held[allocation.node] = held.get(allocation.node, 0) + allocation.gpu_milli
            for part in allocation.parts:
                parts[part.device] = parts.get(part.device, 0) + part.charge
        owned = {node: 1_000 * len(self.nodes[node].facts.devices) for node in held if node in self.nodes}
        counts = (
            ("held", sum(held.values()), self.gpu_milli_held),
            ("stranded", sum(max(0, owned[node] - held[node]) for node in owned if held[node]), self.stranded_milli),
            ("broken", sum(_left_of(milli) for milli in parts.values()), self.broken_milli),
        )
        return [f"{found} thousandths of GPUs are {what} and {kept} are counted" for what, found, kept in counts if found != kept]

    def elements_of(self, array_id: str) -> list[str]:
        """Ids of the live elements of an array; none for a job that is no array."""
        return sorted(job.id for job in self.jobs.values() if job.array is not None and job.array.array_id == array_id)

    def learn_dependencies(self) -> None:
        """Tells the board how jobs ended that somebody new depends on."""
        unknown = self.board.unknown_dependencies()
        self.board.learn_ended({job_id: self.ended[job_id].state for job_id in unknown if job_id in self.ended})

    # --- records -----------------------------------------------------------------------------------------------------------
    def _put(self, record: Record) -> None:
        if isinstance(record, Job):
            self._put_job(record)
        elif isinstance(record, Allocation):
            self._put_allocation(record)
        elif isinstance(record, Attempt):
            self._put_attempt(record)
        elif isinstance(record, Node):
            self._put_node(record)
        elif isinstance(record, Queue):
            self.queues[record.id] = record
        elif isinstance(record, Claim):
            self.claims[record.id] = record
        elif isinstance(record, Reservation):
            self.reservations[record.id] = record

    def _put_job(self, job: Job) -> None:
        before = self.jobs.get(job.id) or self.ended.get(job.id)
        if job.array is not None and (before is None or before.state is not job.state):
            counts = self.array_counts.setdefault(job.array.array_id, {})
            if before is not None:
                counts[before.state] -= 1
            counts[job.state] = counts.get(job.state, 0) + 1
            self.arrays_moved[job.array.array_id] = None
        if job.is_array and before is not None and (job.cancel, job.hold) != (before.cancel, before.hold):
            self.arrays_moved[job.id] = None
        self.jobs[job.id] = job
        self.ended.pop(job.id, None)

    def _put_attempt(self, attempt: Attempt) -> None:
        before = self.attempts.get(attempt.job)
        if before is not None and before.number != attempt.number:
            # What an older attempt held is released or fenced by now, else there would be no new one.
            self.members[attempt.job] = {a.id: a for a in self.members[attempt.job].values() if a.attempt == attempt.number}
        self.attempts[attempt.job] = attempt

    def _put_allocation(self, allocation: Allocation) -> None:
        mine = self.members.setdefault(allocation.job, {})
        before = mine.get(allocation.id)
        gone = before.gpu_milli if before is not None and before.state in HOLDING else 0
        come = allocation.gpu_milli if allocation.state in HOLDING else 0
        if come != gone:
            self.gpu_milli_held += come - gone
            self.stranded_milli -= self._stranded_on(allocation.node)
            self._held_on[allocation.node] = self._held_on.get(allocation.node, 0) + come - gone
            self.stranded_milli += self._stranded_on(allocation.node)
        if allocation.parts:
            self._count_parts(before, allocation)
        mine[allocation.id] = allocation

    def _count_parts(self, before: Allocation | None, after: Allocation) -> None:
        for allocation, sign in ((before, -1), (after, 1)):
            for part in allocation.parts if allocation is not None and allocation.state in HOLDING else ():
                held = self._held_of.get(part.device, 0)
                self._held_of[part.device] = held + sign * part.charge
                self.broken_milli += _left_of(self._held_of[part.device]) - _left_of(held)

    def _stranded_on(self, node_id: str) -> int:
        node, held = self.nodes.get(node_id), self._held_on.get(node_id, 0)
        return max(0, 1_000 * len(node.facts.devices) - held) if node is not None and held else 0

    def _put_node(self, node: Node) -> None:
        before = self.nodes.get(node.id)
        self.gpus += len(node.facts.devices) - (len(before.facts.devices) if before is not None else 0)
        self.stranded_milli -= self._stranded_on(node.id)
        self.nodes[node.id] = node
        self.stranded_milli += self._stranded_on(node.id)

    def _forget(self, job: Job) -> None:
        """A job has ended: it leaves the live ones, and what belonged to it goes with it."""
        self.on_end(job)
        del self.jobs[job.id]
        self.attempts.pop(job.id, None)
        self.members.pop(job.id, None)
        if self._keep_ended or job.array is not None:
            self.ended[job.id] = job


def _left_of(held_milli: int) -> int:
    """Thousandths that are free of a GPU of which so many are held; of one that nobody has a part of, none are left over."""
    return max(0, 1_000 - held_milli) if held_milli else 0


def _unheard(job: Job) -> None:
    """Nobody has asked to hear of ends."""

"""
A gang to try things on: `Gang` holds one job's records as a store would and passes events through the lifecycle, auditing each step.

Used by unit and property tests of `lifecycle`, and wherever a test needs a placed job without a scheduler: `Gang.placed(nodes=2)`.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from shoal.lifecycle.audit import audit
from shoal.lifecycle.enact import enact_place, enact_resize
from shoal.lifecycle.job import Origin, advance_job, new_job
from shoal.lifecycle.layout import layout
from shoal.model.attempt import HOLDING, Allocation, Attempt
from shoal.model.change import ChangeSet
from shoal.model.command import Command, CommandRow
from shoal.model.event import (
    AllocationPrepared,
    AllocationReleased,
    AllocationStarted,
    Event,
    PrepareFailed,
    TaskExited,
)
from shoal.model.job import Job, JobSpec, Usage
from shoal.model.node import Device, Node, NodeFacts
from shoal.model.plan import Place, PlacedMember, Resize
from shoal.model.reason import Reason, ReasonCode
from shoal.model.snapshot import Picture
from shoal.model.values import CountRange
from shoal.model.wire import LeaseTerms
from shoal.testing.clock import EPOCH_MS

TERMS = LeaseTerms()
JOB_ID = "01900000-0000-7000-8000-000000000012"


def a_spec(nodes: int | CountRange = 1, **fields: Any) -> JobSpec:
    """A spec that passes every rule: `true` on so many nodes."""
    return JobSpec(**{"name": "train", "run": "true", "nodes": CountRange(nodes, nodes) if isinstance(nodes, int) else nodes, **fields})


def a_node(name: str, gpus: int = 8, model: str = "h100", **facts: Any) -> Node:
    """A registered node with so many GPUs, named `<node>-gpu<i>`."""
    devices = tuple(Device(uuid=f"{name}-gpu{i}", index=i, model=model, memory_bytes=80 << 30) for i in range(gpus))
    known = {"hostname": name, "address": name, "cpus": 64, "memory_bytes": 1 << 40, "boot_id": "boot-1", "devices": devices, **facts}
    return Node(id=name, facts=NodeFacts(**known), epoch=1)


def a_reason(code: ReasonCode = ReasonCode.PREPARE_FAILED, message: str = "the disk is full") -> Reason:
    return Reason(code=code, message=message)


class Gang:
    """One job with all its attempts. Every step goes through `apply`, which refuses stale versions and audits what it has."""

    def __init__(self, spec: JobSpec, now_ms: int = EPOCH_MS) -> None:
        self.now_ms = now_ms
        self.version = 0
        self.attempts: dict[str, Attempt] = {}
        self.allocations: dict[str, Allocation] = {}
        self.sent: list[CommandRow] = []
        self.log: list[Event] = []
        origin = Origin(id=JOB_ID, number=12, project="default", owner="user/anna", queue="default", now_ms=now_ms)
        self.job: Job = new_job(spec, origin).put[0]  # type: ignore[assignment]
        self.apply(new_job(spec, origin))

    @classmethod
    def placed(cls, nodes: int | CountRange = 1, **fields: Any) -> Gang:
        """A gang that is STARTING on nodes n0, n1, ..."""
        gang = cls(a_spec(nodes, **fields))
        gang.place()
        return gang

    @classmethod
    def running(cls, nodes: int | CountRange = 1, **fields: Any) -> Gang:
        gang = cls.placed(nodes, **fields)
        gang.run()
        return gang

    # --- the store's part ------------------------------------------------------------------------------------------------
    def apply(self, changes: ChangeSet) -> ChangeSet:
        """Writes the set as a store would. AssertionError for a stale record, or for a record that breaks what must always hold."""
        if changes.empty:
            return changes
        self.version += 1
        for record in changes.put:
            known: Any = self.attempts.get(record.id) or self.allocations.get(record.id) or {self.job.id: self.job}.get(record.id)
            assert record.version == (known.version if known is not None else 0), f"stale {record.id}"
            self._keep(replace(record, version=self.version))
        self.sent.extend(changes.commands)
        self.log.extend(row.body for row in changes.events)
        violations = audit((self.job,), self.attempts.values(), self.allocations.values())
        assert not violations, violations
        return changes

    def _keep(self, record: Any) -> None:
        if isinstance(record, Job):
            self.job = record
        elif isinstance(record, Attempt):
            self.attempts[record.id] = record
        elif isinstance(record, Allocation):
            self.allocations[record.id] = record

    @property
    def picture(self) -> Picture:
        current = self.attempts.get(f"{self.job.id}.{self.job.attempt}")
        return Picture(job=self.job, attempt=current, allocations=tuple(self.members))

    @property
    def members(self) -> list[Allocation]:
        """The allocations of the current attempt in node-rank order."""
        return sorted((a for a in self.allocations.values() if a.attempt == self.job.attempt), key=lambda a: a.node_rank)

    @property
    def states(self) -> str:
        """The members' states in node-rank order, as one line: what most tests want to see."""
        return " ".join(a.state for a in self.members)

    @property
    def holding(self) -> list[Allocation]:
        return [a for a in self.allocations.values() if a.state in HOLDING]

    # --- what happens ----------------------------------------------------------------------------------------------------
    def tell(self, event: Event, by: str = "shoal") -> ChangeSet:
        """Passes one event through the lifecycle and writes what follows."""
        return self.apply(advance_job(self.picture, event, self.now_ms, TERMS, by))

    def place(self) -> ChangeSet:
        """Places the gang on n0, n1, ... with the devices that it asks for."""
        members: list[PlacedMember] = []
        for group in layout(self.job.spec):
            for _ in range(group.nodes_low):
                node = f"n{len(members)}"
                devices = tuple(f"{node}-gpu{i}" for i in range(group.gpus))
                members.append(PlacedMember(node=node, group=group.name, devices=devices, cpu_milli=1_000))
        nodes = {m.node: a_node(m.node) for m in members}
        place = Place(job=self.job.id, members=tuple(members), gpu_model="h100")
        return self.apply(enact_place(place, self.job, nodes, self.now_ms, TERMS))

    def resize(self, *nodes: str) -> ChangeSet:
        """Gives the gang a member on each of these nodes, with the devices that it asks for, and on no other."""
        (group,) = layout(self.job.spec)
        members = tuple(
            PlacedMember(node=node, devices=tuple(f"{node}-gpu{i}" for i in range(group.gpus)), cpu_milli=1_000) for node in nodes
        )
        reason = Reason(code=ReasonCode.RESIZE, message="there is room")
        resize = Resize(job=self.job.id, members=members, gpu_model="h100", reason=reason)
        return self.apply(enact_resize(resize, self.picture, {node: a_node(node) for node in nodes}, self.now_ms, TERMS))

    def commands(self) -> list[Command]:
        """The commands sent since the last call."""
        sent, self.sent = [row.body for row in self.sent], []
        return sent

    def run(self) -> None:
        """All members prepared, then started."""
        for rank in range(len(self.members)):
            self.tell(self.prepared(rank))
        for rank in range(len(self.members)):
            self.tell(self.started(rank))

    # --- reports, by node rank -------------------------------------------------------------------------------------------
    def _ids(self, node_rank: int) -> dict[str, Any]:
        return {"allocation": f"{self.job.id}.{self.job.attempt}.{node_rank}", "attempt": self.job.attempt}

    def prepared(self, node_rank: int) -> AllocationPrepared:
        return AllocationPrepared(**self._ids(node_rank), address=f"10.0.0.{node_rank}", port=29_500)

    def prepare_failed(self, node_rank: int, fatal: bool = False) -> PrepareFailed:
        return PrepareFailed(**self._ids(node_rank), reason=a_reason(), fatal=fatal)

    def started(self, node_rank: int) -> AllocationStarted:
        return AllocationStarted(**self._ids(node_rank), at_ms=self.now_ms)

    def exited(self, node_rank: int, exit_code: int = 0, rank: int | None = None, **fields: Any) -> TaskExited:
        """`rank` is the global one; by default the first of the member's tasks."""
        member = self.allocations[f"{self.job.id}.{self.job.attempt}.{node_rank}"]
        rank = member.tasks[0].rank if rank is None else rank
        return TaskExited(**self._ids(node_rank), **{"rank": rank, "exit_code": exit_code, "at_ms": self.now_ms, **fields})

    def released(self, node_rank: int, reason: Reason | None = None) -> AllocationReleased:
        usage = Usage(cpu_ms=100, memory_bytes_max=1_000 + node_rank)
        return AllocationReleased(**self._ids(node_rank), at_ms=self.now_ms, usage=usage, reason=reason)

    def release_all(self) -> None:
        for member in self.members:
            self.tell(self.released(member.node_rank))

"""
A cluster in memory for tests of `scheduling`: records as a store would hold them, and a board that is moved with every change.

    cluster = Cluster(a_host("n1"), a_host("n2"))
    job = cluster.submit(gpus=8, nodes=2)
    plan = cluster.cycle()          # judged, checked, and carried out through the lifecycle
    cluster.end(job)

No store, no clock, no agents: `now_ms` is set by the test. Every cycle is checked by `check_plan` and `check_snapshot`, and its board is
compared with one built anew, so a test that uses this cannot pass over a broken invariant.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from shoal.base.rng import Rng
from shoal.formats.partition import partition_of
from shoal.lifecycle.claims import claims_of_plan
from shoal.lifecycle.enact import enact_evict, enact_place
from shoal.lifecycle.job import advance_job
from shoal.model.attempt import HOLDING, Allocation, AllocationState, Attempt
from shoal.model.change import Change, Record
from shoal.model.event import AllocationReleased
from shoal.model.job import ENDED, ArrayPlace, GpuAsk, Job, JobSpec, JobState, Topology
from shoal.model.node import Device, Node, NodeFacts, NodeState
from shoal.model.plan import Evict, Move, Place, Plan, Reserve, Wait
from shoal.model.queue import Claim, Queue, QueueSpec, QueueUsage, Quota
from shoal.model.reservation import Reservation, ReservationSpec
from shoal.model.snapshot import Picture, Snapshot
from shoal.model.values import ArrayList, CountRange, Memory, MemoryRange
from shoal.model.wire import Explanation, LeaseTerms
from shoal.scheduling.board import Board
from shoal.scheduling.check import check_plan, check_snapshot
from shoal.scheduling.cycle import schedule
from shoal.scheduling.explain import explain_job
from shoal.scheduling.policy import Policy

TERMS = LeaseTerms()
GIB = 1 << 30


def a_host(
    name: str,
    gpus: int = 8,
    model: str = "h100",
    *,
    cpus: int = 64,
    memory: int = 1024,
    gpu_memory: float = 80,
    **fields: Any,
) -> Node:
    """
    A READY node; memory in GiB, `island` GPUs to an NVLink island, `nics` network adapters.

    `topology="rack=a"` or `"zone=a,rack=a3"` says where it stands, `parts="mig"` how its GPUs may be given in parts.
    """
    island, partition = fields.pop("island", 4), partition_of(fields.pop("parts", "whole"))
    size = int(gpu_memory * GIB)
    devices = tuple(
        Device(uuid=f"{name}-{i}", index=i, model=model, memory_bytes=size, island=i // island, numa=i // 4, partition=partition)
        for i in range(gpus)
    )
    facts = NodeFacts(hostname=name, address=name, cpus=cpus, memory_bytes=memory * GIB, devices=devices, nics=fields.pop("nics", 0))
    topology = fields.pop("topology", "")
    path = tuple((level, domain) for level, _, domain in (part.partition("=") for part in topology.split(",") if part))
    return Node(id=name, facts=facts, topology=path, **fields)


def a_queue(name: str, parent: str | None = None, *, project: str = "default", **fields: Any) -> Queue:
    """A queue; `gpu=(nominal,)` or `gpu=(nominal, borrowing)` or `gpu=(nominal, borrowing, lending)` in whole GPUs."""
    quotas = dict(fields.pop("quotas", {}))
    if "gpu" in fields:
        nominal, borrowing, lending = (*(a if a is None else a * 1_000 for a in fields.pop("gpu")), None, None)[:3]
        quotas["gpu"] = Quota(nominal=nominal or 0, borrowing_limit=borrowing, lending_limit=lending)
    return Queue(id=name, spec=QueueSpec(parent=parent, project=project, quotas=quotas, **fields))


def a_reservation(name: str, start_s: int, end_s: int, **fields: Any) -> Reservation:
    """A reservation from second to second; of `nodes=("n1",)`, a `pool` or a `domain`, and for nobody unless said."""
    return Reservation(id=name, spec=ReservationSpec(start_ms=start_s * 1_000, end_ms=end_s * 1_000, **fields))


def an_ask(gpus: int | GpuAsk = 1, nodes: int | tuple[int, int] = 1, **fields: Any) -> JobSpec:
    """A spec; `gpus` may be a count, `level` and `required` name a topology wish, `models` the GPU models, `memory` is in GiB."""
    low, high = nodes if isinstance(nodes, tuple) else (nodes, nodes)
    level, required = fields.pop("level", None), fields.pop("required", False)
    topology = fields.pop("topology", None) or (Topology(level=level, required=required) if level else None)
    models, least = fields.pop("models", ()), fields.pop("gpu_memory", None)
    memory = fields.pop("memory", None)
    ask = gpus
    if isinstance(ask, int):
        ask = GpuAsk(count=ask, model=tuple(models), memory=MemoryRange(least * GIB) if least else None)
    return JobSpec(
        run="true",
        gpus=ask if ask.count or ask.share is not None or ask.share_memory is not None else None,
        nodes=CountRange(low, high),
        topology=topology,
        memory=Memory(memory * GIB) if memory else None,
        **fields,
    )


class Cluster:
    """See module."""

    def __init__(self, *records: Node | Queue | Reservation, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.now_ms = 1_000
        self.version = 0
        self.jobs: dict[str, Job] = {}
        self.attempts: dict[str, Attempt] = {}
        self.allocations: dict[str, Allocation] = {}
        self.nodes: dict[str, Node] = {}
        self.queues: dict[str, Queue] = {}
        self.claims: dict[str, Claim] = {}
        self.usages: dict[str, QueueUsage] = {}
        self.reservations: dict[str, Reservation] = {}
        self.changes: list[Change] = []
        self.evicted: list[str] = []
        """Jobs in the order in which they were told to stop."""
        self.moved: list[str] = []
        """Jobs in the order in which they were told to go on elsewhere."""
        self.board = Board.of(self.snapshot())
        self._numbers = 0
        if records:
            self.put(*records)

    # --- records -----------------------------------------------------------------------------------------------------------
    def put(self, *records: Record) -> Change:
        """One change that writes these records."""
        return self.commit(records, ())

    def commit(self, put: tuple[Record, ...], delete: tuple[Record, ...]) -> Change:
        self.version += 1
        written = tuple(replace(record, version=self.version) for record in put)
        for record in written:
            self._table(record)[record.id] = record
        for record in delete:
            self._table(record).pop(record.id, None)
        change = Change(version=self.version, put=written, delete=delete)
        self.changes.append(change)
        self.board.apply(change)
        return change

    def _table(self, record: Record) -> dict[str, Any]:
        tables: dict[type, dict[str, Any]] = {
            Job: self.jobs,
            Attempt: self.attempts,
            Allocation: self.allocations,
            Node: self.nodes,
            Queue: self.queues,
            Claim: self.claims,
            QueueUsage: self.usages,
            Reservation: self.reservations,
        }
        return tables[type(record)]

    def snapshot(self) -> Snapshot:
        """What a store would give."""
        live = [job for _, job in sorted(self.jobs.items()) if job.state not in ENDED]
        wanted = {dependency.job for job in live for dependency in job.spec.depends_on}
        held = (allocation for _, allocation in sorted(self.allocations.items()) if allocation.state in HOLDING)
        attempts = (attempt for _, attempt in sorted(self.attempts.items()) if self.jobs[attempt.job].attempt == attempt.number)
        return Snapshot(
            version=self.version,
            jobs=tuple(live),
            attempts=tuple(attempt for attempt in attempts if self.jobs[attempt.job].state not in ENDED),
            allocations=tuple(held),
            nodes=tuple(node for _, node in sorted(self.nodes.items())),
            queues=tuple(queue for _, queue in sorted(self.queues.items())),
            claims=tuple(claim for _, claim in sorted(self.claims.items())),
            usages=tuple(usage for _, usage in sorted(self.usages.items())),
            reservations=tuple(reservation for _, reservation in sorted(self.reservations.items())),
            ended={job_id: self.jobs[job_id].state for job_id in sorted(wanted) if self.ended(job_id)},
        )

    def ended(self, job_id: str) -> bool:
        return job_id in self.jobs and self.jobs[job_id].state in ENDED

    # --- what happens --------------------------------------------------------------------------------------------------------
    def submit(self, gpus: int | GpuAsk = 1, nodes: int | tuple[int, int] = 1, **fields: Any) -> str:
        """
        A job arrives; gives its id. Fields of `Job` (queue, priority, state, not_before_ms, project) and of `an_ask`; `limit_s` is its
        time limit.
        """
        job = self.new_job(gpus, nodes, **fields)
        self.put(job)
        if job.spec.depends_on:
            unknown = self.board.unknown_dependencies()
            self.board.learn_ended({job_id: self.jobs[job_id].state for job_id in unknown if self.ended(job_id)})
        return job.id

    def new_job(self, gpus: int | GpuAsk = 1, nodes: int | tuple[int, int] = 1, **fields: Any) -> Job:
        self._numbers += 1
        if "limit_s" in fields:
            fields["time_limit_ms"] = fields.pop("limit_s") * 1_000
        own = {name: fields.pop(name) for name in _JOB_FIELDS if name in fields}
        spec = fields.pop("spec", None) or an_ask(gpus, nodes, **fields)
        known: dict[str, Any] = {
            "id": f"job-{self._numbers:06}",
            "number": self._numbers,
            "project": "default",
            "owner": "ada",
            "queue": "default",
            "state": JobState.QUEUED,
            "created_ms": self.now_ms,
            "queued_ms": self.now_ms,
            "spec": spec,
            **own,
        }
        return Job(**known)

    def submit_array(self, text: str, gpus: int = 1, **fields: Any) -> tuple[str, tuple[str, ...]]:
        """An array arrives: the parent's id and its elements'."""
        array = ArrayList.parse(text)
        element_spec = an_ask(gpus)
        parent = self.new_job(spec=replace(element_spec, array=array), **fields)
        elements = []
        for index in array.indices:
            place = ArrayPlace(array=parent.number, array_id=parent.id, index=index, count=len(array.indices))
            elements.append(self.new_job(spec=element_spec, array=place, **fields))
        self.put(parent, *elements)
        return parent.id, tuple(element.id for element in elements)

    def change_job(self, job_id: str, **fields: Any) -> None:
        self.put(replace(self.jobs[job_id], **fields))

    def change_node(self, node_id: str, **fields: Any) -> None:
        self.put(replace(self.nodes[node_id], **fields))

    def end(self, job_id: str, state: JobState = JobState.SUCCEEDED) -> None:
        """The job has ended and all that it held is released, in one change."""
        mine = [a for a in self.allocations.values() if a.job == job_id and a.state in HOLDING]
        released = (replace(allocation, state=AllocationState.RELEASED) for allocation in mine)
        self.put(replace(self.jobs[job_id], state=state, ended_ms=self.now_ms), *released)

    def plan(self) -> Plan:
        """What the cycle says now, checked, with nothing carried out."""
        self.board.use_policy(self.policy)
        self.board.horizon.outlive(self.now_ms)
        before = self.board.contents()
        plan = schedule(self.board, self.policy, self.now_ms, Rng(self.version))
        self.board.pending.advance(self.now_ms)
        assert _same_but_time(before, self.board.contents()), "the cycle left something on the board"
        faults = (*check_plan(self.snapshot(), plan), *check_plan(self.board.records, plan))
        assert not faults, faults
        return plan

    def cycle(self) -> Plan:
        """One cycle, carried out: placed jobs run at once."""
        plan = self.plan()
        for decision in plan.decisions:
            if isinstance(decision, Place):
                self.carry_out(decision)
        self.evict(plan)
        faults = check_snapshot(self.snapshot())
        assert not faults, faults
        return plan

    def carry_out(self, place: Place) -> None:
        changes = enact_place(place, self.jobs[place.job], self.nodes, self.now_ms, TERMS)
        self.commit(changes.put, (*changes.delete, *(c for c in self.claims.values() if c.job == place.job)))

    def evict(self, plan: Plan) -> None:
        """Claims, then victims told to stop; `free` says when they have."""
        claims = claims_of_plan(plan, self.jobs.get, self.now_ms + self.policy.claim_ms, 1)
        if claims:
            self.put(*claims)
        for decision in (d for d in plan.decisions if isinstance(d, Evict | Move)):
            self.commit(enact_evict(decision, self.picture(decision.job), self.now_ms, TERMS).put, ())
            (self.evicted if isinstance(decision, Evict) else self.moved).append(decision.job)

    def picture(self, job_id: str) -> Picture:
        job = self.jobs[job_id]
        mine = tuple(a for a in self.allocations.values() if a.job == job_id and a.attempt == job.attempt)
        return Picture(job=job, attempt=self.attempts.get(f"{job_id}.{job.attempt}"), allocations=mine)

    def free(self) -> None:
        """Everybody who was told to stop has, and is queued again."""
        for job in sorted(job.id for job in self.jobs.values() if job.state is JobState.PREEMPTING):
            for allocation in self.picture(job).allocations:
                released = AllocationReleased(allocation=allocation.id, attempt=allocation.attempt, at_ms=self.now_ms)
                self.commit(advance_job(self.picture(job), released, self.now_ms, TERMS).put, ())

    def settle(self, cycles: int = 50) -> None:
        """Cycles until one neither places nor evicts; what is evicted stops in between."""
        for _ in range(cycles):
            counters = self.cycle().counters
            self.free()
            if not counters["placed"] and not counters["evicted"] and not counters["moved"]:
                return
        raise AssertionError(f"still placing after {cycles} cycles")

    def pass_time(self, until_ms: int) -> None:
        """Time goes on to `until_ms`; jobs run exactly to their limits, and a cycle comes after each instant at which some end."""
        while (ends := self.board.horizon.ends.first()) is not None and ends[0] <= until_ms:
            self.now_ms = max(self.now_ms, ends[0])
            for _, job_id in self.board.horizon.ends.below((self.now_ms + 1,)):
                self.end(job_id)
            self.cycle()
        self.now_ms = until_ms

    def started_ms(self, job_id: str) -> int | None:
        """When a job was placed, if it ever was."""
        claimed = [a.claimed_ms for a in self.allocations.values() if a.job == job_id]
        return min(claimed, default=None)

    # --- what is ---------------------------------------------------------------------------------------------------------------
    def nodes_of(self, job_id: str) -> tuple[str, ...]:
        """Where a job is, in node-rank order."""
        held = [a for a in self.allocations.values() if a.job == job_id and a.state in HOLDING]
        return tuple(allocation.node for allocation in sorted(held, key=lambda a: a.node_rank))

    def gpus_of(self, job_id: str) -> int:
        return sum(len(a.devices) for a in self.allocations.values() if a.job == job_id and a.state in HOLDING)

    def gpus_in(self, queue: str) -> int:
        return sum(len(a.devices) for a in self.allocations.values() if a.queue == queue and a.state in HOLDING)

    def running(self) -> tuple[str, ...]:
        return tuple(sorted({a.job for a in self.allocations.values() if a.state in HOLDING}))

    def why(self, job_id: str) -> Explanation:
        return explain_job(self.board, self.policy, job_id, self.now_ms)

    def close(self, node_id: str, state: NodeState = NodeState.CORDONED) -> None:
        self.change_node(node_id, state=state)


_JOB_FIELDS = (
    *("queue", "priority", "state", "not_before_ms", "project", "avoid", "array", "queued_ms", "attempt", "reason", "cancel", "id"),
    *("time_limit_ms", "expected_ms", "started_ms", "owner"),
)


def waits_of(plan: Plan) -> dict[str, Wait]:
    return {decision.job: decision for decision in plan.decisions if isinstance(decision, Wait)}


def places_of(plan: Plan) -> dict[str, Place]:
    return {decision.job: decision for decision in plan.decisions if isinstance(decision, Place)}


def reserves_of(plan: Plan) -> dict[str, Reserve]:
    return {decision.job: decision for decision in plan.decisions if isinstance(decision, Reserve)}


def _same_but_time(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Equal apart from which jobs' time has come."""
    filed_before, filed_after = before.pop("pending")["filed"], after.pop("pending")["filed"]
    return before == after and filed_before == filed_after

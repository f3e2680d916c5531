"""
Records for tests, valid and small, each from a number: what two tests make of the same number is equal.

Used where a test needs something to store and not a life to go through; for that see `testing.gangs`.
"""

from __future__ import annotations

from typing import Any

from shoal.base.ids import uuid7
from shoal.model.access import IdempotencyKey, Secret, Token
from shoal.model.attempt import Allocation, AllocationState, Attempt
from shoal.model.change import ChangeSet, Record
from shoal.model.command import CommandRow, Stop
from shoal.model.event import EventRow, JobHeld, JobSubmitted
from shoal.model.job import CancelMode, Job, JobSpec, JobState
from shoal.model.node import Device, Node, NodeFacts
from shoal.model.queue import Claim, Queue, QueueSpec, Quota
from shoal.model.reservation import Reservation, ReservationSpec
from shoal.model.schedule import Schedule, ScheduleSpec
from shoal.model.values import CountRange, Duration
from shoal.testing.clock import EPOCH_MS

GIB = 1 << 30


def job_id(number: int) -> str:
    """The id that `a_job` gives to a number."""
    return uuid7(EPOCH_MS + number, number)


def a_job(number: int, **fields: Any) -> Job:
    """A queued job of two nodes."""
    spec = JobSpec(name=f"train-{number}", run="true", nodes=CountRange(2, 2), time=Duration(3_600_000), env={"NAME": "größer"})
    common: dict[str, Any] = {
        "id": job_id(number),
        "number": number,
        "project": "default",
        "owner": "user/anna",
        "spec": spec,
        "queue": "default",
        "state": JobState.QUEUED,
        "created_ms": EPOCH_MS,
        "queued_ms": EPOCH_MS,
    }
    return Job(**{**common, **fields})


def an_attempt(job: Job, number: int = 1, nodes: int = 2, **fields: Any) -> Attempt:
    members = tuple(f"{job.id}.{number}.{rank}" for rank in range(nodes))
    return Attempt(
        **{"id": f"{job.id}.{number}", "job": job.id, "number": number, "members": members, "prepare_by_ms": EPOCH_MS + 120_000, **fields}
    )


def an_allocation(job: Job, number: int = 1, rank: int = 0, node: str = "n1", **fields: Any) -> Allocation:
    """What an attempt of the job holds on a node: two devices, nothing said of its tasks."""
    common: dict[str, Any] = {
        "id": f"{job.id}.{number}.{rank}",
        "job": job.id,
        "job_number": job.number,
        "project": job.project,
        "queue": job.queue,
        "attempt": number,
        "node": node,
        "node_rank": rank,
        "devices": ("GPU-1", "GPU-2"),
        "state": AllocationState.CLAIMED,
        "exits": {0: 0, 1: 137},
        "claimed_ms": EPOCH_MS,
    }
    return Allocation(**{**common, **fields})


def a_node(name: str, **fields: Any) -> Node:
    devices = tuple(Device(uuid=f"GPU-{name}-{i}", index=i, model="h100", memory_bytes=80 * GIB) for i in range(2))
    facts = NodeFacts(hostname=name, address="127.0.0.1", cpus=32, memory_bytes=256 * GIB, devices=devices)
    return Node(**{"id": name, "facts": facts, "topology": (("rack", "r1"),), "labels": {"zone": "a"}, **fields})


def a_queue(name: str, **fields: Any) -> Queue:
    return Queue(**{"id": name, "spec": QueueSpec(quotas={"gpu": Quota(nominal=8_000)}), **fields})


def a_claim(name: str, **fields: Any) -> Claim:
    common: dict[str, Any] = {"job": job_id(1), "node": "n1", "devices": ("GPU-1",), "cpu_milli": 1_000, "memory_bytes": GIB}
    return Claim(**{**common, "id": name, "term": 1, "expires_ms": EPOCH_MS, **fields})


def a_schedule(name: str, **fields: Any) -> Schedule:
    spec = ScheduleSpec(cron="30 2 * * *", job=JobSpec(run="true"))
    known = {"id": f"default/{name}", "project": "default", "name": name, "spec": spec, "owner": "user/anna"}
    return Schedule(**{**known, **fields})


def a_reservation(name: str, **fields: Any) -> Reservation:
    spec = ReservationSpec(nodes=("n1",), start_ms=EPOCH_MS, end_ms=EPOCH_MS + 3_600_000, reason="firmware")
    return Reservation(**{"id": name, "spec": spec, **fields})


def a_token(name: str, **fields: Any) -> Token:
    return Token(**{"id": name, "hash": "0" * 64, "principal": "user/anna", "project": "default", **fields})


def a_secret(name: str, project: str = "default", **fields: Any) -> Secret:
    return Secret(**{"id": f"{project}/{name}", "project": project, "name": name, "sealed": bytes(range(256)), **fields})


def a_key(key: str, resource: str = "", **fields: Any) -> IdempotencyKey:
    common: dict[str, Any] = {"project": "default", "principal": "user/anna", "operation": "jobs.create", "fingerprint": "f" * 64}
    return IdempotencyKey(**{**common, "key": key, "resource": resource, "created_ms": EPOCH_MS, **fields})


def an_event(subject: str = "12", **fields: Any) -> EventRow:
    return EventRow(
        **{"kind": "job", "subject": subject, "project": "default", "at_ms": EPOCH_MS, "body": JobHeld(reason="wait"), **fields}
    )


def a_command(node: str = "n1", backend: str = "agents", **fields: Any) -> CommandRow:
    stop = Stop(allocation=f"{job_id(1)}.1.0", job=job_id(1), attempt=1, mode=CancelMode.GRACEFUL, signal="TERM", grace_ms=30_000)
    return CommandRow(**{"node": node, "backend": backend, "body": stop, **fields})


def puts(*records: Record) -> ChangeSet:
    """A set that only writes these."""
    return ChangeSet(put=records)


def a_submission(number: int, key: str | None = None, **fields: Any) -> ChangeSet:
    """What a submit writes: the job, its event, its key."""
    job = a_job(number, **fields)
    event = an_event(job.id, project=job.project, body=JobSubmitted(number=number, name=job.spec.name))
    return ChangeSet(put=(job,), events=(event,), key=a_key(key or f"key-{number}", job.id, project=job.project))

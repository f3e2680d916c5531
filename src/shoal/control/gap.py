"""
The way over a gap in the tail: what a reader too far behind for `changes_after` has missed, as one change.

Called by `World` alone. The listeners of the world get it like any other; it has no events and no commands, which are not among the
records of a snapshot. Cost: the whole live world, and the store's records of jobs that ended meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from shoal.model.access import Token
from shoal.model.attempt import Allocation, Attempt
from shoal.model.change import Change, Record
from shoal.model.job import Job
from shoal.model.node import Node
from shoal.model.queue import Claim, Queue
from shoal.model.reservation import Reservation
from shoal.model.schedule import Schedule
from shoal.store.protocol import Store

R = TypeVar("R", bound=Record)


class Known(Protocol):
    """The part of a world that is compared."""

    jobs: dict[str, Job]
    attempts: dict[str, Attempt]
    allocations: dict[str, Allocation]
    nodes: dict[str, Node]
    queues: dict[str, Queue]
    claims: dict[str, Claim]
    reservations: dict[str, Reservation]
    schedules: dict[str, Schedule]
    tokens: dict[str, Token]

    @property
    def ended(self) -> Mapping[str, Job]: ...


def bridge(known: Known, store: Store) -> Change:
    """
    The difference between a world and a new snapshot, with the snapshot's version.

    Jobs that ended meanwhile come as they ended. An allocation that holds nothing any more is deleted even if it belongs to a live
    attempt: a snapshot does not have it, the world reads it from the job's picture.
    """
    snapshot = store.snapshot()
    live = {job.id: job for job in snapshot.jobs}
    looked_up = tuple(job_id for job_id in (*known.jobs, *known.ended) if job_id not in live)
    over = {job.id: job for job in store.jobs_by_id(looked_up)}
    before = {**known.ended, **known.jobs}
    tokens = store.tokens()
    put: tuple[Record, ...] = (
        *_news(known.nodes, snapshot.nodes),
        *_news(known.queues, snapshot.queues),
        *_news(known.claims, snapshot.claims),
        *_news(known.reservations, snapshot.reservations),
        *_news(known.schedules, snapshot.schedules),
        *sorted(_news(before, live.values()), key=lambda job: not job.is_array),
        *_news(before, over.values()),
        *(attempt for attempt in snapshot.attempts if known.attempts.get(attempt.job) != attempt),
        *_news(known.allocations, snapshot.allocations),
        *_news(known.tokens, tokens),
    )
    delete: tuple[Record, ...] = (
        *_gone(known.nodes, snapshot.nodes),
        *_gone(known.queues, snapshot.queues),
        *_gone(known.claims, snapshot.claims),
        *_gone(known.reservations, snapshot.reservations),
        *_gone(known.schedules, snapshot.schedules),
        *_gone(known.allocations, snapshot.allocations),
        *_gone(before, (*live.values(), *over.values())),
        *_gone(known.tokens, tokens),
    )
    return Change(version=snapshot.version, put=put, delete=delete)


def _news(known: Mapping[str, R], now: Iterable[R]) -> tuple[R, ...]:
    return tuple(record for record in now if known.get(record.id) != record)


def _gone(known: Mapping[str, R], now: Iterable[R]) -> tuple[R, ...]:
    there = {record.id for record in now}
    return tuple(record for name, record in known.items() if name not in there)

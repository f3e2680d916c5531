"""
All reads of the store. Never in the writer's way, nor it in theirs.

The lists of a snapshot are put in order here and not by the database, so that every database gives the same order of text.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeVar

from shoal.base.errors import Invalid, InvariantViolated, Malformed, VersionExpired
from shoal.base.ids import is_uuid
from shoal.model.access import IdempotencyKey, Secret, Token
from shoal.model.attempt import Allocation, Attempt
from shoal.model.change import Change
from shoal.model.codec import decode_json
from shoal.model.command import CommandRow
from shoal.model.event import EventRow
from shoal.model.job import ENDED, Job, JobState
from shoal.model.node import Node
from shoal.model.queue import Claim, Queue, QueueUsage
from shoal.model.reservation import Reservation
from shoal.model.schedule import Schedule
from shoal.model.snapshot import Picture, Snapshot
from shoal.store import statements
from shoal.store.dialect import Connection, Dialect
from shoal.store.head import Head, read_head
from shoal.store.history import decode_change
from shoal.store.kinds import key_id
from shoal.store.protocol import JobQuery
from shoal.store.readers import Readers
from shoal.store.tail import Tail

R = TypeVar("R")
IDS_PER_STATEMENT: Final = 10_000
"""Any number of ids is fine for the database (they are one parameter); this bounds the memory of one answer."""
_ID: Final = attrgetter("id")
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
_ELEMENT = re.compile(r"([0-9]{1,18})_([0-9]{1,18})", re.ASCII)


class Reads:
    """The reading half of `protocol.Store`, where each method is described; `store.sql` adds the writing half."""

    _dialect: Dialect
    _readers: Readers
    _tail: Tail

    # --- the tail -------------------------------------------------------------------------------------------------------------
    def version(self) -> int:
        return self._tail.version

    def changes_after(self, version: int, limit: int = 1_000) -> tuple[Change, ...]:
        recent = self._tail.after(version, limit)
        return recent if recent is not None else self._changes_on_disk(version, limit)

    def _changes_on_disk(self, version: int, limit: int) -> tuple[Change, ...]:
        with self._readers.use_at_one_version() as connection:
            head = self._head(connection)
            if version < head.change_floor:
                raise VersionExpired(f"changes after version {version} are gone, kept are those after {head.change_floor}: read a snapshot")
            rows = self._all(connection, statements.CHANGES_AFTER, after=version, limit=limit)
        return tuple(decode_change(body) for _, body in rows)

    def snapshot(self) -> Snapshot:
        with self._readers.use_at_one_version() as connection:
            jobs = self._sorted(connection, statements.JOBS_LIVE, Job)
            return Snapshot(
                version=self._head(connection).version,
                jobs=jobs,
                attempts=self._attempts(connection, jobs),
                allocations=self._sorted(connection, statements.ALLOCATIONS_HOLDING, Allocation),
                nodes=self._sorted(connection, statements.all_bodies("node"), Node),
                queues=self._sorted(connection, statements.all_bodies("queue"), Queue),
                claims=self._sorted(connection, statements.all_bodies("claim"), Claim),
                usages=self._sorted(connection, statements.all_bodies("usage"), QueueUsage),
                reservations=self._sorted(connection, statements.all_bodies("reservation"), Reservation),
                schedules=self._sorted(connection, statements.all_bodies("schedule"), Schedule),
                ended=self._ended(connection, jobs),
            )

    def _attempts(self, connection: Connection, jobs: tuple[Job, ...]) -> tuple[Attempt, ...]:
        """The current attempts; their ids follow from the jobs, so no index is needed."""
        found: list[Attempt] = []
        for ids in _chunks([f"{job.id}.{job.attempt}" for job in jobs if job.attempt]):
            rows = self._all(connection, statements.bodies_of("attempt"), ids=self._dialect.ids(ids))
            found += (_record(body, Attempt) for _, body in rows)
        return tuple(sorted(found, key=_ID))

    def _ended(self, connection: Connection, jobs: tuple[Job, ...]) -> dict[str, JobState]:
        """End states of what live jobs depend on, by the reference as the dependency has it: an id, unless a job was stored unresolved."""
        wanted = sorted({(job.project, dependency.job) for job in jobs for dependency in job.spec.depends_on})
        ended: dict[str, JobState] = {}
        for ids in _chunks([ref for _, ref in wanted if is_uuid(ref)]):
            rows = self._all(connection, statements.STATES_ENDED_BY_ID, ids=self._dialect.ids(ids))
            ended.update((job_id, JobState(state)) for job_id, state in rows)
        for project, ref in wanted:
            job = None if is_uuid(ref) else self._find(connection, project, ref)
            if job is not None and job.state in ENDED:
                ended[ref] = job.state
        return ended

    # --- jobs -----------------------------------------------------------------------------------------------------------------
    def job(self, job_id: str) -> Job | None:
        return self._one("job", job_id, Job)

    def find_job(self, project: str, ref: str) -> Job | None:
        with self._readers.use() as connection:
            return self._find(connection, project, ref)

    def _find(self, connection: Connection, project: str, ref: str) -> Job | None:
        if is_uuid(ref):
            job = self._first(connection, statements.body_of("job"), Job, id=ref.lower())
            return job if job is not None and job.project == project else None
        if _NUMBER.fullmatch(ref):
            return self._first(connection, statements.JOB_BY_NUMBER, Job, number=int(ref), project=project)
        element = _ELEMENT.fullmatch(ref)
        if element is None:
            return None
        array, index = int(element[1]), int(element[2])
        return self._first(connection, statements.JOB_BY_ELEMENT, Job, array=array, index=index, project=project)

    def jobs_by_id(self, ids: tuple[str, ...]) -> tuple[Job, ...]:
        found: dict[str, Job] = {}
        with self._readers.use_at_one_version() as connection:
            for chunk in _chunks(ids):
                rows = self._all(connection, statements.bodies_of("job"), ids=self._dialect.ids(chunk))
                found.update((job_id, _record(body, Job)) for job_id, body in rows)
        return tuple(found[job_id] for job_id in ids if job_id in found)

    def picture(self, job_id: str) -> Picture | None:
        with self._readers.use_at_one_version() as connection:
            job = self._first(connection, statements.body_of("job"), Job, id=job_id)
            if job is None:
                return None
            attempt = self._first(connection, statements.body_of("attempt"), Attempt, id=f"{job_id}.{job.attempt}")
            if attempt is None:
                return Picture(job=job)
            rows = self._all(connection, statements.bodies_of("allocation"), ids=self._dialect.ids(attempt.members))
        bodies = dict(rows)
        return Picture(job=job, attempt=attempt, allocations=tuple(_record(bodies[m], Allocation) for m in attempt.members if m in bodies))

    def list_jobs(self, query: JobQuery) -> tuple[Job, ...]:
        filters = [name for name in ("queue", "owner", "array", "before", "as_of") if getattr(query, name) is not None]
        if query.top_level:
            filters.append("top_level")
        values = {name: getattr(query, name) for name in (*filters, "project", "limit") if name != "top_level"}
        with self._readers.use_at_one_version() as connection:
            pages = [self._all(connection, sql, **values, **more) for sql, more in _pages(query.states, tuple(filters))]
        newest = heapq.merge(*pages, key=lambda row: -int(row[0]))
        return tuple(_record(body, Job) for _, (_, body) in zip(range(query.limit), newest, strict=False))

    def count_elements(self, array_id: str) -> dict[JobState, int]:
        rows = self._readers.rows(statements.ELEMENTS_BY_STATE, {"array_id": array_id})
        return {JobState(state): count for state, count in rows}

    # --- other records --------------------------------------------------------------------------------------------------------
    def allocations_on(self, node: str) -> tuple[Allocation, ...]:
        return self._many(statements.ALLOCATIONS_ON, Allocation, node=node)

    def node(self, node_id: str) -> Node | None:
        return self._one("node", node_id, Node)

    def nodes(self) -> tuple[Node, ...]:
        return self._many(statements.all_bodies("node"), Node)

    def queue(self, name: str) -> Queue | None:
        return self._one("queue", name, Queue)

    def queues(self) -> tuple[Queue, ...]:
        return self._many(statements.all_bodies("queue"), Queue)

    def token(self, token_id: str) -> Token | None:
        return self._one("token", token_id, Token)

    def tokens(self) -> tuple[Token, ...]:
        return self._many(statements.all_bodies("token"), Token)

    def secret(self, project: str, name: str) -> Secret | None:
        return self._one("secret", f"{project}/{name}", Secret)

    def secrets(self, project: str) -> tuple[Secret, ...]:
        return self._many(statements.SECRETS_OF, Secret, project=project)

    def find_key(self, project: str, principal: str, operation: str, key: str) -> IdempotencyKey | None:
        return self._one("idempotency", key_id(project, principal, operation, key), IdempotencyKey)

    # --- events and commands --------------------------------------------------------------------------------------------------
    def events_after(
        self, project: str | None, version: int, limit: int, kinds: tuple[str, ...] = (), subject: str | None = None
    ) -> tuple[EventRow, ...]:
        values: dict[str, Any] = {f"kind{i}": kind for i, kind in enumerate(kinds)}
        if project is not None:
            values["project"] = project
        if subject is not None:
            values["subject"] = subject
        sql = partial(statements.events_page, project is not None, subject is not None, len(kinds))
        with self._readers.use_at_one_version() as connection:
            self._check_floor(connection, version)
            rows = self._all(connection, sql(False), **values, after=version, limit=limit + 1)
            if len(rows) > limit:
                last = rows[-1][0]
                whole = [row for row in rows if row[0] != last]
                rows = whole or self._all(connection, sql(True), **values, after=last)
        return tuple(_record(body, EventRow) for _, body in rows)

    def _check_floor(self, connection: Connection, version: int) -> None:
        floor = self._head(connection).event_floor
        if 0 < version < floor:
            raise VersionExpired(f"events after version {version} are gone, kept are those after {floor}: list again, then watch")

    def commands_after(self, backend: str, seq: int, limit: int) -> tuple[CommandRow, ...]:
        rows = self._readers.rows(statements.COMMANDS_AFTER, {"backend": backend, "after": seq, "limit": limit})
        return tuple(_record(body, CommandRow) for (body,) in rows)

    # --- rows to records ------------------------------------------------------------------------------------------------------
    def _one(self, table: str, record_id: str, kind: type[R]) -> R | None:
        row = self._readers.row(statements.body_of(table), {"id": record_id})
        return None if row is None else _record(row[0], kind)

    def _many(self, sql: str, kind: type[R], **values: Any) -> tuple[R, ...]:
        return tuple(sorted((_record(body, kind) for (body,) in self._readers.rows(sql, values)), key=_ID))

    def _sorted(self, connection: Connection, sql: str, kind: type[R]) -> tuple[R, ...]:
        return tuple(sorted((_record(body, kind) for (body,) in self._all(connection, sql)), key=_ID))

    def _first(self, connection: Connection, sql: str, kind: type[R], **values: Any) -> R | None:
        row = connection.execute(self._dialect.text(sql), values).fetchone()
        return None if row is None else _record(row[0], kind)

    def _all(self, connection: Connection, sql: str, **values: Any) -> list[Any]:
        return connection.execute(self._dialect.text(sql), values).fetchall()  # type: ignore[no-any-return]

    def _head(self, connection: Connection) -> Head:
        head = read_head(connection, self._dialect, lock=False)
        assert head is not None
        return head


def _pages(states: tuple[JobState, ...], filters: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """
    The statements, with their own parameters, whose pages merged by number are the page asked for.

    One per state, since each walks its index backwards and stops at the limit; an index over several states could not. Elements of an array
    are few and have an index of their own.
    """
    if not states:
        yield statements.jobs_page(filters), {}
    elif "array" in filters:
        yield statements.jobs_page((*filters, f"states{len(states)}")), {f"state{i}": state.value for i, state in enumerate(states)}
    else:
        for state in sorted(set(states)):
            yield statements.jobs_page((*filters, "state")), {"state": state.value}


def _record(body: bytes, kind: type[R]) -> R:
    try:
        return decode_json(body, kind)
    except (Invalid, Malformed) as error:
        raise InvariantViolated(f"a stored {kind.__name__} cannot be read: {error.message}", internal=repr(body[:500])) from error


def _chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(ids), IDS_PER_STATEMENT):
        yield ids[at : at + IDS_PER_STATEMENT]

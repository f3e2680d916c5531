"""
Which record lies in which table, and which of its fields get a column of their own because somebody looks it up by them.

Every record table has `id`, `version` and `body` (the record as JSON); the columns here come after these three. Used by the
writer to make rows and by the readers to make records; the migrations define the same tables a second time, and a test
compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from shoal.model.access import IdempotencyKey, Secret, Token
from shoal.model.attempt import HOLDING, Allocation, Attempt
from shoal.model.change import Record
from shoal.model.codec import encode_stored
from shoal.model.job import Job
from shoal.model.node import Node
from shoal.model.queue import Claim, Queue, QueueUsage
from shoal.model.reservation import Reservation
from shoal.model.schedule import Schedule


class Kind(NamedTuple):
    """One table of records. `columns` are written at the insert, `changing` (some of them) at each later write too."""

    table: str
    type: type[Any]
    columns: tuple[str, ...]
    changing: tuple[str, ...]
    values: Callable[[Any], tuple[object, ...]]
    """The values for `columns`, in their order."""


def _job_values(job: Job) -> tuple[object, ...]:
    place = job.array
    array, index = (place.array, place.index) if place is not None else (None, None)
    return job.number, job.project, job.state.value, job.queue, job.owner, array, index, job.version


KINDS: Final = (
    Kind(
        "job",
        Job,
        ("number", "project", "state", "queue", "owner", "array_number", "array_index", "created"),
        ("state", "queue"),
        _job_values,
    ),
    Kind("attempt", Attempt, (), (), lambda _: ()),
    Kind("allocation", Allocation, ("node", "holding"), ("holding",), lambda a: (a.node, int(a.state in HOLDING))),
    Kind("node", Node, (), (), lambda _: ()),
    Kind("queue", Queue, (), (), lambda _: ()),
    Kind("usage", QueueUsage, (), (), lambda _: ()),
    Kind("claim", Claim, (), (), lambda _: ()),
    Kind("reservation", Reservation, (), (), lambda _: ()),
    Kind("schedule", Schedule, (), (), lambda _: ()),
    Kind("token", Token, (), (), lambda _: ()),
    Kind("secret", Secret, ("project",), (), lambda secret: (secret.project,)),
)
"""`created` of a job is the version at which it first came: what lists cut by (`JobQuery.as_of`)."""

KIND_OF_TYPE: Final[dict[type, Kind]] = {kind.type: kind for kind in KINDS}
KIND_OF_TABLE: Final[dict[str, Kind]] = {kind.table: kind for kind in KINDS}


def row_of(kind: Kind, record: Record, body: bytes) -> tuple[object, ...]:
    """The row of a record in the order of `id`, `version`, `body`, then `kind.columns`."""
    return (record.id, record.version, body, *kind.values(record))


def key_id(project: str, principal: str, operation: str, key: str) -> str:
    """One text for the four parts of an idempotency key's scope; JSON, so that no choice of parts can look like another."""
    return encode_stored([project, principal, operation, key]).decode()


def id_of_key(key: IdempotencyKey) -> str:
    return key_id(key.project, key.principal, key.operation, key.key)

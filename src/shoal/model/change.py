"""
`ChangeSet`: everything that must be true together - records, deletions, events, commands - written in one transaction or not at all.

Each record carries the version it was read at (0: must not exist yet). A ChangeSet whose record has moved fails whole with
VersionConflict; the caller reads and judges again. `Change` is the same seen from behind: what one version of the store brought.
"""

from __future__ import annotations

import msgspec

from shoal.model.access import IdempotencyKey, Secret, Token
from shoal.model.attempt import Allocation, Attempt
from shoal.model.command import CommandRow
from shoal.model.event import EventRow
from shoal.model.job import Job
from shoal.model.node import Node
from shoal.model.queue import Claim, Queue, QueueUsage
from shoal.model.reservation import Reservation
from shoal.model.schedule import Schedule

Record = Job | Attempt | Allocation | Node | Queue | QueueUsage | Claim | Reservation | Schedule | Token | Secret
RECORD_TYPES: tuple[type, ...] = (Job, Attempt, Allocation, Node, Queue, QueueUsage, Claim, Reservation, Schedule, Token, Secret)


class ChangeSet(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """See module. `key` makes the whole set happen at most once per idempotency key."""

    put: tuple[Record, ...] = ()
    delete: tuple[Record, ...] = ()
    events: tuple[EventRow, ...] = ()
    commands: tuple[CommandRow, ...] = ()
    key: IdempotencyKey | None = None

    @property
    def empty(self) -> bool:
        return not (self.put or self.delete or self.events or self.commands or self.key)


class Applied(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The set was written, as `version`."""

    version: int


class KeyExists(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Nothing was written: this idempotency key has already done its work."""

    key: IdempotencyKey


Outcome = Applied | KeyExists


class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one version brought; records carry that version. Tail readers (the live picture, watchers) eat these in order."""

    version: int
    put: tuple[Record, ...] = ()
    delete: tuple[Record, ...] = ()
    events: tuple[EventRow, ...] = ()
    commands: tuple[CommandRow, ...] = ()

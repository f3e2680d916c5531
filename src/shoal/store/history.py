"""
A change as stored: the record bodies are the same bytes as in their own tables, so a record is encoded once per write.

The `change` table holds what each version brought, in full: a reader that lags gets from it exactly what the tail in memory would have
given. (Turned down: finding changed records by a version index on their tables, with tombstones. It costs an index per table, and shows
only the last of several changes, so a reader would pass through states that never were.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from shoal.base import limits
from shoal.model.change import Change, Record
from shoal.model.codec import decode_json, encode_stored
from shoal.model.command import CommandRow
from shoal.model.event import EventRow
from shoal.store import statements
from shoal.store.dialect import Connection, Dialect
from shoal.store.head import Head
from shoal.store.kinds import KIND_OF_TABLE


class StoredChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`put` and `delete` are (table, body)."""

    version: int
    put: tuple[tuple[str, msgspec.Raw], ...] = ()
    delete: tuple[tuple[str, msgspec.Raw], ...] = ()
    events: tuple[msgspec.Raw, ...] = ()
    commands: tuple[msgspec.Raw, ...] = ()


def encode_change(
    version: int,
    put: Sequence[tuple[str, bytes]],
    delete: Sequence[tuple[str, bytes]],
    events: Sequence[bytes],
    commands: Sequence[bytes],
) -> bytes:
    """The body of a row of `change`."""
    raw = msgspec.Raw
    return encode_stored(
        StoredChange(
            version=version,
            put=tuple((table, raw(body)) for table, body in put),
            delete=tuple((table, raw(body)) for table, body in delete),
            events=tuple(raw(body) for body in events),
            commands=tuple(raw(body) for body in commands),
        )
    )


def decode_change(body: bytes) -> Change:
    """The change that a row of `change` holds, equal to what the tail held."""
    stored = decode_json(body, StoredChange)
    return Change(
        version=stored.version,
        put=_records(stored.put),
        delete=_records(stored.delete),
        events=tuple(decode_json(bytes(raw), EventRow) for raw in stored.events),
        commands=tuple(decode_json(bytes(raw), CommandRow) for raw in stored.commands),
    )


def _records(stored: Iterable[tuple[str, msgspec.Raw]]) -> tuple[Record, ...]:
    return tuple(decode_json(bytes(raw), KIND_OF_TABLE[table].type) for table, raw in stored)


def prune(connection: Connection, dialect: Dialect, head: Head) -> None:
    """
    Drops what is older than is kept, a bite with each group of commits, so that no single one pays for many.

    Nothing is dropped until a whole bite has gathered: a statement per bite and not per commit.
    """
    if head.version - head.change_floor >= limits.CHANGES_KEPT + limits.COMMIT_GROUP_MAX:
        head.change_floor = min(head.change_floor + 2 * limits.COMMIT_GROUP_MAX, head.version - limits.CHANGES_KEPT)
        connection.execute(dialect.text(statements.CHANGES_DROP), {"floor": head.change_floor})
    if head.version - head.event_floor >= limits.EVENT_VERSIONS_KEPT + limits.COMMIT_GROUP_MAX:
        head.event_floor = min(head.event_floor + 2 * limits.COMMIT_GROUP_MAX, head.version - limits.EVENT_VERSIONS_KEPT)
        connection.execute(dialect.text(statements.EVENTS_DROP), {"floor": head.event_floor})


class KeyAges:
    """
    Drops idempotency keys whose time is over, a bite after another, as long as new ones come: no clock but theirs.

    At most one statement per minute of keys' time finds nothing; while there is more to drop, each group with a key drops a bite.
    """

    LOOK_EVERY_MS = 60_000

    def __init__(self, at_once: int = limits.KEYS_DROPPED_AT_ONCE) -> None:
        self._at_once = at_once
        self._next_look_ms = 0

    def prune(self, connection: Connection, dialect: Dialect, newest_ms: int) -> None:
        """`newest_ms`: when the newest key of this group was made; 0 if there is none."""
        if newest_ms < self._next_look_ms or not newest_ms:
            return
        wanted = {"before": newest_ms - limits.KEYS_KEPT_MS, "limit": self._at_once}
        dropped = connection.execute(dialect.text(statements.KEYS_DROP), wanted).rowcount
        if dropped < self._at_once:
            self._next_look_ms = newest_ms + self.LOOK_EVERY_MS

"""
One transaction's worth of ChangeSets: each judged against the versions stored, those accepted written together.

Judged before anything is written: a set that must fail costs no savepoint and does its neighbours no harm. Sets of one group see those
before them, as if each had been committed alone. Called by `store.writer`; knows no thread, no queue and no future.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from shoal.base.errors import Conflict, InvariantViolated, VersionConflict
from shoal.model.access import IdempotencyKey
from shoal.model.change import Applied, Change, ChangeSet, KeyExists, Outcome, Record
from shoal.model.codec import decode_json, encode_stored
from shoal.store import statements
from shoal.store.dialect import Connection, Dialect
from shoal.store.head import Head
from shoal.store.history import encode_change
from shoal.store.kinds import KIND_OF_TABLE, KIND_OF_TYPE, id_of_key, row_of

Row = tuple[object, ...]
Place = tuple[str, str]
"""(table, id): where a record lies."""

EVENT_COLUMNS: Final = ("version", "ordinal", "kind", "subject", "project", "body")
COMMAND_COLUMNS: Final = ("seq", "backend", "node", "body")
KEY_COLUMNS: Final = ("id", "created_ms", "body")
CHANGE_COLUMNS: Final = ("version", "body")


class _Stamped(NamedTuple):
    """An accepted set's parts with their version, encoded; nothing of it is in the group yet."""

    change: Change
    put: list[tuple[str, bytes]]
    delete: list[tuple[str, bytes]]
    events: list[bytes]
    commands: list[bytes]


class Group:
    """
    Sets accepted so far on top of what is stored. `load` once, `accept` each set in order, `write` once.

    `head` is moved on by what is accepted. A record that must not exist yet is by default not looked up but left to the unique index:
    nearly every create is new. Where the index refuses, the group is done again with `look_up_all`, and the guilty set is told.
    """

    def __init__(self, connection: Connection, dialect: Dialect, head: Head, look_up_all: bool) -> None:
        self.head = head
        self.changes: list[Change] = []
        self._connection = connection
        self._dialect = dialect
        self._look_up_all = look_up_all
        self._versions: dict[Place, int] = {}
        self._keys: dict[str, IdempotencyKey] = {}
        self._before: dict[Place, int] = {}
        """Version at the start of the transaction, of every place touched since; 0 where nothing was."""
        self._rows: dict[Place, Row | None] = {}
        """What each place touched holds at the end; None where nothing does."""
        self._made_anew: set[Place] = set()
        """Deleted and made again within this group."""
        self._event_rows: list[Row] = []
        self._command_rows: list[Row] = []
        self._key_rows: list[Row] = []
        self._new_keys: list[IdempotencyKey] = []
        self._change_rows: list[Row] = []

    def load(self, sets: Iterable[ChangeSet]) -> None:
        """Looks up the versions and keys that these sets will be judged by: one statement per table."""
        ids: dict[str, list[str]] = {}
        keys: list[str] = []
        for changes in sets:
            for record in (*changes.put, *changes.delete):
                if record.version or self._look_up_all:
                    ids.setdefault(KIND_OF_TYPE[type(record)].table, []).append(record.id)
            if changes.key is not None:
                keys.append(id_of_key(changes.key))
        for table, wanted in ids.items():
            for record_id, version in self._rows_of(statements.versions_of(table), wanted):
                self._versions[table, record_id] = version
        if keys:
            for key_id, body in self._rows_of(statements.KEYS_OF, keys):
                self._keys[key_id] = decode_json(body, IdempotencyKey)

    def _rows_of(self, sql: str, ids: Sequence[str]) -> list[Any]:
        found = self._connection.execute(self._dialect.text(sql), {"ids": self._dialect.ids(ids)})
        return found.fetchall()  # type: ignore[no-any-return]

    def accept(self, changes: ChangeSet, term: int) -> Outcome:
        """
        Takes the set into the group, or says why not.

        Raises: Conflict for another term than the one in force, VersionConflict, InvariantViolated for a set that no caller may make.
        Then, and for KeyExists, nothing of the set is in the group.
        """
        if term != self.head.term:
            raise Conflict(
                f"term {term} has passed: term {self.head.term} of {self.head.holder or 'nobody'} is in force; only its holder may write"
            )
        key = None if changes.key is None else id_of_key(changes.key)
        if key is not None and key in self._keys:
            return KeyExists(key=self._keys[key])
        self._check_versions(changes)
        stamped = self._stamp(changes)
        if key is not None:
            assert changes.key is not None
            self._keys[key] = changes.key
            self._new_keys.append(changes.key)
            self._key_rows.append((key, changes.key.created_ms, encode_stored(changes.key)))
        self._take(stamped)
        return Applied(version=stamped.change.version)

    def _check_versions(self, changes: ChangeSet) -> None:
        seen: set[Place] = set()
        for record in (*changes.put, *changes.delete):
            place = (KIND_OF_TYPE[type(record)].table, record.id)
            if place in seen:
                raise InvariantViolated(f"{place[0]} {place[1]} stands twice in one ChangeSet; write its final form once")
            seen.add(place)
            stored = self._versions.get(place, 0)
            if stored != record.version:
                raise _moved(place, record.version, stored)
        for record in changes.delete:
            if record.version == 0:
                raise _moved((KIND_OF_TYPE[type(record)].table, record.id), 0, 0)

    def _stamp(self, changes: ChangeSet) -> _Stamped:
        version, seq = self.head.version + 1, self.head.command_seq
        replace = msgspec.structs.replace
        put = tuple(replace(record, version=version) for record in changes.put)
        events = tuple(replace(row, version=version, ordinal=i) for i, row in enumerate(changes.events))
        commands = tuple(replace(row, seq=seq + 1 + i) for i, row in enumerate(changes.commands))
        return _Stamped(
            Change(version=version, put=put, delete=changes.delete, events=events, commands=commands),
            _encoded(put),
            _encoded(changes.delete),
            [encode_stored(row) for row in events],
            [encode_stored(row) for row in commands],
        )

    def _take(self, stamped: _Stamped) -> None:
        change = stamped.change
        for record in change.delete:
            self._touch((KIND_OF_TYPE[type(record)].table, record.id), None, 0)
        for record, (table, body) in zip(change.put, stamped.put, strict=True):
            self._touch((table, record.id), row_of(KIND_OF_TABLE[table], record, body), change.version)
        for event, body in zip(change.events, stamped.events, strict=True):
            self._event_rows.append((event.version, event.ordinal, event.kind, event.subject, event.project, body))
        for command, body in zip(change.commands, stamped.commands, strict=True):
            self._command_rows.append((command.seq, command.backend, command.node, body))
        body = encode_change(change.version, stamped.put, stamped.delete, stamped.events, stamped.commands)
        self._change_rows.append((change.version, body))
        self.changes.append(change)
        self.head.version = change.version
        self.head.command_seq += len(change.commands)

    def _touch(self, place: Place, row: Row | None, version: int) -> None:
        before = self._before.setdefault(place, self._versions.get(place, 0))
        if before and row is not None and self._rows.get(place, row) is None:
            self._made_anew.add(place)
        self._rows[place] = row
        self._versions[place] = version

    @property
    def newest_key_ms(self) -> int:
        """When the newest key of the group was made; 0 without one."""
        return max((key.created_ms for key in self._new_keys), default=0)

    def write(self) -> None:
        """Writes what was accepted, deletions first, so that a place freed in this group can be taken in it."""
        deletes: dict[str, list[str]] = {}
        inserts: dict[str, list[Row]] = {}
        updates: dict[str, list[Row]] = {}
        for place, row in self._rows.items():
            table, record_id = place
            there, anew = self._before[place] > 0, place in self._made_anew
            if there and (row is None or anew):
                deletes.setdefault(table, []).append(record_id)
            if row is not None:
                (updates if there and not anew else inserts).setdefault(table, []).append(row)
        for table, ids in deletes.items():
            self._connection.execute(self._dialect.text(statements.delete_of(table)), {"ids": self._dialect.ids(ids)})
        for table, rows in updates.items():
            self._write_rows(rows, partial(statements.write_rows, KIND_OF_TABLE[table]))
        for table, rows in inserts.items():
            self._insert(table, statements.record_columns(KIND_OF_TABLE[table]), rows)
        self._insert("event", EVENT_COLUMNS, self._event_rows)
        self._insert("command", COMMAND_COLUMNS, self._command_rows)
        self._insert("idempotency", KEY_COLUMNS, self._key_rows)
        self._insert("change", CHANGE_COLUMNS, self._change_rows)

    def _insert(self, table: str, columns: tuple[str, ...], rows: list[Row]) -> None:
        self._write_rows(rows, partial(statements.insert_rows, table, columns))

    def _write_rows(self, rows: list[Row], sql_for: Callable[[int], str]) -> None:
        at = 0
        for count in statements.ROWS_PER_STATEMENT:
            while len(rows) - at >= count:
                values = [value for row in rows[at : at + count] for value in row]
                self._connection.execute(self._dialect.text(sql_for(count)), values)
                at += count


def _encoded(records: Iterable[Record]) -> list[tuple[str, bytes]]:
    return [(KIND_OF_TYPE[type(record)].table, encode_stored(record)) for record in records]


def _moved(place: Place, read: int, stored: int) -> VersionConflict:
    table, record_id = place
    if stored == 0:
        return VersionConflict(f"{table} {record_id} is not there (read at version {read}); it may have been deleted: read again")
    if read == 0:
        return VersionConflict(f"{table} {record_id} exists already, at version {stored}")
    return VersionConflict(f"{table} {record_id} was read at version {read} and is now at {stored}: read again")

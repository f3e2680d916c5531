"""
A whole store to another database, and copies of one that is in use.

`move_store` takes every row of every table from a database that nobody serves into an empty one, in one transaction: afterwards all is
there, numbers and versions included, or nothing is. `backup_store` copies a SQLite database while a server writes to it: the copy is of
one moment. (PostgreSQL has `pg_dump` for that.)
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from shoal.base.errors import Refused
from shoal.store.dialect import Connection, Dialect
from shoal.store.schema import ensure_schema
from shoal.store.sql import Lock, dialect_of

ROWS_AT_ONCE: Final = 500
"""Rows read, and written, between two words of progress."""
TABLES: Final[dict[str, tuple[str, ...]]] = {
    "job": ("number", "id", "version", "project", "state", "queue", "owner", "array_number", "array_index", "created", "body"),
    "attempt": ("id", "version", "body"),
    "allocation": ("id", "version", "body", "node", "holding"),
    "node": ("id", "version", "body"),
    "queue": ("id", "version", "body"),
    "usage": ("id", "version", "body"),
    "claim": ("id", "version", "body"),
    "reservation": ("id", "version", "body"),
    "schedule": ("id", "version", "body"),
    "token": ("id", "version", "body"),
    "secret": ("id", "version", "body", "project"),
    "idempotency": ("id", "created_ms", "body"),
    "change": ("version", "body"),
    "event": ("version", "ordinal", "kind", "subject", "project", "body"),
    "command": ("seq", "backend", "node", "body"),
}
"""Every table but the head row, with all its columns; a test holds it to the schema."""
HEAD: Final = ("store_id", "version", "command_seq", "term", "holder", "number_next", "change_floor", "event_floor")

Tell = Callable[[str, int], None]
"""Hears the table and how many of its rows are over."""


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """Rows by table, and the version that both databases are at."""

    rows: dict[str, int]
    version: int
    store_id: str


def move_store(source: str | Path, target: str | Path, tell: Tell | None = None) -> Moved:
    """
    Everything in `source` into `target`, which must be empty; `source` is left as it is.

    Raises: Refused where either is in use, where they are one, or where the target holds something already.
    """
    (from_dialect, from_lock), (to_dialect, to_lock) = _locked(source), (None, None)
    try:
        to_dialect, to_lock = _locked(target)
        with closing(from_dialect.connect_writer()) as reader, closing(to_dialect.connect_writer()) as writer:
            ensure_schema(reader, from_dialect, "")
            ensure_schema(writer, to_dialect, "")
            from_dialect.begin_read(reader)
            to_dialect.begin_write(writer, durable=True)
            try:
                moved = _copy(reader, writer, to_dialect, tell)
                writer.execute("COMMIT")
            except BaseException:
                to_dialect.rollback(writer)
                raise
            finally:
                from_dialect.rollback(reader)
            return moved
    finally:
        for lock in (to_lock, from_lock):
            if lock is not None:
                lock.release()


def backup_store(source: Path, target: Path) -> int:
    """A copy of a SQLite database as of one moment, also while it is served; its size in bytes. Raises Refused where `target` is there."""
    if not source.is_file():
        raise Refused(f"there is no state file {source} to copy")
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise Refused(f"the copy {target} cannot be made: {error.strerror}; name a file that is not there yet") from error
    try:
        with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as opened, closing(sqlite3.connect(target)) as copy:
            opened.backup(copy, pages=1_024)
            copy.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.Error as error:
        target.unlink(missing_ok=True)
        raise Refused(f"{source} cannot be copied to {target}: {error}") from error
    with target.open("rb") as written:
        os.fsync(written.fileno())
    return target.stat().st_size


def _locked(where: str | Path) -> tuple[Dialect, Lock]:
    dialect, lock = dialect_of(where)
    if lock is None:
        raise Refused("a store in memory can neither be moved nor moved into")
    return dialect, lock


def _copy(reader: Connection, writer: Connection, dialect: Dialect, tell: Tell | None) -> Moved:
    names = ", ".join(HEAD)
    head = reader.execute(f"SELECT {names} FROM head WHERE id = 1").fetchone()  # noqa: S608 - names are those above
    (version,) = writer.execute("SELECT version FROM head WHERE id = 1").fetchone()
    if version or writer.execute("SELECT 1 FROM job LIMIT 1").fetchone() is not None:
        raise Refused(f"the target holds a Shoal already, at version {version}; move into an empty database")
    rows = {table: _copy_table(reader, writer, (dialect, table), tell) for table in TABLES}
    changes = ", ".join(f"{name} = ?" for name in HEAD)
    writer.execute(dialect.text(f"UPDATE head SET {changes} WHERE id = 1"), head)  # noqa: S608
    return Moved(rows=rows, version=head[HEAD.index("version")], store_id=head[HEAD.index("store_id")])


def _copy_table(reader: Connection, writer: Connection, into: tuple[Dialect, str], tell: Tell | None) -> int:
    dialect, table = into
    columns = TABLES[table]
    one = f"({', '.join('?' * len(columns))})"
    found = reader.execute(f"SELECT {', '.join(columns)} FROM {table}")  # noqa: S608
    count = 0
    while batch := found.fetchmany(ROWS_AT_ONCE):
        values: list[Any] = [value for row in batch for value in row]
        sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([one] * len(batch))}"  # noqa: S608
        writer.execute(dialect.text(sql), values)
        count += len(batch)
        if tell is not None:
            tell(table, count)
    return count

"""
SQLite as the embedded store's database: a file in WAL mode with full sync, or memory for tests and simulation.

File: one writer connection and any number of query-only readers, none of which waits for another. Memory: one connection for all
under one lock, since SQLite's shared memory databases know no snapshots (readers would meet "table is locked").
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shoal.base.errors import InvariantViolated, Refused, ShoalError, Unavailable
from shoal.model.codec import encode_stored
from shoal.store.dialect import Connection, Trouble

BUSY_WAIT_S: Final = 10.0
"""Only a foreign tool (a backup, a shell) can hold the file; it gets this long before callers are told."""
CACHED_STATEMENTS: Final = 512
CHECKPOINT_PAGES: Final = 4_000
"""16 MiB of log between checkpoints: each syncs the database file, which a group commit should meet rarely."""
JOURNAL_BYTES_MAX: Final = 64 << 20
PAGES_ANY: Final = 0x3FFF_FFFF
"""SQLite's own bound on pages."""
ANY_OF: Final = "IN (SELECT value FROM json_each(:ids))"


class Sqlite:
    """The dialect for one SQLite database; `path` None is memory."""

    name = engine = "sqlite"
    errors: tuple[type[Exception], ...] = (sqlite3.Error,)
    single_writer = True

    def __init__(self, path: Path | None, busy_wait_s: float = BUSY_WAIT_S) -> None:
        self._path = path
        self._busy_wait_s = busy_wait_s
        self.shared: threading.RLock | None = threading.RLock() if path is None else None
        self._memory: sqlite3.Connection | None = None
        self._texts: dict[str, str] = {}
        self._durable: bool | None = None
        """What `synchronous` is set to; None: not known yet."""
        self.pages_max = 0
        """Writes that need more pages than this fail as on a full disk; 0: as many as there is room for."""
        self._pages_set = 0
        self._file: tuple[int, int] | None = None
        """Device and inode of the state file as first opened."""

    def connect_writer(self) -> Connection:
        if self._path is None:
            if self._memory is None:
                self._memory = self._connect(":memory:")
            return self._memory
        if self._file is None:
            _make_private(self._path)
            self._file = _identity(self._path)
        self._check_file()
        connection = self._connect(str(self._path))
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit={JOURNAL_BYTES_MAX}")
            self._durable, self._pages_set = None, 0
        except sqlite3.DatabaseError as error:
            connection.close()
            raise self._unreadable(error) from error
        return connection

    def connect_reader(self) -> Connection:
        if self._memory is not None:
            return self._memory
        connection = self._connect(str(self._path))
        connection.execute("PRAGMA query_only=1")
        return connection

    def _connect(self, database: str) -> sqlite3.Connection:
        try:
            return sqlite3.connect(
                database, timeout=self._busy_wait_s, isolation_level=None, check_same_thread=False, cached_statements=CACHED_STATEMENTS
            )
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: sqlite3.Error) -> ShoalError:
        if self.trouble(error) is Trouble.BUSY:
            return self.translate(error)
        return Refused(
            f"the state file {self._path} cannot be opened: {error}. It must be a Shoal database in a directory that you may write to"
        )

    def text(self, sql: str) -> str:
        text = self._texts.get(sql)
        if text is None:
            text = self._texts[sql] = sql.replace("{any}", ANY_OF).replace("{for_update}", "")
        return text

    def ids(self, ids: Sequence[str]) -> object:
        return encode_stored(ids).decode()

    def _check_file(self) -> None:
        """SQLite would go on writing into a file that was removed, and all that it had confirmed would be gone at the next start."""
        if self._path is not None and _identity(self._path) != self._file:
            raise Unavailable(
                f"the state file {self._path} was removed or replaced under the running server, so nothing can be kept any more: "
                f"stop the server, put the file back and start it again",
                retry_after_ms=30_000,
            )

    def begin_write(self, connection: Connection, durable: bool) -> None:
        self._check_file()
        if durable is not self._durable:
            connection.execute("PRAGMA synchronous=FULL" if durable else "PRAGMA synchronous=NORMAL")
            self._durable = durable
        if self.pages_max != self._pages_set:
            connection.execute(f"PRAGMA max_page_count={self.pages_max or PAGES_ANY}")
            self._pages_set = self.pages_max
        connection.execute("BEGIN IMMEDIATE")

    def begin_read(self, connection: Connection) -> None:
        connection.execute("BEGIN")

    def rollback(self, connection: Connection) -> None:
        assert isinstance(connection, sqlite3.Connection)
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    def trouble(self, error: Exception) -> Trouble:
        if isinstance(error, sqlite3.IntegrityError):
            return Trouble.DUPLICATE
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            return Trouble.FULL
        return Trouble.BUSY if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) else Trouble.BROKEN

    def translate(self, error: Exception) -> ShoalError:
        where = f"the state file {self._path}" if self._path is not None else "the store in memory"
        said = f"{getattr(error, 'sqlite_errorname', type(error).__name__)}: {error}"
        match self.trouble(error):
            case Trouble.DUPLICATE:
                return InvariantViolated(f"two records claim one place in {where}: {error}", internal=said)
            case Trouble.FULL:
                return Unavailable(f"no room on the disk for {where}; free some and try again", retry_after_ms=5_000, internal=said)
            case Trouble.BUSY:
                return Unavailable(f"{where} is held by another program for more than {self._busy_wait_s:g} s; try again", internal=said)
            case Trouble.BROKEN:
                return Unavailable(f"{where} cannot be read or written: {error}", retry_after_ms=5_000, internal=said)


def _identity(path: Path) -> tuple[int, int] | None:
    """None where there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _make_private(path: Path) -> None:
    """The file is there with mode 0600: SQLite gives its side files the same mode. Who may read it could list every user's work."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise Refused(f"the state file {path} cannot be opened: {error.strerror}") from error

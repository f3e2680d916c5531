"""
PostgreSQL as the store's database, for installations that outgrow one file. The one door for psycopg, which is an extra.

Every write transaction reads the head row FOR UPDATE, so commits come in the order of their versions whoever writes. One server at a
time serves a database: it holds an advisory lock on a connection of its own, which the database drops with its holder; a server that
was cut off and does not know it yet is stopped by its term, which each set carries.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from shoal.base.errors import InvariantViolated, Refused, ShoalError, Unavailable
from shoal.store.dialect import Connection, Trouble

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import TransactionStatus
except ImportError as error:
    raise Refused("a database on PostgreSQL needs its driver: install shoal[postgres]") from error

BUSY_WAIT_S: Final = 10
"""For a lock that a foreign session holds; as with SQLite."""
CONNECT_WAIT_S: Final = 10
LOCK_KEY: Final = 0x73686F616C
"""The advisory lock of the serving process: "shoal" in ASCII."""
_PARAMETER = re.compile(r":([a-z_]+[0-9]*)")
_DUPLICATE = ("23505",)
_FULL = ("53100",)
_BUSY = ("55P03", "57014", "40001", "40P01", "53300")
"""Lock not available, cancelled for its time, serialization, deadlock, too many connections: worth another try."""


class Postgres:
    """The dialect for one PostgreSQL database, named by a URL or by key words as libpq has them."""

    name = "postgresql"
    engine = "postgresql+psycopg"
    errors: tuple[type[Exception], ...] = (psycopg.Error,)
    single_writer = False
    shared: threading.RLock | None = None

    def __init__(self, url: str) -> None:
        self._url = url
        self._texts: dict[str, str] = {}
        self._where = _place(url)

    def connect_writer(self) -> Connection:
        connection: Connection = self._connect("shoal writer", "")
        return connection

    def connect_reader(self) -> Connection:
        connection: Connection = self._connect("shoal reader", "-c default_transaction_read_only=on")
        return connection

    def lock(self) -> PostgresLock:
        """The right to serve this database. Raises Refused while another process has it."""
        return PostgresLock(self._connect("shoal server", ""), self._where)

    def _connect(self, application: str, options: str) -> Any:
        try:
            return psycopg.connect(
                self._url,
                autocommit=True,
                application_name=application,
                connect_timeout=CONNECT_WAIT_S,
                prepare_threshold=2,
                options=f"-c lock_timeout={BUSY_WAIT_S}s -c timezone=UTC {options}",
            )
        except psycopg.Error as error:
            if self.trouble(error) is Trouble.BUSY:
                raise self.translate(error) from error
            raise Unavailable(
                f"{self._where} cannot be reached: {_first_line(error)}", retry_after_ms=5_000, internal=type(error).__name__
            ) from error

    def text(self, sql: str) -> str:
        text = self._texts.get(sql)
        if text is None:
            text = sql.replace("{any}", "= ANY(:ids)").replace("{for_update}", "FOR UPDATE").replace("?", "%s")
            text = self._texts[sql] = _PARAMETER.sub(r"%(\1)s", text)
        return text

    def ids(self, ids: Sequence[str]) -> object:
        return list(ids)

    def begin_write(self, connection: Connection, durable: bool) -> None:
        connection.execute("BEGIN")
        if not durable:
            connection.execute("SET LOCAL synchronous_commit = off")

    def begin_read(self, connection: Connection) -> None:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def rollback(self, connection: Connection) -> None:
        assert isinstance(connection, psycopg.Connection)
        if connection.info.transaction_status not in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN):
            connection.execute("ROLLBACK")

    def trouble(self, error: Exception) -> Trouble:
        code = getattr(error, "sqlstate", None) or ""
        if code in _DUPLICATE:
            return Trouble.DUPLICATE
        if code in _FULL:
            return Trouble.FULL
        return Trouble.BUSY if code in _BUSY else Trouble.BROKEN

    def translate(self, error: Exception) -> ShoalError:
        said = f"{getattr(error, 'sqlstate', None) or type(error).__name__}: {error}"
        match self.trouble(error):
            case Trouble.DUPLICATE:
                return InvariantViolated(f"two records claim one place in {self._where}: {_first_line(error)}", internal=said)
            case Trouble.FULL:
                return Unavailable(f"no room on the disk of {self._where}; free some and try again", retry_after_ms=5_000, internal=said)
            case Trouble.BUSY:
                return Unavailable(f"{self._where} is busy: {_first_line(error)}; try again", internal=said)
            case Trouble.BROKEN:
                return Unavailable(f"{self._where} cannot be read or written: {_first_line(error)}", retry_after_ms=5_000, internal=said)


class PostgresLock:
    """Held from construction to `release`, or until its connection breaks."""

    def __init__(self, connection: Any, where: str) -> None:
        self._connection = connection
        (got,) = connection.execute("SELECT pg_try_advisory_lock(%s)", (LOCK_KEY,)).fetchone()
        if not got:
            connection.close()
            raise Refused(f"{where} is in use by another Shoal server: stop that one first, or use another database")

    def release(self) -> None:
        """Idempotent. The next server may have it at once: the database itself would notice the closed connection only a little later."""
        with suppress(psycopg.Error):
            self._connection.execute("SELECT pg_advisory_unlock(%s)", (LOCK_KEY,))
        self._connection.close()


def _place(url: str) -> str:
    """How messages name the database: never with its password."""
    try:
        told = conninfo_to_dict(url)
    except psycopg.Error as error:
        raise Refused(f"the database URL cannot be read: {_first_line(error)}; write postgresql://USER:PASSWORD@HOST:PORT/NAME") from error
    return f"the database {told.get('dbname') or 'of the user'!s} at {told.get('host') or 'the local socket'}"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

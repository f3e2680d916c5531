"""
Read connections, lent one at a time: as many as there are threads reading at once, a few kept for the next.

A reader never waits for the writer (WAL: it sees the last committed state). In memory all share the writer's one connection, and then
`use` holds the lock that also covers each write transaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Final

from shoal.base.errors import Unavailable
from shoal.store.dialect import Connection, Dialect, Trouble

IDLE_KEPT_MAX: Final = 16
"""Connections kept open between uses; each costs a file handle and some page cache."""


class Readers:
    """The pool. `use` is for one read; `use_at_one_version` for several that must see the same state."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._idle: deque[Connection] = deque()
        self._closed = False

    @contextmanager
    def use(self) -> Iterator[Connection]:
        """A connection for one statement; what the driver raises comes out as ours."""
        with self._dialect.shared or nullcontext():
            connection = self._take()
            try:
                yield connection
            except self._dialect.errors as error:
                self._discard(connection)
                if self._dialect.trouble(error) is Trouble.BROKEN:
                    self._drop_idle()  # What ended one connection has mostly ended all.
                raise self._dialect.translate(error) from error
            except BaseException:
                self._give_back(connection)
                raise
            self._give_back(connection)

    @contextmanager
    def use_at_one_version(self) -> Iterator[Connection]:
        """A connection inside a read transaction."""
        with self.use() as connection:
            self._dialect.begin_read(connection)
            try:
                yield connection
            finally:
                self._dialect.rollback(connection)

    def _take(self) -> Connection:
        if self._closed:
            raise Unavailable("the store is closed")
        try:
            return self._idle.pop()
        except IndexError:
            return self._dialect.connect_reader()

    def _give_back(self, connection: Connection) -> None:
        if len(self._idle) >= IDLE_KEPT_MAX or self._closed:
            self._discard(connection)
        else:
            self._idle.append(connection)

    def _discard(self, connection: Connection) -> None:
        if self._dialect.shared is None:
            connection.close()

    def close(self) -> None:
        """Closes those at rest; one in use is closed when it comes back."""
        self._closed = True
        self._drop_idle()

    def _drop_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._discard(self._idle.pop())

    def rows(self, sql: str, parameters: dict[str, Any]) -> list[Any]:
        """All rows of one statement."""
        with self.use() as connection:
            return connection.execute(self._dialect.text(sql), parameters).fetchall()  # type: ignore[no-any-return]

    def row(self, sql: str, parameters: dict[str, Any]) -> Any:
        """The first row of one statement, or None."""
        with self.use() as connection:
            return connection.execute(self._dialect.text(sql), parameters).fetchone()

"""
What differs between databases, and nothing else: how to connect, to begin, to write placeholders, to pass a list, to read an error.

`store.sqlite` is the embedded one, `store.postgres` the other; what both run is in `statements`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from enum import Enum
from typing import Any, Protocol

from shoal.base.errors import ShoalError


class Connection(Protocol):
    """The part of DB-API that the store uses; sqlite3 and psycopg connections both have it."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Any: ...

    def close(self) -> None: ...


class Trouble(Enum):
    """What a database error means for the sets that met it."""

    DUPLICATE = "duplicate"
    """A unique column has this value already: the fault of one set."""
    FULL = "full"
    """No room on the disk: nothing was written, smaller sets may still fit, the connection is good."""
    BUSY = "busy"
    """Somebody else holds the database for too long."""
    BROKEN = "broken"
    """Input or output failed: what the connection knows may be wrong, it must be opened anew."""


class Dialect(Protocol):
    """One database."""

    name: str
    engine: str
    """As SQLAlchemy names it with its driver, for migrations."""
    errors: tuple[type[Exception], ...]
    """What its driver raises."""
    single_writer: bool
    """True: no other process can write, so the head row may be kept in memory."""
    shared: threading.RLock | None
    """Held during each transaction where readers and the writer share one connection; None where each has its own."""

    def connect_writer(self) -> Connection: ...

    def connect_reader(self) -> Connection: ...

    def text(self, sql: str) -> str:
        """Portable SQL in this database's own words (see `statements`)."""
        ...

    def ids(self, ids: Sequence[str]) -> object:
        """The parameter for `{any}`: a list of any length as one value."""
        ...

    def begin_write(self, connection: Connection, durable: bool) -> None:
        """Begins a transaction that no other writer can get in the way of. Not `durable`: its commit need not wait for the disk."""
        ...

    def begin_read(self, connection: Connection) -> None:
        """Begins a transaction in which all reads see one state."""
        ...

    def rollback(self, connection: Connection) -> None:
        """Ends a transaction without effect; does nothing where the database has already done so."""
        ...

    def trouble(self, error: Exception) -> Trouble: ...

    def translate(self, error: Exception) -> ShoalError:
        """The error that callers get, with the driver's words kept for the operator."""
        ...

"""
The store: one implementation of `protocol.Store` over SQL. `open_store` is the way in.

Put together from `writer` (the one hand that writes), `reads`, `tail` (recent changes in memory) and `numbers`; `dialect` says what differs
between databases.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

from shoal.base import limits
from shoal.base.errors import Invalid, ShoalError
from shoal.model.change import ChangeSet, Outcome
from shoal.store import statements
from shoal.store.dialect import Connection, Dialect
from shoal.store.head import Head, read_head
from shoal.store.lock import StateLock
from shoal.store.numbers import NumberBlocks
from shoal.store.readers import Readers
from shoal.store.reads import Reads
from shoal.store.schema import ensure_schema
from shoal.store.sqlite import Sqlite
from shoal.store.tail import Tail
from shoal.store.writer import WriterThread, WriteStep

T = TypeVar("T")
MEMORY = ":memory:"
POSTGRES = ("postgresql", "postgres")
"""Schemes of its URLs."""


class Lock(Protocol):
    """The right of one process to serve a database."""

    def release(self) -> None: ...


def open_store(
    where: str | Path, *, by_hand: bool = False, group_max: int = limits.COMMIT_GROUP_MAX, store_id: str | None = None
) -> SqlStore:
    """
    The store at a path, `sqlite:///PATH`, `postgresql://...` or `:memory:`; made or brought to the newest schema where needed.

    by_hand: no writer thread; whoever opened it calls `store.writer.step()` (simulation, tests). group_max: sets per transaction; 1 is for
    comparison. store_id: identity of a store that is made now, by default a new UUID.
    Raises: Refused where another process has it open (named by pid), where it cannot be opened or was written by a newer Shoal.
    """
    dialect, lock = dialect_of(where)
    try:
        return SqlStore(dialect, lock, by_hand=by_hand, group_max=group_max, store_id=store_id or str(uuid.uuid4()))
    except BaseException:
        if lock is not None:
            lock.release()
        raise


def dialect_of(where: str | Path) -> tuple[Dialect, Lock | None]:
    """The database that a path or URL names, and the right to serve it. Raises Refused while another process has that."""
    if isinstance(where, str) and where.partition("://")[0] in POSTGRES:
        from shoal.store.postgres import Postgres

        postgres = Postgres(where)
        return postgres, postgres.lock()
    path = _path(where)
    return Sqlite(path), None if path is None else StateLock(path)


def _path(where: str | Path) -> Path | None:
    if isinstance(where, Path):
        return where
    if where in (MEMORY, f"sqlite:///{MEMORY}"):
        return None
    scheme, found, rest = where.partition("://")
    if found and scheme != "sqlite":
        raise Invalid(f"store {where!r}: {scheme} is not a kind of store; use a path, sqlite:///PATH, postgresql://HOST/NAME or {MEMORY}")
    return Path(rest.removeprefix("/")) if found else Path(where)


class SqlStore(Reads):
    """See module and `protocol.Store`. `writer` is the writing step, for those that drive it by hand."""

    def __init__(self, dialect: Dialect, lock: Lock | None, *, by_hand: bool, group_max: int, store_id: str) -> None:
        self._dialect = dialect
        self._lock = lock
        connection = dialect.connect_writer()
        try:
            ensure_schema(connection, dialect, store_id)
            head = read_head(connection, dialect, lock=False)
        except dialect.errors as error:
            raise dialect.translate(error) from error
        finally:
            if dialect.shared is None:
                connection.close()
        assert head is not None
        self.store_id = head.store_id
        self._tail = Tail(head.version)
        self._readers = Readers(dialect)
        self.writer = WriteStep(dialect, self._tail, group_max)
        self._thread = None if by_hand else WriterThread(self.writer)
        self._numbers = NumberBlocks(self._reserve, self._settle)
        self._open = True

    # --- writing --------------------------------------------------------------------------------------------------------------
    def apply(self, changes: ChangeSet, term: int) -> Future[Outcome]:
        return self.writer.apply(changes, term)

    def take_term(self, holder: str) -> int:
        def take(head: Head, _: Connection) -> int:
            head.term += 1
            head.holder = holder
            return head.term

        return self._settle(self.writer.run(take, durable=True))

    @property
    def trouble(self) -> str:
        return self.writer.trouble

    def reserve_numbers(self, count: int) -> int:
        return self._numbers.take(count)

    def _reserve(self, count: int) -> Future[int]:
        def reserve(head: Head, _: Connection) -> int:
            first = head.number_next
            head.number_next += count
            return first

        return self.writer.run(reserve, durable=True)

    def confirm_commands(self, node: str, through_seq: int) -> None:
        def confirm(_: Head, connection: Connection) -> None:
            connection.execute(self._dialect.text(statements.COMMANDS_CONFIRM), {"node": node, "through": through_seq})

        self.writer.run(confirm, durable=False)

    def _settle(self, future: Future[T]) -> T:
        """Waits for a future of the writer, or does the writer's work where nobody else does."""
        while self._thread is None and not future.done():
            self.writer.step()
        return future.result()

    # --- life -----------------------------------------------------------------------------------------------------------------
    def on_commit(self, wake: Callable[[int], None]) -> Callable[[], None]:
        return self._tail.on_commit(wake)

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        with suppress(ShoalError):
            self._give_numbers_back()
        self.writer.close()
        if self._thread is not None:
            self._thread.join()
        while self.writer.step():
            pass
        self._readers.close()
        self.writer.disconnect()
        if self._lock is not None:
            self._lock.release()

    def limit_pages(self, pages_max: int) -> None:
        """Drills for a full disk: writes that need more pages than this fail from now on; 0 lifts it. SQLite only."""
        if isinstance(self._dialect, Sqlite):
            self._dialect.pages_max = pages_max

    def abandon(self) -> None:
        """
        Lets go of the database as a process does that is killed: what was not committed is lost, nothing more is written.

        For a store that is driven by hand; what was handed over and waits is never settled.
        """
        self._open = False
        self._readers.close()
        self.writer.disconnect()
        if self._lock is not None:
            self._lock.release()

    def _give_numbers_back(self) -> None:
        unused, end = self._numbers.left()

        def give_back(head: Head, _: Connection) -> None:
            if head.number_next == end:
                head.number_next = unused

        if unused < end:
            self._settle(self.writer.run(give_back, durable=True))

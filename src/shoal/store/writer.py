"""
The one hand that writes: what was handed over is gathered into groups, each one transaction and one sync.

`WriteStep.step` writes one group: a thread drives it in life (`WriterThread`), a test or a seeded simulation by hand. There is no
artificial wait: while one group syncs, the next gathers. Callers hold futures, settled in one pass after the commit.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from shoal.base import limits
from shoal.base.errors import InvariantViolated, ShoalError, Unavailable
from shoal.model.change import Change, ChangeSet, Outcome
from shoal.store.dialect import Connection, Dialect, Trouble
from shoal.store.group import Group
from shoal.store.head import Head, read_head, write_head
from shoal.store.history import KeyAges, prune
from shoal.store.tail import Tail

T = TypeVar("T")
Errand = Callable[[Head, Connection], Any]
"""Work for a write transaction that is no ChangeSet: changes the head it is given, and may run statements."""
CLOSE_WAIT_S: Final = 60.0
"""For the last group at close; a disk that takes longer is broken."""
_log = logging.getLogger(__name__)


class _Order:
    """One thing to be written: a set under a term, or an errand."""

    __slots__ = ("changes", "durable", "errand", "future", "term")

    def __init__(self, changes: ChangeSet | None, term: int, errand: Errand | None, durable: bool) -> None:
        self.changes = changes
        self.term = term
        self.errand = errand
        self.durable = durable
        self.future: Future[Any] = Future()

    @property
    def rows(self) -> int:
        return 1 if self.changes is None else len(self.changes.put) + len(self.changes.delete)


class WriteStep:
    """The writer as a step. `apply` and `run` may be called from any thread, `step` from one at a time."""

    def __init__(self, dialect: Dialect, tail: Tail, group_max: int = limits.COMMIT_GROUP_MAX) -> None:
        self._dialect = dialect
        self._tail = tail
        self._group_max = group_max
        self._queue: SimpleQueue[_Order | None] = SimpleQueue()
        self._gate = threading.Lock()
        """Makes "is it closed" and the hand-over one act, so that nothing comes after the last group."""
        self._closed = False
        self._keys = KeyAges()
        self._connection: Connection | None = None
        self._head: Head | None = None
        """The head as last committed, where nobody else can move it. None: to be read, as after every transaction that failed."""
        self.trouble = ""
        """Why the database did not take the last group; empty when it did."""

    def apply(self, changes: ChangeSet, term: int) -> Future[Outcome]:
        """Hands a set over. The future never fails to be settled, whatever happens to the disk."""
        return self._submit(_Order(changes, term, None, durable=True))

    def run(self, errand: Callable[[Head, Connection], T], durable: bool) -> Future[T]:
        """Hands an errand over: done in its turn among the sets, in a transaction that waits for the disk only if `durable`."""
        return self._submit(_Order(None, 0, errand, durable))

    def _submit(self, order: _Order) -> Future[Any]:
        with self._gate:
            if self._closed:
                order.future.set_exception(Unavailable("the store is closed"))
            elif self._queue.qsize() >= limits.WRITER_QUEUE_MAX:
                waiting = limits.WRITER_QUEUE_MAX
                order.future.set_exception(Unavailable(f"{waiting} writes wait already, which is the limit; try again in a second"))
            else:
                self._queue.put(order)
        return order.future

    @property
    def waiting(self) -> int:
        """How many sets and errands wait for a step."""
        return self._queue.qsize()

    def step(self) -> int:
        """Writes one group of what waits, and says how many sets and errands it settled; 0 if none waited."""
        return self._write(self._gather(wait=False))

    def step_or_wait(self) -> bool:
        """As `step`, but waits for work; False once closed and empty."""
        self._write(self._gather(wait=True))
        return not (self._closed and self._queue.empty())

    def close(self) -> None:
        """Takes nothing more; what waits is still written by further steps."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(None)

    def disconnect(self) -> None:
        """Closes the connection, after the last step."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _gather(self, wait: bool) -> list[_Order]:
        try:
            found = [self._queue.get(wait)]
            rows = found[0].rows if found[0] is not None else 0
            for _ in range(min(self._queue.qsize(), self._group_max - 1)):
                if rows > limits.COMMIT_ROWS_MAX:
                    break
                order = self._queue.get_nowait()
                found.append(order)
                rows += order.rows if order is not None else 0
        except Empty:
            return []
        return [order for order in found if order is not None and order.future.set_running_or_notify_cancel()]

    def _write(self, orders: list[_Order]) -> int:
        if orders:
            settled, changes = self._attempt(orders)
            self._tail.publish(changes)
            for order, result in zip(orders, settled, strict=True):
                if isinstance(result, BaseException):
                    order.future.set_exception(result)
                else:
                    order.future.set_result(result)
            if changes:
                self._tail.wake()
        return len(orders)

    def _attempt(self, orders: Sequence[_Order], look_up_all: bool = False) -> tuple[list[Any], list[Change]]:
        """
        Commits the orders in one transaction; where one of them stands in the others' way, in smaller ones.

        Result: per order its value or its error, and the changes committed.
        """
        try:
            done = self._commit(orders, look_up_all)
            self.trouble = ""
            return done
        except self._dialect.errors as error:
            trouble = self._dialect.trouble(error)
            self._recover(reconnect=trouble is Trouble.BROKEN)
            if trouble is Trouble.DUPLICATE and not look_up_all:
                return self._attempt(orders, look_up_all=True)
            if trouble in (Trouble.DUPLICATE, Trouble.FULL) and len(orders) > 1:
                return self._one_by_one(orders)
            told = self._dialect.translate(error)
            _log.error("%d writes failed: %s", len(orders), told.internal)
            self.trouble = told.message
            return [self._dialect.translate(error) for _ in orders], []
        except ShoalError as error:
            _log.error("%d writes failed: %s", len(orders), error.message)
            self.trouble = error.message
            self._recover(reconnect=True)
            return [error] * len(orders), []
        except Exception as error:
            _log.exception("the writer met a bug; %d writes are given up", len(orders))
            self._recover(reconnect=True)
            return [InvariantViolated(f"the writer met a bug: {type(error).__name__}", internal=repr(error)) for _ in orders], []

    def _one_by_one(self, orders: Sequence[_Order]) -> tuple[list[Any], list[Change]]:
        settled: list[Any] = []
        changes: list[Change] = []
        for order in orders:
            one, brought = self._attempt([order], look_up_all=True)
            settled += one
            changes += brought
        return settled, changes

    def _recover(self, reconnect: bool) -> None:
        """Back to a clean connection. After failed input or output it is a new one: what the old one believes may not be on the disk."""
        self._head = None
        if self._connection is None:
            return
        try:
            self._dialect.rollback(self._connection)
        except self._dialect.errors:
            reconnect = True
        if reconnect and self._dialect.shared is None:
            self.disconnect()

    def _commit(self, orders: Sequence[_Order], look_up_all: bool) -> tuple[list[Any], list[Change]]:
        with self._dialect.shared or nullcontext():
            if self._connection is None:
                self._connection = self._dialect.connect_writer()
            connection = self._connection
            self._dialect.begin_write(connection, durable=any(order.durable for order in orders))
            head = self._head if self._head is not None else self._read_head(connection)
            group = Group(connection, self._dialect, head, look_up_all)
            group.load(order.changes for order in orders if order.changes is not None)
            settled = [self._settle(order, group, connection) for order in orders]
            if group.changes or any(order.errand is not None for order in orders):
                group.write()
                prune(connection, self._dialect, head)
                self._keys.prune(connection, self._dialect, group.newest_key_ms)
                write_head(connection, self._dialect, head)
                connection.execute("COMMIT")
            else:
                self._dialect.rollback(connection)
            self._head = head if self._dialect.single_writer else None
        return settled, group.changes

    def _read_head(self, connection: Connection) -> Head:
        head = read_head(connection, self._dialect, lock=True)
        if head is None:
            raise InvariantViolated("the store has no head row; it was not made by open_store")
        return head

    def _settle(self, order: _Order, group: Group, connection: Connection) -> Any:
        """The order's value or its own error, which is nobody else's. Errors of the database go up: they are the whole group's."""
        try:
            if order.changes is not None:
                return group.accept(order.changes, order.term)
            assert order.errand is not None
            return order.errand(group.head, connection)
        except self._dialect.errors:
            raise
        except ShoalError as error:
            return error
        except Exception as error:
            _log.exception("a write that cannot be encoded or judged")
            return InvariantViolated(f"the set cannot be written: {type(error).__name__}: {error}", internal=repr(error))


class WriterThread:
    """Drives a `WriteStep` until it is closed and empty."""

    def __init__(self, step: WriteStep) -> None:
        self._step = step
        self._thread = threading.Thread(target=self._run, name="shoal-writer", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self._step.step_or_wait():
            pass

    def join(self) -> None:
        self._thread.join(CLOSE_WAIT_S)
        if self._thread.is_alive():
            raise Unavailable(f"the writer did not finish its last group within {CLOSE_WAIT_S:.0f} s; the disk may hang")

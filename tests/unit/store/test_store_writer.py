"""The writer as a step driven by hand: groups, a full disk, a failing disk, bounds, pruning."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.base import limits
from shoal.base.errors import InvariantViolated, Unavailable, VersionConflict, VersionExpired
from shoal.model.change import Applied, ChangeSet, KeyExists
from shoal.store.head import Head
from shoal.store.history import prune
from shoal.store.sql import SqlStore, open_store
from shoal.store.sqlite import Sqlite
from shoal.store.tail import Tail
from shoal.store.writer import WriteStep
from shoal.testing import records as make


def pages_max(store: SqlStore, more: int) -> None:
    """Lets the database file grow by so many pages and no further."""
    connection = store.writer._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count={pages + more}")


def test_a_step_writes_one_group_and_nothing_before(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db", by_hand=True, group_max=4)
    term = store.take_term("test")
    futures = [store.apply(make.puts(make.a_job(n)), term) for n in range(1, 8)]
    assert not any(future.done() for future in futures)
    assert store.version() == 0
    settled = [(store.writer.step(), sum(future.done() for future in futures)) for _ in range(3)]
    assert settled == [(4, 4), (3, 7), (0, 7)]
    assert store.version() == 7
    store.close()


def test_one_commit_for_a_group_and_one_each_for_comparison(tmp_path: Path) -> None:
    for group_max, want in ((256, 1), (1, 10)):
        statements: list[str] = []
        store = open_store(tmp_path / f"{group_max}.db", by_hand=True, group_max=group_max)
        term = store.take_term("test")
        for number in range(1, 11):
            store.apply(make.puts(make.a_job(number)), term)
        store.writer._connection.set_trace_callback(statements.append)
        while store.writer.step():
            pass
        assert statements.count("COMMIT") == want
        store.close()


def test_a_full_disk_is_unavailable_and_room_makes_it_usable_again(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db", by_hand=True)
    term = store.take_term("test")
    (kept,) = [store.apply(make.puts(make.a_job(1)), term)]
    store.writer.step()
    pages_max(store, 2)
    futures = [store.apply(make.a_submission(n), term) for n in range(2, 200)]
    store.writer.step()
    errors = [future.exception() for future in futures]
    refused = [error for error in errors if error is not None]
    assert refused
    assert all(isinstance(error, Unavailable) and "no room on the disk" in error.message for error in refused)
    written = [future.result() for future in futures if future.exception() is None]
    pages_max(store, 10_000)
    again = store.apply(make.a_submission(500), term)
    store.writer.step()
    assert again.result() == Applied(version=kept.result().version + len(written) + 1)
    assert len(store.snapshot().jobs) == len(written) + 2
    assert [change.version for change in store.changes_after(0)] == list(range(1, store.version() + 1))
    store.close()


def test_a_large_set_that_does_not_fit_leaves_room_for_small_ones(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db", by_hand=True)
    term = store.take_term("test")
    pages_max(store, 100)
    first = store.apply(make.puts(make.a_job(1)), term)
    large = store.apply(ChangeSet(put=tuple(make.a_job(n) for n in range(100, 3_000))), term)
    last = store.apply(make.puts(make.a_job(2)), term)
    store.writer.step()
    assert isinstance(large.exception(), Unavailable)
    assert (first.result(), last.result()) == (Applied(version=1), Applied(version=2))
    assert [job.number for job in store.snapshot().jobs] == [1, 2]
    store.close()


class FailingCommits(Sqlite):
    """A disk whose syncs fail `failures` times, as the driver tells it."""

    failures = 0
    yet_written = False
    """The sync failed, but the bytes had reached the disk all the same: nobody can know."""

    def connect_writer(self) -> Any:
        return FailingConnection(super().connect_writer(), self)

    def rollback(self, connection: Any) -> None:
        super().rollback(connection.real if isinstance(connection, FailingConnection) else connection)


class FailingConnection:
    def __init__(self, real: Any, disk: FailingCommits) -> None:
        self.real = real
        self.disk = disk

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        if sql == "COMMIT" and self.disk.failures:
            self.disk.failures -= 1
            if self.disk.yet_written:
                self.real.execute(sql)
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
            raise error
        return self.real.execute(sql, parameters)

    def close(self) -> None:
        self.real.close()


def test_a_sync_that_fails_is_unavailable_and_the_next_one_uses_a_new_connection(tmp_path: Path) -> None:
    open_store(tmp_path / "a.db").close()
    disk = FailingCommits(tmp_path / "a.db")
    tail = Tail(0)
    step = WriteStep(disk, tail)
    first = step.apply(make.puts(make.a_job(1)), 0)
    step.step()
    assert first.result() == Applied(version=1)
    before = step._connection
    disk.failures = 1
    lost = [step.apply(make.puts(make.a_job(n)), 0) for n in (2, 3)]
    step.step()
    assert [type(future.exception()) for future in lost] == [Unavailable, Unavailable]
    assert "SQLITE_IOERR_FSYNC" in lost[0].exception().internal
    again = step.apply(make.puts(make.a_job(2)), 0)
    step.step()
    assert again.result() == Applied(version=2)
    assert step._connection is not before
    assert [change.version for change in tail.after(0, 9)] == [1, 2]
    step.disconnect()


def test_a_commit_that_failed_and_is_there_all_the_same_leaves_no_gap(tmp_path: Path) -> None:
    """Unavailable says "not known": whoever reads the tail must see the set, and the next one must not take its version."""
    store = open_store(tmp_path / "a.db", by_hand=True)
    disk = FailingCommits(tmp_path / "a.db")
    disk.yet_written = True
    store.writer._dialect = disk
    first = store.apply(make.puts(make.a_job(1)), 0)
    store.writer.step()
    disk.failures = 1
    unknown = store.apply(make.a_submission(2), 0)
    store.writer.step()
    assert isinstance(unknown.exception(), Unavailable)
    repeat = store.apply(make.a_submission(2), 0)
    third = store.apply(make.puts(make.a_job(3)), 0)
    store.writer.step()
    assert isinstance(repeat.result(), KeyExists)
    assert (first.result(), third.result()) == (Applied(version=1), Applied(version=3))
    assert [change.version for change in store.changes_after(0)] == [1, 2, 3]
    assert [change.version for change in store.changes_after(1)] == [2, 3]
    store.close()


def test_deleted_and_made_again_in_one_group_is_one_commit(tmp_path: Path) -> None:
    store = open_store(":memory:", by_hand=True)
    store.apply(make.puts(make.a_secret("s")), 0)
    store.writer.step()
    statements: list[str] = []
    store.writer._connection.set_trace_callback(statements.append)
    store.apply(ChangeSet(delete=(make.a_secret("s", version=1),)), 0)
    again = store.apply(make.puts(make.a_secret("s", sealed=b"new")), 0)
    store.writer.step()
    assert statements.count("COMMIT") == 1
    assert "ROLLBACK" not in statements
    assert store.secret("default", "s") == make.a_secret("s", sealed=b"new", version=again.result().version)
    store.close()


def test_a_foreign_program_that_holds_the_file_is_waited_for_and_then_told_of(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    open_store(path).close()
    step = WriteStep(Sqlite(path, busy_wait_s=0.05), Tail(0))
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    refused = step.apply(make.puts(make.a_job(1)), 0)
    step.step()
    assert isinstance(refused.exception(), Unavailable)
    assert "held by another program" in refused.exception().message
    foreign.close()
    again = step.apply(make.puts(make.a_job(1)), 0)
    step.step()
    assert again.result() == Applied(version=1)
    step.disconnect()


FILE_SIZE_SCRIPT = """
import os, resource, sys
from shoal.base.errors import Unavailable
from shoal.store.sql import open_store
from shoal.testing import records as make
store = open_store(sys.argv[1])
term = store.take_term("test")
store.apply(make.puts(make.a_job(1)), term).result()
size = os.stat(sys.argv[1] + "-wal").st_size
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40_000, hard))
futures = [store.apply(make.a_submission(n), term) for n in range(2, 300)]
errors = [future.exception() for future in futures]
assert any(errors) and all(error is None or isinstance(error, Unavailable) for error in errors), errors
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
store.apply(make.puts(make.a_job(1_000)), term).result()
numbers = {job.number for job in store.snapshot().jobs}
assert numbers == {1, 1_000} | {n for n, error in enumerate(errors, start=2) if error is None}, numbers
assert [change.version for change in store.changes_after(0)] == list(range(1, store.version() + 1))
snapshot = store.snapshot()
store.close()
store = open_store(sys.argv[1])
assert store.snapshot() == snapshot
store.close()
"""


def test_writes_that_the_kernel_refuses_are_unavailable_and_leave_no_half(tmp_path: Path) -> None:
    """A real failing write: the process may not make files longer than they are now."""
    done = subprocess.run([sys.executable, "-c", FILE_SIZE_SCRIPT, str(tmp_path / "a.db")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_what_waits_is_bounded(tmp_path: Path) -> None:
    store = open_store(":memory:", by_hand=True)
    futures = [store.apply(ChangeSet(), 0) for _ in range(limits.WRITER_QUEUE_MAX + 2)]
    refused = [future for future in futures if future.done()]
    assert len(refused) == 2
    with pytest.raises(Unavailable, match="10000 writes wait"):
        refused[0].result()
    while store.writer.step():
        pass
    assert all(future.done() for future in futures)
    store.close()


def test_an_index_that_refuses_finds_the_guilty_set_only(tmp_path: Path) -> None:
    """Creates are not looked up first; the group is done again when the unique index says one of them was there."""
    store = open_store(":memory:", by_hand=True)
    store.apply(make.puts(make.a_job(5)), 0)
    store.writer.step()
    futures = [store.apply(make.puts(make.a_job(n)), 0) for n in range(1, 11)]
    taken = store.apply(make.puts(make.a_job(6, id=make.job_id(77))), 0)
    store.writer.step()
    errors = {n: type(future.exception()) for n, future in enumerate(futures, start=1) if future.exception() is not None}
    assert errors == {5: VersionConflict}
    assert isinstance(taken.exception(), InvariantViolated)
    assert [job.number for job in store.snapshot().jobs] == list(range(1, 11))
    store.close()


def test_nothing_accepted_means_no_commit(tmp_path: Path) -> None:
    store = open_store(":memory:", by_hand=True)
    store.apply(make.a_submission(1, key="k"), 0)
    store.writer.step()
    statements: list[str] = []
    store.writer._connection.set_trace_callback(statements.append)
    replay = store.apply(make.a_submission(2, key="k"), 0)
    store.writer.step()
    assert replay.result().key.resource == make.job_id(1)
    assert "ROLLBACK" in statements
    assert "COMMIT" not in statements
    store.close()


def test_changes_and_events_beyond_what_is_kept_are_dropped_in_bites(tmp_path: Path) -> None:
    store = open_store(":memory:", by_hand=True)
    for number in range(1, 1_501):
        store.apply(ChangeSet(events=(make.an_event(str(number)),)), 0)
    while store.writer.step():
        pass
    ahead = limits.CHANGES_KEPT + limits.COMMIT_GROUP_MAX
    head = Head(ahead + 99, 0, 0, "", 1, 100, 0, "id")
    prune(store.writer._connection, store._dialect, head)
    assert head.change_floor == 100, "not yet a whole bite"
    head.version += 1
    prune(store.writer._connection, store._dialect, head)
    assert (head.change_floor, head.event_floor) == (100 + limits.COMMIT_GROUP_MAX, 0)
    rows = store._readers.rows("SELECT min(version) FROM change", {})
    assert rows == [(101 + limits.COMMIT_GROUP_MAX,)]
    store.close()


def test_a_reader_too_far_behind_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = open_store(path, by_hand=True)
    for number in range(1, 11):
        store.apply(ChangeSet(events=(make.an_event(str(number)),)), 0)
    store.writer.step()
    store.writer._connection.execute("UPDATE head SET change_floor = 4, event_floor = 6")
    store.close()
    store = open_store(path, by_hand=True)
    assert [change.version for change in store.changes_after(4)] == [5, 6, 7, 8, 9, 10]
    with pytest.raises(VersionExpired, match="kept are those after 4"):
        store.changes_after(3)
    with pytest.raises(VersionExpired, match="kept are those after 6"):
        store.events_after(None, 5, 10)
    assert len(store.events_after(None, 6, 10)) == 4
    assert store.events_after(None, 0, 10), "0 asks for whatever is kept"
    store.close()

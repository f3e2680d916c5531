"""Opening a store: the lock, the schema, what a start may cost, what is told when it cannot be."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.base.errors import Invalid, Refused, ShoalError, Unavailable
from shoal.model.change import ChangeSet
from shoal.store import schema
from shoal.store.lock import StateLock
from shoal.store.sql import open_store
from shoal.testing import records as make

HOLD = """
import sys
from shoal.store.sql import open_store
store = open_store(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""
SECOND_START = """
import sys
from shoal.store.sql import open_store
open_store(sys.argv[1]).close()
heavy = sorted({"sqlalchemy", "alembic", "cryptography", "asyncio"} & set(sys.modules))
assert not heavy, heavy
"""


def test_a_second_server_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "shoal.db"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(Refused, match=f"in use by process {holder.pid}:"):
            open_store(path)
        holder.kill()
        holder.wait()
        open_store(path).close()
    finally:
        holder.kill()
        holder.wait()


def test_within_one_process_too_and_free_after_close(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db")
    with pytest.raises(Refused, match=f"process {os.getpid()}"):
        open_store(tmp_path / "a.db")
    store.close()
    lock = StateLock(tmp_path / "a.db")
    lock.release()
    lock.release()
    open_store(f"sqlite:///{tmp_path / 'a.db'}").close()


def test_a_failed_opening_keeps_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"this is no database, but long enough to be looked at as one" * 40)
    for _ in range(2):
        with pytest.raises(Refused, match="cannot be opened: file is not a database"):
            open_store(path)
    path.unlink()
    open_store(path).close()


def test_a_damaged_file_is_told_in_one_line(tmp_path: Path) -> None:
    """The page of the schema is whole, that of the version is not."""
    path = tmp_path / "a.db"
    open_store(path).close()
    data = path.read_bytes()
    for damaged in (data[:4096] + b"\xa5" * 8192 + data[12288:], data[: len(data) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(ShoalError, match=f"the state file {path} cannot be .*malformed"):
            open_store(path)


@pytest.mark.parametrize("put_back", ["nothing", "another"])
def test_nothing_is_confirmed_once_the_state_file_is_gone(tmp_path: Path, put_back: str) -> None:
    """SQLite itself goes on in the removed file: jobs would be taken, run, and be unknown at the next start."""
    path = tmp_path / "state" / "a.db"
    path.parent.mkdir()
    store = open_store(path)
    store.apply(ChangeSet(put=(make.a_node("n1"),)), 0).result(10)
    assert store.trouble == ""
    shutil.rmtree(path.parent)
    if put_back == "another":
        path.parent.mkdir()
        path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(Unavailable, match="was removed or replaced under the running server"):
            store.apply(ChangeSet(put=(make.a_node("n2"),)), 0).result(10)
    assert "removed or replaced" in store.trouble
    assert not path.exists() or path.read_bytes() == b""
    store.close()


def test_errors_name_the_place(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=f"{tmp_path}/missing/a.db cannot be opened"):
        open_store(tmp_path / "missing" / "a.db")
    with pytest.raises(Invalid, match="mysql is not a kind of store"):
        open_store("mysql://localhost/shoal")


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    open_store(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(Refused, match=r"newer Shoal: its schema is 9999, this program knows up to"):
        open_store(path)
    with sqlite3.connect(path) as raw:
        assert raw.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]


def test_the_first_opening_makes_the_schema_and_the_second_imports_nothing_for_it(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    store = open_store(path)
    first = store.store_id
    store.close()
    done = subprocess.run([sys.executable, "-c", SECOND_START, path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    store = open_store(path, store_id="ignored, since there is one")
    assert store.store_id == first
    store.close()


def test_the_head_constant_is_the_newest_migration_and_history_is_linear() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(schema._MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [schema.HEAD_REVISION]
    assert scripts.get_bases() == ["0001"]


def test_migrations_and_tables_say_the_same(tmp_path: Path) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from sqlalchemy import create_engine, inspect

    from shoal.store.tables import METADATA

    path = tmp_path / "a.db"
    open_store(path).close()
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), METADATA)
        assert differences == []
        for table in METADATA.sorted_tables:
            found = inspect(connection).get_indexes(table.name)
            assert {index["name"] for index in found if not index["name"].startswith("sqlite_")} >= {index.name for index in table.indexes}
    engine.dispose()


def test_an_upgrade_that_fails_has_not_begun(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE command (something TEXT)")  # The last table of the first migration is in the way.
    with pytest.raises(Exception, match="command"):
        open_store(path)
    with sqlite3.connect(path) as raw:
        assert [name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")] == ["command"]


def test_state_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = open_store(tmp_path / "a.db")
        store.apply(make.puts(make.a_job(1)), 0).result()
        modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in os.scandir(tmp_path)}
        store.close()
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("a.db", "a.db-wal", "a.db-shm", "a.db.lock"), 0o600)


def test_commits_are_synced_and_the_journal_is_a_log(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db", by_hand=True)
    store.apply(make.puts(make.a_job(1)), 0)
    store.writer.step()
    connection = store.writer._connection
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.confirm_commands("n1", 1)
    store.writer.step()
    assert connection.execute("PRAGMA synchronous").fetchone() == (1,), "a confirmation alone waits for no disk"
    store.apply(make.puts(make.a_job(2)), 0)
    store.confirm_commands("n1", 1)
    store.writer.step()
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    with store._readers.use() as reader, pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("DELETE FROM job")
    store.close()

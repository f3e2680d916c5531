"""The schema brought forward on data, and what is dropped with age."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

from shoal.base import limits
from shoal.model.change import Applied, ChangeSet
from shoal.store import schema
from shoal.store.history import KeyAges
from shoal.store.sql import open_store
from shoal.store.sqlite import Sqlite
from shoal.testing import records as make


def at_revision(path: Path, revision: str) -> None:
    """An empty database as a Shoal of that revision left it."""
    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).parent / "migrations"))
    with create_engine(f"sqlite:///{path}").begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def test_a_state_of_the_first_schema_comes_forward_with_all_that_is_in_it(tmp_path: Path) -> None:
    new, old = tmp_path / "new.db", tmp_path / "old.db"
    store = open_store(new)
    term = store.take_term("test")
    for number in range(1, 40):
        store.apply(make.a_submission(number, key=f"k{number}"), term).result()
    store.close()
    at_revision(old, "0001")
    with sqlite3.connect(old) as raw:
        raw.execute("ATTACH ? AS new", (str(new),))
        for table in ("head", "job", "idempotency", "change", "event", "command"):
            raw.execute(f"INSERT INTO main.{table} SELECT * FROM new.{table}")
    forward, straight = open_store(old), open_store(new)
    assert forward.snapshot() == straight.snapshot()
    assert forward.changes_after(0, 100) == straight.changes_after(0, 100)
    assert (
        forward.find_key("default", "user/anna", "jobs.create", "k7")
        == straight.find_key("default", "user/anna", "jobs.create", "k7")
        is not None
    )
    forward.close()
    straight.close()
    with sqlite3.connect(old) as first, sqlite3.connect(new) as second:
        tables = "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
        assert first.execute(tables).fetchall() == second.execute(tables).fetchall()


def test_keys_past_their_time_are_dropped_in_bites_and_younger_ones_are_not(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db")
    term = store.take_term("test")
    for number in range(1, 14):
        at_ms = 1_000 + number if number < 13 else 1_000 + limits.KEYS_KEPT_MS
        outcome = store.apply(ChangeSet(put=(make.a_job(number),), key=make.a_key(f"k{number}", created_ms=at_ms)), term).result()
        assert isinstance(outcome, Applied)
    store.close()
    dialect, ages = Sqlite(tmp_path / "a.db"), KeyAges(at_once=5)
    connection = dialect.connect_writer()

    def left_after(newest_ms: int) -> int:
        ages.prune(connection, dialect, newest_ms)
        (count,) = connection.execute("SELECT count(*) FROM idempotency").fetchone()
        return int(count)

    over = 1_000 + limits.KEYS_KEPT_MS + 30_000  # Twelve are over a week old by then.
    assert [left_after(at_ms) for at_ms in (0, over, over + 1, over + 2, over + 3)] == [13, 8, 3, 1, 1]
    (kept,) = connection.execute("SELECT body FROM idempotency").fetchone()
    assert b'"k13"' in kept
    connection.close()


def test_the_writer_drops_old_keys_as_new_ones_come(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db")
    term = store.take_term("test")
    for number, at_ms in ((1, 1_000), (2, 1_000 + limits.KEYS_KEPT_MS + 120_000), (3, 1_001 + limits.KEYS_KEPT_MS + 120_000)):
        store.apply(ChangeSet(put=(make.a_job(number),), key=make.a_key(f"k{number}", created_ms=at_ms)), term).result()
    found = [store.find_key("default", "user/anna", "jobs.create", f"k{number}") is not None for number in (1, 2, 3)]
    assert found == [False, True, True]
    store.close()

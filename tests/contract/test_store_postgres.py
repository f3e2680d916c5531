"""The store contract on a real PostgreSQL, and what only a database behind a connection can do to a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import psycopg
import pytest
from store_bench import Bench
from store_suite import DurableContract, StoreContract

from postgres import Cluster, cluster
from shoal.base.errors import Refused, Unavailable
from shoal.model.change import ChangeSet
from shoal.model.queue import QueueUsage
from shoal.store.moving import HEAD, TABLES, move_store
from shoal.store.protocol import JobQuery, Store
from shoal.store.sql import open_store
from shoal.store.tables import METADATA
from shoal.testing import records as make

pytestmark = [pytest.mark.service("postgres"), pytest.mark.timeout(120)]


@pytest.fixture(scope="module", autouse=True)
def running() -> Iterator[Cluster]:
    with cluster() as started:
        TestPostgres.cluster = started
        yield started


@pytest.fixture(autouse=True)
def database(running: Cluster, tmp_path: Path) -> Iterator[str]:
    """A database for this test alone."""
    yield running.url(tmp_path.name)
    running.drop(tmp_path.name)


class TestPostgres(StoreContract, DurableContract):
    cluster: ClassVar[Cluster]

    def open(self, tmp_path: Path) -> Store:
        return open_store(self.cluster.url(tmp_path.name))


def test_one_server_at_a_time_serves_a_database(database: str) -> None:
    first = open_store(database)
    with pytest.raises(Refused, match="in use by another Shoal server"):
        open_store(database)
    first.close()
    open_store(database).close()


def test_a_database_that_ends_every_session_is_met_with_new_ones(database: str) -> None:
    store = open_store(database)
    bench = Bench(store)
    version = bench.write(make.puts(make.a_job(1)))
    assert len(store.snapshot().jobs) == 1
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    with pytest.raises(Unavailable, match="cannot be read or written"):
        store.snapshot()
    with pytest.raises(Unavailable):
        bench.write(make.puts(make.a_job(2)))
    assert bench.write(make.puts(make.a_job(3))) == version + 1
    assert [job.number for job in store.snapshot().jobs] == [1, 3]
    store.close()


def test_what_cannot_be_reached_is_told_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be reached") as raised:
        open_store(f"postgresql://u:secret-word@/shoal?host={tmp_path}")
    assert "secret-word" not in raised.value.message
    with pytest.raises(Refused, match="cannot be read"):
        open_store("postgresql://[")


# --- from one database to the other --------------------------------------------------------------------------------------------
def filled(store: Store) -> None:
    """A store with something in every table."""
    bench = Bench(store)
    bench.write(make.a_submission(1, key="k"))
    (node,) = bench.put(make.a_node("n1"))
    job, usage = make.a_job(2), QueueUsage(id="q", used={"gpu": 7}, at_ms=5)
    bench.write(
        ChangeSet(
            put=(
                job,
                make.an_allocation(job),
                make.a_queue("q"),
                make.a_token("t"),
                make.a_secret("s"),
                make.a_claim("c"),
                usage,
                make.a_reservation("r"),
                make.a_schedule("s"),
            ),
            delete=(node,),
            events=(make.an_event("x"), make.an_event("y")),
            commands=(make.a_command(),),
        )
    )
    for number in range(3, 1_200):
        bench.apply(make.puts(make.a_job(number)))
    bench.write(make.puts(make.a_node("n2"), make.an_attempt(job)))


def everything(store: Store) -> object:
    """All that a store can be asked, to be compared."""
    return (
        store.store_id,
        store.version(),
        store.snapshot(),
        store.changes_after(0, 10_000),
        store.events_after("default", 0, 10_000),
        store.list_jobs(JobQuery(project="default", limit=10_000)),
        store.commands_after("agents", 0, 10_000),
        store.tokens(),
        store.reserve_numbers(1),
    )


def test_a_store_moves_to_postgres_and_back_without_loss(database: str, tmp_path: Path) -> None:
    first, last = tmp_path / "first.db", tmp_path / "last.db"
    store = open_store(first)
    filled(store)
    store.close()
    told: list[tuple[str, int]] = []
    moved = move_store(first, database, lambda table, rows: told.append((table, rows)))
    assert moved.rows["job"] == 1_199
    assert ("job", 500) in told
    assert min(moved.rows.values()) > 0, "a table that nothing was moved of proves nothing"
    move_store(database, last)
    found = []
    for where in (first, database, last):
        opened = open_store(where)
        found.append(everything(opened))
        opened.close()
    assert found[0] == found[1] == found[2]


def test_a_store_moves_only_into_an_empty_database_that_nobody_serves(database: str, tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db")
    Bench(store).write(make.puts(make.a_job(1)))
    with pytest.raises(Refused, match="in use by"):
        move_store(tmp_path / "a.db", database)
    store.close()
    other = open_store(database)
    Bench(other).write(make.puts(make.a_job(7)))
    with pytest.raises(Refused, match="in use by"):
        move_store(tmp_path / "a.db", database)
    other.close()
    with pytest.raises(Refused, match="holds a Shoal already, at version 1"):
        move_store(tmp_path / "a.db", database)
    again = open_store(database)
    assert [job.number for job in again.snapshot().jobs] == [7]
    again.close()


def test_every_table_and_column_is_moved() -> None:
    tables = {name: {column.name for column in table.columns} for name, table in METADATA.tables.items()}
    head = tables.pop("head")
    assert {name: set(columns) for name, columns in TABLES.items()} == tables
    assert {*HEAD, "id"} == head

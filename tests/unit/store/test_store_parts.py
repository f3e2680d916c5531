"""Tail, numbers, readers and query plans of the store, each alone."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from shoal.base.errors import Unavailable
from shoal.model.change import Change
from shoal.model.job import JobState
from shoal.store import statements
from shoal.store import tail as tail_module
from shoal.store.numbers import BLOCK_FIRST, BLOCK_MAX, NumberBlocks
from shoal.store.readers import IDLE_KEPT_MAX
from shoal.store.sql import SqlStore, open_store
from shoal.store.tail import Tail
from shoal.testing import records as make


# --- tail -----------------------------------------------------------------------------------------------------------------
def test_the_tail_keeps_the_newest_and_says_where_it_ends() -> None:
    tail = Tail(100)
    kept = tail_module.CHANGES_IN_MEMORY_MAX
    last = 100 + 5 * kept
    for version in range(101, last + 1, 64):
        tail.publish([Change(version=v) for v in range(version, min(version + 64, last + 1))])
        assert tail.after(tail.version, 5) == ()
        assert [change.version for change in tail.after(tail.version - 3, 2)] == [tail.version - 2, tail.version - 1]
    assert tail.version == last
    assert tail.after(100, 5) is None
    assert [change.version for change in tail.after(last - kept, 10**9)] == list(range(last - kept + 1, last + 1))
    assert len(tail._held.changes) <= 2 * kept


def test_few_but_large_changes_bound_the_tail_by_records() -> None:
    tail = Tail(0)
    jobs = tuple(make.a_job(n) for n in range(1, 10_001))
    for version in range(1, 41):
        tail.publish([Change(version=version, put=jobs)])
    assert tail._records <= 2 * tail_module.RECORDS_IN_MEMORY_MAX
    assert tail.after(33, 10) is not None
    assert tail.after(0, 10) is None


def test_a_gap_in_what_is_published_empties_the_memory_rather_than_hide_it() -> None:
    tail = Tail(0)
    tail.publish([Change(version=1)])
    tail.publish([Change(version=5)])
    assert tail.after(1, 10) is None
    assert [change.version for change in tail.after(4, 10)] == [5]


def test_memory_and_disk_give_the_same_changes(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db")
    job = make.a_job(1)
    store.apply(make.a_submission(2), 0)
    everything = (make.an_attempt(job), make.an_allocation(job), make.a_node("n"), make.a_queue("q"), make.a_claim("c"), make.a_token("t"))
    last = store.apply(make.puts(job, *everything, make.a_secret("s")), 0).result().version
    memory = store._tail.after(0, 100)
    assert memory == store._changes_on_disk(0, 100) == store.changes_after(0)
    assert memory[-1].version == last
    assert store._changes_on_disk(last, 10) == ()
    store.close()


# --- numbers --------------------------------------------------------------------------------------------------------------
class Reserve:
    """Gives out runs of numbers; settles at once, or when told."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.next = 1
        self.at_once = at_once
        self.sizes: list[int] = []
        self.open: list[tuple[Future[int], int]] = []

    def __call__(self, size: int) -> Future[int]:
        self.sizes.append(size)
        future: Future[int] = Future()
        self.open.append((future, self.next))
        self.next += size
        if self.at_once:
            self.settle(future)
        return future

    def settle(self, future: Future[int]) -> int:
        for waiting, first in self.open:
            waiting.set_result(first)
        self.open.clear()
        return future.result()


def test_blocks_start_small_and_grow_and_numbers_have_no_gap_in_one_life() -> None:
    reserve = Reserve()
    blocks = NumberBlocks(reserve, reserve.settle)
    assert [blocks.take(1) for _ in range(5_000)] == list(range(1, 5_001))
    assert reserve.sizes[0] == BLOCK_FIRST
    assert max(reserve.sizes) == BLOCK_MAX
    assert len(reserve.sizes) < 20


def test_the_next_block_is_asked_for_before_it_is_needed() -> None:
    reserve = Reserve(at_once=False)
    blocks = NumberBlocks(reserve, reserve.settle)
    blocks.take(1)
    waits = 0
    for _ in range(3_000):
        if reserve.open and reserve.open[0][0] is blocks._coming and blocks._next == blocks._end:
            waits += 1
        elif reserve.open:
            reserve.settle(reserve.open[0][0])  # The disk answers before the block is used up.
        blocks.take(1)
    assert waits == 0


def test_a_run_longer_than_a_block_is_in_a_row() -> None:
    reserve = Reserve()
    blocks = NumberBlocks(reserve, reserve.settle)
    first = blocks.take(3)
    run = blocks.take(10_000)
    assert (first, run) == (1, 4)
    assert blocks.take(1) == 10_004


def test_after_a_failed_reservation_the_next_one_is_tried() -> None:
    reserve = Reserve()

    def settle(future: Future[int]) -> int:
        if len(reserve.sizes) == 1:
            raise Unavailable("the disk is full")
        return future.result()

    blocks = NumberBlocks(reserve, settle)
    with pytest.raises(Unavailable):
        blocks.take(1)
    assert blocks.take(1) == BLOCK_FIRST + 1, "what the failed one may have reserved is not given"


def test_numbers_lost_by_a_crash_are_never_given_again(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db")
    given = [store.reserve_numbers(1) for _ in range(100)]
    store._numbers = NumberBlocks(store._reserve, store._settle)  # As after a crash: what was in memory is gone.
    again = [store.reserve_numbers(1) for _ in range(100)]
    assert not set(given) & set(again)
    assert min(again) > max(given)
    store.close()


# --- readers --------------------------------------------------------------------------------------------------------------
def test_connections_are_lent_and_few_are_kept(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db")
    barrier = threading.Barrier(40)

    def read() -> None:
        with store._readers.use() as connection:
            barrier.wait()
            connection.execute("SELECT 1").fetchall()

    threads = [threading.Thread(target=read) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store._readers._idle) == IDLE_KEPT_MAX
    store.close()
    assert not store._readers._idle
    with pytest.raises(Unavailable, match="closed"):
        store.nodes()


def test_an_error_while_reading_gives_the_connection_back_and_ends_its_transaction(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db")
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), store._readers.use_at_one_version() as connection:
            1 / connection.execute("SELECT version FROM head").fetchone()[0]
    assert len(store._readers._idle) == 1
    assert not store._readers._idle[0].in_transaction
    store.close()


def test_readers_see_the_last_commit_while_the_writer_is_in_the_middle_of_one(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db", by_hand=True)
    store.apply(make.puts(make.a_job(1)), 0)
    store.writer.step()
    connection = store.writer._connection
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM job")
    assert [job.number for job in store.snapshot().jobs] == [1]
    connection.execute("ROLLBACK")
    store.close()


# --- query plans ----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> SqlStore:
    store = open_store(tmp_path_factory.mktemp("plans") / "a.db", by_hand=True)
    yield store
    store.close()


PLANS = [
    (
        "one state of a project walks its index",
        statements.jobs_page(("state", "before")),
        "job_by_state (state=? AND project=? AND number<?)",
    ),
    ("a plain list walks the numbers", statements.jobs_page(("before", "as_of")), "PRIMARY KEY (rowid<?)"),
    ("elements of an array have an index", statements.jobs_page(("array", "before")), "job_by_array (array_number=? AND number<?)"),
    ("also when states are asked for", statements.jobs_page(("array", "states2")), "job_by_array (array_number=?)"),
    ("live jobs are found by state", statements.JOBS_LIVE, "job_by_state (state=?)"),
    ("an element is found by its array", statements.JOB_BY_ELEMENT, "job_by_array (array_number=?)"),
    ("room on a node", statements.ALLOCATIONS_ON, "allocation_holding (node=?)"),
    ("all held room", statements.ALLOCATIONS_HOLDING, "allocation_holding"),
    ("events go by version", statements.events_page(False, False, 0, False), "(version>?)"),
    ("events of a subject", statements.events_page(False, True, 0, False), "event_by_subject (subject=? AND version>?)"),
    ("changes go by version", statements.CHANGES_AFTER, "PRIMARY KEY (rowid>?)"),
    ("confirmations go by node", statements.COMMANDS_CONFIRM, "command_by_node (node=? AND seq<?)"),
    ("versions by many ids", statements.versions_of("job"), "(id=?)"),
]


@pytest.mark.parametrize(("sql", "want"), [case[1:] for case in PLANS], ids=[case[0] for case in PLANS])
def test_no_query_reads_more_than_it_must(planned: SqlStore, sql: str, want: str) -> None:
    names = (
        "project",
        "state",
        "state0",
        "state1",
        "before",
        "as_of",
        "limit",
        "array",
        "index",
        "node",
        "after",
        "subject",
        "ids",
        "through",
    )
    values = {name: "[]" if name == "ids" else 1 for name in names}
    with planned._readers.use() as connection:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {planned._dialect.text(sql)}", values).fetchall()
    plan = "; ".join(row[3] for row in rows)
    assert want in plan, plan
    assert "TEMP B-TREE" not in plan, plan


def test_states_are_all_either_live_or_ended() -> None:
    live = [state for state in JobState if f"'{state.value}'" in statements.JOBS_LIVE]
    ended = [state for state in JobState if f"'{state.value}'" in statements.STATES_ENDED_BY_ID]
    assert sorted(live + ended) == sorted(JobState)

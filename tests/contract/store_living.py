"""The store contract, third part: the tail, many threads at once, the end, and what outlives the process."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from msgspec.structs import replace
from store_bench import WAIT_S, Bench, StoreFixtures, written

from shoal.base.errors import Unavailable
from shoal.model.change import Change, ChangeSet, KeyExists
from shoal.model.snapshot import Snapshot
from shoal.store.protocol import JobQuery, Store
from shoal.testing import records as make


class LivingContract(StoreFixtures):
    """See module."""

    # --- the tail -------------------------------------------------------------------------------------------------------------
    def test_changes_bring_what_each_version_wrote(self, bench: Bench) -> None:
        (node,) = bench.put(make.a_node("n1"))
        changes = ChangeSet(
            put=(make.a_job(1),), delete=(node,), events=(make.an_event("a"), make.an_event("b")), commands=(make.a_command(),)
        )
        version = bench.write(changes)
        (change,) = bench.store.changes_after(version - 1)
        seq = change.commands[0].seq
        assert seq > 0
        assert change == Change(
            version=version,
            put=(make.a_job(1, version=version),),
            delete=(node,),
            events=tuple(replace(row, version=version, ordinal=i) for i, row in enumerate(changes.events)),
            commands=(make.a_command(seq=seq),),
        )

    def test_changes_come_in_bites_without_gap_or_repeat(self, bench: Bench) -> None:
        for number in range(1, 60):
            bench.apply(make.puts(make.a_job(number)))
        last = bench.write(make.puts(make.a_job(60)))
        seen: list[int] = []
        while bite := bench.store.changes_after(seen[-1] if seen else 0, limit=7):
            assert len(bite) <= 7
            seen += [change.version for change in bite]
        assert seen == list(range(1, last + 1))
        assert bench.store.changes_after(last) == bench.store.changes_after(last + 5) == ()

    def test_wakers_hear_of_each_commit_until_stopped_and_find_the_change(self, bench: Bench) -> None:
        heard: list[tuple[int, int]] = []
        rung = threading.Event()

        def wake(version: int) -> None:
            heard.append((version, len(bench.store.changes_after(version - 1))))
            rung.set()

        def broken(_: int) -> None:
            raise RuntimeError("a waker's own fault")

        stop_broken = bench.store.on_commit(broken)
        stop = bench.store.on_commit(wake)
        version = bench.write(make.puts(make.a_job(1)))
        assert rung.wait(WAIT_S)
        assert heard == [(version, 1)]
        stop()
        stop_broken()
        bench.write(make.puts(make.a_job(2)))
        bench.write(make.puts(make.a_job(3)))
        assert len(heard) == 1

    def test_a_settled_set_is_seen_by_every_read_at_once(self, bench: Bench) -> None:
        for number in range(1, 50):
            version = bench.write(make.puts(make.a_job(number)))
            assert bench.store.version() >= version
            assert bench.store.changes_after(version - 1)[0].version == version
            assert bench.store.job(make.job_id(number)) is not None

    # --- threads and end ------------------------------------------------------------------------------------------------------
    def test_fifty_clients_from_the_first_second_meet_no_lock(self, bench: Bench) -> None:
        """Platform case 36: 'database is locked' in the quickstart."""
        store, errors = bench.store, []
        ready = threading.Barrier(50)

        def client(base: int) -> None:
            try:
                ready.wait()
                for number in range(base, base + 8):
                    written(bench.apply(make.a_submission(number)))
                    assert store.find_job("default", str(number)) is not None
                    assert store.list_jobs(JobQuery(project="default", limit=5))
                    store.snapshot()
                    store.events_after("default", 0, 5)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=client, args=(1 + 8 * n,)) for n in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(store.snapshot().jobs) == 400

    def test_snapshots_are_of_one_version_while_others_write(self, bench: Bench) -> None:
        """Each set moves one unit from one queue's weight to another's: every snapshot must see the same sum."""
        first, second = bench.put(make.a_queue("a"), make.a_queue("b"))
        stop = threading.Event()
        broken: list[Snapshot] = []

        def look() -> None:
            while not stop.is_set():
                found = bench.store.snapshot()
                if sum(queue.spec.weight for queue in found.queues) != 2_000 or {q.version for q in found.queues} != {found.version}:
                    broken.append(found)

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(200):
            down = replace(first, spec=replace(first.spec, weight=first.spec.weight - 1))
            up = replace(second, spec=replace(second.spec, weight=second.spec.weight + 1))
            first, second = bench.put(down, up)
        stop.set()
        for thread in threads:
            thread.join()
        assert broken == []

    def test_close_writes_what_was_handed_over_and_takes_nothing_more(self, bench: Bench) -> None:
        futures = [bench.apply(make.puts(make.a_job(n))) for n in range(1, 500)]
        bench.store.close()
        bench.store.close()
        assert all(future.done() for future in futures)
        assert [written(future) for future in futures]
        with pytest.raises(Unavailable, match="closed"):
            bench.apply(make.puts(make.a_job(1_000))).result(WAIT_S)


class DurableContract:
    """What a store that outlives its process promises beyond; `open` twice with the same `tmp_path` opens the same store."""

    def open(self, tmp_path: Any) -> Store:
        raise NotImplementedError

    def test_all_is_there_after_it_is_opened_again(self, tmp_path: Any) -> None:
        store = self.open(tmp_path)
        bench = Bench(store)
        (node,) = bench.put(make.a_node("n1"))
        bench.write(ChangeSet(put=(make.a_job(1),), delete=(node,), events=(make.an_event(),), commands=(make.a_command(),)))
        bench.write(make.a_submission(2))
        before = (store.store_id, store.version(), store.snapshot(), store.changes_after(0), store.events_after(None, 0, 9))
        commands = store.commands_after("agents", 0, 9)
        store.close()
        store = self.open(tmp_path)
        try:
            assert (store.store_id, store.version(), store.snapshot(), store.changes_after(0), store.events_after(None, 0, 9)) == before
            assert store.commands_after("agents", 0, 9) == commands
            assert isinstance(Bench(store).apply(make.a_submission(3, key="key-2")).result(WAIT_S), KeyExists)
        finally:
            store.close()

    def test_terms_numbers_and_versions_go_on_where_they_were(self, tmp_path: Any) -> None:
        terms, numbers, versions = [], [], []
        for run in range(3):
            store = self.open(tmp_path)
            bench = Bench(store)
            terms.append(bench.term)
            numbers += [store.reserve_numbers(1), store.reserve_numbers(5)]
            versions.append(bench.write(make.puts(make.a_job(run + 1))))
            store.close()
        assert terms == sorted(set(terms))
        assert numbers == [1, 2, 7, 8, 13, 14]  # A clean close gives back what was reserved and not given.
        assert versions == [1, 2, 3]

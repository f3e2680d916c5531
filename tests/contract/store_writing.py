"""The store contract, first part: what a write promises - all or nothing, versions, order, keys, terms, numbers."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace
from store_bench import WAIT_S, Bench, StoreFixtures, written

from shoal.base.errors import Conflict, InvariantViolated, VersionConflict
from shoal.model.change import Applied, ChangeSet, KeyExists, Outcome
from shoal.model.event import JobUpdated
from shoal.model.job import JobState
from shoal.model.snapshot import Snapshot
from shoal.store.protocol import JobQuery, Store
from shoal.testing import records as make


class WritingContract(StoreFixtures):
    """See module."""

    # --- writing: all or nothing, versions, order ---------------------------------------------------------------------------
    def test_every_kind_of_record_comes_back_equal_with_the_version_of_its_set(self, bench: Bench) -> None:
        job = make.a_job(1)
        first = (
            job,
            make.an_attempt(job),
            make.an_allocation(job),
            make.a_node("n1"),
            make.a_queue("default"),
            make.a_claim("c1"),
            make.a_reservation("r1"),
            make.a_schedule("every"),
            make.a_token("t1"),
            make.a_secret("s1"),
        )
        job, attempt, allocation, node, queue, claim, reservation, schedule, token, secret = bench.put(*first)
        store = bench.store
        assert job.version == store.version() > 0
        assert store.job(job.id) == job
        assert store.node("n1") == node
        assert store.queue("default") == queue
        assert store.token("t1") == token
        assert store.secret("default", "s1") == secret
        assert store.allocations_on("n1") == (allocation,)
        want = {"jobs": (job,), "allocations": (allocation,), "nodes": (node,), "queues": (queue,), "claims": (claim,)}
        want["reservations"] = (reservation,)
        want["schedules"] = (schedule,)
        assert store.snapshot() == Snapshot(version=job.version, **want)
        assert attempt.version == job.version

    def test_what_is_not_there_is_none_or_empty(self, store: Store) -> None:
        nothing = make.job_id(1)
        found = (store.job(nothing), store.node("x"), store.queue("x"), store.token("x"), store.secret("p", "x"), store.picture(nothing))
        assert found == (None,) * 6
        assert store.find_key("p", "u", "o", "k") is None
        assert store.nodes() == store.queues() == store.tokens() == store.secrets("p") == store.allocations_on("x") == ()
        assert store.jobs_by_id(()) == store.jobs_by_id((nothing,)) == store.changes_after(0) == store.events_after(None, 0, 10) == ()
        assert store.list_jobs(JobQuery(project="default")) == ()
        assert store.commands_after("agents", 0, 10) == ()
        assert store.count_elements(nothing) == {}

    def test_versions_rise_by_one_per_set_in_the_order_of_handing_over(self, bench: Bench) -> None:
        before = bench.store.version()
        futures = [bench.apply(make.puts(make.a_job(n))) for n in range(1, 600)]
        assert [written(future) for future in futures] == list(range(before + 1, before + 600))
        assert bench.store.version() == before + 599

    def test_a_record_is_rewritten_only_from_the_version_stored(self, bench: Bench) -> None:
        (job,) = bench.put(make.a_job(1))
        (held,) = bench.put(replace(job, state=JobState.HELD))
        with pytest.raises(VersionConflict, match=f"read at version {job.version} and is now at {held.version}"):
            bench.write(make.puts(replace(job, priority=5)))
        assert bench.store.job(job.id) == held

    def test_a_record_that_must_not_exist_is_refused_where_it_does(self, bench: Bench) -> None:
        (job,) = bench.put(make.a_job(1))
        with pytest.raises(VersionConflict, match="exists already"):
            bench.write(make.puts(make.a_job(1)))
        assert bench.store.job(job.id) == job

    def test_a_record_read_but_deleted_since_is_refused(self, bench: Bench) -> None:
        (node,) = bench.put(make.a_node("n1"))
        bench.drop(node)
        with pytest.raises(VersionConflict, match="not there"):
            bench.write(make.puts(replace(node, pool="x")))
        with pytest.raises(VersionConflict, match="not there"):
            bench.drop(node)
        assert bench.store.node("n1") is None

    def test_a_record_never_written_cannot_be_deleted(self, bench: Bench) -> None:
        with pytest.raises(VersionConflict):
            bench.drop(make.a_node("n1"))

    def test_a_deleted_record_may_come_again(self, bench: Bench) -> None:
        (node,) = bench.put(make.a_node("n1"))
        bench.drop(node)
        (again,) = bench.put(make.a_node("n1", pool="new"))
        assert bench.store.node("n1") == again

    def test_a_set_with_one_moved_record_writes_nothing_at_all(self, bench: Bench) -> None:
        (queue,) = bench.put(make.a_queue("default"))
        bench.put(replace(queue, spec=replace(queue.spec, weight=1)))
        before = bench.store.version()
        changes = ChangeSet(
            put=(make.a_job(1), replace(queue, spec=replace(queue.spec, weight=2))),
            events=(make.an_event(),),
            commands=(make.a_command(),),
            key=make.a_key("k"),
        )
        with pytest.raises(VersionConflict):
            bench.write(changes)
        store = bench.store
        assert store.version() == before
        assert store.job(make.job_id(1)) is None
        assert store.events_after(None, 0, 10) == ()
        assert store.commands_after("agents", 0, 10) == ()
        assert store.find_key("default", "user/anna", "jobs.create", "k") is None

    def test_sets_that_fail_do_their_neighbours_no_harm(self, bench: Bench) -> None:
        bench.put(make.a_job(1))
        sets = [make.puts(make.a_job(1 + n // 2 if n % 2 else 1)) for n in range(1, 400)]
        sets.insert(7, make.puts(make.a_job(1_000, id="another-id"), make.a_job(1_001)))
        sets.insert(9, make.puts(make.a_job(1_000)))  # A number taken by the set before: a bug of its caller.
        futures = [bench.apply(changes) for changes in sets]
        for changes, future in zip(sets, futures, strict=True):
            if isinstance(future.exception(WAIT_S), VersionConflict | InvariantViolated):
                continue
            assert bench.store.job(changes.put[0].id) == replace(changes.put[0], version=written(future))
        assert sum(future.exception() is None for future in futures) == 199 + 1
        assert isinstance(futures[9].exception(), InvariantViolated)
        assert [change.version for change in bench.store.changes_after(0)] == list(range(1, bench.store.version() + 1))

    def test_a_record_twice_in_one_set_is_a_bug_and_is_told(self, bench: Bench) -> None:
        (node,) = bench.put(make.a_node("n1"))
        with pytest.raises(InvariantViolated, match="twice"):
            bench.write(ChangeSet(put=(node, node)))
        with pytest.raises(InvariantViolated, match="twice"):
            bench.write(ChangeSet(put=(node,), delete=(node,)))

    def test_what_cannot_be_encoded_is_refused_alone(self, bench: Bench) -> None:
        unwritable = make.an_event(body=JobUpdated(changed={"x": (object(), 1)}))
        bad = bench.apply(ChangeSet(put=(make.a_job(1),), events=(unwritable,)))
        good = bench.apply(make.puts(make.a_job(2)))
        assert isinstance(bad.exception(WAIT_S), InvariantViolated)
        written(good)
        assert bench.store.job(make.job_id(1)) is None

    def test_later_sets_see_earlier_ones_even_before_those_are_synced(self, bench: Bench) -> None:
        (node,) = bench.put(make.a_node("n1"))
        gone = bench.apply(ChangeSet(delete=(node,)))
        again = bench.apply(make.puts(make.a_node("n1", pool="p2")))
        twice = bench.apply(make.puts(make.a_node("n1", pool="p3")))
        key_first = bench.apply(make.a_submission(1, key="same"))
        key_second = bench.apply(make.a_submission(2, key="same"))
        written(gone)
        assert bench.store.node("n1") == make.a_node("n1", pool="p2", version=written(again))
        assert isinstance(twice.exception(WAIT_S), VersionConflict)
        written(key_first)
        assert isinstance(key_second.result(WAIT_S), KeyExists)

    def test_an_empty_set_is_applied(self, bench: Bench) -> None:
        assert isinstance(bench.apply(ChangeSet()).result(WAIT_S), Applied)

    def test_a_set_of_ten_thousand_records_is_one_version(self, bench: Bench) -> None:
        jobs = tuple(make.a_job(n) for n in range(1, 10_002))
        version = bench.write(ChangeSet(put=jobs, events=tuple(make.an_event(job.id) for job in jobs)))
        (change,) = bench.store.changes_after(version - 1)
        assert len(change.put) == len(bench.store.snapshot().jobs) == len(bench.store.events_after(None, 0, 10)) == 10_001

    def test_a_future_taken_back_before_its_turn_writes_nothing_or_all(self, bench: Bench) -> None:
        futures = [bench.apply(make.puts(make.a_job(n))) for n in range(1, 300)]
        cancelled = [future.cancel() for future in futures]
        written(bench.apply(make.puts(make.a_job(1_000))))
        for number, was_cancelled in enumerate(cancelled, start=1):
            assert (bench.store.job(make.job_id(number)) is None) == was_cancelled

    # --- keys ---------------------------------------------------------------------------------------------------------------
    def test_a_key_works_once_and_then_names_what_it_made(self, bench: Bench) -> None:
        changes = make.a_submission(1, key="k")
        bench.write(changes)
        before = bench.store.version()
        outcome = bench.apply(make.a_submission(2, key="k")).result(WAIT_S)
        assert outcome == KeyExists(key=changes.key)  # type: ignore[arg-type]
        assert bench.store.find_key("default", "user/anna", "jobs.create", "k") == changes.key
        assert bench.store.version() == before
        assert bench.store.job(make.job_id(2)) is None

    def test_a_key_counts_within_its_project_principal_and_operation(self, bench: Bench) -> None:
        bench.write(make.a_submission(1, key="k"))
        others = ({"project": "other"}, {"principal": "user/bob"}, {"operation": "jobs.cancel"}, {"key": "k2"})
        for number, other in enumerate(others, start=2):
            key = make.a_key(**{"key": "k", **other})
            bench.write(ChangeSet(put=(make.a_job(number),), key=key))
            assert bench.store.find_key(key.project, key.principal, key.operation, key.key) == key

    def test_parts_of_a_key_that_run_together_stay_apart(self, bench: Bench) -> None:
        bench.write(ChangeSet(key=make.a_key("c", project="a", principal="b")))
        bench.write(ChangeSet(key=make.a_key("c", project='a","b', principal="")))
        assert bench.store.find_key("a", "b", "jobs.create", "c") is not None

    def test_many_at_once_with_one_key_make_one_job(self, bench: Bench) -> None:
        outcomes: list[Outcome] = []

        def submit(number: int) -> None:
            outcomes.append(bench.apply(make.a_submission(number, key="k")).result(WAIT_S))

        threads = [threading.Thread(target=submit, args=(n,)) for n in range(1, 33)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(isinstance(outcome, Applied) for outcome in outcomes) == 1
        (job,) = bench.store.list_jobs(JobQuery(project="default"))
        assert {outcome.key.resource for outcome in outcomes if isinstance(outcome, KeyExists)} == {job.id}

    # --- terms and numbers ----------------------------------------------------------------------------------------------------
    def test_terms_rise_and_writes_of_earlier_ones_fail(self, store: Store) -> None:
        first = store.take_term("a")
        written(store.apply(make.puts(make.a_job(1)), first))
        waiting = store.apply(make.puts(make.a_job(2)), first)
        second = store.take_term("b")
        assert second > first
        written(waiting)  # Handed over before the term passed.
        with pytest.raises(Conflict, match=f"term {first} has passed: term {second} of b"):
            store.apply(make.puts(make.a_job(3)), first).result(WAIT_S)
        written(store.apply(make.puts(make.a_job(3)), second))

    def test_numbers_are_never_given_twice_from_many_threads(self, store: Store) -> None:
        given: list[range] = []

        def take(count: int) -> None:
            for _ in range(200):
                first = store.reserve_numbers(count)
                given.append(range(first, first + count))

        threads = [threading.Thread(target=take, args=(count,)) for count in (1, 2, 3, 50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        numbers = [number for one in given for number in one]
        assert len(numbers) == len(set(numbers)) == 200 * 56
        assert min(numbers) >= 1

    def test_a_large_run_of_numbers_is_in_a_row(self, store: Store) -> None:
        small = store.reserve_numbers(1)
        large = store.reserve_numbers(10_000)
        after = store.reserve_numbers(1)
        assert small < large
        assert after >= large + 10_000

"""
Every promise of `shoal.store.protocol.Store`, as tests that any implementation must pass.

A class per store inherits `StoreContract` and says in `open` how its store is opened (see test_store.py). Stores that outlive their
process also inherit `DurableContract`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from msgspec.structs import replace

from shoal.base.errors import Conflict, InvariantViolated, Unavailable, VersionConflict
from shoal.model.attempt import AllocationState
from shoal.model.change import Applied, Change, ChangeSet, KeyExists, Outcome, Record
from shoal.model.event import JobUpdated
from shoal.model.job import ArrayPlace, Dependency, Job, JobState
from shoal.model.snapshot import Snapshot
from shoal.model.values import ArrayList
from shoal.store.protocol import JobQuery, Store
from shoal.testing import records as make

WAIT_S = 30


def written(future: Future[Outcome]) -> int:
    """The version at which a set was written."""
    outcome = future.result(WAIT_S)
    assert isinstance(outcome, Applied), outcome
    return outcome.version


class Bench:
    """A store under a term, with the shortest words for writing to it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.term = store.take_term("the test")

    def apply(self, changes: ChangeSet) -> Future[Outcome]:
        return self.store.apply(changes, self.term)

    def write(self, changes: ChangeSet) -> int:
        return written(self.apply(changes))

    def put(self, *put: Record) -> tuple[Any, ...]:
        """Writes the records in one set and gives them as they now stand."""
        version = self.write(make.puts(*put))
        return tuple(replace(record, version=version) for record in put)

    def drop(self, *drop: Record) -> int:
        return self.write(ChangeSet(delete=drop))


class StoreContract:
    """See module."""

    def open(self, tmp_path: Any) -> Store:
        raise NotImplementedError

    @pytest.fixture
    def store(self, tmp_path: Any) -> Iterator[Store]:
        store = self.open(tmp_path)
        yield store
        store.close()

    @pytest.fixture
    def bench(self, store: Store) -> Bench:
        return Bench(store)

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
            make.a_token("t1"),
            make.a_secret("s1"),
        )
        job, attempt, allocation, node, queue, claim, token, secret = bench.put(*first)
        store = bench.store
        assert job.version == store.version() > 0
        assert store.job(job.id) == job
        assert store.node("n1") == node
        assert store.queue("default") == queue
        assert store.token("t1") == token
        assert store.secret("default", "s1") == secret
        assert store.allocations_on("n1") == (allocation,)
        want = {"jobs": (job,), "allocations": (allocation,), "nodes": (node,), "queues": (queue,), "claims": (claim,)}
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

    # --- snapshot and pictures ------------------------------------------------------------------------------------------------
    def test_a_snapshot_has_what_is_live_in_order_of_ids(self, bench: Bench) -> None:
        done = make.a_job(3, state=JobState.SUCCEEDED)
        lost = make.a_job(5, state=JobState.FAILED)
        spec = replace(make.a_job(0).spec, depends_on=(Dependency(job=done.id), Dependency(job=make.job_id(1))))
        live = (make.a_job(2, attempt=2, spec=spec), make.a_job(1, state=JobState.RUNNING, attempt=1))
        attempts = [make.an_attempt(live[0], n) for n in (1, 2)] + [make.an_attempt(live[1], 1), make.an_attempt(done, 1)]
        states = dict.fromkeys(range(len(AllocationState)), None)
        allocations = [make.an_allocation(live[0], 2, rank, state=list(AllocationState)[rank]) for rank in states]
        others = (make.a_node("b"), make.a_node("a"), make.a_queue("q2"), make.a_queue("q1"), make.a_claim("c"))
        bench.put(done, lost, *live, *attempts, *allocations, *others)
        found = bench.store.snapshot()
        assert [job.number for job in found.jobs] == [1, 2]
        assert [(attempt.job, attempt.number) for attempt in found.attempts] == [(make.job_id(1), 1), (make.job_id(2), 2)]
        assert {allocation.state.value for allocation in found.allocations} == {
            "CLAIMED",
            "PREPARED",
            "STARTED",
            "STOPPING",
            "LOST",
        }
        assert [allocation.id for allocation in found.allocations] == sorted(allocation.id for allocation in found.allocations)
        assert [node.id for node in found.nodes] == ["a", "b"]
        assert [queue.id for queue in found.queues] == ["q1", "q2"]
        assert found.ended == {done.id: JobState.SUCCEEDED}
        assert found.version == bench.store.version()

    def test_a_picture_is_a_job_with_its_current_attempt(self, bench: Bench) -> None:
        job = make.a_job(1, attempt=2)
        members = tuple(make.an_allocation(job, 2, rank, node=f"n{rank}") for rank in (1, 0))
        job, _, attempt, second, first = bench.put(job, make.an_attempt(job, 1), make.an_attempt(job, 2), *members)
        found = bench.store.picture(job.id)
        assert found is not None
        assert (found.job, found.attempt, found.allocations) == (job, attempt, (first, second))
        (waiting,) = bench.put(make.a_job(2))
        picture = bench.store.picture(waiting.id)
        assert picture is not None
        assert (picture.job, picture.attempt, picture.allocations) == (waiting, None, ())

    def test_room_on_a_node_is_what_allocations_hold(self, bench: Bench) -> None:
        job = make.a_job(1)
        one, two, _ = bench.put(make.an_allocation(job, 1, 1), make.an_allocation(job, 1, 0), make.an_allocation(job, 1, 2, node="n2"))
        assert bench.store.allocations_on("n1") == (two, one)
        bench.put(replace(one, state=AllocationState.RELEASED))
        assert bench.store.allocations_on("n1") == (two,)
        bench.put(replace(two, state=AllocationState.LOST))
        assert len(bench.store.allocations_on("n1")) == 1

    # --- finding and listing jobs ---------------------------------------------------------------------------------------------
    def test_a_job_is_found_by_id_number_and_element_in_its_project_only(self, bench: Bench) -> None:
        array = make.a_job(12, spec=replace(make.a_job(12).spec, array=ArrayList.parse("0-3")))
        elements = [
            make.a_job(13 + i, array=ArrayPlace(array=12, array_id=array.id, index=i, count=4), project="default") for i in range(4)
        ]
        array, *elements = bench.put(array, *elements)
        find = bench.store.find_job
        assert find("default", array.id) == find("default", array.id.upper()) == find("default", "12") == array
        assert [find("default", f"12_{i}") for i in range(4)] == elements
        assert find("default", "14") == elements[1]
        for ref in ("12_4", "13_0", "99", "", "x", "-1", "1_2_3", "12_", "_3", "9" * 30, "²", "12 ", make.job_id(99)):
            assert find("default", ref) is None, ref
        assert find("other", "12") is find("other", array.id) is find("other", "12_1") is None

    def test_fifty_thousand_ids_at_once(self, bench: Bench) -> None:
        """Case 33: 'too many SQL variables'."""
        jobs = tuple(make.a_job(n) for n in range(1, 50_001))
        version = bench.write(ChangeSet(put=jobs))
        wanted = (make.job_id(60_000), *(job.id for job in reversed(jobs)))
        found = bench.store.jobs_by_id(wanted)
        assert [job.number for job in found] == list(range(50_000, 0, -1))
        stopped = tuple(replace(job, state=JobState.CANCELLED) for job in found)
        assert bench.write(ChangeSet(put=stopped)) == version + 1
        assert bench.store.snapshot().jobs == ()
        assert bench.write(ChangeSet(delete=tuple(replace(job, version=version + 1) for job in stopped))) == version + 2
        assert bench.store.jobs_by_id(wanted[:10]) == ()

    def test_equal_times_never_drop_a_row_between_pages(self, bench: Bench) -> None:
        """Case 35: a cursor on a column with equal values drops rows."""
        bench.put(*(make.a_job(n) for n in range(1, 11)))
        assert [job.number for job in self.pages(bench.store, JobQuery(project="default", limit=3))] == list(range(10, 0, -1))

    @staticmethod
    def pages(store: Store, query: JobQuery) -> list[Job]:
        found: list[Job] = []
        while page := store.list_jobs(query):
            assert len(page) <= query.limit
            found += page
            query = replace(query, before=page[-1].number)
        return found

    def test_jobs_that_come_or_go_between_pages_neither_skip_nor_repeat(self, bench: Bench) -> None:
        """Of numbers 1 to 40, each third comes late, each third goes between two pages, each third stays."""
        jobs = {job.number: job for job in bench.put(*(make.a_job(n) for n in range(1, 40) if n % 3))}
        query = JobQuery(project="default", limit=4, as_of=bench.store.version())
        late, going = list(range(3, 40, 3)), list(range(2, 40, 3))
        seen: list[int] = []
        while page := bench.store.list_jobs(query):
            seen += [job.number for job in page]
            query = replace(query, before=page[-1].number)
            bench.put(make.a_job(late.pop(0)))  # Below the page's end, since numbers are reserved before they are written.
            bench.drop(jobs[going.pop(0)])
        assert len(seen) == len(set(seen))
        assert [n for n in seen if n % 3 == 1] == list(range(37, 0, -3))
        assert not [n for n in seen if n % 3 == 0]

    def test_filters_are_conjunctive(self, bench: Bench) -> None:
        array = make.a_job(1_000, spec=replace(make.a_job(1).spec, array=ArrayList.parse("0-9")))
        states = list(JobState)
        jobs = [
            make.a_job(
                n,
                state=states[n % len(states)],
                queue=f"q{n % 2}",
                owner=f"user/{n % 3}",
                project="other" if n % 7 == 0 else "default",
                array=ArrayPlace(array=1_000, array_id=array.id, index=n, count=200) if n % 5 == 0 else None,
            )
            for n in range(1, 200)
        ]
        bench.put(array, *jobs)
        everything = [array, *jobs]
        queries = [
            JobQuery(project="default", limit=9),
            JobQuery(project="default", limit=9, states=(JobState.RUNNING,)),
            JobQuery(project="default", limit=9, states=tuple(states)),
            JobQuery(project="default", limit=9, states=(JobState.QUEUED, JobState.FAILED, JobState.QUEUED), queue="q1"),
            JobQuery(project="default", limit=9, owner="user/2", top_level=True),
            JobQuery(project="other", limit=9, owner="user/2", queue="q0"),
            JobQuery(project="default", limit=9, array=1_000),
            JobQuery(project="default", limit=9, array=1_000, states=(JobState.QUEUED, JobState.TIMEOUT, JobState.OOM)),
            JobQuery(project="nobody", limit=9),
        ]
        for query in queries:
            want = [job.number for job in everything if self.matches(job, query)]
            assert [job.number for job in self.pages(bench.store, query)] == sorted(want, reverse=True), query

    @staticmethod
    def matches(job: Job, query: JobQuery) -> bool:
        return (
            job.project == query.project
            and (not query.states or job.state in query.states)
            and query.queue in (None, job.queue)
            and query.owner in (None, job.owner)
            and (query.array is None or (job.array is not None and job.array.array == query.array))
            and not (query.top_level and job.array is not None)
        )

    def test_elements_are_counted_by_state(self, bench: Bench) -> None:
        array = make.a_job(1)
        other = make.a_job(2)
        elements = [
            make.a_job(
                10 + i,
                array=ArrayPlace(array=1, array_id=array.id, index=i, count=5),
                state=JobState.FAILED if i < 2 else JobState.QUEUED,
            )
            for i in range(5)
        ]
        bench.put(array, other, *elements)
        assert bench.store.count_elements(array.id) == {JobState.FAILED: 2, JobState.QUEUED: 3}
        assert bench.store.count_elements(other.id) == {}

    # --- events and commands --------------------------------------------------------------------------------------------------
    def test_events_come_in_commit_order_and_a_version_is_never_split(self, bench: Bench) -> None:
        sizes = [1, 3, 1, 5, 2, 1]
        for number, size in enumerate(sizes):
            bench.write(ChangeSet(events=tuple(make.an_event(f"{number}.{i}") for i in range(size))))
        seen: list[tuple[int, int]] = []
        while rows := bench.store.events_after(None, seen[-1][0] if seen else 0, limit=3):
            seen += [(row.version, row.ordinal) for row in rows]
            assert len(rows) <= 3 or len({row.version for row in rows}) == 1
        assert seen == [(version, i) for version, size in enumerate(sizes, start=1) for i in range(size)]

    def test_events_are_filtered_by_project_kind_and_subject(self, bench: Bench) -> None:
        rows = [make.an_event(f"s{n % 3}", kind=("job", "node", "queue")[n % 3 if n % 2 else 0], project=f"p{n % 2}") for n in range(24)]
        bench.write(ChangeSet(events=tuple(rows[:12])))
        bench.write(ChangeSet(events=tuple(rows[12:])))
        for project in (None, "p0", "p1", "p2"):
            for kinds in ((), ("job",), ("node", "queue"), ("none",)):
                for subject in (None, "s0", "s1"):
                    want = [
                        row
                        for row in rows
                        if project in (None, row.project) and (not kinds or row.kind in kinds) and subject in (None, row.subject)
                    ]
                    found = bench.store.events_after(project, 0, 100, kinds, subject)
                    assert [replace(row, version=0, ordinal=0) for row in found] == want
                    first = bench.store.events_after(project, 0, 1, kinds, subject)
                    assert first == tuple(row for row in found if row.version == found[0].version)

    def test_commands_wait_for_their_backend_until_confirmed(self, bench: Bench) -> None:
        for node in ("n1", "n2", "n1"):
            bench.write(ChangeSet(commands=(make.a_command(node), make.a_command(node, backend="slurm"))))
        rows = bench.store.commands_after("agents", 0, 10)
        assert [row.node for row in rows] == ["n1", "n2", "n1"]
        assert [row.seq for row in rows] == sorted({row.seq for row in rows})
        assert bench.store.commands_after("agents", rows[0].seq, 1) == (rows[1],)
        bench.store.confirm_commands("n1", rows[0].seq)
        bench.write(make.puts(make.a_job(1)))  # Written after the confirmation, so that one is done too.
        assert bench.store.commands_after("agents", 0, 10) == rows[1:]
        assert len(bench.store.commands_after("slurm", 0, 10)) == 3
        bench.store.confirm_commands("n1", rows[-1].seq)
        bench.store.confirm_commands("n2", rows[-1].seq)
        version = bench.write(ChangeSet(commands=(make.a_command(),)))
        assert bench.store.commands_after("agents", 0, 10)[0].seq > rows[-1].seq
        assert bench.store.changes_after(version - 1)[0].commands[0].seq > rows[-1].seq

    # --- threads and end ------------------------------------------------------------------------------------------------------
    def test_fifty_clients_from_the_first_second_meet_no_lock(self, bench: Bench) -> None:
        """Case 36: 'database is locked' in the quickstart."""
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

"""The store contract, second part: snapshots, pictures, finding and listing jobs, events, commands."""

from __future__ import annotations

from msgspec.structs import replace
from store_bench import Bench, StoreFixtures

from shoal.model.attempt import AllocationState
from shoal.model.change import ChangeSet
from shoal.model.job import ArrayPlace, Dependency, Job, JobSpec, JobState
from shoal.model.values import ArrayList
from shoal.store.protocol import JobQuery, Store
from shoal.testing import records as make

SMALL = JobSpec(name="small", run="true")


class ReadingContract(StoreFixtures):
    """See module."""

    # --- snapshot and pictures ------------------------------------------------------------------------------------------------
    def test_a_snapshot_has_what_is_live_in_order_of_ids(self, bench: Bench) -> None:
        done = make.a_job(3, state=JobState.SUCCEEDED)
        lost = make.a_job(5, state=JobState.FAILED)
        spec = replace(make.a_job(0).spec, depends_on=(Dependency(job=done.id), Dependency(job=make.job_id(1))))
        live = (make.a_job(2, attempt=2, spec=spec), make.a_job(1, state=JobState.RUNNING, attempt=1))
        attempts = [make.an_attempt(live[0], n) for n in (1, 2)] + [make.an_attempt(live[1], 1), make.an_attempt(done, 1)]
        states = dict.fromkeys(range(len(AllocationState)), None)
        allocations = [make.an_allocation(live[0], 2, rank, state=list(AllocationState)[rank]) for rank in states]
        others = (
            make.a_node("b"),
            make.a_node("a"),
            make.a_queue("q2"),
            make.a_queue("q1"),
            make.a_claim("c"),
            make.a_reservation("r"),
            make.a_schedule("s"),
        )
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
        """Platform case 33: 'too many SQL variables'."""
        jobs = tuple(make.a_job(n, spec=SMALL) for n in range(1, 50_001))
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
        """Platform case 35: a cursor on a column with equal values drops rows."""
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

    def test_a_list_follows_what_changes_on_a_job(self, bench: Bench) -> None:
        (job,) = bench.put(make.a_job(1))
        bench.put(replace(job, queue="other", state=JobState.HELD, owner="user/anna"))
        listed = bench.store.list_jobs
        assert listed(JobQuery(project="default", queue="default")) == listed(JobQuery(project="default", states=(JobState.QUEUED,))) == ()
        assert listed(JobQuery(project="default", queue="other")) == listed(JobQuery(project="default", states=(JobState.HELD,))) != ()

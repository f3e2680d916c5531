"""What keeps a job from being looked at: hold, dependencies, times, array limits, and what an earlier attempt still holds."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shoal.model.attempt import AllocationState
from shoal.model.job import CancelMode, Dependency, JobState
from shoal.model.reason import ReasonCode
from shoal.scheduling.board import Board
from shoal.testing.clusters import Cluster, a_host, a_queue, places_of

E = JobState


def after(job: str, condition: str = "afterok") -> tuple[Dependency, ...]:
    return (Dependency(job=job, condition=condition),)


def test_a_held_job_waits_until_it_is_released():
    cluster = Cluster(a_host("n0"))
    job = cluster.submit(1, state=JobState.HELD)
    cluster.cycle()
    assert cluster.why(job).reasons[0].code == ReasonCode.HELD
    cluster.change_job(job, state=JobState.QUEUED)
    cluster.cycle()
    assert cluster.running() == (job,)


@pytest.mark.parametrize(
    ("condition", "waiting", "running", "ended"),
    [
        ("after", False, True, {E.SUCCEEDED: True, E.FAILED: True, E.CANCELLED: True}),
        ("afterok", False, False, {E.SUCCEEDED: True, E.FAILED: None, E.CANCELLED: None, E.TIMEOUT: None}),
        ("afternotok", False, False, {E.SUCCEEDED: None, E.FAILED: True, E.CANCELLED: True, E.OOM: True}),
        ("afterany", False, False, {E.SUCCEEDED: True, E.FAILED: True, E.CANCELLED: True}),
    ],
)
def test_dependencies(condition, waiting, running, ended):
    """None: it can never be met any more, and that is told."""
    for state, want in ended.items():
        cluster = Cluster(a_host("n0"))
        first = cluster.submit(1, state=JobState.HELD)
        job = cluster.submit(1, depends_on=after(first, condition))
        cluster.cycle()
        assert (cluster.gpus_of(job) == 1) is waiting
        cluster.change_job(first, state=JobState.QUEUED)
        cluster.cycle()
        assert (cluster.plan().counters["pending"] == 1 or cluster.gpus_of(job) == 1) is running
        cluster.end(first, state)
        cluster.settle()
        assert (cluster.gpus_of(job) == 1) is bool(want)
        if want is None:
            assert cluster.why(job).reasons[0].code == ReasonCode.DEPENDENCY_NEVER


def test_all_dependencies_must_be_met():
    cluster = Cluster(a_host("n0"))
    first, second = cluster.submit(1), cluster.submit(1)
    job = cluster.submit(1, depends_on=(*after(first), *after(second, "afterany")))
    cluster.cycle()
    cluster.end(first)
    cluster.cycle()
    assert cluster.gpus_of(job) == 0
    assert cluster.why(job).reasons[0].blockers == (cluster.jobs[second].address,)
    cluster.end(second, JobState.FAILED)
    cluster.cycle()
    assert cluster.gpus_of(job) == 1


def test_a_dependency_on_a_job_that_ended_before_is_looked_up():
    cluster = Cluster(a_host("n0"))
    first = cluster.submit(1)
    cluster.cycle()
    cluster.end(first)
    assert cluster.board.unknown_dependencies() == ()
    job = cluster.new_job(1, depends_on=after(first))
    cluster.put(job)
    assert cluster.board.unknown_dependencies() == (first,)
    assert cluster.why(job.id).reasons[0].code == ReasonCode.DEPENDENCY
    cluster.board.learn_ended({first: JobState.SUCCEEDED})
    cluster.cycle()
    assert cluster.gpus_of(job.id) == 1


def test_a_begin_time_keeps_a_job_until_it_comes_and_the_plan_says_when():
    cluster = Cluster(a_host("n0"))
    job = cluster.submit(1, not_before_ms=5_000, begin="+4s")
    plan = cluster.cycle()
    assert (cluster.running(), plan.next_at_ms) == ((), 5_000)
    assert (cluster.why(job).reasons[0].code, cluster.why(job).reasons[0].until_ms) == (ReasonCode.BEGIN, 5_000)
    cluster.now_ms = 4_999
    assert not cluster.cycle().counters["placed"]
    cluster.now_ms = 5_000
    assert cluster.cycle().next_at_ms is None
    assert cluster.running() == (job,)


def test_a_back_off_is_told_apart_from_a_begin_time():
    cluster = Cluster(a_host("n0"))
    job = cluster.submit(1, not_before_ms=60_000, attempt=2)
    assert cluster.why(job).reasons[0].code == ReasonCode.BACKOFF


def test_a_clock_that_goes_back_takes_jobs_back_whose_time_has_not_come():
    cluster = Cluster(a_host("n0"))
    cluster.submit(1, not_before_ms=5_000)
    cluster.now_ms = 9_000
    assert cluster.plan().counters["placed"] == 1
    cluster.now_ms = 4_000
    assert cluster.plan().counters["placed"] == 0
    cluster.now_ms = 9_000
    assert cluster.plan().counters["placed"] == 1


def test_an_array_runs_no_more_at_once_than_it_says():
    """Platform case 27: the place of one that was cancelled goes to the next."""
    cluster = Cluster(a_host("n0"))
    parent, elements = cluster.submit_array("0-4%2")
    cluster.cycle()
    assert cluster.running() == elements[:2]
    assert parent not in cluster.board.pending
    reason = cluster.why(elements[2]).reasons[0]
    assert (reason.code, reason.capacity) == (ReasonCode.ARRAY_LIMIT, 2)
    cluster.end(elements[0], JobState.CANCELLED)
    cluster.cycle()
    assert cluster.running() == elements[1:3]


def test_an_array_at_its_limit_holds_back_nobody_else():
    cluster = Cluster(a_host("n0"))
    cluster.submit_array("0-4%1")
    other, unlimited = cluster.submit(1), cluster.submit_array("0-1")[1]
    cluster.cycle()
    assert {other, *unlimited} < set(cluster.running())
    assert len(cluster.running()) == 4


def test_an_arrays_limit_holds_across_queues():
    cluster = Cluster(a_host("n0"), a_queue("q"))
    _, elements = cluster.submit_array("0-3%1")
    cluster.change_job(elements[2], queue="q")
    cluster.cycle()
    assert len(cluster.running()) == 1


def test_an_array_is_explained_by_its_elements():
    cluster = Cluster(a_host("n0", 1))
    parent, _ = cluster.submit_array("0-2")
    cluster.cycle()
    assert "1 of 3 elements" in cluster.why(parent).headline


def test_a_job_is_not_started_while_an_earlier_attempt_holds_anything():
    cluster = Cluster(a_host("n0"), a_host("n1"))
    job = cluster.submit(1)
    cluster.cycle()
    (held,) = cluster.allocations.values()
    cluster.put(replace(cluster.jobs[job], state=JobState.QUEUED), replace(held, state=AllocationState.LOST))
    cluster.cycle()
    assert cluster.why(job).reasons[0].code == ReasonCode.FREEING
    cluster.put(replace(held, state=AllocationState.FENCED))
    cluster.cycle()
    assert cluster.jobs[job].attempt == 2


@pytest.mark.parametrize("state", ["CLAIMED", "PREPARED", "STARTED", "STOPPING", "LOST"])
def test_devices_come_back_at_released_or_fenced_only(state):
    cluster = Cluster(a_host("n0", 1))
    job, waiting = cluster.submit(1), cluster.submit(1)
    cluster.cycle()
    (held,) = cluster.allocations.values()
    cluster.put(replace(held, state=AllocationState(state)), replace(cluster.jobs[job], state=JobState.COMPLETING))
    cluster.plan()
    assert cluster.board.columns.free_gpus.tolist() == [0]
    cluster.put(replace(held, state=AllocationState.FENCED if state == "LOST" else AllocationState.RELEASED))
    assert cluster.plan().decisions[0].job == waiting


def test_a_job_that_is_being_cancelled_is_not_started():
    cluster = Cluster(a_host("n0"))
    cluster.submit(1, cancel=CancelMode.GRACEFUL)
    assert not cluster.plan().decisions


def test_a_change_that_is_already_in_is_passed_over():
    cluster = Cluster(a_host("n0"))
    change = cluster.put(cluster.new_job(1))
    before = cluster.board.contents()
    cluster.board.apply(change)
    assert cluster.board.contents() == before
    assert cluster.board == Board.of(cluster.snapshot())


def test_a_job_that_lives_again_has_not_ended_for_who_depends_on_it():
    cluster = Cluster(a_host("n0"))
    first = cluster.submit(1)
    cluster.cycle()
    cluster.end(first)
    cluster.submit(1, depends_on=(Dependency(job=first),))
    cluster.change_job(first, state=JobState.QUEUED, not_before_ms=60_000)
    assert cluster.board.contents() == Board.of(cluster.snapshot()).contents()
    assert not places_of(cluster.cycle())

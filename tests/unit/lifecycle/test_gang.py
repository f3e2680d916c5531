"""How a gang starts, runs and ends: each test one sentence of the rules, told over real records (`shoal.testing.gangs`)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shoal.base import limits
from shoal.lifecycle.ending import _wait_for_nodes
from shoal.model.attempt import AllocationState
from shoal.model.command import Commit, Prepare, Stop
from shoal.model.event import (
    AllocationFenced,
    AllocationLost,
    AllocationUnkillable,
    CancelRequested,
    JobEnded,
    JobEvicted,
    JobRequeued,
    JobUnheld,
    PrepareLate,
    TimeLimitReached,
)
from shoal.model.job import CancelMode, JobState, Retry
from shoal.model.queue import Claim
from shoal.model.reason import ReasonCode
from shoal.model.values import Duration
from shoal.testing.gangs import Gang, a_reason


def lost(gang: Gang, node_rank: int) -> AllocationLost:
    return AllocationLost(allocation=gang.members[node_rank].id, attempt=gang.job.attempt)


def fenced(gang: Gang, node_rank: int) -> AllocationFenced:
    return AllocationFenced(allocation=gang.members[node_rank].id, attempt=gang.job.attempt, how="silent for 400 s")


# --- start ----------------------------------------------------------------------------------------------------------------
def test_placing_raises_the_attempt_and_sends_a_prepare_to_every_node() -> None:
    gang = Gang.placed(nodes=2, tasks_per_node=2)
    assert (gang.job.state, gang.job.attempt, gang.states) == (JobState.STARTING, 1, "CLAIMED CLAIMED")
    prepares = gang.commands()
    assert [type(c) for c in prepares] == [Prepare, Prepare]
    first = prepares[0]
    assert isinstance(first, Prepare)
    assert (first.world_size, first.commit_at_once, first.restarts) == (4, False, 0)
    assert [[t.rank for t in a.tasks] for a in gang.members] == [[0, 1], [2, 3]]


def test_a_gang_commits_only_when_the_last_member_is_prepared() -> None:
    gang = Gang.placed(nodes=3)
    gang.commands()
    gang.tell(gang.prepared(2))
    gang.tell(gang.prepared(0))
    assert gang.commands() == []
    gang.tell(gang.prepared(1))
    commits = gang.commands()
    assert [type(c) for c in commits] == [Commit] * 3
    assert all(isinstance(c, Commit) and (c.master_address, c.master_port) == ("10.0.0.0", 29_500) for c in commits)
    assert isinstance(commits[0], Commit)


def test_a_gang_of_one_node_is_told_to_start_at_once_and_needs_no_commit() -> None:
    gang = Gang.placed()
    prepare = gang.commands()[0]
    assert isinstance(prepare, Prepare)
    assert prepare.commit_at_once
    gang.run()
    assert gang.commands() == []
    assert gang.job.state is JobState.RUNNING


def test_the_job_runs_when_all_members_have_started_not_before() -> None:
    gang = Gang.placed(nodes=2)
    gang.tell(gang.prepared(0))
    gang.tell(gang.prepared(1))
    gang.tell(gang.started(0))
    assert gang.job.state is JobState.STARTING
    gang.tell(gang.started(1))
    assert gang.job.state is JobState.RUNNING
    assert gang.job.started_ms == gang.now_ms


def test_a_member_that_ends_before_another_has_started_does_not_keep_the_job_from_running() -> None:
    gang = Gang.placed(nodes=2)
    for event in (gang.prepared(0), gang.prepared(1), gang.started(0), gang.exited(0), gang.released(0), gang.started(1)):
        gang.tell(event)
    assert gang.job.state is JobState.RUNNING


def test_case_1_a_failed_prepare_gives_up_the_whole_start_and_avoids_the_node_without_counting_a_retry() -> None:
    """Platform case 1."""
    gang = Gang.placed(nodes=2)
    gang.tell(gang.prepared(0))
    gang.commands()
    gang.tell(gang.prepare_failed(1))
    assert (gang.job.state, gang.states) == (JobState.COMPLETING, "STOPPING RELEASED")
    assert [type(c) for c in gang.commands()] == [Stop]
    gang.tell(gang.released(0))
    job = gang.job
    assert (job.state, job.avoid, job.retries, job.start_failures) == (JobState.QUEUED, ("n1",), 0, 1)
    assert job.reason is not None
    assert job.reason.code is ReasonCode.PREPARE_FAILED
    gang.place()
    assert gang.job.attempt == 2


def test_starts_given_up_in_a_row_wait_longer_each_time_and_forget_it_once_the_job_runs() -> None:
    gang = Gang.placed()
    waits = []
    for _ in range(12):
        gang.tell(gang.prepare_failed(0))
        waits.append(gang.job.not_before_ms - gang.now_ms)
        gang.place()
    assert waits[:4] == [1_000, 2_000, 4_000, 8_000]
    assert waits[-1] == 300_000
    gang.run()
    assert gang.job.start_failures == 0


def test_a_start_given_up_too_often_holds_the_job_until_somebody_releases_it() -> None:
    gang = Gang.placed()
    for _ in range(limits.START_FAILURES_MAX - 1):
        gang.tell(gang.prepare_failed(0))
        gang.place()
    gang.tell(gang.prepare_failed(0))
    assert (gang.job.state, gang.job.start_failures) == (JobState.HELD, limits.START_FAILURES_MAX)
    assert gang.job.reason is not None
    assert gang.job.reason.code is ReasonCode.START_FAILED
    assert "the disk is full" in gang.job.reason.message
    gang.tell(JobUnheld())
    assert (gang.job.state, gang.job.start_failures) == (JobState.QUEUED, 0)


def test_a_gang_that_holds_on_keeps_its_room_after_a_failure_and_not_after_a_preemption() -> None:
    gang = Gang.running(nodes=2, hold_on_failure=Duration.parse("10m"))
    gang.tell(gang.released(1, reason=a_reason(ReasonCode.DEVICE_LOST, "GPU 3 is gone")))
    changes = gang.tell(gang.released(0))
    claims = [record for record in changes.put if isinstance(record, Claim)]
    assert gang.job.state is JobState.QUEUED
    assert [(claim.node, claim.expires_ms - gang.now_ms) for claim in claims] == [("n0", 600_000), ("n1", 600_000)]
    other = Gang.running(nodes=2, hold_on_failure=Duration.parse("10m"))
    other.tell(JobEvicted(attempt=1, reason=a_reason(ReasonCode.PREEMPTED, "for another")))
    kept = [record for rank in (0, 1) for record in other.tell(other.released(rank)).put if isinstance(record, Claim)]
    assert (other.job.state, kept) == (JobState.QUEUED, [])


def test_a_prepare_that_would_fail_anywhere_fails_the_job() -> None:
    gang = Gang.placed(nodes=2, retry=Retry(limit=5))
    gang.tell(gang.prepare_failed(0, fatal=True))
    gang.tell(gang.released(1))
    assert gang.job.state is JobState.FAILED
    assert gang.job.outcome is not None
    assert (gang.job.outcome.exit_code, gang.job.outcome.node) == (126, "n0")
    assert gang.job.avoid == ()


def test_a_late_prepare_gives_up_the_start_and_avoids_the_late_nodes_only() -> None:
    gang = Gang.placed(nodes=3)
    gang.tell(gang.prepared(1))
    gang.now_ms += 120_000
    gang.tell(PrepareLate(attempt=1, missing=("n0", "n2")))
    assert gang.job.avoid == ("n0", "n2")
    gang.release_all()
    assert gang.job.state is JobState.QUEUED
    assert gang.job.reason is not None
    assert gang.job.reason.message == "2 of 3 nodes were not prepared within 120 s: n0, n2"


def test_the_deadline_for_prepare_means_nothing_once_the_gang_has_committed() -> None:
    gang = Gang.placed(nodes=2)
    gang.tell(gang.prepared(0))
    gang.tell(gang.prepared(1))
    assert gang.tell(PrepareLate(attempt=1, missing=())).empty


# --- end ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_case_2_ranks_that_end_well_in_any_order_make_one_attempt_and_success(order: tuple[int, ...]) -> None:
    """Platform case 2."""
    gang = Gang.running(nodes=3)
    for rank in order:
        gang.now_ms += 1_500
        gang.tell(gang.exited(rank))
        gang.tell(gang.released(rank))
    assert (gang.job.state, gang.job.attempt) == (JobState.SUCCEEDED, 1)
    assert gang.job.outcome is not None
    assert gang.job.outcome.exit_code == 0
    assert gang.holding == []
    assert [type(e) for e in gang.log][-1] is JobEnded


def test_a_job_completes_only_when_the_last_member_has_given_back() -> None:
    gang = Gang.running(nodes=2)
    gang.tell(gang.exited(0))
    gang.tell(gang.exited(1))
    gang.tell(gang.released(1))
    assert gang.job.state is JobState.COMPLETING
    gang.tell(gang.released(0))
    assert gang.job.state is JobState.SUCCEEDED


def test_the_first_failing_task_stops_the_gang_and_is_its_outcome() -> None:
    gang = Gang.running(nodes=3)
    gang.commands()
    gang.tell(gang.exited(1, exit_code=7))
    stops = gang.commands()
    assert [(type(c), c.allocation[-1]) for c in stops] == [(Stop, "0"), (Stop, "2")]
    gang.now_ms += 10
    gang.tell(gang.exited(0, exit_code=143, signal=15))
    gang.tell(gang.exited(2, exit_code=143, signal=15))
    gang.release_all()
    end = gang.job.outcome
    assert end is not None
    assert (gang.job.state, end.exit_code, end.node, end.task) == (JobState.FAILED, 7, "n1", 1)


def test_the_first_failure_by_time_wins_even_if_its_report_comes_second() -> None:
    gang = Gang.running(nodes=3)
    gang.tell(gang.exited(2, exit_code=9, at_ms=gang.now_ms + 50))
    gang.tell(gang.exited(1, exit_code=7, at_ms=gang.now_ms + 40))
    gang.tell(gang.exited(0, exit_code=5, at_ms=gang.now_ms + 60))
    gang.release_all()
    assert gang.job.outcome is not None
    assert gang.job.outcome.exit_code == 7


def test_of_failures_at_one_time_the_lowest_rank_wins() -> None:
    gang = Gang.running(nodes=2)
    gang.tell(gang.exited(1, exit_code=9))
    gang.tell(gang.exited(0, exit_code=5))
    gang.release_all()
    assert gang.job.outcome is not None
    assert (gang.job.outcome.exit_code, gang.job.outcome.task) == (5, 0)


def test_a_task_that_died_of_the_stop_is_no_cause_whatever_its_clock_says() -> None:
    gang = Gang.running(nodes=2)
    gang.tell(gang.exited(1, exit_code=9))
    gang.tell(gang.exited(0, exit_code=143, signal=15, at_ms=gang.now_ms - 1_000))
    gang.release_all()
    assert gang.job.outcome is not None
    assert gang.job.outcome.exit_code == 9


def test_a_task_killed_for_memory_ends_the_job_as_oom() -> None:
    gang = Gang.running()
    gang.tell(gang.exited(0, exit_code=137, signal=9, oom=True))
    gang.tell(gang.released(0))
    assert gang.job.state is JobState.OOM
    assert gang.job.outcome is not None
    assert (gang.job.outcome.exit_code, gang.job.outcome.signal) == (137, 9)


def test_a_failing_setup_script_fails_the_job_and_a_good_one_says_nothing() -> None:
    gang = Gang.running()
    assert gang.tell(gang.exited(0, rank=-1)).empty
    gang.tell(gang.exited(0, exit_code=3, rank=-1))
    gang.tell(gang.released(0))
    assert gang.job.state is JobState.FAILED
    assert gang.job.outcome is not None
    assert gang.job.outcome.message == "the setup script on n0 ended with exit code 3"


def test_a_node_with_several_tasks_is_stopped_when_one_of_them_fails() -> None:
    gang = Gang.running(tasks_per_node=2)
    gang.commands()
    gang.tell(gang.exited(0, exit_code=1))
    assert [type(c) for c in gang.commands()] == [Stop]


def test_usage_is_summed_over_members_and_attempts() -> None:
    gang = Gang.running(nodes=2, retry=Retry(limit=1))
    for _ in range(2):
        gang.tell(gang.exited(0, exit_code=1))
        gang.release_all()
        if gang.job.state is JobState.QUEUED:
            gang.place()
            gang.run()
    assert (gang.job.state, gang.job.usage.cpu_ms, gang.job.usage.memory_bytes_max) == (JobState.FAILED, 400, 1_001)


# --- retry ----------------------------------------------------------------------------------------------------------------
def test_a_failed_job_is_tried_again_up_to_its_limit_with_doubling_waits() -> None:
    gang = Gang.running(retry=Retry(limit=3, backoff=Duration(10_000)))
    waits = []
    while gang.job.state is not JobState.FAILED:
        gang.tell(gang.exited(0, exit_code=1))
        gang.tell(gang.released(0))
        if gang.job.state is JobState.QUEUED:
            waits.append(gang.job.not_before_ms - gang.now_ms)
            gang.place()
            gang.run()
    assert waits == [10_000, 20_000, 40_000]
    assert (gang.job.attempt, gang.job.retries) == (4, 3)


@pytest.mark.parametrize(("exit_code", "want"), [(75, JobState.QUEUED), (1, JobState.FAILED)])
def test_only_the_listed_exit_codes_are_tried_again(exit_code: int, want: JobState) -> None:
    gang = Gang.running(retry=Retry(limit=1, exit_codes=(75,)))
    gang.tell(gang.exited(0, exit_code=exit_code))
    gang.tell(gang.released(0))
    assert gang.job.state is want


# --- loss -----------------------------------------------------------------------------------------------------------------
def test_a_new_attempt_waits_until_the_lost_member_is_fenced() -> None:
    gang = Gang.running(nodes=2)
    gang.tell(lost(gang, 1))
    assert (gang.job.state, gang.states) == (JobState.COMPLETING, "STOPPING LOST")
    gang.tell(gang.released(0))
    assert gang.job.state is JobState.COMPLETING
    gang.tell(fenced(gang, 1))
    assert (gang.job.state, gang.job.retries) == (JobState.QUEUED, 0)
    assert gang.job.reason is not None
    assert gang.job.reason.code is ReasonCode.NODE_LOST


def test_a_lost_member_that_comes_back_says_released_and_needs_no_fence() -> None:
    gang = Gang.running(nodes=2)
    gang.tell(lost(gang, 1))
    gang.release_all()
    assert (gang.job.state, gang.states) == (JobState.QUEUED, "RELEASED RELEASED")


def test_a_reboot_fences_at_once() -> None:
    gang = Gang.running()
    gang.tell(fenced(gang, 0))
    assert (gang.job.state, gang.job.attempt) == (JobState.QUEUED, 1)


def test_a_member_whose_work_was_done_may_get_lost_without_harm() -> None:
    gang = Gang.running(nodes=2)
    gang.tell(gang.exited(1))
    gang.tell(lost(gang, 1))
    assert gang.job.state is JobState.RUNNING
    gang.tell(gang.exited(0))
    gang.tell(gang.released(0))
    gang.tell(fenced(gang, 1))
    assert gang.job.state is JobState.SUCCEEDED


@pytest.mark.parametrize("code", [ReasonCode.SUPERVISOR_LOST, ReasonCode.DEVICE_LOST, ReasonCode.NODE_LOST])
def test_work_that_the_node_stopped_itself_is_tried_again_and_not_counted(code: ReasonCode) -> None:
    gang = Gang.running(nodes=2, retry=Retry(limit=0))
    gang.tell(gang.exited(0, exit_code=143, signal=15, stopped=True))
    assert gang.job.state is JobState.RUNNING
    gang.tell(gang.released(0, reason=a_reason(code, "the lease ran out")))
    gang.tell(gang.released(1))
    assert (gang.job.state, gang.job.retries) == (JobState.QUEUED, 0)
    assert gang.job.reason is not None
    assert gang.job.reason.code is code


@pytest.mark.parametrize(("ran_ms", "attempt", "wait_ms"), [(100, 1, 1_000), (59_999, 4, 8_000), (100, 40, 300_000), (60_000, 4, 0)])
def test_a_job_that_may_be_what_kills_supervisors_waits_longer_each_time(ran_ms: int, attempt: int, wait_ms: int) -> None:
    """At once it would be tried some times in a second, and take the node's other work along each time."""
    gang = Gang.running()
    assert gang.job.started_ms is not None
    job = replace(gang.job, attempt=attempt)
    assert _wait_for_nodes(job, a_reason(ReasonCode.SUPERVISOR_LOST), gang.job.started_ms + ran_ms) == wait_ms


def test_work_that_the_node_stopped_itself_is_no_success_though_it_exits_zero() -> None:
    gang = Gang.running()
    gang.tell(gang.exited(0, stopped=True))
    gang.tell(gang.released(0, reason=a_reason(ReasonCode.NODE_LOST)))
    assert gang.job.state is JobState.QUEUED


def test_a_member_that_gives_back_without_a_word_counts_as_lost() -> None:
    gang = Gang.running(nodes=2)
    gang.tell(gang.released(1))
    gang.tell(gang.released(0))
    assert gang.job.state is JobState.QUEUED
    assert gang.job.reason is not None
    assert gang.job.reason.code is ReasonCode.SUPERVISOR_LOST


def test_an_interactive_job_ends_with_its_node() -> None:
    gang = Gang.running(interactive=True)
    gang.tell(fenced(gang, 0))
    assert gang.job.state is JobState.NODE_LOST
    assert gang.job.outcome is not None
    assert (gang.job.outcome.exit_code, gang.job.outcome.node) == (1, "n0")


def test_unkillable_processes_are_remembered_once() -> None:
    gang = Gang.running()
    event = AllocationUnkillable(allocation=gang.members[0].id, attempt=1, pids=(41, 42))
    gang.tell(event)
    assert gang.members[0].stuck == (41, 42)
    assert gang.tell(event).empty


# --- time, preemption -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("exits", "want_code"), [(143, 143), (0, 124)])
def test_a_time_limit_ends_the_job_as_timeout_and_never_with_exit_code_zero(exits: int, want_code: int) -> None:
    gang = Gang.running(time=Duration(60_000))
    gang.tell(TimeLimitReached(attempt=1))
    gang.tell(gang.exited(0, exit_code=exits, signal=15 if exits else None))
    gang.tell(gang.released(0))
    assert gang.job.state is JobState.TIMEOUT
    assert gang.job.outcome is not None
    assert gang.job.outcome.exit_code == want_code


def test_an_evicted_gang_is_queued_again_with_its_place_in_the_queue_and_no_retry_counted() -> None:
    gang = Gang.running(nodes=2)
    queued_ms = gang.job.queued_ms
    gang.now_ms += 5_000
    gang.tell(JobEvicted(attempt=1, reason=a_reason(ReasonCode.PREEMPTED, "for job 20")))
    assert (gang.job.state, gang.states) == (JobState.PREEMPTING, "STOPPING STOPPING")
    gang.tell(gang.exited(0, exit_code=143, signal=15))
    gang.tell(gang.exited(1, exit_code=0))
    gang.release_all()
    assert (gang.job.state, gang.job.retries, gang.job.queued_ms) == (JobState.QUEUED, 0, queued_ms)
    assert any(isinstance(e, JobRequeued) for e in gang.log)


def test_an_evicted_job_that_had_ended_by_itself_has_succeeded() -> None:
    gang = Gang.running()
    gang.tell(JobEvicted(attempt=1, reason=a_reason(ReasonCode.PREEMPTED, "for job 20")))
    gang.tell(gang.exited(0, exit_code=0, stopped=False))
    gang.tell(gang.released(0))
    assert (gang.job.state, gang.job.attempt) == (JobState.SUCCEEDED, 1)


# --- at least once --------------------------------------------------------------------------------------------------------
def test_every_report_told_twice_is_no_news_the_second_time() -> None:
    gang = Gang.placed(nodes=2)
    events = [
        *(gang.prepared(0), gang.prepared(1), gang.started(1), gang.started(0)),
        *(gang.exited(0, exit_code=3), gang.exited(1, exit_code=143, signal=15), gang.released(1), gang.released(0)),
    ]
    for event in events:
        assert not gang.tell(event).empty
        assert gang.tell(event).empty
    assert gang.job.state is JobState.FAILED


def test_reports_of_an_older_attempt_have_no_effect() -> None:
    gang = Gang.running(retry=Retry(limit=1))
    old = [gang.prepared(0), gang.started(0), gang.exited(0, exit_code=1), gang.released(0), gang.prepare_failed(0), lost(gang, 0)]
    gang.tell(gang.exited(0, exit_code=1))
    gang.tell(gang.released(0))
    gang.place()
    gang.run()
    assert [gang.tell(event).empty for event in old] == [True] * len(old)
    assert (gang.job.state, gang.states) == (JobState.RUNNING, "STARTED")


def test_an_alarm_set_for_an_older_attempt_does_not_hit_the_next_one() -> None:
    gang = Gang.running(time=Duration(60_000), retry=Retry(limit=1))
    gang.tell(gang.exited(0, exit_code=1))
    gang.tell(gang.released(0))
    gang.place()
    assert gang.tell(PrepareLate(attempt=1, missing=("n0",))).empty
    gang.run()
    assert gang.tell(TimeLimitReached(attempt=1)).empty
    assert gang.tell(JobEvicted(attempt=1, reason=a_reason(ReasonCode.PREEMPTED))).empty
    assert gang.job.state is JobState.RUNNING


def test_reports_after_the_end_have_no_effect() -> None:
    gang = Gang.running()
    late = [gang.started(0), gang.exited(0, exit_code=9), gang.released(0), fenced(gang, 0)]
    gang.tell(gang.exited(0))
    gang.tell(gang.released(0))
    assert [gang.tell(event).empty for event in late] == [True] * 4
    assert gang.members[0].state is AllocationState.RELEASED


def test_a_start_that_comes_before_its_prepared_is_understood() -> None:
    gang = Gang.placed()
    gang.tell(gang.started(0))
    assert gang.job.state is JobState.RUNNING
    assert gang.tell(gang.prepared(0)).empty


def test_a_cancel_while_members_prepare_stops_them_and_ends_when_they_have_given_back() -> None:
    gang = Gang.placed(nodes=2)
    gang.tell(gang.prepared(0))
    gang.commands()
    gang.tell(CancelRequested(mode=CancelMode.GRACEFUL), by="user/anna")
    assert gang.states == "STOPPING STOPPING"
    assert [type(c) for c in gang.commands()] == [Stop, Stop]
    gang.tell(gang.prepared(1))
    assert gang.commands() == []
    gang.release_all()
    assert gang.job.state is JobState.CANCELLED

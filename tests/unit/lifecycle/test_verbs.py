"""What people ask of a job: cancel, hold, release, requeue, update; in each state, doubled, weaker and stronger."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.base.errors import Conflict, Invalid
from shoal.model.command import Stop
from shoal.model.event import (
    CancelRequested,
    JobHeld,
    JobUnheld,
    JobUpdated,
    RequeueRequested,
    TimeLimitReached,
)
from shoal.model.job import ENDED, CancelMode, JobState, Retry
from shoal.model.reason import ReasonCode
from shoal.model.values import Duration
from shoal.testing.gangs import Gang, a_spec

GRACEFUL = CancelRequested(mode=CancelMode.GRACEFUL, reason="wrong data")
FORCE = CancelRequested(mode=CancelMode.FORCE)


def ended(state: JobState) -> Gang:
    """A gang that came to this end the usual way."""
    gang = Gang.running(time=Duration(60_000))
    match state:
        case JobState.CANCELLED:
            gang.tell(GRACEFUL, by="user/anna")
        case JobState.TIMEOUT:
            gang.tell(TimeLimitReached(attempt=1))
    codes: dict[JobState, dict[str, Any]] = {
        JobState.SUCCEEDED: {},
        JobState.FAILED: {"exit_code": 4},
        JobState.OOM: {"exit_code": 137, "signal": 9, "oom": True},
    }
    gang.tell(gang.exited(0, **codes.get(state, {"exit_code": 143, "signal": 15})))
    gang.tell(gang.released(0))
    assert gang.job.state is state
    return gang


REACHED = [JobState.SUCCEEDED, JobState.FAILED, JobState.OOM, JobState.TIMEOUT, JobState.CANCELLED]


# --- cancel ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("held", [False, True])
def test_a_waiting_job_is_cancelled_in_the_same_set(held: bool) -> None:
    gang = Gang(a_spec())
    if held:
        gang.tell(JobHeld())
    gang.tell(GRACEFUL, by="user/anna")
    job = gang.job
    assert (job.state, job.cancel, job.generation, job.observed_generation) == (JobState.CANCELLED, CancelMode.GRACEFUL, 2, 2)
    assert job.outcome is not None
    assert (job.outcome.exit_code, job.outcome.by) == (143, "user/anna")
    assert job.reason is not None
    assert (job.reason.code, job.reason.message) == (ReasonCode.CANCEL, "cancelled by user/anna: wrong data")


def test_a_running_job_is_cancelling_until_every_member_has_given_back() -> None:
    gang = Gang.running(nodes=2)
    gang.commands()
    gang.tell(GRACEFUL, by="user/anna")
    stops = gang.commands()
    assert [(type(c), c.mode, c.signal, c.grace_ms) for c in stops if isinstance(c, Stop)] == [
        (Stop, CancelMode.GRACEFUL, "TERM", 30_000)
    ] * 2
    gang.tell(gang.exited(0, exit_code=143, signal=15))
    gang.tell(gang.released(0))
    assert (gang.job.state, gang.states) == (JobState.CANCELLING, "RELEASED STOPPING")
    gang.tell(gang.released(1))
    assert gang.job.state is JobState.CANCELLED
    assert gang.job.outcome is not None
    assert (gang.job.outcome.exit_code, gang.job.outcome.by) == (143, "user/anna")


def test_case_16_force_is_taken_at_any_time_and_sends_a_stronger_stop() -> None:
    """Platform case 16."""
    gang = Gang.running()
    gang.tell(CancelRequested(mode=CancelMode.GRACEFUL, grace_ms=3_600_000))
    graceful = gang.commands()[-1]
    assert isinstance(graceful, Stop)
    assert graceful.grace_ms == 3_600_000
    gang.tell(FORCE)
    forced = gang.commands()
    assert [(c.mode, c.grace_ms) for c in forced if isinstance(c, Stop)] == [(CancelMode.FORCE, 0)]
    assert gang.job.cancel is CancelMode.FORCE


def test_a_weaker_or_equal_cancel_changes_nothing() -> None:
    gang = Gang.running()
    gang.tell(FORCE)
    assert gang.tell(FORCE).empty
    assert gang.tell(GRACEFUL).empty
    assert gang.job.cancel is CancelMode.FORCE


@pytest.mark.parametrize("state", REACHED)
@pytest.mark.parametrize("wish", [GRACEFUL, FORCE])
def test_case_22_cancel_on_an_end_is_no_change(state: JobState, wish: CancelRequested) -> None:
    """Platform case 22."""
    gang = ended(state)
    if state is JobState.CANCELLED and wish is FORCE:
        gang.tell(wish)
    assert gang.tell(wish).empty
    assert gang.job.state is state


def test_a_cancel_that_commits_first_wins_and_the_exit_code_is_kept() -> None:
    gang = Gang.running()
    gang.tell(GRACEFUL)
    gang.tell(gang.exited(0, exit_code=0))
    gang.tell(gang.released(0))
    assert gang.job.state is JobState.CANCELLED
    assert gang.job.outcome is not None
    assert gang.job.outcome.exit_code == 0


@pytest.mark.parametrize(("exit_code", "want"), [(0, JobState.SUCCEEDED), (5, JobState.FAILED)])
def test_a_natural_end_that_commits_first_wins_over_a_cancel(exit_code: int, want: JobState) -> None:
    gang = Gang.running()
    gang.tell(gang.exited(0, exit_code=exit_code))
    gang.tell(GRACEFUL)
    gang.tell(gang.released(0))
    assert (gang.job.state, gang.job.cancel) == (want, CancelMode.GRACEFUL)
    assert gang.job.outcome is not None
    assert gang.job.outcome.exit_code == exit_code


def test_force_hastens_the_stop_of_a_gang_whose_end_is_decided() -> None:
    gang = Gang.running(nodes=2)
    gang.tell(gang.exited(0, exit_code=5))
    gang.commands()
    gang.tell(FORCE)
    assert [(c.mode, c.allocation[-1]) for c in gang.commands() if isinstance(c, Stop)] == [
        (CancelMode.FORCE, "0"),
        (CancelMode.FORCE, "1"),
    ]
    assert gang.job.state is JobState.COMPLETING


def test_a_cancel_ends_a_job_that_would_have_been_tried_again() -> None:
    gang = Gang.running(retry=Retry(limit=5))
    gang.tell(gang.exited(0, exit_code=5))
    gang.tell(GRACEFUL)
    assert gang.job.state is JobState.CANCELLING
    gang.tell(gang.released(0))
    assert gang.job.state is JobState.CANCELLED
    assert gang.job.outcome is not None
    assert gang.job.outcome.exit_code == 5


def test_a_cancel_counts_though_an_earlier_failure_turns_up_that_would_be_retried() -> None:
    gang = Gang.running(nodes=2, retry=Retry(limit=5, exit_codes=(75,)))
    gang.tell(gang.exited(0, exit_code=1))
    gang.tell(GRACEFUL)
    gang.tell(gang.exited(1, exit_code=75, at_ms=gang.now_ms - 5))
    gang.release_all()
    assert gang.job.state is JobState.CANCELLED


def test_a_cancel_during_a_start_given_up_leaves_nothing_to_be_placed_later() -> None:
    gang = Gang.placed(nodes=2)
    gang.tell(gang.prepare_failed(0))
    gang.tell(GRACEFUL)
    gang.tell(gang.released(1))
    assert gang.job.state is JobState.CANCELLED


# --- hold, release --------------------------------------------------------------------------------------------------------
def test_hold_and_release_are_each_others_undo_and_repeat_without_effect() -> None:
    gang = Gang(a_spec())
    gang.tell(JobHeld(reason="wait for data"), by="user/anna")
    assert gang.job.state is JobState.HELD
    assert gang.job.reason is not None
    assert gang.job.reason.message == "held by user/anna: wait for data"
    assert gang.tell(JobHeld()).empty
    gang.tell(JobUnheld())
    assert (gang.job.state, gang.job.reason) == (JobState.QUEUED, None)
    assert gang.tell(JobUnheld()).empty


def test_a_running_job_cannot_be_held_and_the_refusal_says_what_can() -> None:
    with pytest.raises(Conflict, match="job 12 is RUNNING; hold needs QUEUED, HELD"):
        Gang.running().tell(JobHeld())


def test_an_ended_job_cannot_be_released() -> None:
    with pytest.raises(Conflict, match="job 12 is SUCCEEDED"):
        ended(JobState.SUCCEEDED).tell(JobUnheld())


# --- requeue --------------------------------------------------------------------------------------------------------------
def test_a_running_job_is_requeued_once_its_members_have_given_back() -> None:
    gang = Gang.running(nodes=2)
    gang.tell(RequeueRequested(reason="new driver"), by="user/ops")
    assert (gang.job.state, gang.states) == (JobState.COMPLETING, "STOPPING STOPPING")
    assert gang.tell(RequeueRequested()).empty
    gang.tell(gang.exited(0, exit_code=143, signal=15))
    gang.release_all()
    job = gang.job
    assert (job.state, job.attempt, job.requeue, job.retries, job.outcome) == (JobState.QUEUED, 1, False, 0, None)
    assert job.reason is not None
    assert job.reason.message == "requeued by user/ops: new driver"
    gang.place()
    assert gang.job.attempt == 2


@pytest.mark.parametrize("state", REACHED)
def test_an_ended_job_is_requeued_with_its_id_and_a_clean_status(state: JobState) -> None:
    gang = ended(state)
    gang.tell(RequeueRequested())
    job = gang.job
    assert (job.state, job.outcome, job.ended_ms, job.cancel) == (JobState.QUEUED, None, None, CancelMode.NONE)
    gang.place()
    gang.run()
    assert (gang.job.state, gang.job.attempt) == (JobState.RUNNING, 2)


@pytest.mark.parametrize("prepare", [lambda: Gang(a_spec()), lambda: Gang.running(interactive=True)])
def test_what_waits_or_has_a_terminal_cannot_be_requeued(prepare: Any) -> None:
    with pytest.raises(Conflict, match="job 12 is"):
        prepare().tell(RequeueRequested())


def test_a_job_that_is_being_cancelled_cannot_be_requeued() -> None:
    gang = Gang.running()
    gang.tell(GRACEFUL)
    with pytest.raises(Conflict):
        gang.tell(RequeueRequested())


# --- update ---------------------------------------------------------------------------------------------------------------
def test_case_43_an_update_of_priority_is_kept_and_told_with_old_and_new_value() -> None:
    """Platform case 43."""
    gang = Gang(a_spec())
    gang.tell(JobUpdated(changed={"priority": (None, 50), "time": (None, "2h"), "queue": (None, "night")}))
    assert (gang.job.priority, gang.job.time_limit_ms, gang.job.queue) == (50, 7_200_000, "night")
    told = gang.log[-1]
    assert isinstance(told, JobUpdated)
    assert told.changed == {"priority": (0, 50), "time": (None, "2h"), "queue": ("default", "night")}


def test_an_update_to_what_is_already_so_is_no_change() -> None:
    gang = Gang(a_spec(time=Duration(7_200_000), priority=3))
    assert gang.tell(JobUpdated(changed={"priority": (0, 3), "time": (None, "120m"), "queue": ("", "default")})).empty


def test_a_running_job_changes_its_time_and_priority_but_not_its_queue() -> None:
    gang = Gang.running()
    gang.tell(JobUpdated(changed={"time": (None, "5m"), "priority": (0, -4)}))
    assert (gang.job.time_limit_ms, gang.job.priority) == (300_000, -4)
    with pytest.raises(Conflict, match="only a waiting job can change its queue"):
        gang.tell(JobUpdated(changed={"queue": (None, "night")}))


@pytest.mark.parametrize(
    ("field", "value"),
    [("priority", 1_000_001), ("priority", True), ("time", "0s"), ("time", "soon"), ("time", "99999d"), ("color", "red")],
)
def test_an_update_out_of_bounds_is_invalid_and_names_the_field(field: str, value: Any) -> None:
    with pytest.raises(Invalid) as refused:
        Gang(a_spec()).tell(JobUpdated(changed={field: (None, value)}))
    assert refused.value.faults[0].pointer == f"/{field}"


@pytest.mark.parametrize("state", REACHED)
def test_an_ended_job_cannot_be_updated(state: JobState) -> None:
    with pytest.raises(Conflict):
        ended(state).tell(JobUpdated(changed={"priority": (0, 1)}))


def test_the_ends_tried_here_are_all_that_a_job_can_reach_without_a_terminal() -> None:
    assert ENDED - set(REACHED) == {JobState.NODE_LOST, JobState.PREEMPTED, JobState.DEADLINE}

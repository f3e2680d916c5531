"""How a gang that runs grows and shrinks in place, and who may ask for it: one sentence of the rules each."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.base.errors import Conflict, Invalid
from shoal.lifecycle.job import next_due_ms, time_events
from shoal.lifecycle.orders import with_members
from shoal.model.command import Commit, Prepare, Regroup, Stop
from shoal.model.event import AllocationFenced, AllocationLost, JobEvicted, JobResized, ResizeRequested
from shoal.model.job import Elastic, JobState
from shoal.model.reason import ReasonCode
from shoal.model.values import CountRange
from shoal.testing.gangs import TERMS, Gang, a_reason

IN_PLACE = Elastic(how="in_place", signal="USR1")


def running(**fields: Any) -> Gang:
    """A gang of 2..4 nodes that runs on n0 and n1."""
    gang = Gang.running(**{"nodes": CountRange(2, 4), "elastic": IN_PLACE, **fields})
    gang.commands()
    return gang


def grown() -> Gang:
    gang = running()
    gang.resize("n0", "n1", "n2")
    gang.tell(gang.prepared(2))
    gang.tell(gang.started(2))
    gang.commands()
    return gang


# --- growing ----------------------------------------------------------------------------------------------------------------
def test_a_new_member_prepares_in_the_same_attempt_with_the_next_rank() -> None:
    gang = running()
    gang.resize("n0", "n1", "n2")
    (prepare,) = gang.commands()
    assert isinstance(prepare, Prepare)
    assert (prepare.attempt, prepare.claim.node_rank, prepare.claim.tasks[0].rank, prepare.world_size) == (1, 2, 2, 3)
    assert not prepare.commit_at_once
    assert (gang.job.state, gang.states) == (JobState.RUNNING, "STARTED STARTED CLAIMED")


def test_once_new_members_are_prepared_they_start_and_the_others_hear_of_it() -> None:
    gang = running()
    gang.resize("n0", "n1", "n2", "n3")
    gang.commands()
    gang.tell(gang.prepared(3))
    assert gang.commands() == []
    gang.tell(gang.prepared(2))
    commands = gang.commands()
    assert [(type(c), c.allocation[-1]) for c in commands] == [(Commit, "2"), (Commit, "3"), (Regroup, "0"), (Regroup, "1")]
    assert isinstance(commands[2], Regroup)
    assert commands[2].signal == "USR1"
    handed_out = with_members(commands[2], gang.picture)
    assert [member.node for member in handed_out.members] == ["n0", "n1", "n2", "n3"]


def test_one_that_cannot_prepare_is_left_out_and_its_node_not_tried_again() -> None:
    gang = running()
    gang.resize("n0", "n1", "n2", "n3")
    gang.tell(gang.prepared(3))
    gang.commands()
    gang.tell(gang.prepare_failed(2))
    assert [(type(c), c.allocation[-1]) for c in gang.commands()] == [(Commit, "3"), (Regroup, "0"), (Regroup, "1")]
    assert (gang.job.state, gang.job.avoid, gang.job.start_failures) == (JobState.RUNNING, ("n2",), 0)


def test_one_that_would_fail_anywhere_ends_the_growing() -> None:
    gang = running()
    gang.resize("n0", "n1", "n2")
    gang.tell(gang.prepare_failed(2, fatal=True))
    assert (gang.job.state, gang.job.size) == (JobState.RUNNING, 2)


def test_one_that_is_late_is_left_out_and_the_gang_waits_no_longer() -> None:
    gang = running()
    gang.resize("n0", "n1", "n2", "n3")
    gang.tell(gang.prepared(3))
    gang.commands()
    due_ms = next_due_ms(gang.picture)
    assert due_ms == gang.now_ms + TERMS.start_deadline_ms
    assert time_events(gang.picture, due_ms - 1) == ()
    gang.now_ms = due_ms
    (late,) = time_events(gang.picture, due_ms)
    gang.tell(late)
    assert sorted((type(c).__name__, c.allocation[-1]) for c in gang.commands() if not isinstance(c, Regroup)) == [
        ("Commit", "3"),
        ("Stop", "2"),
    ]
    assert (gang.job.state, next_due_ms(gang.picture), gang.job.avoid) == (JobState.RUNNING, None, ("n2",))


def test_when_the_work_is_done_a_member_that_was_only_joining_is_sent_home() -> None:
    gang = running()
    gang.resize("n0", "n1", "n2")
    gang.commands()
    gang.tell(gang.exited(0))
    gang.tell(gang.exited(1))
    assert gang.job.state is JobState.COMPLETING
    assert [(type(c), c.allocation[-1]) for c in gang.commands()] == [(Stop, "2")]
    gang.release_all()
    assert gang.job.state is JobState.SUCCEEDED


# --- shrinking --------------------------------------------------------------------------------------------------------------
def test_who_leaves_is_stopped_and_the_gang_runs_on_whatever_its_exit_codes() -> None:
    gang = grown()
    gang.resize("n0", "n1")
    assert [(type(c), c.allocation[-1]) for c in gang.commands()] == [(Stop, "2"), (Regroup, "0"), (Regroup, "1")]
    gang.tell(gang.exited(2, exit_code=143, signal=15))
    gang.tell(gang.released(2))
    assert (gang.job.state, gang.job.outcome, gang.states) == (JobState.RUNNING, None, "STARTED STARTED RELEASED")
    gang.tell(gang.exited(0))
    gang.tell(gang.exited(1))
    gang.release_all()
    assert (gang.job.state, gang.job.attempt) == (JobState.SUCCEEDED, 1)


def test_ranks_are_never_given_twice() -> None:
    gang = grown()
    gang.resize("n0", "n1")
    gang.tell(gang.released(2))
    gang.resize("n0", "n1", "n2")
    assert [member.node_rank for member in gang.members] == [0, 1, 2, 3]
    assert [member.node for member in gang.members] == ["n0", "n1", "n2", "n2"]


def test_a_node_that_is_still_being_left_is_not_joined_again() -> None:
    gang = grown()
    gang.resize("n0", "n1")
    assert gang.resize("n0", "n1", "n2").empty


# --- losing -----------------------------------------------------------------------------------------------------------------
def test_a_lost_member_leaves_and_the_others_go_on() -> None:
    gang = grown()
    gang.tell(AllocationLost(allocation=gang.members[2].id, attempt=1))
    assert gang.job.state is JobState.RUNNING
    assert [type(c) for c in gang.commands() if c.allocation[-1] in "01"] == [Regroup, Regroup]
    gang.tell(AllocationFenced(allocation=gang.members[2].id, attempt=1, how="silent for 400 s"))
    assert (gang.job.state, gang.states) == (JobState.RUNNING, "STARTED STARTED FENCED")


@pytest.mark.parametrize("rank", [0, 1])
def test_below_its_least_or_without_the_member_where_it_meets_it_starts_again(rank: int) -> None:
    gang = running() if rank else grown()
    gang.tell(AllocationLost(allocation=gang.members[rank].id, attempt=1))
    assert (gang.job.state, gang.job.ending) == (JobState.COMPLETING, JobState.QUEUED)


def test_a_task_that_fails_fails_the_gang_all_the_same() -> None:
    gang = grown()
    gang.tell(gang.exited(2, exit_code=1))
    assert (gang.job.state, gang.job.ending) == (JobState.COMPLETING, JobState.FAILED)


def test_an_eviction_stops_those_who_join_as_well() -> None:
    gang = running()
    gang.resize("n0", "n1", "n2")
    gang.commands()
    gang.tell(JobEvicted(attempt=1, reason=a_reason(ReasonCode.PREEMPTED, "for another")))
    assert [type(c) for c in gang.commands()] == [Stop, Stop, Stop]
    gang.release_all()
    gang.tell(gang.prepared(2))
    assert gang.job.state is JobState.QUEUED


# --- by restart -------------------------------------------------------------------------------------------------------------
def test_by_restart_it_is_stopped_and_queued_again_with_its_age() -> None:
    gang = running(elastic=Elastic())
    queued_ms = gang.job.queued_ms
    gang.resize("n0", "n1", "n2")
    assert (gang.job.state, gang.states) == (JobState.PREEMPTING, "STOPPING STOPPING")
    gang.release_all()
    assert (gang.job.state, gang.job.queued_ms, gang.job.retries) == (JobState.QUEUED, queued_ms, 0)
    assert gang.job.reason is not None
    assert gang.job.reason.code is ReasonCode.RESIZE


# --- asked by people ----------------------------------------------------------------------------------------------------------
def test_a_wish_for_a_size_stays_with_the_job_and_can_be_taken_back() -> None:
    gang = running()
    gang.tell(ResizeRequested(size=4))
    assert gang.job.size == 4
    assert gang.tell(ResizeRequested(size=4)).empty
    gang.tell(ResizeRequested(size=None))
    assert gang.job.size is None
    with pytest.raises(Invalid, match="2 to 4 nodes"):
        gang.tell(ResizeRequested(size=5))


def test_who_has_one_size_or_runs_and_is_not_elastic_cannot_be_resized() -> None:
    with pytest.raises(Conflict, match="one size only"):
        Gang.running(nodes=2).tell(ResizeRequested(size=2))
    with pytest.raises(Conflict, match="not elastic"):
        running(elastic=None).tell(ResizeRequested(size=3))


def test_each_resize_stands_in_the_log_with_both_sizes() -> None:
    gang = grown()
    gang.resize("n0", "n1")
    sizes = [(event.before, event.after) for event in gang.log if isinstance(event, JobResized)]
    assert sizes == [(2, 3), (3, 2)]

"""
What checkpoints do to a job: they are kept on its record, and a job that gives its room away is left time for one.

    asked     `checkpoint.signal`: the signal goes to its tasks, and it has `checkpoint.takes` (else its stop's grace) to save
    waited    no signal, but `checkpoint.every`: the next one is waited for where it comes within the stop's grace
    neither   it is stopped at once, with its grace

As soon as it says that it has saved, or a part of it ends, or the time is over, the stop follows with its own grace. What it says counts
for the whole job: a gang says it once, when all of it has saved. Handlers are called by `job.advance_job`, as those of `gang`.
"""

from __future__ import annotations

from msgspec.structs import replace

from shoal.base import limits
from shoal.lifecycle.turn import Turn, exited_zero, has_started
from shoal.model.attempt import Allocation, AllocationState
from shoal.model.command import Save
from shoal.model.event import Checkpointed, SaveOver
from shoal.model.job import CancelMode, Job, JobState

SAID_AGAIN_MS = 60_000
"""The job's log tells of a checkpoint if the one before it is so old; its record has each."""


def time_limit_at(job: Job) -> int | None:
    """When a job that runs is over its time limit."""
    return job.started_ms + job.time_limit_ms if job.started_ms is not None and job.time_limit_ms is not None else None


def give_way(turn: Turn, why: str) -> None:
    """The job was just told to give its room away: it is stopped, now or when it has saved."""
    by_ms = _save_by_ms(turn.job, turn.now_ms)
    rule = turn.job.spec.checkpoint
    if by_ms <= turn.now_ms or rule is None or not _is_whole(turn):
        _stop(turn, why)
        return
    turn.set_attempt(save_by_ms=by_ms)
    if turn.job.reason is not None:
        turn.set_job(reason=replace(turn.job.reason, until_ms=by_ms))
    for member in turn.staying:
        if has_started(member):
            ids = {"allocation": member.id, "job": member.job, "attempt": member.attempt}
            turn.command(member, Save(**ids, signal=rule.signal))  # type: ignore[arg-type]


def _save_by_ms(job: Job, now_ms: int) -> int:
    """Until when it is left to save; no later than now for a job that has not started, or that would not save in its time."""
    rule, over_ms = job.spec.checkpoint, time_limit_at(job)
    if rule is None or job.started_ms is None:
        return now_ms
    most_ms = min(job.spec.stop.grace.ms, limits.CHECKPOINT_WAIT_MS_MAX)
    takes_ms = rule.takes.ms if rule.takes is not None else None
    by_ms = now_ms
    if rule.signal is not None:
        by_ms = now_ms + (most_ms if takes_ms is None else min(takes_ms, limits.CHECKPOINT_WAIT_MS_MAX))
    elif rule.every is not None and rule.every.ms > 0:
        next_ms = max(job.started_ms, job.checkpointed_ms or 0) + rule.every.ms + (takes_ms or 0)
        by_ms = next_ms if next_ms <= now_ms + most_ms else now_ms
    return by_ms if over_ms is None else min(by_ms, over_ms)


def is_saving(turn: Turn) -> bool:
    """True while it gives its room away and is left time to save."""
    return turn.job.state is JobState.PREEMPTING and turn.attempt is not None and turn.attempt.save_by_ms is not None


def was_asked(turn: Turn) -> bool:
    """True while it is left time to save and its tasks were signalled: what ends now may have saved and left."""
    rule = turn.job.spec.checkpoint
    return is_saving(turn) and rule is not None and rule.signal is not None


def checkpointed(turn: Turn, event: Checkpointed, member: Allocation) -> None:
    """Keeps when its work was saved; a job that is only left running for this is stopped now."""
    at_ms = min(max(event.at_ms, member.started_ms or member.claimed_ms), turn.now_ms)  # a node's clock may be off
    before_ms, answered = turn.job.checkpointed_ms, is_saving(turn) and event.answers
    if event.at_ms > member.saved_ms and (before_ms is None or at_ms > before_ms):
        turn.set_member(member, saved_ms=event.at_ms)
        turn.set_job(checkpointed_ms=at_ms)
        if before_ms is None or at_ms - before_ms >= SAID_AGAIN_MS or answered:
            turn.say(event)
    if answered:
        stop_now(turn, "it has saved its work")


def save_over(turn: Turn, event: SaveOver) -> None:
    """It has had its time."""
    if is_saving(turn):
        turn.say(event)
        stop_now(turn, "its time to save is over")


def settle(turn: Turn) -> None:
    """After anything that was said of a member: a gang that is not whole any more does not save, so nobody waits for it."""
    if is_saving(turn) and not _is_whole(turn):
        stop_now(turn, "a part of it has ended")


def _is_whole(turn: Turn) -> bool:
    """Every member runs, or its tasks are done."""
    return all(_runs(member) or exited_zero(member) for member in turn.staying)


def _runs(member: Allocation) -> bool:
    return member.state is AllocationState.STARTED and not any(member.exits.values())


def stop_now(turn: Turn, why: str) -> None:
    """The stop that was put off until it has saved."""
    turn.set_attempt(save_by_ms=None)
    reason = turn.job.reason
    if reason is not None:
        turn.set_job(reason=replace(reason, until_ms=None))
    _stop(turn, f"{reason.message}; {why}" if reason is not None else why)


def _stop(turn: Turn, why: str) -> None:
    """Room that is owed is not withheld by asking for a long grace."""
    turn.stop_members(CancelMode.GRACEFUL, why, min(turn.job.spec.stop.grace.ms, limits.CHECKPOINT_WAIT_MS_MAX))

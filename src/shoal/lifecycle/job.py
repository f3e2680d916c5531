"""
A job's life: `new_job` makes one, `advance_job` says what an event makes of it. START HERE after `states`.

`control` reads a picture, calls `advance_job`, gives the ChangeSet to the store; on VersionConflict it reads and judges again. Several
events of one upload go through `advance_all` into one ChangeSet. Events come doubled, late and out of order across nodes; what is no
news gives an empty ChangeSet. Reports of agents are in `gang`, ends and new tries in `ending`, people's verbs here.

Judgements on one job must be made one after another (`control.lanes`): a member's report writes that member alone, so two of them,
judged on pictures without each other, would both be written and neither would see that the gang is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from shoal.base import limits
from shoal.base.errors import Conflict, Fault, Invalid, InvariantViolated
from shoal.formats.moment import resolve_moment
from shoal.lifecycle import gang, resize, saving
from shoal.lifecycle.ending import clear_attempt, ending_when_evicted, finish_job, may_start_again, will_start_again
from shoal.lifecycle.states import JOB, OfJob
from shoal.lifecycle.turn import STRENGTH, Turn, job_row
from shoal.model.attempt import Allocation, AllocationState
from shoal.model.change import ChangeSet
from shoal.model.event import (
    AllocationFenced,
    AllocationLost,
    AllocationPrepared,
    AllocationReleased,
    AllocationStarted,
    AllocationUnkillable,
    CancelRequested,
    Checkpointed,
    Event,
    JobEvicted,
    JobHeld,
    JobRequeued,
    JobSubmitted,
    JobUnheld,
    JobUpdated,
    PrepareFailed,
    PrepareLate,
    RequeueRequested,
    ResizeRequested,
    SaveOver,
    TaskExited,
    TimeLimitReached,
)
from shoal.model.job import ENDED, LIVE, WAITING, CancelMode, Job, JobEnd, JobSpec, JobState
from shoal.model.reason import Reason, ReasonCode
from shoal.model.snapshot import Picture
from shoal.model.values import Duration
from shoal.model.wire import LeaseTerms


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """
    Where a new job comes from. `id` and `number` are fresh; `queue` exists; `default_time_ms` is that queue's, `expected_ms` what runs of
    its kind took.
    """

    id: str
    number: int
    project: str
    owner: str
    queue: str
    now_ms: int
    default_time_ms: int | None = None
    expected_ms: int | None = None


# --- birth ----------------------------------------------------------------------------------------------------------------
def new_job(spec: JobSpec, origin: Origin) -> ChangeSet:
    """The ChangeSet that creates one job, which is its only record in `put`. `spec` has passed `check_spec` and is no array."""
    job = job_of(spec, origin)
    submitted = JobSubmitted(number=job.number, name=spec.name)
    return ChangeSet(put=(job,), events=(job_row(job, submitted, origin.now_ms, origin.owner),))


def job_of(spec: JobSpec, origin: Origin) -> Job:
    """A job as it is born: QUEUED, at first not before its begin time."""
    return Job(
        id=origin.id,
        number=origin.number,
        project=origin.project,
        owner=origin.owner,
        spec=spec,
        queue=origin.queue,
        state=JobState.QUEUED,
        priority=spec.priority,
        not_before_ms=resolve_moment(spec.begin, origin.now_ms) if spec.begin else 0,
        time_limit_ms=spec.time.ms if spec.time else origin.default_time_ms,
        expected_ms=origin.expected_ms,
        created_ms=origin.now_ms,
        queued_ms=origin.now_ms,
    )


# --- life -----------------------------------------------------------------------------------------------------------------
def advance_job(
    picture: Picture,
    event: Event,
    now_ms: int,
    terms: LeaseTerms,  # noqa: ARG001 - every judgement gets the lease's times, so that none starts to keep its own
    by: str = "shoal",
) -> ChangeSet:
    """
    What `event` makes of the job in `picture`: the records that change, log rows, commands to its nodes. Empty when it is no news.

    `by` is who asked (for people's verbs) and stands in the log rows. Reports of another attempt than the current one, or about
    allocations that are not in the picture, are no news.
    Raises: Conflict with a sentence when a person's verb does not fit the state; Invalid when an update's value is out of bounds.
    """
    turn = Turn(picture, now_ms, by)
    _take(turn, event)
    return turn.changes()


def advance_all(
    picture: Picture,
    events: Iterable[Event],
    now_ms: int,
    terms: LeaseTerms,  # noqa: ARG001 - as `advance_job`
    by: str = "shoal",
) -> ChangeSet:
    """
    As `advance_job` for several events of one job in order, as one ChangeSet against `picture`.

    One turn for all of them: the reports of a gang of a thousand nodes that come together cost a thousand events, not a million.
    """
    turn = Turn(picture, now_ms, by)
    for event in events:
        turn.begin_event()
        _take(turn, event)
        turn.settle_event()
    return turn.changes()


def _take(turn: Turn, event: Event) -> None:
    if type(event) in _OF_PEOPLE:
        _OF_PEOPLE[type(event)](turn, event)
    elif _is_current(turn, event):
        if type(event) in _OF_MEMBERS:
            member = turn.members.get(event.allocation)  # type: ignore[union-attr]
            if member is not None:
                _OF_MEMBERS[type(event)](turn, event, member)
                saving.settle(turn)
        else:
            _OF_ATTEMPTS[type(event)](turn, event)


def _is_current(turn: Turn, event: Event) -> bool:
    """Whether an event about an attempt is about the one that lives: the attempt's number is the fencing token."""
    if type(event) not in _OF_MEMBERS and type(event) not in _OF_ATTEMPTS:
        raise InvariantViolated(f"{type(event).__name__} says nothing to a job's lifecycle")
    number = event.attempt  # type: ignore[union-attr]
    return turn.attempt is not None and turn.job.state in LIVE and number == turn.job.attempt == turn.attempt.number


# --- what time brings -----------------------------------------------------------------------------------------------------
def time_events(picture: Picture, now_ms: int) -> tuple[Event, ...]:
    """The events that the clock alone brings about for this job by `now_ms`: a start that is late, a time limit reached."""
    job, attempt = picture.job, picture.attempt
    due_ms = next_due_ms(picture)
    if due_ms is None or now_ms < due_ms or attempt is None:
        return ()
    if job.state is JobState.PREEMPTING:
        return (SaveOver(attempt=job.attempt),)
    over_ms = saving.time_limit_at(job)
    if job.state is JobState.RUNNING and over_ms is not None and over_ms <= now_ms:
        return (TimeLimitReached(attempt=job.attempt),)
    late = tuple(a.node for a in picture.allocations if a.state is AllocationState.CLAIMED)
    return (PrepareLate(attempt=job.attempt, missing=late),) if late else ()


def next_due_ms(picture: Picture) -> int | None:
    """When `time_events` will next have something to say if nothing else happens; None: never."""
    job, attempt = picture.job, picture.attempt
    if job.state is JobState.RUNNING:
        join_by_ms = attempt.join_by_ms if attempt is not None else None
        return min((ms for ms in (saving.time_limit_at(job), join_by_ms) if ms is not None), default=None)
    if job.state is JobState.STARTING and attempt is not None and attempt.committed_ms is None:
        return attempt.prepare_by_ms
    if job.state is JobState.PREEMPTING and attempt is not None:
        return attempt.save_by_ms
    return None


def _time_limit(turn: Turn, event: TimeLimitReached) -> None:
    message = f"it ran for its time limit of {(turn.job.time_limit_ms or 0) // 1000} s"
    if turn.move_job(OfJob.LIMIT, ending=JobState.TIMEOUT, reason=Reason(code=ReasonCode.TIME_LIMIT, message=message)):
        turn.say(event)
        turn.stop_members(CancelMode.GRACEFUL, message)


def _evicted(turn: Turn, event: JobEvicted) -> None:
    if turn.move_job(OfJob.EVICT, ending=ending_when_evicted(turn.job), reason=event.reason):
        turn.say(event)
        saving.give_way(turn, event.reason.message)


# --- people's verbs -------------------------------------------------------------------------------------------------------
def _cancel(turn: Turn, event: CancelRequested) -> None:
    """Cancel is intent: monotone in strength, no change on a job that has ended, at once on one that holds nothing."""
    job = turn.job
    if job.state in ENDED or STRENGTH[event.mode] <= STRENGTH[job.cancel]:
        return
    turn.set_job(cancel=event.mode, cancel_reason=event.reason or job.cancel_reason, cancel_by=turn.by, generation=job.generation + 1)
    turn.say(event)
    if job.is_array:
        return  # its elements are cancelled one by one, and its state follows theirs
    message = f"cancelled by {turn.by}" + (f": {turn.job.cancel_reason}" if turn.job.cancel_reason else "")
    reason = Reason(code=ReasonCode.CANCEL, message=message)
    if job.state in WAITING:
        turn.must_move_job(OfJob.CANCEL, reason=reason, outcome=JobEnd(exit_code=143, by=turn.by, message=message, at_ms=turn.now_ms))
        finish_job(turn)
        return
    if job.state is not JobState.COMPLETING or will_start_again(job):
        told = job.outcome if job.outcome is not None and job.outcome.task is not None else None
        turn.must_move_job(OfJob.CANCEL, ending=JobState.CANCELLED, reason=reason, outcome=told, requeue=False)
    turn.stop_members(event.mode, message, event.grace_ms)


def _hold(turn: Turn, event: JobHeld) -> None:
    message = f"held by {turn.by}" + (f": {event.reason}" if event.reason else "")
    if turn.job.is_array:  # Elements without a record are held by this; the others are told one by one, and its state follows theirs.
        if not turn.job.hold and turn.job.state not in ENDED:
            turn.set_job(hold=True, reason=Reason(code=ReasonCode.HELD, message=message, since_ms=turn.now_ms))
        return
    after = JOB.asked(OfJob.HOLD, turn.job.state, turn.job.address)
    if after is not turn.job.state:
        turn.set_job(state=after, reason=Reason(code=ReasonCode.HELD, message=message, since_ms=turn.now_ms))
        turn.say(event)


def _unhold(turn: Turn, event: JobUnheld) -> None:
    if turn.job.is_array:
        if turn.job.hold and turn.job.state not in ENDED:
            turn.set_job(hold=False, reason=None, queued_ms=turn.now_ms)
        return
    after = JOB.asked(OfJob.UNHOLD, turn.job.state, turn.job.address)
    if after is not turn.job.state:
        turn.set_job(state=after, reason=None, queued_ms=turn.now_ms, start_failures=0)  # no age is earned while held
        turn.say(event)


def _requeue(turn: Turn, event: RequeueRequested) -> None:
    """Another attempt of the same job: from the top, with the same id."""
    job = turn.job
    if job.is_array:
        raise Conflict(f"job {job.address} is an array; requeue its elements, for example {job.address}_0")
    if not may_start_again(job):
        raise Conflict(f"job {job.address} is interactive and its user is gone with its first attempt; submit it again")
    after = JOB.asked(OfJob.REQUEUE, job.state, job.address)
    if job.requeue or (job.state is JobState.PREEMPTING and after is job.state):
        return
    message = f"requeued by {turn.by}" + (f": {event.reason}" if event.reason else "")
    reason = Reason(code=ReasonCode.REQUEUE, message=message)
    turn.say(event)
    if job.state in ENDED:
        turn.set_job(state=after, reason=reason, queued_ms=turn.now_ms, not_before_ms=turn.now_ms, retries=0, start_failures=0)
        turn.set_job(cancel=CancelMode.NONE, cancel_reason="", cancel_by="", generation=job.generation + 1)
        clear_attempt(turn)
        turn.say(JobRequeued(attempt=job.attempt, reason=reason))
    elif job.cancel is not CancelMode.NONE:
        raise Conflict(f"job {job.address} is being cancelled; requeue it once it has ended")
    else:
        turn.set_job(state=after, requeue=True, reason=reason, ending=job.ending or JobState.QUEUED)
        turn.stop_members(CancelMode.GRACEFUL, message)


def _update(turn: Turn, event: JobUpdated) -> None:
    """Sets priority, time limit or queue. `event.changed` needs only the new values right; the old ones are filled in from the job."""
    job = turn.job
    if job.state in ENDED:
        raise Conflict(f"job {job.address} is {job.state}; only jobs that have not ended can be updated")
    changed: dict[str, tuple[Any, Any]] = {}
    for name, (_, after) in event.changed.items():
        if name not in _UPDATES:
            raise Invalid(f"{name} of a job cannot be updated", (Fault("cannot be updated", f"/{name}", allowed=tuple(_UPDATES)),))
        before = _UPDATES[name](turn, after)
        if before != after:
            changed[name] = (before, after)
    if changed:
        turn.say(replace(event, changed=changed))


def _update_priority(turn: Turn, after: Any) -> Any:
    bound = limits.PRIORITY_MAX
    if not isinstance(after, int) or isinstance(after, bool) or not -bound <= after <= bound:
        raise Invalid(f"priority must be a whole number from {-bound} to {bound}, got {after!r}", (Fault("out of bounds", "/priority"),))
    before = turn.job.priority
    turn.set_job(priority=after)
    return before


def _update_time(turn: Turn, after: Any) -> Any:
    """`after` in text form (`2h30m`), or None for no limit."""
    before_ms = turn.job.time_limit_ms
    try:
        after_ms = None if after is None else Duration.parse(after).ms
    except ValueError as error:
        raise Invalid(str(error), (Fault(str(error), "/time"),)) from error
    if after_ms is not None and not 0 < after_ms <= limits.TIME_LIMIT_MS_MAX:
        raise Invalid(f"time must be above 0 and at most 366d, got {after}", (Fault("out of bounds", "/time"),))
    turn.set_job(time_limit_ms=after_ms)
    return after if before_ms == after_ms else None if before_ms is None else Duration(before_ms).plain()


def _update_queue(turn: Turn, after: Any) -> Any:
    before = turn.job.queue
    if after != before and turn.job.state not in WAITING and not turn.job.is_array:
        raise Conflict(f"job {turn.job.address} is {turn.job.state}; only a waiting job can change its queue, since quota follows it")
    turn.set_job(queue=after)
    return before


_UPDATES: dict[str, Callable[[Turn, Any], Any]] = {"priority": _update_priority, "time": _update_time, "queue": _update_queue}

_OF_PEOPLE: dict[type, Callable[[Turn, Any], None]] = {
    CancelRequested: _cancel,
    JobHeld: _hold,
    JobUnheld: _unhold,
    RequeueRequested: _requeue,
    JobUpdated: _update,
    ResizeRequested: resize.wanted,
}
_OF_ATTEMPTS: dict[type, Callable[[Turn, Any], None]] = {
    PrepareLate: gang.prepare_late,
    TimeLimitReached: _time_limit,
    JobEvicted: _evicted,
    SaveOver: saving.save_over,
}
_OF_MEMBERS: dict[type, Callable[[Turn, Any, Allocation], None]] = {
    AllocationPrepared: gang.prepared,
    PrepareFailed: gang.prepare_failed,
    AllocationStarted: gang.started,
    TaskExited: gang.task_exited,
    AllocationReleased: gang.released,
    AllocationUnkillable: gang.unkillable,
    Checkpointed: saving.checkpointed,
    AllocationLost: gang.lost,
    AllocationFenced: gang.fenced,
}

"""
How an attempt ends and what comes after it: the outcome, another try or not, the waits between tries.

`conclude` acts once no member holds anything (RELEASED or FENCED): only then may the job be queued again, which is rule "at most one
execution of a gang".
"""

from __future__ import annotations

from msgspec.structs import replace

from shoal.base import limits
from shoal.lifecycle import resize
from shoal.lifecycle.claims import claims_on_failure
from shoal.lifecycle.states import OfJob
from shoal.lifecycle.turn import Turn
from shoal.model.attempt import Allocation
from shoal.model.event import JobEnded, JobHeld, JobRequeued, TaskExited
from shoal.model.job import CancelMode, Job, JobEnd, JobState
from shoal.model.reason import Reason, ReasonCode

START_BACKOFF_MS = 1_000
"""Wait after the first start given up: short, since the bad node is avoided; doubles for each in a row."""
START_BACKOFF_MS_MAX = 300_000
RETRY_BACKOFF_MS_MAX = 3_600_000
SOON_LOST_MS = 60_000
"""A supervisor that was lost so soon after the start may have been killed by the job (by its hand, or for the memory that it took): each
loss takes the node's other work along, so the next try waits."""
_DOUBLINGS_MAX = 40
"""2^40 ms is 35 years: past every cap, and far from overflowing anything."""

EXIT_UNTOLD = {
    JobState.SUCCEEDED: 0,
    JobState.FAILED: 126,  # the shell's code for "could not be run at all"
    JobState.CANCELLED: 143,  # as if the stop signal had ended it
    JobState.PREEMPTED: 143,
    JobState.TIMEOUT: 124,  # as timeout(1)
    JobState.DEADLINE: 124,
    JobState.OOM: 137,
    JobState.NODE_LOST: 1,
}
"""Exit codes of ends of which no task told one. Never 0 except for success."""

_VERDICTS = {
    JobState.SUCCEEDED: OfJob.SUCCEEDED,
    JobState.FAILED: OfJob.FAILED,
    JobState.TIMEOUT: OfJob.TIMEOUT,
    JobState.OOM: OfJob.OOM,
    JobState.NODE_LOST: OfJob.NODE_LOST,
    JobState.CANCELLED: OfJob.CANCELLED,
    JobState.PREEMPTED: OfJob.PREEMPTED,
}
_FAILURES = frozenset({ReasonCode.RETRY, ReasonCode.NODE_LOST, ReasonCode.SUPERVISOR_LOST, ReasonCode.DEVICE_LOST})
"""Why an attempt is over that a gang with `hold_on_failure` keeps its room after."""
_NOT_BY_ITSELF = frozenset({ReasonCode.PREPARE_FAILED, ReasonCode.START_LATE})


def may_start_again(job: Job) -> bool:
    """False for interactive jobs: their user was attached to the attempt that is gone."""
    return not job.spec.interactive


def ending_when_lost(job: Job) -> JobState:
    return JobState.QUEUED if may_start_again(job) else JobState.NODE_LOST


def ending_when_evicted(job: Job) -> JobState:
    return JobState.QUEUED if may_start_again(job) else JobState.PREEMPTED


def retries_left(job: Job) -> bool:
    """Whether this failure gets another try by `spec.retry`: limit, exit codes, and only for tasks that ran and failed."""
    rule, end = job.spec.retry, job.outcome
    if job.ending not in (JobState.FAILED, JobState.OOM) or end is None or end.task is None:
        return False
    return job.retries < rule.limit and (not rule.exit_codes or end.exit_code in rule.exit_codes)


def will_start_again(job: Job) -> bool:
    """Whether the attempt that is ending leads to another one, as things stand (a cancel apart)."""
    return job.ending is JobState.QUEUED or job.requeue or retries_left(job)


def end_of_task(event: TaskExited, node: str, now_ms: int) -> JobEnd:
    """The outcome that one task's exit makes."""
    what = "the setup script" if event.rank < 0 else f"task {event.rank}"
    how = f"was ended by signal {event.signal}" if event.signal else f"ended with exit code {event.exit_code}"
    killer = ", out of memory" if event.oom else ""
    return JobEnd(
        exit_code=event.exit_code,
        signal=event.signal,
        node=node,
        task=event.rank,
        at_ms=event.at_ms or now_ms,
        message=f"{what} on {node} {how}{killer}",
    )


def is_earlier(end: JobEnd, than: JobEnd | None) -> bool:
    """The order that picks a gang's outcome: the first failing task by time, then by rank."""
    if than is None or than.task is None:
        return True
    return (end.at_ms, end.task if end.task is not None else 0) < (than.at_ms, than.task)


def lose_member(turn: Turn, member: Allocation, reason: Reason) -> None:
    """
    The gang cannot go on without `member`: the rest is stopped, and the job tries again without counting it.

    One that is resized in place goes on, as long as it has enough members without this one.
    """
    if resize.can_spare(turn, member):
        resize.go_on_without(turn, member, reason)
        return
    end = JobEnd(exit_code=EXIT_UNTOLD[JobState.NODE_LOST], node=member.node, message=reason.message, at_ms=turn.now_ms)
    if turn.move_job(OfJob.LOSE, ending=ending_when_lost(turn.job), reason=reason, outcome=end):
        turn.stop_members(CancelMode.GRACEFUL, reason.message)


def conclude(turn: Turn) -> None:
    """Ends the attempt if every member has given back what it held; then the job ends or is queued again."""
    if not turn.drained or not turn.members:
        return
    if turn.about_to_run:  # every member gave back, yet nothing told how the tasks ended
        member = next(iter(turn.members.values()))
        lose_member(turn, member, Reason(code=ReasonCode.SUPERVISOR_LOST, message="all members gave back, none said how its tasks ended"))
    verdict = _verdict(turn.job)
    turn.set_job(outcome=_outcome(turn, verdict))
    turn.set_attempt(ended_ms=turn.now_ms, end=turn.job.outcome)
    if verdict is OfJob.AGAIN:
        queue_again(turn)
    else:
        turn.must_move_job(verdict)
        finish_job(turn)


def _verdict(job: Job) -> OfJob:
    if job.state is JobState.CANCELLING:
        return OfJob.CANCELLED
    if will_start_again(job):
        return OfJob.AGAIN if job.cancel is CancelMode.NONE else OfJob.CANCELLED
    assert job.ending is not None
    return _VERDICTS[job.ending]


def _outcome(turn: Turn, verdict: OfJob) -> JobEnd:
    """What the tasks said, completed by what the end itself says."""
    job = turn.job
    end_state = next((state for state, trigger in _VERDICTS.items() if trigger is verdict), JobState.PREEMPTED)
    told_zero = turn.all_exited_zero and verdict is not OfJob.TIMEOUT
    message = job.reason.message if job.reason else ""
    end = job.outcome or JobEnd(exit_code=0 if told_zero else EXIT_UNTOLD[end_state], at_ms=turn.now_ms, message=message)
    return replace(end, by=job.cancel_by) if verdict is OfJob.CANCELLED and job.cancel_by else end


def finish_job(turn: Turn) -> None:
    """Completes the record of a job that has just moved to an end state."""
    job = turn.job
    reason = job.reason or Reason(code=ReasonCode.EXIT, message=job.outcome.message if job.outcome else "")
    turn.set_job(ended_ms=turn.now_ms, ending=None, requeue=False, reason=reason, observed_generation=job.generation)
    exit_code = job.outcome.exit_code if job.outcome else None
    turn.say(JobEnded(state=str(job.state), exit_code=exit_code, reason=reason))


def queue_again(turn: Turn) -> None:
    """Back to QUEUED for another attempt, after the wait that fits why."""
    job = turn.job
    if retries_left(job) and not job.requeue:
        wait_ms = _doubled(job.spec.retry.backoff.ms, job.retries, RETRY_BACKOFF_MS_MAX)
        message = f"retry {job.retries + 1} of {job.spec.retry.limit}: {job.outcome.message if job.outcome else ''}"
        turn.set_job(retries=job.retries + 1)
        reason = Reason(code=ReasonCode.RETRY, message=message)
    else:
        reason = job.reason or Reason(code=ReasonCode.REQUEUE, message="queued again")
        wait_ms = _wait_for_nodes(job, reason, turn.now_ms)
    own_doing = reason.code in (ReasonCode.RETRY, ReasonCode.REQUEUE)
    turn.set_job(queued_ms=turn.now_ms if own_doing else job.queued_ms)  # who lost a node or was preempted keeps its place
    reason = replace(reason, until_ms=turn.now_ms + wait_ms if wait_ms else None)
    if reason.code in _FAILURES:
        turn.keep(claims_on_failure(job, turn.staying, turn.now_ms))
    turn.must_move_job(OfJob.AGAIN, not_before_ms=turn.now_ms + wait_ms, reason=reason)
    clear_attempt(turn)
    turn.say(JobRequeued(attempt=job.attempt, reason=reason))
    if turn.job.start_failures >= limits.START_FAILURES_MAX and reason.code in _NOT_BY_ITSELF:
        _hold_back(turn, reason)


def _hold_back(turn: Turn, last: Reason) -> None:
    """Its start was given up too often: somebody must look before it is tried again."""
    message = f"its start was given up {turn.job.start_failures} times in a row; release it to try again; the last time: {last.message}"
    turn.must_move_job(OfJob.HOLD, not_before_ms=0, reason=Reason(code=ReasonCode.START_FAILED, message=message, since_ms=turn.now_ms))
    turn.say(JobHeld(reason=message))


def _wait_for_nodes(job: Job, reason: Reason, now_ms: int) -> int:
    """None for who was preempted or lost a node; growing where starts fail, or where the job may be what kills supervisors."""
    if reason.code in _NOT_BY_ITSELF and job.start_failures:
        return _doubled(START_BACKOFF_MS, job.start_failures - 1, START_BACKOFF_MS_MAX)
    if reason.code is ReasonCode.SUPERVISOR_LOST and job.started_ms is not None and now_ms - job.started_ms < SOON_LOST_MS:
        return _doubled(START_BACKOFF_MS, job.attempt - 1, START_BACKOFF_MS_MAX)
    return 0


def clear_attempt(turn: Turn) -> None:
    """Forgets what belonged to the attempt that is over; its own record keeps it."""
    turn.set_job(ending=None, outcome=None, requeue=False, started_ms=None, ended_ms=None, observed_generation=turn.job.generation)


def _doubled(first_ms: int, times: int, most_ms: int) -> int:
    return min(first_ms << min(max(times, 0), _DOUBLINGS_MAX), most_ms)

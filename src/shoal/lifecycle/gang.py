"""
What agents' reports and silences do to a gang: prepare on all nodes, then commit; the first failure decides; all give back, then it ends.

One handler per event, each called by `job.advance_job` with the member already found and the attempt already checked. A handler asks
the table (`Turn.move_*`) first and does nothing where the table has no transition: a report that comes twice or late is no news.
"""

from __future__ import annotations

from shoal.lifecycle import resize, saving
from shoal.lifecycle.ending import conclude, end_of_task, is_earlier, lose_member
from shoal.lifecycle.states import OfAllocation, OfJob
from shoal.lifecycle.turn import Turn, avoiding, exited_zero, has_started, is_joining, summed
from shoal.model.attempt import HOLDING, Allocation, AllocationState
from shoal.model.command import Commit
from shoal.model.event import (
    AllocationFenced,
    AllocationLost,
    AllocationPrepared,
    AllocationReleased,
    AllocationStarted,
    AllocationUnkillable,
    JobStarted,
    PrepareFailed,
    PrepareLate,
    TaskExited,
)
from shoal.model.job import CancelMode, JobEnd, JobState
from shoal.model.reason import Reason, ReasonCode

_FAILED = (JobState.FAILED, JobState.OOM)


def prepared(turn: Turn, event: AllocationPrepared, member: Allocation) -> None:
    if turn.move_member(member, OfAllocation.PREPARED, address=event.address, port=event.port):
        _commit_when_ready(turn)
        resize.admit_when_ready(turn)


def _commit_when_ready(turn: Turn) -> None:
    """When all members are prepared for this attempt, tells all to start. A gang of one has started without being told."""
    ready = (AllocationState.PREPARED, AllocationState.STARTED)
    if turn.attempt is None or turn.attempt.committed_ms is not None or turn.job.state is not JobState.STARTING:
        return
    if not all(member.state in ready for member in turn.members.values()):
        return
    turn.set_attempt(committed_ms=turn.now_ms)
    if len(turn.members) == 1:
        return
    master = next(iter(turn.members.values()))
    for member in tuple(turn.members.values()):
        ids = {"allocation": member.id, "job": member.job, "attempt": member.attempt}
        turn.command(member, Commit(**ids, master_address=master.address, master_port=master.port))  # type: ignore[arg-type]


def prepare_failed(turn: Turn, event: PrepareFailed, member: Allocation) -> None:
    """The member holds nothing any more. The start is given up: for good if it would fail anywhere, else elsewhere and later."""
    if not turn.move_member(member, OfAllocation.RELEASED, released_ms=turn.now_ms):
        return
    turn.say(event)
    if member.joined:
        resize.join_failed(turn, member, event)
    elif event.fatal:
        end = JobEnd(exit_code=126, node=member.node, message=event.reason.message, at_ms=turn.now_ms)
        if turn.move_job(OfJob.ABORT, ending=JobState.FAILED, outcome=end, reason=event.reason):
            turn.stop_members(CancelMode.GRACEFUL, event.reason.message)
    else:
        _give_up_start(turn, event.reason, (member.node,))
    if turn.job.state is JobState.RUNNING and not member.joined:  # it had said that it started, and yet holds nothing
        lose_member(turn, member, event.reason)
    conclude(turn)


def prepare_late(turn: Turn, event: PrepareLate) -> None:
    """
    Not all were prepared by the deadline: the start is given up, the late ones are avoided. Counts members itself.

    A gang that runs goes on without those that are late to join it.
    """
    if turn.job.state is JobState.RUNNING:
        resize.join_late(turn, event)
        return
    late = tuple(m.node for m in turn.members.values() if m.state is AllocationState.CLAIMED)
    if not late or turn.attempt is None or turn.attempt.committed_ms is not None or turn.job.state is not JobState.STARTING:
        return
    turn.say(event)
    waited_ms = turn.now_ms - min(m.claimed_ms for m in turn.members.values())
    message = f"{len(late)} of {len(turn.members)} nodes were not prepared within {waited_ms // 1000} s: {', '.join(late[:8])}"
    _give_up_start(turn, Reason(code=ReasonCode.START_LATE, message=message), late)
    conclude(turn)


def _give_up_start(turn: Turn, reason: Reason, bad_nodes: tuple[str, ...]) -> None:
    avoid = avoiding(turn.job, bad_nodes)
    end = JobEnd(exit_code=126, node=bad_nodes[0], message=reason.message, at_ms=turn.now_ms)
    fails = turn.job.start_failures + 1
    if turn.move_job(OfJob.ABORT, ending=JobState.QUEUED, outcome=end, reason=reason, avoid=avoid, start_failures=fails):
        turn.stop_members(CancelMode.GRACEFUL, reason.message)


def started(turn: Turn, event: AllocationStarted, member: Allocation) -> None:
    """A member runs; when all do, the job does, since the moment the last of them began."""
    if member.started_ms is not None or member.state not in HOLDING:
        return
    at_ms = min(max(event.at_ms, member.claimed_ms), turn.now_ms)  # a node's clock may be off; it never lies outside these
    if not turn.move_member(member, OfAllocation.STARTED, started_ms=at_ms):
        turn.set_member(member, started_ms=at_ms)  # it is being stopped already, but it did run
    _commit_when_ready(turn)
    members = turn.members.values()
    if all(has_started(m) for m in members):
        at_ms = max(m.started_ms or 0 for m in members)
        if turn.move_job(OfJob.START, started_ms=at_ms, start_failures=0, reason=None):
            turn.say(JobStarted(attempt=turn.job.attempt))


def task_exited(turn: Turn, event: TaskExited, member: Allocation) -> None:
    """Keeps the exit code; the first failing task stops the gang, and the last success finishes it."""
    ranks = {task.rank for task in member.tasks}
    if event.rank in member.exits or member.state not in HOLDING or (event.rank not in ranks and event.rank != -1):
        return
    if event.rank == -1 and event.exit_code == 0:
        return
    member = turn.set_member(member, exits={**member.exits, event.rank: event.exit_code})
    if member.leaving:
        return
    asked_to_save = saving.was_asked(turn)
    stopped = asked_to_save or (event.stopped if event.stopped is not None else bool(member.stop_sent))
    if event.exit_code != 0:
        turn.say(event)
    if event.exit_code != 0 and not (turn.about_to_run and stopped):
        _failed(turn, event, member)
    elif stopped and turn.job.outcome is None and (turn.about_to_run or turn.job.state is JobState.PREEMPTING):
        # Ended by a stop that the control plane did not send, or for another's sake: not the work's own end, whatever the code.
        turn.set_job(outcome=end_of_task(event, member.node, turn.now_ms))
    if turn.all_exited_zero and turn.job.outcome is None:
        _finished(turn)
    elif asked_to_save:
        saving.stop_now(turn, f"task {event.rank} has ended")


def _failed(turn: Turn, event: TaskExited, member: Allocation) -> None:
    end = end_of_task(event, member.node, turn.now_ms)
    ending = JobState.OOM if event.oom else JobState.FAILED
    reason = Reason(code=ReasonCode.MEMORY_LIMIT if event.oom else ReasonCode.EXIT, message=end.message)
    if turn.move_job(OfJob.FAIL, ending=ending, outcome=end, reason=reason):
        turn.stop_members(CancelMode.GRACEFUL, end.message)
        return
    job = turn.job
    if not is_earlier(end, job.outcome):
        return
    if job.state is JobState.COMPLETING and job.ending in _FAILED:
        if not _answers_a_stop(event, job.spec.stop.signal):
            turn.set_job(ending=ending, outcome=end, reason=reason)
    elif job.outcome is None or job.outcome.task is not None:  # a lost node or a failed prepare has said why already
        turn.set_job(outcome=end)


def _answers_a_stop(event: TaskExited, signal: str) -> bool:
    """Whether this exit came from the stop that an earlier failure brought: then it is no cause, whatever its clock says."""
    if event.stopped is not None:
        return event.stopped
    return event.signal is not None and event.signal in (SIGNALS["KILL"], SIGNALS.get(signal.removeprefix("SIG")))


SIGNALS = {"HUP": 1, "INT": 2, "QUIT": 3, "KILL": 9, "USR1": 10, "USR2": 12, "ALRM": 14, "TERM": 15, "CONT": 18, "URG": 23, "WINCH": 28}
"""Signals that a job may choose to be told with, by their Linux numbers (the same on x86-64 and Arm)."""


def _finished(turn: Turn) -> None:
    count = sum(len(member.tasks) for member in turn.staying if not is_joining(member))
    message = "the task ended with exit code 0" if count == 1 else f"all {count} tasks ended with exit code 0"
    end = JobEnd(exit_code=0, message=message, at_ms=turn.now_ms)
    reason = Reason(code=ReasonCode.EXIT, message=message)
    started_ms = turn.job.started_ms or min((m.started_ms or turn.now_ms for m in turn.members.values()), default=turn.now_ms)
    if turn.move_job(OfJob.FINISH, ending=JobState.SUCCEEDED, outcome=end, reason=reason, started_ms=started_ms):
        resize.dismiss_joiners(turn, message)


def released(turn: Turn, event: AllocationReleased, member: Allocation) -> None:
    """The member holds nothing any more. If its tasks had not ended by themselves, the gang has lost it."""
    at_ms = min(max(event.at_ms or turn.now_ms, member.claimed_ms), turn.now_ms)
    if not turn.move_member(member, OfAllocation.RELEASED, released_ms=at_ms, usage=event.usage):
        return
    turn.set_job(usage=summed(turn.job.usage, event.usage))
    if event.reason is not None:
        turn.say(event)
    stopped_itself = event.reason is not None and turn.job.outcome is not None and turn.job.outcome.node == member.node
    if turn.about_to_run and not member.leaving and (stopped_itself or not exited_zero(member)):
        untold = Reason(code=ReasonCode.SUPERVISOR_LOST, message=f"{member.node} gave back its part without saying how its tasks ended")
        lose_member(turn, member, event.reason or untold)
    conclude(turn)


def unkillable(turn: Turn, event: AllocationUnkillable, member: Allocation) -> None:
    """Remembers the processes that do not die, so that time alone never fences this member. The node is cordoned by `lifecycle.node`."""
    if member.state in HOLDING and member.stuck != event.pids:
        turn.set_member(member, stuck=event.pids)
        turn.say(event)


def lost(turn: Turn, event: AllocationLost, member: Allocation) -> None:
    """Its node is silent past `stop_by`: the gang cannot go on, unless this member's work was done and only its word is missing."""
    if not turn.move_member(member, OfAllocation.LOST):
        return
    turn.say(event)
    _lost_with_node(turn, member, f"node {member.node} was silent until its work had to stop by itself")
    turn.stop_member(turn.members[member.id], CancelMode.GRACEFUL, "the attempt went on without this node")


def fenced(turn: Turn, event: AllocationFenced, member: Allocation) -> None:
    """The member is bound not to run any more: it counts as given back."""
    if not turn.move_member(member, OfAllocation.FENCED, released_ms=turn.now_ms):
        return
    turn.say(event)
    _lost_with_node(turn, member, f"node {member.node}: {event.how}")
    conclude(turn)


def _lost_with_node(turn: Turn, member: Allocation, message: str) -> None:
    if not member.leaving and not exited_zero(member):
        lose_member(turn, member, Reason(code=ReasonCode.NODE_LOST, message=message))

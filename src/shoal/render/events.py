"""Events as lines: when, what about, what happened, by whom."""

from __future__ import annotations

from typing import Any

from shoal.model import event as ev
from shoal.model.event import EventRow
from shoal.model.reason import Reason
from shoal.render.look import Look, clean


def event_line(row: EventRow, look: Look, name: str | None = None) -> str:
    """One line; `name` is what people call the subject (a job's number) where it is known."""
    actor = "" if row.actor in ("", "shoal") else look.paint(f"  by {clean(row.actor)}", "dim")
    subject = f"{row.kind} {clean(name or row.subject)}"
    return f"{look.clock(row.at_ms)}  {look.paint(subject, 'bold')}  {clean(event_text(row.body))}{actor}"


def event_text(body: Any) -> str:
    """What happened, in words. An event of a newer server is told by its type."""
    match body:
        case ev.JobSubmitted(number=number, name=name):
            return f"submitted as {number} ({name})"
        case ev.JobHeld(reason=reason):
            return "held" + _because(reason)
        case ev.JobUnheld():
            return "released from hold"
        case ev.JobUpdated(changed=changed):
            return "changed " + ", ".join(f"{key} from {before} to {after}" for key, (before, after) in sorted(changed.items()))
        case ev.CancelRequested(mode=mode, reason=reason):
            return f"cancel asked for ({mode})" + _because(reason)
        case ev.RequeueRequested(reason=reason):
            return "requeue asked for" + _because(reason)
        case ev.JobPlaced(attempt=attempt, nodes=nodes, gpus=gpus):
            return f"attempt {attempt} placed on {', '.join(nodes)}" + (f" with {gpus} GPUs" if gpus else "")
        case ev.JobEvicted(attempt=attempt, reason=reason):
            return f"attempt {attempt} told to give its room away: {reason.message}"
        case ev.JobStarted(attempt=attempt):
            return f"attempt {attempt} runs"
        case ev.JobRequeued(attempt=attempt, reason=reason):
            return f"queued again after attempt {attempt}: {reason.message}"
        case ev.JobEnded(state=state, exit_code=code, reason=reason):
            return f"ended {state}" + (f", exit {code}" if code is not None else "") + _because(reason)
        case _:
            return _of_allocations(body)


def _of_allocations(body: Any) -> str:
    match body:
        case ev.AllocationPrepared(allocation=allocation):
            return f"{_part(allocation)} prepared"
        case ev.PrepareFailed(allocation=allocation, reason=reason):
            return f"{_part(allocation)} could not be prepared: {reason.message}"
        case ev.AllocationStarted(allocation=allocation):
            return f"{_part(allocation)} started"
        case ev.TaskExited(rank=-1, exit_code=code):
            return f"setup ended with exit {code}"
        case ev.TaskExited(rank=rank, exit_code=code, signal=signal, oom=oom):
            return f"task {rank} ended with " + (f"signal {signal}" if signal else f"exit {code}") + (", out of memory" if oom else "")
        case ev.AllocationReleased(allocation=allocation, reason=reason):
            return f"{_part(allocation)} released" + _because(reason)
        case ev.AllocationUnkillable(allocation=allocation, pids=pids):
            return f"{_part(allocation)} has processes that do not die: {', '.join(map(str, pids))}"
        case ev.AllocationLost(allocation=allocation):
            return f"{_part(allocation)} lost: its node is silent"
        case ev.AllocationFenced(allocation=allocation, how=how):
            return f"{_part(allocation)} fenced by {how}"
        case ev.PrepareLate(attempt=attempt, missing=missing):
            return f"attempt {attempt} not prepared in time; missing: {', '.join(missing)}"
        case ev.TimeLimitReached():
            return "time limit reached"
        case _:
            return _of_others(body)


def _of_others(body: Any) -> str:
    match body:
        case ev.ResizeRequested(size=size):
            return "asked to have " + (f"{size} nodes" if size is not None else "as many nodes as there is room for")
        case ev.JobResized(reason=reason):
            return f"resized {reason.message}" if reason.message.startswith("from ") else f"goes on without a member: {reason.message}"
        case ev.Checkpointed(allocation=allocation):
            return f"saved its work, said on {_part(allocation)}"
        case ev.SaveOver():
            return "did not save in the time that it was left"
        case ev.NodeJoined(gpus=gpus):
            return f"joined with {gpus} GPUs"
        case ev.NodeRegistered(epoch=epoch, rebooted=rebooted):
            return f"agent registered (epoch {epoch})" + (" after a reboot" if rebooted else "")
        case ev.NodeStateChanged(before=before, after=after, reason=reason):
            return f"{before} -> {after}" + _because(reason)
        case ev.NodeRemoved():
            return "removed"
        case ev.QueueSet(created=created):
            return "made" if created else "changed"
        case ev.QueueDeleted():
            return "deleted"
        case ev.AccessChanged(what=what, subject=subject):
            return f"{what} {subject}".strip()
        case _:
            return type(body).__name__


def _part(allocation: str) -> str:
    """`<job id>.<attempt>.<node rank>` as people say it."""
    return f"node rank {allocation.rpartition('.')[2]}"


def _because(reason: Reason | str | None) -> str:
    words = reason.message if isinstance(reason, Reason) else reason
    return f": {words}" if words else ""

"""
How a gang that runs grows and shrinks in place: inside one attempt, whose number goes on to fence off every other.

    grow      `join` adds claims and sends them their Prepare; once none of them is being prepared any more, those that are ready start
              and the others hear of it (Regroup). Who is late or fails is left out, and the gang goes on.
    shrink    `leave` stops members one by one; they belong to the gang no more from the moment they are told, and hold their room until
              it is given back. The others hear of it at once.
    loss      a member whose node is gone leaves in the same way, if enough stay without it.

Node ranks and task ranks are never given twice, so they have gaps after a member has left. The member of the lowest rank is where the
gang meets and is the last to go: without it the attempt is over. What decides who joins and who leaves is `scheduling`; here is what
follows. A gang that is resized by restart knows none of this: it is evicted, and placed again.
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal.base.errors import Conflict, Fault, Invalid
from shoal.lifecycle.turn import Turn, avoiding, has_started, is_joining
from shoal.model.attempt import HOLDING, Allocation, AllocationState
from shoal.model.command import CommandRow, Commit, Regroup
from shoal.model.event import JobResized, PrepareFailed, PrepareLate, ResizeRequested
from shoal.model.job import ENDED, LIVE, CancelMode, JobState
from shoal.model.reason import Reason, ReasonCode


# --- asked by people --------------------------------------------------------------------------------------------------------
def wanted(turn: Turn, event: ResizeRequested) -> None:
    """So many nodes are wanted from now on, or as many as there is room for."""
    job = turn.job
    if job.state in ENDED:
        raise Conflict(f"job {job.address} is {job.state}; only jobs that have not ended can be resized")
    if job.is_array:
        raise Conflict(f"job {job.address} is an array; resize its elements, for example {job.address}_0")
    nodes = job.spec.nodes
    if nodes is None or nodes.low == nodes.high or job.spec.groups:
        raise Conflict(f"job {job.address} does not ask for a range of nodes, for example nodes: 2..4, so it has one size only")
    if job.state in LIVE and job.spec.elastic is None:
        raise Conflict(f"job {job.address} is {job.state} and not elastic; only a waiting job or an elastic one can be resized")
    if event.size is not None and not nodes.low <= event.size <= nodes.high:
        message = f"size is {event.size}; job {job.address} takes {nodes.low} to {nodes.high} nodes"
        raise Invalid(message, (Fault(message, "/size"),))
    if event.size != job.size:
        turn.set_job(size=event.size, generation=job.generation + 1)
        turn.say(event)


# --- growing ----------------------------------------------------------------------------------------------------------------
def join(turn: Turn, claims: Iterable[Allocation], prepares: Iterable[CommandRow], join_by_ms: int) -> None:
    """These come to the gang: they belong to it from now on, and are told to prepare."""
    assert turn.attempt is not None
    joining = tuple(claims)
    for claim in joining:
        turn.add_member(claim)
    members = (*turn.attempt.members, *(claim.id for claim in joining))
    turn.set_attempt(members=members, ranks=joining[-1].node_rank + 1, join_by_ms=join_by_ms)
    for row in prepares:
        turn.send(row)


def admit_when_ready(turn: Turn) -> None:
    """When none of those who join is being prepared any more, they start and the others hear of it."""
    if turn.job.state is not JobState.RUNNING or turn.attempt is None or turn.attempt.join_by_ms is None:
        return
    joining = [member for member in turn.staying if is_joining(member)]
    if any(member.state is AllocationState.CLAIMED for member in joining):
        return
    turn.set_attempt(join_by_ms=None)
    master = turn.staying[0]
    ready = [member for member in joining if member.state is AllocationState.PREPARED]
    for member in ready:
        ids = {"allocation": member.id, "job": member.job, "attempt": member.attempt}
        turn.command(member, Commit(**ids, master_address=master.address, master_port=master.port))  # type: ignore[arg-type]
    if ready:
        _regroup(turn)


def join_failed(turn: Turn, member: Allocation, event: PrepareFailed) -> None:
    """It holds nothing any more; the gang goes on without it and does not try that node again. Where it would fail anywhere, none."""
    staying = [other for other in turn.staying if other.id != member.id]
    _part(turn, (member,))
    turn.set_job(avoid=avoiding(turn.job, (member.node,)))
    if event.fatal and turn.job.state is JobState.RUNNING:
        turn.set_job(size=len([other for other in staying if not is_joining(other)]))
    admit_when_ready(turn)


def join_late(turn: Turn, event: PrepareLate) -> None:
    """Those who were not prepared in time are left out, and their nodes are not tried again."""
    late = [m for m in turn.staying if is_joining(m) and m.state is AllocationState.CLAIMED]
    if turn.attempt is None or turn.attempt.join_by_ms is None or turn.now_ms < turn.attempt.join_by_ms or not late:
        return
    turn.say(event)
    nodes = tuple(member.node for member in late)
    leave(turn, late, Reason(code=ReasonCode.START_LATE, message=f"{', '.join(nodes[:8])} did not get ready in time to join"))
    turn.set_job(avoid=avoiding(turn.job, nodes))
    admit_when_ready(turn)


def dismiss_joiners(turn: Turn, why: str) -> None:
    """The work is done: whoever was only joining is not needed any more."""
    for member in turn.staying:
        if is_joining(member):
            turn.stop_member(member, CancelMode.GRACEFUL, why)


# --- shrinking --------------------------------------------------------------------------------------------------------------
def leave(turn: Turn, members: Iterable[Allocation], reason: Reason) -> None:
    """These are told to stop; the others go on and hear of it."""
    leaving = tuple(members)
    before = len(turn.staying)
    for member in leaving:
        turn.stop_member(member, CancelMode.GRACEFUL, reason.message)
    _part(turn, leaving)
    turn.say(JobResized(attempt=turn.job.attempt, before=before, after=len(turn.staying), reason=reason))
    _regroup(turn)


def _part(turn: Turn, members: tuple[Allocation, ...]) -> None:
    """They belong to the gang no more."""
    assert turn.attempt is not None
    ranks = turn.attempt.ranks or len(turn.members)
    gone = {member.id for member in members}
    turn.set_attempt(members=tuple(name for name in turn.attempt.members if name not in gone), ranks=ranks)
    for name in gone:
        turn.set_member(turn.members[name], leaving=True)


def can_spare(turn: Turn, member: Allocation) -> bool:
    """Whether a gang that runs and is resized in place has enough members without this one, and does not meet there."""
    job = turn.job
    if job.state is not JobState.RUNNING or not job.in_place or job.spec.nodes is None or member.leaving:
        return False
    others = [other for other in turn.staying if other.id != member.id and has_started(other) and other.state in HOLDING]
    return len(others) >= job.spec.nodes.low and others[0].node_rank < member.node_rank


def go_on_without(turn: Turn, member: Allocation, reason: Reason) -> None:
    """A member is lost, and the gang goes on; it grows back elsewhere when there is room."""
    leave(turn, (turn.members[member.id],), reason)
    if reason.code is not ReasonCode.NODE_LOST:
        turn.set_job(avoid=avoiding(turn.job, (member.node,)))
    admit_when_ready(turn)


def _regroup(turn: Turn) -> None:
    """Tells the members that stay and run who belongs to them now."""
    elastic = turn.job.spec.elastic
    signal = elastic.signal if elastic is not None else None
    for member in turn.staying:
        if has_started(member) and member.state is AllocationState.STARTED:
            ids = {"allocation": member.id, "job": member.job, "attempt": member.attempt}
            turn.command(member, Regroup(**ids, signal=signal))  # type: ignore[arg-type]

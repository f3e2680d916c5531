"""
`Turn`: what one event leads to, while it is being worked out. Handlers in `job`, `gang` and `ending` move it; nobody else sees it.

It starts from a picture and ends as a `ChangeSet` with only the records that differ. So an event that says nothing new comes out
empty, whatever a handler tried: acting twice equals acting once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from shoal.base.errors import InvariantViolated
from shoal.lifecycle.states import ALLOCATION, JOB, OfAllocation, OfJob
from shoal.model.attempt import HOLDING, Allocation, AllocationState, Attempt
from shoal.model.change import ChangeSet
from shoal.model.command import Command, CommandRow, Stop
from shoal.model.event import Event, EventRow
from shoal.model.job import CancelMode, Job, JobState, Usage
from shoal.model.queue import Claim
from shoal.model.snapshot import Picture

STRENGTH = {"": 0, CancelMode.NONE: 0, CancelMode.GRACEFUL: 1, CancelMode.FORCE: 2}
"""Wishes and stops in rising order; a weaker one never follows a stronger one."""


AVOIDED_MAX = 64
"""Nodes remembered as bad for one job; the oldest fall out, so that the list cannot grow with a fleet-wide fault."""


class Turn:
    """See module. `members` is by allocation id, in node-rank order."""

    __slots__ = ("_before", "_claims", "_commands", "_events", "_mark", "_touched", "attempt", "by", "job", "members", "now_ms")

    def __init__(self, picture: Picture, now_ms: int, by: str) -> None:
        self._before = picture
        self._events: list[EventRow] = []
        self._commands: list[CommandRow] = []
        self._claims: list[Claim] = []
        self.job: Job = picture.job
        self.attempt: Attempt | None = picture.attempt
        self.members = {a.id: a for a in sorted(picture.allocations, key=lambda a: a.node_rank)}
        self.now_ms = now_ms
        self.by = by
        self._touched: dict[str, Allocation] = {}
        """Members that the current event has set, as they were before it."""
        self._mark = (self.job, self.attempt, 0, 0)

    # --- several events --------------------------------------------------------------------------------------------------
    def begin_event(self) -> None:
        """One of several events begins."""
        self._mark = (self.job, self.attempt, len(self._events), len(self._commands))
        self._touched.clear()

    def settle_event(self) -> None:
        """One of several events is over: if every record is as it was before it, it was no news, and nothing that it said goes out."""
        job, attempt, events, commands = self._mark
        if self.job is not job and self.job != job:
            return
        if self.attempt is not attempt and self.attempt != attempt:
            return
        if any(self.members[name] != before for name, before in self._touched.items()):
            return
        self.job, self.attempt = job, attempt
        self.members.update(self._touched)
        del self._events[events:], self._commands[commands:]

    # --- records ---------------------------------------------------------------------------------------------------------
    def set_job(self, **fields: Any) -> None:
        self.job = replace(self.job, **fields)

    def set_attempt(self, **fields: Any) -> None:
        assert self.attempt is not None
        self.attempt = replace(self.attempt, **fields)

    def set_member(self, member: Allocation, **fields: Any) -> Allocation:
        """The member with these fields; given back, since records are frozen and the caller's copy is old now."""
        self._touched.setdefault(member.id, self.members[member.id])
        self.members[member.id] = replace(member, **fields)
        return self.members[member.id]

    def add_member(self, member: Allocation) -> None:
        """A new member, of the highest node rank so far."""
        self.members[member.id] = member

    def move_job(self, trigger: OfJob, **fields: Any) -> bool:
        """Moves the job and sets `fields` if the table has this transition; False and nothing done if not."""
        after = JOB.reported(trigger, self.job.state)
        if after is None:
            return False
        self.set_job(state=after, **fields)
        return True

    def must_move_job(self, trigger: OfJob, **fields: Any) -> None:
        """As `move_job`, where the caller has made sure that the table has it."""
        state = self.job.state
        if not self.move_job(trigger, **fields):
            raise InvariantViolated(f"job {self.job.address} is {state}: the table has no '{trigger}' there")

    def move_member(self, member: Allocation, trigger: OfAllocation, **fields: Any) -> bool:
        """Moves the member and sets `fields` if the table has this transition; False and nothing done if not."""
        after = ALLOCATION.reported(trigger, member.state)
        if after is None:
            return False
        self.set_member(member, state=after, **fields)
        return True

    # --- what goes out ---------------------------------------------------------------------------------------------------
    def say(self, event: Event) -> None:
        """Puts `event` on the job's log."""
        self._events.append(job_row(self.job, event, self.now_ms, self.by))

    def command(self, member: Allocation, body: Command) -> None:
        self._commands.append(CommandRow(node=member.node, backend=member.backend, body=body))

    def send(self, row: CommandRow) -> None:
        """A command that somebody else has made."""
        self._commands.append(row)

    def keep(self, claims: Iterable[Claim]) -> None:
        """Room stays with the job while it waits for its next attempt."""
        self._claims.extend(claims)

    def stop_members(self, mode: CancelMode, why: str, grace_ms: int | None = None) -> None:
        """Sends the stop to each member that holds anything, still has something to stop, and was not sent as strong a one."""
        for member in tuple(self.members.values()):
            over = all(task.rank in member.exits for task in member.tasks)
            if mode is CancelMode.FORCE or not over:
                self.stop_member(member, mode, why, grace_ms)

    def stop_member(self, member: Allocation, mode: CancelMode, why: str, grace_ms: int | None = None) -> None:
        if member.state not in HOLDING or STRENGTH[member.stop_sent] >= STRENGTH[mode]:
            return
        self.move_member(member, OfAllocation.STOP, stop_sent=str(mode))
        stop = self.job.spec.stop
        grace_ms = 0 if mode is CancelMode.FORCE else stop.grace.ms if grace_ms is None else grace_ms
        ids = {"allocation": member.id, "job": member.job, "attempt": member.attempt}
        self.command(member, Stop(**ids, mode=mode, signal=stop.signal, grace_ms=grace_ms, why=why))  # type: ignore[arg-type]

    # --- questions -------------------------------------------------------------------------------------------------------
    @property
    def drained(self) -> bool:
        """True when no member holds anything any more."""
        return not any(member.state in HOLDING for member in self.members.values())

    @property
    def all_exited_zero(self) -> bool:
        """True when the work is done: by all that belong to the gang and have started; who is only joining has no part in it yet."""
        members = self.members.values()  # not `staying`: that is a tuple of all, and this is asked at every exit
        return all(exited_zero(member) for member in members if not member.leaving and not is_joining(member))

    @property
    def staying(self) -> tuple[Allocation, ...]:
        """The members that have not left or been told to leave."""
        return tuple(member for member in self.members.values() if not member.leaving)

    @property
    def about_to_run(self) -> bool:
        """True while nothing has decided the attempt yet."""
        return self.job.state in (JobState.STARTING, JobState.RUNNING)

    # --- the end ---------------------------------------------------------------------------------------------------------
    def changes(self) -> ChangeSet:
        """Only what differs from the picture; events and commands only if something does."""
        before: dict[str, Any] = {a.id: a for a in self._before.allocations}
        put: list[Any] = [] if self.job is self._before.job or self.job == self._before.job else [self.job]
        if self.attempt is not None and self.attempt != self._before.attempt:
            put.append(self.attempt)
        put.extend(m for m in self.members.values() if m is not before.get(m.id) and m != before.get(m.id))
        if not put:
            return ChangeSet()
        return ChangeSet(put=(*put, *self._claims), events=tuple(self._events), commands=tuple(self._commands))


def avoiding(job: Job, bad_nodes: Iterable[str]) -> tuple[str, ...]:
    """The job's avoid list with these nodes on it."""
    return tuple(dict.fromkeys((*job.avoid, *bad_nodes)))[-AVOIDED_MAX:]


def exited_zero(member: Allocation) -> bool:
    """True when every task of the member ended with exit code 0."""
    return all(member.exits.get(task.rank) == 0 for task in member.tasks)


def is_joining(member: Allocation) -> bool:
    """True for one that came to a running gang and has not started yet."""
    return member.joined and not has_started(member)


def has_started(member: Allocation) -> bool:
    return member.started_ms is not None or member.state is AllocationState.STARTED


def job_row(job: Job, event: Event, now_ms: int, by: str) -> EventRow:
    """The log row of an event of a job."""
    return EventRow(kind="job", subject=job.id, project=job.project, at_ms=now_ms, body=event, actor=by)


def summed(first: Usage, second: Usage) -> Usage:
    """Times add up; peaks of members on different nodes are a peak of one of them."""
    return Usage(
        cpu_ms=first.cpu_ms + second.cpu_ms,
        memory_bytes_max=max(first.memory_bytes_max, second.memory_bytes_max),
        gpu_busy_ms=first.gpu_busy_ms + second.gpu_busy_ms,
        gpu_memory_bytes_max=max(first.gpu_memory_bytes_max, second.gpu_memory_bytes_max),
    )

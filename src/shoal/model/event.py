"""
What happened: the closed union that drives `lifecycle` and that the event log keeps.

Agents' reports are events too: what an agent saw is a fact, and the lifecycle says what follows. `EventRow` adds who, when and where
in the order of commits.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.model.job import CancelMode, Usage
from shoal.model.node import NodeState
from shoal.model.reason import Reason


class _Event(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="type"):
    pass


# --- asked by people ------------------------------------------------------------------------------------------------------
class JobSubmitted(_Event, frozen=True, kw_only=True, tag="job.submitted"):
    number: int
    name: str


class JobHeld(_Event, frozen=True, kw_only=True, tag="job.held"):
    reason: str = ""


class JobUnheld(_Event, frozen=True, kw_only=True, tag="job.released"):
    pass


class JobUpdated(_Event, frozen=True, kw_only=True, tag="job.updated"):
    """Fields changed, each (before, after) in plain form."""

    changed: dict[str, tuple[Any, Any]]


class CancelRequested(_Event, frozen=True, kw_only=True, tag="job.cancel-requested"):
    mode: CancelMode
    reason: str = ""
    grace_ms: int | None = None
    """In place of the job's own `stop.grace`."""


class RequeueRequested(_Event, frozen=True, kw_only=True, tag="job.requeue-requested"):
    reason: str = ""


class ResizeRequested(_Event, frozen=True, kw_only=True, tag="job.resize-requested"):
    """`size` nodes are wanted; None: as many as there is room for."""

    size: int | None


# --- decided by the plan --------------------------------------------------------------------------------------------------
class JobPlaced(_Event, frozen=True, kw_only=True, tag="job.placed"):
    attempt: int
    nodes: tuple[str, ...]
    gpus: int
    predicted: str = ""


class JobEvicted(_Event, frozen=True, kw_only=True, tag="job.evicted"):
    """Told to give its room to another."""

    attempt: int
    reason: Reason


class JobResized(_Event, frozen=True, kw_only=True, tag="job.resized"):
    """A gang that runs has so many members, or will have once those that join have started."""

    attempt: int
    before: int
    after: int
    reason: Reason


# --- seen by agents and other backends ------------------------------------------------------------------------------------
class AllocationPrepared(_Event, frozen=True, kw_only=True, tag="allocation.prepared"):
    """Devices locked, files there; `address`:`port` is where peers meet if this is node rank 0."""

    allocation: str
    attempt: int
    address: str
    port: int


class PrepareFailed(_Event, frozen=True, kw_only=True, tag="allocation.prepare-failed"):
    """Nothing is held any more on that node. `fatal` means: the same anywhere (bad secret, bad archive), so trying elsewhere is idle."""

    allocation: str
    attempt: int
    reason: Reason
    fatal: bool = False
    of_node: bool = False
    """The node's own fault, whatever the job asks for: its disk, a device that is not given back. It speaks against the node."""


class AllocationStarted(_Event, frozen=True, kw_only=True, tag="allocation.started"):
    allocation: str
    attempt: int
    at_ms: int


class TaskExited(_Event, frozen=True, kw_only=True, tag="task.exited"):
    """`exit_code` is 128 + `signal` for a killed task. `rank` -1 is the node's setup script."""

    allocation: str
    attempt: int
    rank: int
    exit_code: int
    signal: int | None = None
    oom: bool = False
    at_ms: int = 0
    stopped: bool | None = None
    """The stop ladder had reached the task before it ended, so its exit answers the stop and not its work; None: not known."""


class Checkpointed(_Event, frozen=True, kw_only=True, tag="job.checkpointed"):
    """The job has said that its work is saved, as of `at_ms` by its node's clock: all of it, whichever of its tasks said so."""

    allocation: str
    attempt: int
    at_ms: int
    answers: bool = False
    """It was saved after the job was asked to (Save)."""


class AllocationReleased(_Event, frozen=True, kw_only=True, tag="allocation.released"):
    """No process of it is left and its devices are seen free. Sent after the last bytes of its logs."""

    allocation: str
    attempt: int
    at_ms: int = 0
    usage: Usage = Usage()
    reason: Reason | None = None
    """Why it ended when not by its tasks' exit or by command: lease run out, supervisor lost, device lost."""


class AllocationUnkillable(_Event, frozen=True, kw_only=True, tag="allocation.unkillable"):
    """Processes that do not die; the devices stay DIRTY and the node is cordoned."""

    allocation: str
    attempt: int
    pids: tuple[int, ...] = ()


# --- followed by time -----------------------------------------------------------------------------------------------------
class PrepareLate(_Event, frozen=True, kw_only=True, tag="attempt.prepare-late"):
    attempt: int
    missing: tuple[str, ...]


class SaveOver(_Event, frozen=True, kw_only=True, tag="attempt.save-over"):
    """A job that gives its room away has been left its time to save."""

    attempt: int


class TimeLimitReached(_Event, frozen=True, kw_only=True, tag="job.time-limit"):
    attempt: int


class AllocationLost(_Event, frozen=True, kw_only=True, tag="allocation.lost"):
    """Its node is silent for so long that its work has stopped itself or will."""

    allocation: str
    attempt: int


class AllocationFenced(_Event, frozen=True, kw_only=True, tag="allocation.fenced"):
    """Bound not to run any more, by the formula of `lifecycle.lease`, by power-off, or by a person's word."""

    allocation: str
    attempt: int
    how: str


# --- what the lifecycle says of a job, for the log ------------------------------------------------------------------------
class JobStarted(_Event, frozen=True, kw_only=True, tag="job.started"):
    attempt: int


class JobRequeued(_Event, frozen=True, kw_only=True, tag="job.requeued"):
    attempt: int
    reason: Reason


class JobEnded(_Event, frozen=True, kw_only=True, tag="job.ended"):
    state: str
    exit_code: int | None = None
    reason: Reason | None = None


# --- nodes, queues, access ------------------------------------------------------------------------------------------------
class NodeJoined(_Event, frozen=True, kw_only=True, tag="node.joined"):
    gpus: int


class NodeRegistered(_Event, frozen=True, kw_only=True, tag="node.registered"):
    epoch: int
    rebooted: bool = False


class NodeStateChanged(_Event, frozen=True, kw_only=True, tag="node.state"):
    before: NodeState
    after: NodeState
    reason: Reason | None = None


class NodeRemoved(_Event, frozen=True, kw_only=True, tag="node.removed"):
    pass


class QueueSet(_Event, frozen=True, kw_only=True, tag="queue.set"):
    created: bool = False


class QueueDeleted(_Event, frozen=True, kw_only=True, tag="queue.deleted"):
    pass


class ReservationSet(_Event, frozen=True, kw_only=True, tag="reservation.set"):
    created: bool = False


class ReservationDeleted(_Event, frozen=True, kw_only=True, tag="reservation.deleted"):
    pass


class ScheduleSet(_Event, frozen=True, kw_only=True, tag="schedule.set"):
    created: bool = False


class ScheduleDeleted(_Event, frozen=True, kw_only=True, tag="schedule.deleted"):
    pass


class ScheduleRan(_Event, frozen=True, kw_only=True, tag="schedule.ran"):
    """A time of a schedule came: a job was submitted, or why not."""

    due_ms: int
    outcome: str
    number: int = 0
    message: str = ""


class AccessChanged(_Event, frozen=True, kw_only=True, tag="access.changed"):
    """A token or secret was made, rotated or revoked; never its value."""

    what: str
    subject: str


Event = (
    JobSubmitted
    | JobHeld
    | JobUnheld
    | JobUpdated
    | CancelRequested
    | RequeueRequested
    | ResizeRequested
    | JobPlaced
    | JobEvicted
    | JobResized
    | AllocationPrepared
    | PrepareFailed
    | AllocationStarted
    | TaskExited
    | AllocationReleased
    | AllocationUnkillable
    | Checkpointed
    | SaveOver
    | PrepareLate
    | TimeLimitReached
    | AllocationLost
    | AllocationFenced
    | JobStarted
    | JobRequeued
    | JobEnded
    | NodeJoined
    | NodeRegistered
    | NodeStateChanged
    | NodeRemoved
    | QueueSet
    | QueueDeleted
    | ReservationSet
    | ReservationDeleted
    | ScheduleSet
    | ScheduleDeleted
    | ScheduleRan
    | AccessChanged
)

Report = AllocationPrepared | PrepareFailed | AllocationStarted | TaskExited | AllocationReleased | AllocationUnkillable | Checkpointed
"""What an agent may say."""


class EventRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event with its place: `version` is the store's, in commit order (0 until written); `subject` is an id of `kind`."""

    kind: str
    """job, node, queue, reservation, schedule, access."""
    subject: str
    project: str
    at_ms: int
    body: Event
    actor: str = "shoal"
    request_id: str = ""
    version: int = 0
    ordinal: int = 0
    """Place among the rows of one version."""

"""
Why something is as it is, with the numbers that decided: a value, so that nobody digs in logs.

The same value is shown by CLI, API and dashboard. `code` is stable and documented in `docs/reference/reasons.md`.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ReasonCode(StrEnum):
    """Why; each code is told in docs/reference/reasons.md with what would help."""

    # waiting
    HELD = "held"
    BEGIN = "begin"
    BACKOFF = "backoff"
    DEPENDENCY = "dependency"
    DEPENDENCY_NEVER = "dependency.never"
    ARRAY_LIMIT = "limit.array"
    QUEUE_JOBS_LIMIT = "limit.queue.running-jobs"
    USER_JOBS_LIMIT = "limit.user.running-jobs"
    USER_GPUS_LIMIT = "limit.user.gpus"
    QUEUE_BUDGET = "limit.queue.priority-budget"
    USER_BUDGET = "limit.user.priority-budget"
    QUEUE_CLOSED = "queue.closed"
    QUOTA = "quota"
    QUOTA_NEVER = "quota.never"
    FLEET_NEVER = "fleet.never"
    RESOURCES = "resources"
    FRAGMENTATION = "fragmentation"
    TOPOLOGY = "topology"
    AVOIDED = "avoided"
    BEHIND = "behind"
    RESERVED = "reserved"
    MAINTENANCE = "maintenance"
    EXPECTED = "expected"
    BOUND = "cycle.bound"
    FREEING = "freeing"
    HOLD_ON_FAILURE = "hold-on-failure"
    UNKNOWN_QUEUE = "queue.unknown"
    # starting, stopping, ending
    PREPARING = "preparing"
    PREPARE_FAILED = "prepare.failed"
    START_LATE = "start.late"
    START_FAILED = "start.failed"
    CANCEL = "cancel"
    REQUEUE = "requeue"
    RETRY = "retry"
    EXIT = "exit"
    TIME_LIMIT = "time.limit"
    MEMORY_LIMIT = "memory.limit"
    PREEMPTED = "preempted"
    RESIZE = "resize"
    MOVED = "moved"
    NODE_LOST = "node.lost"
    SUPERVISOR_LOST = "supervisor.lost"
    DEVICE_LOST = "device.lost"
    # nodes
    BY_HAND = "by-hand"
    NO_REPORT = "no-report"
    UNHEALTHY = "unhealthy"
    UNKILLABLE = "unkillable"


class Holder(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who holds what a job waits for."""

    project: str
    queue: str
    jobs: int
    gpus: int


class Reason(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One reason. Counts are of the resource named by `resource` (for example `gpu/h100`); only fields that apply are set."""

    code: ReasonCode
    message: str
    since_ms: int | None = None
    resource: str | None = None
    asked: int | None = None
    free: int | None = None
    """Free now, over all nodes that fit the ask's constraints."""
    capacity: int | None = None
    nodes_asked: int | None = None
    nodes_fitting: int | None = None
    """Nodes that could take one member now."""
    largest_domain: str | None = None
    largest_free: int | None = None
    quota_short_by: int | None = None
    queue: str | None = None
    until_ms: int | None = None
    holders: tuple[Holder, ...] = ()
    blockers: tuple[str, ...] = ()
    """Jobs or nodes in the way, by address or id."""
    hints: tuple[str, ...] = ()
    """What change would start it, in words."""

"""What-if questions: what is to be supposed, and what a cycle would then do differently. On the wire and between layers."""

from __future__ import annotations

import msgspec

from shoal.model.job import JobSpec
from shoal.model.wire import Explanation


class WhatIfAsk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it is supposed at once."""

    submit: tuple[JobSpec, ...] = ()
    """Jobs that somebody would submit now."""
    cancel: tuple[str, ...] = ()
    """Jobs of the project that would be gone, with what they hold."""
    quotas: dict[str, dict[str, int]] = {}
    """By queue and resource, the nominal quota that it would have; GPUs and CPUs in thousandths, memory in bytes."""
    drain: tuple[str, ...] = ()
    """Nodes that would take no work."""
    back: tuple[str, ...] = ()
    """Nodes that would take work again."""


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What a cycle does with one job."""

    what: str
    """starts | clears (room is being freed for it) | waits | runs | stopped | moved | resized | gone"""
    start_ms: int | None = None
    """When it starts as far as is known: now, or its earliest start."""
    nodes: tuple[str, ...] = ()
    """Where, for one that starts, is moved or has room freed."""
    reason: str = ""


class FateChange(msgspec.Struct, frozen=True, kw_only=True):
    """One job for which the supposed change makes a difference."""

    job: str
    project: str
    queue: str
    new: bool = False
    """It is one of those that would be submitted; its number is not taken yet."""
    now: Fate | None = None
    """None for one that is not there."""
    then: Fate


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. Nothing was changed."""

    as_of_ms: int
    version: int
    changes: tuple[FateChange, ...] = ()
    """Submitted jobs first, then those that fare otherwise; at most limits.WHAT_IF_CHANGES_MAX."""
    more: int = 0
    """Further changes that are not listed."""
    others: int = 0
    """Changes for jobs of projects that the caller does not see."""
    why: tuple[Explanation, ...] = ()
    """Of submitted jobs, why they would wait."""
    bounded: bool = False
    """True: a cycle ended at one of its bounds, so that more would follow in the next."""

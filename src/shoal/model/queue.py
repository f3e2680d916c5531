"""
A queue: a vertex of the quota tree. Its usage is derived from allocations, never stored.

Resources are keyed by text: `gpu/<model>` and `gpu` (any model) in thousandths of a GPU, `cpu` in thousandths of a core, `memory` in bytes.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shoal.model.job import Spec
from shoal.model.part import DevicePart


class Quota(Spec, frozen=True, kw_only=True):
    """For one resource. `nominal` is guaranteed; None limits mean no limit. Amounts in the resource's own unit (see module)."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


class QueueSpec(Spec, frozen=True, kw_only=True):
    """What a person sets. A resource not named in `quotas` is unlimited for this queue if no ancestor names it either."""

    parent: str | None = None
    project: str = "default"
    weight: int = 1000
    """Share among siblings, in thousandths; 0 only takes what nobody else wants."""
    order: Literal["strict", "best-effort"] = "best-effort"
    """
    strict: what does not fit holds back every job behind it that could use its GPU models. A job without GPUs could use the cores of any
    node, so it passes nobody and nobody passes it. best-effort: what does not fit lets others by.
    """
    quotas: dict[str, Quota] = {}
    closed: bool = False
    """Takes jobs but starts none."""
    default_time_ms: int | None = None
    min_run_ms: int | None = None
    """A job of this queue is not stopped for another before it has run so long; unset: as the policy says."""


class Queue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A queue as stored; `id` is its name, unique in the installation."""

    id: str
    spec: QueueSpec
    version: int = 0


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """
    Stored room kept for a job until it starts there or the claim expires: for one that preempted for it, or that holds on after a failure.

    `term` is that of the plane that decided it; 0 where the lifecycle did.
    """

    id: str
    job: str
    node: str
    devices: tuple[str, ...]
    cpu_milli: int
    memory_bytes: int
    term: int
    expires_ms: int
    parts: tuple[DevicePart, ...] = ()
    project: str = ""
    """The job's: soft shares are kept beside those of one project only."""
    version: int = 0

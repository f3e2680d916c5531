"""
The one formula that ties lease, self-stop and replacement. Control plane and agents both compute with these functions only.

    agent sent the last renewal that was answered
    |
    |---- ttl ----|                     control: node UNREACHABLE (cordoned, work kept; back inside stop_after: nothing happened)
    |
    |-------- stop_after (X) --------|  agent: the supervisor starts the stop ladder by itself    <- `stop_by`
    |                                |  control: allocation LOST
    |                                |-- grace --|-- kill bound --|  agent: every process is gone  <- `gone_by`
    |                                                             |-- skew --|
    |                                                                        |  control: FENCED    <- `fenced_at`

Each side counts on its own clock, and from a moment that makes it safe: the agent from when it *sent* the last answered renewal
(earlier than the control plane heard it), on the boot-time clock, which goes on through a suspend; the control plane from when it
*heard* it. So the agent is always first, and `skew` covers clocks that run at different speeds over that span.

What time alone never fences: processes in uninterruptible sleep (the agent says Unkillable when it is back), and a machine that may
be frozen as a whole (a virtual machine under a hypervisor that pauses it). Those wait for power-off, their own return, or a person.
"""

from __future__ import annotations

from shoal.model.job import JobSpec
from shoal.model.wire import LeaseTerms

LOST_NODE_MS = 300_000
"""A silent node with nothing on it is LOST after this: the default of `on_disconnect.stop_after`, so that both read alike."""


def unreachable_at(heard_ms: int, terms: LeaseTerms) -> int:
    """When a node last heard at `heard_ms` counts as UNREACHABLE."""
    return heard_ms + terms.ttl_ms


def stop_by(renewed_ms: int, spec: JobSpec, terms: LeaseTerms) -> int:
    """
    When the work on a node stops by itself, counted from the last renewal: sent (agent) or heard (control plane: LOST).

    Never before the lease itself has run out, so that a short `stop_after` cannot stop work on a node that is still READY.
    """
    return renewed_ms + max(spec.on_disconnect.stop_after.ms, terms.ttl_ms)


def gone_by(renewed_ms: int, spec: JobSpec, terms: LeaseTerms) -> int:
    """When every process of the work is gone: `stop_by`, the job's grace, then the bound on a kill."""
    return stop_by(renewed_ms, spec, terms) + spec.stop.grace.ms + terms.kill_bound_ms


def fenced_at(heard_ms: int, spec: JobSpec, terms: LeaseTerms) -> int:
    """When an allocation on a node last heard at `heard_ms` is bound not to run any more: only then may the next attempt start."""
    return gone_by(heard_ms, spec, terms) + terms.skew_ms


def node_lost_at(heard_ms: int, specs: tuple[JobSpec, ...], terms: LeaseTerms) -> int:
    """When a silent node is LOST: the last of its jobs has stopped by itself; with none, after LOST_NODE_MS."""
    return max((stop_by(heard_ms, spec, terms) for spec in specs), default=heard_ms + max(LOST_NODE_MS, terms.ttl_ms))

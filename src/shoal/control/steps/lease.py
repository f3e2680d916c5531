"""
What silence comes to: a node UNREACHABLE, then LOST; its allocations LOST, then FENCED. Judged by the one formula in `lifecycle.lease`.

The last renewal of each node is in memory (`links`), by the monotonic clock: a wall clock that jumps must not lose a fleet, and a restart
of the control plane counts as a renewal. Looks at all nodes, but seldom: silence is a matter of seconds.
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from shoal.control.lanes import JobSubject, RecordSubject
from shoal.control.steps.base import Progress
from shoal.lifecycle import node as lifecycle
from shoal.lifecycle.job import advance_all
from shoal.model.attempt import Allocation
from shoal.model.change import ChangeSet
from shoal.model.event import Event
from shoal.model.job import JobSpec
from shoal.model.node import Node
from shoal.model.snapshot import Picture

if TYPE_CHECKING:
    from shoal.control.plane import Plane

LOOKS_PER_TTL = 10
"""A lease that has run out is noticed within a tenth of its length."""


class LeaseStep:
    name = "lease"

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._every_ms = max(1, plane.terms.ttl_ms // LOOKS_PER_TTL)
        self._next_ms: int | None = None
        """By the monotonic clock."""

    def step(self, now_ms: int) -> Progress:
        """Every node once per tenth of a lease; otherwise nothing."""
        plane = self._plane
        monotonic_ms = plane.clock.monotonic_ms()
        if self._next_ms is not None and monotonic_ms < self._next_ms:
            return Progress(0, now_ms + self._next_ms - monotonic_ms)
        self._next_ms = monotonic_ms + self._every_ms
        plane.world.catch_up()
        writes: list[Future[Any]] = []
        for node_id in sorted(plane.world.nodes):
            silent_ms = monotonic_ms - plane.links.link(node_id).heard_ms
            if silent_ms >= plane.terms.ttl_ms:
                writes.extend(self._silent(node_id, now_ms - silent_ms, now_ms))
        plane.await_all(writes)
        return Progress(len(writes), now_ms + self._every_ms)

    def _silent(self, node_id: str, heard_ms: int, now_ms: int) -> list[Future[Any]]:
        """What the silence of one node comes to by now, for it and for each allocation there."""
        plane = self._plane
        writes: list[Future[Any]] = []
        specs: list[JobSpec] = []
        events: dict[str, list[Event]] = {}
        for allocation in plane.world.live_on(node_id):
            spec = self._spec_of(allocation)
            if spec is None:
                continue
            specs.append(spec)
            told = lifecycle.silence_of(allocation, spec, heard_ms, now_ms, plane.terms)
            if told:
                events.setdefault(allocation.job, []).extend(told)
        for job_id, mine in events.items():
            writes.append(plane.lanes.ask(JobSubject(plane.world, plane.store, job_id), partial(self._judge_job, tuple(mine), now_ms)))
        node = plane.world.nodes.get(node_id)
        if node is not None and not lifecycle.silence(node, heard_ms, specs, now_ms, plane.terms).empty:
            subject = RecordSubject(Node, node_id, plane.world.nodes.get)
            writes.append(plane.lanes.ask(subject, partial(self._judge_node, heard_ms, tuple(specs), now_ms)))
        return writes

    def _spec_of(self, allocation: Allocation) -> JobSpec | None:
        job = self._plane.world.job(allocation.job)
        return job.spec if job is not None else None

    def _judge_job(self, events: tuple[Event, ...], now_ms: int, picture: Picture | None) -> ChangeSet:
        return ChangeSet() if picture is None else advance_all(picture, events, now_ms, self._plane.terms)

    def _judge_node(self, heard_ms: int, specs: tuple[JobSpec, ...], now_ms: int, node: Node | None) -> ChangeSet:
        return ChangeSet() if node is None else lifecycle.silence(node, heard_ms, specs, now_ms, self._plane.terms)

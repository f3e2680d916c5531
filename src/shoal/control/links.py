"""
What is known of each agent that is not worth writing down: when it was last heard, how far its reports are recorded, what it saw.

Filled by `control.nodes` from uploads, read by the lease step, the views and the reply to the next upload. After a restart of the
control plane nothing is known, which counts as a renewal: nobody is given up for silence that nobody listened to.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from shoal.base import limits
from shoal.model.wire import Sample


@dataclass(slots=True)
class Link:
    """One agent. Times: `heard_ms` by the monotonic clock of this process, `seen_ms` by the calendar, for people."""

    heard_ms: int
    seen_ms: int | None = None
    recorded: int | None = None
    """Reports up to here (exclusive) are durable; None until the first upload after a start."""
    dirty: tuple[str, ...] = ()
    """Devices with processes that nobody should have there."""
    refused: dict[str, None] = field(default_factory=dict)
    """Jobs that the node failed to prepare by its own fault, since it last prepared one."""


class Links:
    """Links by node id; any thread."""

    def __init__(self, started_ms: int) -> None:
        self._started_ms = started_ms
        self._lock = threading.Lock()
        self._links: dict[str, Link] = {}
        self._soiled: dict[str, None] = {}

    def link(self, node_id: str) -> Link:
        """The node's link; a node not heard yet was heard when this process started."""
        with self._lock:
            link = self._links.get(node_id)
            if link is None:
                link = self._links[node_id] = Link(heard_ms=self._started_ms)
            return link

    def hear(self, node_id: str, monotonic_ms: int, now_ms: int) -> Link:
        """The lease of a node is renewed."""
        link = self.link(node_id)
        link.heard_ms = max(link.heard_ms, monotonic_ms)
        link.seen_ms = now_ms
        return link

    def record(self, node_id: str, first_seq: int, count: int) -> int:
        """Takes note that `count` reports from `first_seq` are durable; gives through which all are (exclusive)."""
        link = self.link(node_id)
        with self._lock:
            if link.recorded is None:
                link.recorded = first_seq
            if first_seq <= link.recorded:
                link.recorded = max(link.recorded, first_seq + count)
            return link.recorded

    def soil(self, node_id: str, devices: tuple[str, ...]) -> None:
        """Takes note of which of a node's devices are dirty now."""
        self.link(node_id).dirty = devices
        with self._lock:
            self._soiled[node_id] = None

    def take_soiled(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Nodes whose dirty devices changed since the last call, with those that are dirty now. For the schedule step alone."""
        with self._lock:
            soiled, self._soiled = self._soiled, {}
        return tuple((node_id, self.link(node_id).dirty) for node_id in soiled)

    def all_dirty(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Every node with dirty devices, and those."""
        with self._lock:
            return tuple((node_id, link.dirty) for node_id, link in self._links.items() if link.dirty)

    def refuse(self, node_id: str, job: str) -> int:
        """The node failed to prepare a job by its own fault; gives how many jobs in a row that makes."""
        refused = self.link(node_id).refused
        refused[job] = None
        return len(refused)

    def accept(self, node_id: str) -> None:
        """The node has prepared a job, or has been judged for those that it did not: the count begins anew."""
        self.link(node_id).refused.clear()

    def begin(self, node_id: str) -> None:
        """A new start of the agent: it numbers its reports anew."""
        self.link(node_id).recorded = None

    def forget(self, node_id: str) -> None:
        with self._lock:
            self._links.pop(node_id, None)


@dataclass(slots=True)
class Samples:
    """The last samples of each live allocation, oldest first; any thread. What ended is dropped by the world's changes."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _rings: dict[str, deque[Sample]] = field(default_factory=dict)

    def add(self, sample: Sample) -> None:
        with self._lock:
            ring = self._rings.get(sample.allocation)
            if ring is None:
                ring = self._rings[sample.allocation] = deque(maxlen=limits.SAMPLES_PER_ALLOCATION_MAX)
            if not ring or sample.at_ms > ring[-1].at_ms:
                ring.append(sample)

    def of(self, allocation: str) -> tuple[Sample, ...]:
        with self._lock:
            return tuple(self._rings.get(allocation, ()))

    def last(self, allocation: str) -> Sample | None:
        with self._lock:
            ring = self._rings.get(allocation)
            return ring[-1] if ring else None

    def drop(self, allocation: str) -> None:
        with self._lock:
            self._rings.pop(allocation, None)

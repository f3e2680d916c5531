"""
The control plane as a record of its parts. `run.server` composes one on real things, tests and `sim.swarm` on fakes and virtual time.

Two ways in: use cases (`jobs`, `nodes`, `queues`, ...), called by `api` on its event loop, and `step_all`, called by whoever drives the
plane. Both are short and synchronous; what has to be durable comes back as a future. The plane reads no clock but
the one it was given, and starts no thread but those that wait for syncs of logs.

A driver in life is three lines:

    while not stopping:
        progress = plane.step_all(clock.now_ms())
        plane.wait(progress.wait_ms(clock.now_ms()))
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from shoal.backends.agents import AgentsBackend
from shoal.backends.protocol import Backend
from shoal.base.clock import Clock
from shoal.base.ids import IdSource
from shoal.control.answers import at_once
from shoal.control.lanes import Lanes
from shoal.control.links import Links, Samples
from shoal.control.steps import CronStep, DispatchStep, LeaseStep, Progress, ReconcileStep, ScheduleStep, Step, step_through
from shoal.control.steps.base import await_all
from shoal.control.terminals import Terminals
from shoal.control.waiting_limits import WaitingLimits
from shoal.control.world import World
from shoal.model.attempt import HOLDING, Allocation
from shoal.model.change import Change, ChangeSet
from shoal.model.queue import Queue, QueueSpec
from shoal.model.wire import LeaseTerms
from shoal.scheduling.policy import Policy
from shoal.store.blobs import BlobStore
from shoal.store.logs import LogStore
from shoal.store.protocol import Store
from shoal.store.sealing import Sealer

DEFAULT_QUEUE = "default"
SYNC_THREADS = 2
"""Syncs of logs that run at once; the file system joins them into one where it can."""


@dataclass(kw_only=True)
class Plane:
    """
    See module.

    entropy(count) gives bytes fit for secrets: the operating system's in life. write() does the store's next group where no thread of
    the store's own does (simulation, tests); then nothing here starts a thread either.
    """

    store: Store
    logs: LogStore
    blobs: BlobStore
    sealer: Sealer
    clock: Clock
    ids: IdSource
    entropy: Callable[[int], bytes]
    policy: Policy = field(default_factory=Policy)
    terms: LeaseTerms = field(default_factory=LeaseTerms)
    holder: str = "shoal"
    write: Callable[[], int] | None = None

    def __post_init__(self) -> None:
        self.term = self.store.take_term(self.holder)
        self.world = World(self.store)
        self.lanes = Lanes(self.store, self.world, self.term)
        self.agents = AgentsBackend()
        self.backends: dict[str, Backend] = {self.agents.name: self.agents}
        self.links = Links(self.clock.monotonic_ms())
        self.samples = Samples()
        self.terminals = Terminals()
        self.troubles: dict[str, str] = {}
        """What each step met the last time, by its name, where that was an error: for the server's health."""
        self._syncing = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="shoal-sync") if self.write is None else None
        self._bell = threading.Event()
        self._ensure_default_queue()
        self._stops = [self.world.on_change(self._drop_samples), self.store.on_commit(lambda _version: self.wake())]
        self.dispatch = DispatchStep(self)
        self.waiting = WaitingLimits()
        self.reconcile = ReconcileStep(self)
        self.lease = LeaseStep(self)
        self.cron = CronStep(self)
        self.schedule = ScheduleStep(self)

    def steps(self) -> tuple[Step, ...]:
        """The steps in the order in which one round takes them: what was decided goes out before more is decided."""
        return (self.dispatch, self.lease, self.reconcile, self.cron, self.schedule, self.dispatch)

    def step_all(self, now_ms: int) -> Progress:
        """One round of all steps; safe to repeat, and to stop between any two."""
        return step_through(self.steps(), now_ms, self.troubles)

    def await_all(self, futures: Iterable[Future[Any]]) -> None:
        """Until all these writes have ended; raises the first failure. For the steps."""
        await_all(futures, self.write)

    def aside(self, work: Callable[[], None]) -> Future[None]:
        """Does `work`, which waits for a disk, where it delays nobody."""
        return self._syncing.submit(work) if self._syncing is not None else at_once(work)

    def wake(self) -> None:
        """Ends a `wait`: something may have to be done. Any thread."""
        self._bell.set()

    def wait(self, timeout_ms: int) -> None:
        """Until `wake`, a commit, or the timeout. For the driver's thread alone."""
        if timeout_ms > 0:
            self._bell.wait(timeout_ms / 1_000)
        self._bell.clear()

    def close(self) -> None:
        """Lets go of the store, which the composition root closes. Idempotent."""
        while self._stops:
            self._stops.pop()()
        if self._syncing is not None:
            self._syncing.shutdown()
        self.wake()

    def _ensure_default_queue(self) -> None:
        """A file without a queue works on a fresh installation."""
        if self.world.queues:
            return
        queue = Queue(id=DEFAULT_QUEUE, spec=QueueSpec())
        self.await_all((self.store.apply(ChangeSet(put=(queue,)), self.term),))
        self.world.catch_up()

    def _drop_samples(self, change: Change) -> None:
        for record in change.put:
            if isinstance(record, Allocation) and record.state not in HOLDING:
                self.samples.drop(record.id)
        for record in change.delete:
            if isinstance(record, Allocation):
                self.samples.drop(record.id)

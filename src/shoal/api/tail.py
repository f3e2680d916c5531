"""
The one reader of the store's changes in a server process: it wakes those who wait for a job, a log or an event.

Watchers hold no queue: each has its own place, and the tail keeps the newest events in memory for all of them. One that falls behind
what is kept reads from the store until it has caught up, so a slow reader costs nobody anything and loses nothing. (Turned down: a
bounded queue per watcher with an overflow at its end; it costs memory per watcher and makes the slow one list again.)

Runs on the event loop; only `_committed` is called from the store's writer thread. With nobody watching it reads nothing.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from shoal.base.errors import Unavailable, VersionExpired
from shoal.base.limits import WATCHERS_MAX
from shoal.model.attempt import Allocation
from shoal.model.change import Change
from shoal.model.event import EventRow
from shoal.model.job import Job
from shoal.store.protocol import Store

EVENTS_KEPT = 20_000
"""Newest events in memory: some seconds of the busiest server; readers further behind go to the store."""
COALESCE_S = 0.004
"""Commits within this time wake the watchers once: at 500 commits a second they would otherwise eat the loop."""
CHANGES_PER_TURN = 1_000
EVENTS = "events"
"""The key of everybody who reads the event stream."""


def job_key(job_id: str) -> str:
    """The key of those who wait for a job (or for its allocations)."""
    return f"job/{job_id}"


def log_key(job_id: str, attempt: int, rank: int) -> str:
    """The key of those who follow one task's log."""
    return f"log/{job_id}/{attempt}/{rank}"


class Watch:
    """One watcher's alarm. Made by `Tail.watch` before its owner first looks, so no change falls between look and wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Something changed (or the server closes): look again."""
        self._rung.set()

    def ring_from_thread(self) -> None:
        """As `ring`, from any thread."""
        with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            self._loop.call_soon_threadsafe(self._rung.set)

    async def next(self, timeout_s: float) -> bool:
        """True once something changed since the last call, False after `timeout_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._rung.wait()
        rung = self._rung.is_set()
        self._rung.clear()
        return rung


class Tail:
    """See module."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self.closing = False
        self._store = store
        self._loop = loop
        self._watches: dict[str, list[Watch]] = {}
        self._alarms: dict[Watch, None] = {}
        self._count = 0
        self._place = 0
        """The version up to which changes were read."""
        self._events: deque[EventRow] = deque(maxlen=EVENTS_KEPT)
        self._events_from = 0
        """Every event with a higher version, up to `_place`, is in `_events`."""
        self._armed = False
        self._stop: Callable[[], None] = store.on_commit(self._committed)

    @property
    def watchers(self) -> int:
        """How many watch now; told by /healthz."""
        return self._count

    @contextmanager
    def watch(self, *keys: str) -> Iterator[Watch]:
        """An alarm for any of `keys`. Raises Unavailable over WATCHERS_MAX."""
        if self.closing:
            raise Unavailable("the server is going down; ask again in a moment", retry_after_ms=500)
        if self._count >= WATCHERS_MAX:
            raise Unavailable(f"{self._count} watchers are open, the most this server takes; close some or poll", retry_after_ms=5_000)
        if self._count == 0:
            self._restart()
        self._count += 1
        watch = Watch(self._loop)
        for key in keys:
            self._watches.setdefault(key, []).append(watch)
        try:
            yield watch
        finally:
            self._count -= 1
            for key in keys:
                held = self._watches[key]
                held.remove(watch)
                if not held:
                    del self._watches[key]

    @contextmanager
    def alarm(self) -> Iterator[Watch]:
        """An alarm that others ring (an agent's mailbox), and this only when the server closes. Not counted: each node has one."""
        watch = Watch(self._loop)
        self._alarms[watch] = None
        try:
            yield watch
        finally:
            del self._alarms[watch]

    def touch(self, key: str) -> None:
        """Wakes the watchers of a key whose change is in no record: the bytes of a log."""
        for watch in self._watches.get(key, ()):
            watch.ring()

    def recent(self, version: int, limit: int) -> list[EventRow] | None:
        """Up to `limit` events after `version` in order (the last version's whole), or None when they are not all in memory."""
        if version < self._events_from or self._count == 0:
            return None
        start = bisect.bisect_right(self._events, version, key=lambda row: row.version)
        rows = list(itertools.islice(self._events, start, start + limit))
        for row in itertools.islice(self._events, start + limit, None):
            if row.version != rows[-1].version:
                break
            rows.append(row)
        return rows

    @property
    def place(self) -> int:
        """The version up to which `recent` knows everything."""
        return self._place

    def close(self) -> None:
        """Wakes everybody, so that long answers end before the process does. Idempotent."""
        self.closing = True
        self._stop()
        for watch in itertools.chain(self._alarms, *self._watches.values()):
            watch.ring()

    # --- moving forward ---------------------------------------------------------------------------------------------------
    def _restart(self) -> None:
        self._place = self._events_from = self._store.version()
        self._events.clear()

    def _committed(self, _version: int) -> None:
        if not self._armed and self._count:
            self._armed = True
            with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
                self._loop.call_soon_threadsafe(self._loop.call_later, COALESCE_S, self._advance)

    def _advance(self) -> None:
        self._armed = False
        if self._count == 0:
            return
        try:
            changes = self._store.changes_after(self._place, CHANGES_PER_TURN)
        except VersionExpired:  # The loop stood still for so long: everybody looks again, and reads events from the store.
            self._restart()
            for watch in itertools.chain(*self._watches.values()):
                watch.ring()
            return
        keys: dict[str, None] = {}
        for change in changes:
            self._take(change, keys)
        for key in keys:
            self.touch(key)
        if len(changes) >= CHANGES_PER_TURN:
            self._armed = True
            self._loop.call_soon(self._advance)

    def _take(self, change: Change, keys: dict[str, None]) -> None:
        self._place = change.version
        for row in change.events:
            if len(self._events) == EVENTS_KEPT:
                self._events_from = self._events[0].version
            self._events.append(row)
            keys[EVENTS] = None
        for record in change.put:
            if isinstance(record, Job):
                keys[job_key(record.id)] = None
            elif isinstance(record, Allocation):
                keys[job_key(record.job)] = None

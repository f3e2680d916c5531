"""
The newest changes in memory, in commit order: where the live picture, the board and the watchers read on.

Appended to by the writer after each commit, read by anybody without a lock. The versions in it have no gap; older ones are read from
the `change` table, which holds the same values, so a reader cannot tell where its answer came from.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from shoal.model.change import Change

CHANGES_IN_MEMORY_MAX: Final = 8_192
"""Two seconds of the highest measured rate of creates: a reader that lags more reads from disk."""
RECORDS_IN_MEMORY_MAX: Final = 65_536
"""Bounds the memory where single changes are large (an array of 10,000 is one change)."""
_log = logging.getLogger(__name__)


class _Held(NamedTuple):
    """`changes[i]` has version `base + 1 + i`. Replaced as a whole, so that a reader has a list and a base that belong together."""

    base: int
    changes: list[Change]


class Tail:
    """See module. `version` is that of the last change published."""

    def __init__(self, version: int) -> None:
        self.version = version
        self._held = _Held(version, [])
        self._records = 0
        self._wakers: tuple[Callable[[int], None], ...] = ()
        self._waker_lock = threading.Lock()

    def publish(self, changes: Sequence[Change]) -> None:
        """Makes committed changes visible. By the writer alone, in order."""
        if not changes:
            return
        if changes[0].version != self.version + 1:
            self._held, self._records = _Held(changes[0].version - 1, []), 0
        self._held.changes.extend(changes)
        self._records += sum(len(change.put) for change in changes)
        self.version = changes[-1].version
        if len(self._held.changes) > 2 * CHANGES_IN_MEMORY_MAX or self._records > 2 * RECORDS_IN_MEMORY_MAX:
            self._trim()

    def _trim(self) -> None:
        """Drops the older half at least; rarely, so that its cost spreads over thousands of changes."""
        base, changes = self._held
        first, records = len(changes), 0
        while first > 0 and len(changes) - first < CHANGES_IN_MEMORY_MAX and records < RECORDS_IN_MEMORY_MAX:
            first -= 1
            records += len(changes[first].put)
        self._held, self._records = _Held(base + first, changes[first:]), records

    def after(self, version: int, limit: int) -> tuple[Change, ...] | None:
        """Up to `limit` changes with a higher version; None where memory does not reach back so far."""
        base, changes = self._held
        if version < base:
            return None
        first = version - base
        return tuple(changes[first : first + limit])

    def on_commit(self, wake: Callable[[int], None]) -> Callable[[], None]:
        """Adds a waker; the result takes it away again."""
        with self._waker_lock:
            self._wakers = (*self._wakers, wake)

        def stop() -> None:
            with self._waker_lock:
                self._wakers = tuple(other for other in self._wakers if other is not wake)

        return stop

    def wake(self) -> None:
        """Tells everybody the newest version. A waker that fails is logged: it must not keep the writer from the others."""
        for waker in self._wakers:
            try:
                waker(self.version)
            except Exception:
                _log.exception("a waker failed at version %d", self.version)

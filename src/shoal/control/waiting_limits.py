"""
How many jobs may wait: a create beyond a queue's limit is refused with numbers, before anything is written.

What is on its way to the store counts too: a burst of creates is judged as if each had been written.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from shoal.base.errors import RateLimited

if TYPE_CHECKING:
    from shoal.control.plane import Plane

RETRY_MS = 60_000
"""A queue's jobs take minutes; asking again every second would only be load."""


class WaitingLimits:
    """See module. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._coming: dict[tuple[str, str], int] = {}

    def admit(self, plane: Plane, queue: str, owner: str, count: int) -> None:
        """
        Lets `count` more jobs wait, or raises RateLimited naming the limit. What was let in is given back by `settled`.
        """
        limits = plane.world.queues[queue].spec.limits
        with self._lock:
            bounds = (("queued_jobs", limits.queued_jobs, ""), ("queued_jobs_per_user", limits.queued_jobs_per_user, owner))
            for name, limit, who in bounds:
                if limit is None:
                    continue
                waiting = plane.world.waiting_in(queue, who) + self._coming.get((queue, who), 0)
                if waiting + count > limit:
                    whose = f" of {who}" if who else ""
                    asked = f", and {count} more were asked for" if count > 1 else ""
                    raise RateLimited(
                        f"queue {queue!r} lets {limit} jobs{whose} wait ({name}); {waiting} wait already{asked}. "
                        "Try again when some have started, or use another queue",
                        retry_after_ms=RETRY_MS,
                    )
            self._move(queue, owner, count)

    def look(self, plane: Plane, queue: str, owner: str, count: int) -> None:
        """Raises as `admit` does; lets nobody in."""
        self.admit(plane, queue, owner, count)
        self._give_back(queue, owner, count)

    def settled(self, queue: str, owner: str, count: int, future: Future[Any]) -> None:
        """Gives back what was let in, once the create has been written or refused."""
        future.add_done_callback(lambda _: self._give_back(queue, owner, count))

    def _give_back(self, queue: str, owner: str, count: int) -> None:
        with self._lock:
            self._move(queue, owner, -count)

    def _move(self, queue: str, owner: str, count: int) -> None:
        for who in {"", owner}:
            left = self._coming.get((queue, who), 0) + count
            if left:
                self._coming[queue, who] = left
            else:
                self._coming.pop((queue, who), None)

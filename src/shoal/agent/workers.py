"""A few daemon threads for slow work. Not `concurrent.futures`: its threads keep a process from ending until they are done."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

WORKERS = 4
"""Fetching, unpacking and removing of files at once: enough to fill a disk, few enough to leave the tasks their CPUs."""


class Workers:
    def __init__(self, count: int = WORKERS) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        for number in range(count):
            threading.Thread(target=self._run, name=f"worker-{number}", daemon=True).start()

    def submit(self, work: Callable[[], None]) -> None:
        """Done by the next free thread; a defect is logged."""
        self._work.put(work)

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            except Exception:
                log.exception("a defect in a worker")

"""
Reports that the control plane has not recorded yet, with rising numbers, kept over restarts of the agent.

Numbers rise within a start of the agent; each registration begins a new count.
Filled by the engine, emptied by the uploader as the control plane confirms. When the disk is full a report is kept in memory alone.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from pathlib import Path

import msgspec

from shoal.agent.frames import FrameFile, read_frames
from shoal.model.event import Report

REWRITE_BYTES = 1 << 20


class Posted(msgspec.Struct, frozen=True, array_like=True):
    seq: int
    report: Report


class Outbox:
    """Any thread."""

    def __init__(self, path: Path) -> None:
        posted = read_frames(path, Posted)
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, Report]] = deque((p.seq, p.report) for p in posted)
        self._next = max((p.seq for p in posted), default=0) + 1
        self._file = FrameFile(path)

    def put(self, report: Report) -> None:
        """The report will be told, also by the next agent on this node."""
        with self._lock:
            seq, self._next = self._next, self._next + 1
            self._waiting.append((seq, report))
            with contextlib.suppress(OSError):
                self._file.append(Posted(seq, report))

    def head(self, most: int) -> tuple[int, tuple[Report, ...]]:
        """The oldest reports and the number of the first; with none, the number of the next."""
        with self._lock:
            if not self._waiting:
                return self._next, ()
            reports = [self._waiting[index][1] for index in range(min(most, len(self._waiting)))]
            return self._waiting[0][0], tuple(reports)

    def confirm(self, recorded: int) -> None:
        """Reports below `recorded` are durable there and go here."""
        with self._lock:
            gone = False
            while self._waiting and self._waiting[0][0] < recorded:
                self._waiting.popleft()
                gone = True
            with contextlib.suppress(OSError):
                if gone and not self._waiting:
                    self._file.clear()
                elif gone and self._file.size > REWRITE_BYTES:
                    self._file.replace([Posted(seq, report) for seq, report in self._waiting])

    def waiting(self) -> tuple[Report, ...]:
        with self._lock:
            return tuple(report for _, report in self._waiting)

    def close(self) -> None:
        """Lets go of the file, as the end of the process does."""
        self._file.close()

    def __len__(self) -> int:
        return len(self._waiting)

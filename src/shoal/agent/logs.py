"""
Tasks' output on its way to the log store: bytes by offset, from the files that the supervisor writes.

The log store's answer says where to send from next, so nothing is lost or doubled whoever restarts; nothing about offsets is kept
here. Only the uploader's thread uses a shipper.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from shoal.agent.home import Home
from shoal.base import limits
from shoal.model.wire import LogChunk

CHUNK_BYTES_MAX = 256 << 10
"""Of one log in one upload, so that a loud task does not hold up the others."""

Key = tuple[str, int, int]


@dataclass(slots=True)
class _Log:
    path: str
    offset: int = 0
    """The log store has everything below."""


@dataclass(slots=True)
class LogShipper:
    home: Home
    _logs: dict[Key, _Log] = field(default_factory=dict)
    _turn: int = 0

    def follow(self, job: str, attempt: int, ranks: tuple[int, ...]) -> None:
        """These logs are shipped from now on. Idempotent."""
        for rank in ranks:
            self._logs.setdefault((job, attempt, rank), _Log(self.home.log(job, attempt, rank)))

    def forget(self, job: str, attempt: int, ranks: tuple[int, ...]) -> None:
        for rank in ranks:
            self._logs.pop((job, attempt, rank), None)

    def has_news(self) -> bool:
        return any(_size(log.path) > log.offset for log in self._logs.values())

    def collect(self, most_bytes: int = limits.LOG_BYTES_PER_UPLOAD_MAX) -> tuple[LogChunk, ...]:
        """What is new, at most so many bytes together; each log gets its turn."""
        chunks: list[LogChunk] = []
        keys = list(self._logs)
        self._turn += 1
        start = self._turn % len(keys) if keys else 0
        for key in keys[start:] + keys[:start]:
            if most_bytes <= 0:
                break
            log = self._logs[key]
            data = _read(log.path, log.offset, min(CHUNK_BYTES_MAX, most_bytes))
            if data:
                most_bytes -= len(data)
                chunks.append(LogChunk(job=key[0], attempt=key[1], rank=key[2], offset=log.offset, data=data))
        return tuple(chunks)

    def acknowledge(self, offsets: tuple[tuple[str, int, int, int], ...]) -> None:
        """What the log store has now; it may be less than was sent, or less than it had before a crash."""
        for job, attempt, rank, size in offsets:
            log = self._logs.get((job, attempt, rank))
            if log is not None:
                log.offset = size

    def whole_with(self, job: str, attempt: int, ranks: tuple[int, ...], chunks: tuple[LogChunk, ...]) -> bool:
        """True if the log store has everything of these logs once it has `chunks`."""
        ends = {(c.job, c.attempt, c.rank): c.offset + len(c.data) for c in chunks}
        for rank in ranks:
            log = self._logs.get((job, attempt, rank))
            if log is not None and max(log.offset, ends.get((job, attempt, rank), 0)) < _size(log.path):
                return False
        return True


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0  # nothing was written yet, or somebody has removed it: either way there is nothing to send


def _read(path: str, offset: int, most: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(fd, most, offset)
    finally:
        os.close(fd)

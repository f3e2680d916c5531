"""
Output of tasks: bytes by (job, attempt, rank), appended by offset. Read only here, so a log survives the node that wrote it.

Agents send bytes from an offset and are told the size that the store now has; they go on from there. So an append that is repeated,
or overlaps what is there, changes nothing, and one that would leave a gap is not taken. The size of the file is the only state: what a
killed server had written of an append is simply there, and the sender goes on behind it.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shoal.base import limits
from shoal.base.errors import InvariantViolated, Unavailable
from shoal.base.ids import is_uuid
from shoal.base.units import format_memory
from shoal.model.wire import TaskLog

Wake = Callable[[int, int, int], None]
"""(attempt, rank, size)"""
_log = logging.getLogger(__name__)
LOCKS: Final = 64
"""Appends to one log go one after another; two logs share a lock with this many to one against it, which costs only time."""


class LogStore:
    """See module. Files are `<directory>/<first two of job>/<job>/<attempt>.<rank>.log`. Any thread."""

    def __init__(self, directory: Path, bytes_per_task_max: int = limits.LOG_BYTES_PER_TASK_MAX) -> None:
        self._directory = directory
        self._bytes_max = bytes_per_task_max
        self._locks = tuple(threading.Lock() for _ in range(LOCKS))
        self._followers: dict[str, tuple[Wake, ...]] = {}
        self._followers_lock = threading.Lock()
        self._cut_line = f"\n[shoal: log cut here: a task may write {format_memory(bytes_per_task_max)}]\n".encode()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    # --- writing --------------------------------------------------------------------------------------------------------------
    def append(self, job: str, attempt: int, rank: int, offset: int, data: bytes) -> int:
        """
        The place to send from next: the size of the log after what is new in `data` was added.

        Past the limit of a log everything counts as taken, so that its sender goes on, and one line in the log says that it was cut.
        Raises: Unavailable where the disk is full or fails; what was written until then stays.
        """
        path = self._path(job, attempt, rank)
        with self._locks[hash((job, attempt, rank)) % LOCKS]:
            before = _size(path)
            if before > self._bytes_max or offset + len(data) > self._bytes_max >= offset:
                size = self._cut(path, before, offset, data)
                after = max(offset + len(data), self._bytes_max) if size >= self._bytes_max else size
            else:
                size = after = self._extend(path, before, offset, data)
        if size != before:
            self._wake(job, attempt, rank, size)
        return after

    def _extend(self, path: Path, before: int, offset: int, data: bytes) -> int:
        if offset < 0:
            raise InvariantViolated(f"log {path}: offset {offset} is below 0")
        if offset > before or offset + len(data) <= before:
            return before
        _write(path, before, memoryview(data)[before - offset :])
        return offset + len(data)

    def _cut(self, path: Path, before: int, offset: int, data: bytes) -> int:
        """Writes up to the limit, then the line that says so; also where a crash had left the line half written."""
        size = before
        if size < self._bytes_max:
            size = self._extend(path, before, offset, data[: self._bytes_max - offset])
        missing = self._bytes_max + len(self._cut_line) - size
        if size < self._bytes_max or missing <= 0:
            return size
        _write(path, size, memoryview(self._cut_line)[-missing:])
        return size + missing

    def sync(self, job: str, attempt: int) -> None:
        """An attempt's logs survive a power cut from now on. To be called before their sender is told that it may forget them."""
        for rank in self.ranks(job, attempt):
            _sync(self._path(job, attempt, rank))
        _sync(self._directory_of(job))

    def remove(self, job: str) -> None:
        """Drops all logs of a job."""
        shutil.rmtree(self._directory_of(job), ignore_errors=True)

    # --- reading --------------------------------------------------------------------------------------------------------------
    def size(self, job: str, attempt: int, rank: int) -> int:
        """Bytes there to be read; 0 for a log that nobody has written to."""
        return _size(self._path(job, attempt, rank))

    def read(self, job: str, attempt: int, rank: int, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes from `offset`; empty at the end and for a log that is not there."""
        try:
            handle = os.open(self._path(job, attempt, rank), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise _unavailable(error) from error
        try:
            return os.pread(handle, max(limit, 0), max(offset, 0))
        except OSError as error:
            raise _unavailable(error) from error
        finally:
            os.close(handle)

    def tasks(self, job: str) -> tuple[TaskLog, ...]:
        """Every log of a job, by attempt, then rank."""
        found: list[TaskLog] = []
        try:
            with os.scandir(self._directory_of(job)) as entries:
                for entry in entries:
                    attempt, rank, _ = entry.name.split(".")
                    found.append(TaskLog(rank=int(rank), attempt=int(attempt), bytes=entry.stat().st_size))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise _unavailable(error) from error
        return tuple(sorted(found, key=lambda log: (log.attempt, log.rank)))

    def ranks(self, job: str, attempt: int) -> tuple[int, ...]:
        """Ranks of an attempt that have written something, ascending; -1 is the setup script."""
        return tuple(log.rank for log in self.tasks(job) if log.attempt == attempt)

    def on_growth(self, job: str, wake: Wake) -> Callable[[], None]:
        """
        Calls `wake(attempt, rank, size)` after each growth of a log of the job, from the appending thread; it must not block.

        The result stops it. Who follows asks for this first and reads then, so that no growth falls between.
        """
        with self._followers_lock:
            self._followers[job] = (*self._followers.get(job, ()), wake)

        def stop() -> None:
            with self._followers_lock:
                left = tuple(other for other in self._followers.get(job, ()) if other is not wake)
                if left:
                    self._followers[job] = left
                else:
                    self._followers.pop(job, None)

        return stop

    def _wake(self, job: str, attempt: int, rank: int, size: int) -> None:
        for wake in self._followers.get(job, ()):
            try:
                wake(attempt, rank, size)
            except Exception:  # The bytes are written: a follower's fault is not the sender's.
                _log.exception("a follower of the logs of job %s failed", job)

    def _directory_of(self, job: str) -> Path:
        if not is_uuid(job):
            raise InvariantViolated(f"log of {job!r}: not a job id, so it may not name a directory")
        return self._directory / job[:2] / job

    def _path(self, job: str, attempt: int, rank: int) -> Path:
        return self._directory_of(job) / f"{int(attempt)}.{int(rank)}.log"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise _unavailable(error) from error


def _write(path: Path, at: int, data: memoryview) -> None:
    try:
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while data:
                written = os.pwrite(handle, data, at)
                at, data = at + written, data[written:]
        finally:
            os.close(handle)
    except OSError as error:
        raise _unavailable(error) from error


def _sync(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(handle)
    except OSError as error:
        raise _unavailable(error) from error
    finally:
        os.close(handle)


def _unavailable(error: OSError) -> Unavailable:
    return Unavailable(f"the log store cannot read or write {error.filename or 'its files'}: {error.strerror}", internal=repr(error))

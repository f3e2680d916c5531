"""
A task's output on its way into its log file: stdout and stderr through one pipe, so that they stay in the order of writing.

A pipe and not the file itself, because `> /dev/stderr` in a script would otherwise cut the file short, and because a pipe can be
bounded: past `limits.LOG_BYTES_PER_TASK_MAX`, or when the disk is full, output is read and dropped, and the task goes on.
The bytes go from pipe to file inside the kernel (splice).
"""

from __future__ import annotations

import contextlib
import errno
import os

from shoal.base import limits

SPLICE_BYTES = 1 << 20
ROUNDS_PER_WAKE = 16
"""So that one loud task cannot keep the supervisor from its other work."""


class LogFile:
    """Bytes at the end of a task's log. The file is made with the first of them; many tasks write nothing."""

    def __init__(self, path: str, most_bytes: int = limits.LOG_BYTES_PER_TASK_MAX) -> None:
        self._path = path
        self._fd = -1
        self._size = 0
        self._most = most_bytes
        self._cut = False
        self._splices = True

    def write(self, data: bytes) -> None:
        """Appends what still fits; says once when not all does."""
        if self._cut:
            return
        room = self._most - self._size
        self._put(data[:room])
        if len(data) > room:
            self._cut_full()

    def take_from(self, pipe: int) -> bool | None:
        """Moves bytes from a pipe: True if there were some, False at its end, None when it is empty for now."""
        try:
            if self._fd < 0 and not self._cut:
                return self._take_first(pipe)
            if self._cut:
                return bool(os.read(pipe, SPLICE_BYTES))
            moved = self._move(pipe, min(SPLICE_BYTES, self._most - self._size))
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
                self.cut(f"output is lost from here on: {error.strerror}")
                return True
            raise
        self._size += moved
        if self._size >= self._most:
            self._cut_full()
        return moved > 0

    def _cut_full(self) -> None:
        self.cut(f"output is cut at {self._most} bytes, the most that is kept of one task")

    def _take_first(self, pipe: int) -> bool:
        """Read, not spliced: the end of a pipe that brought nothing must make no file."""
        data = os.read(pipe, 64 << 10)
        if data:
            self.write(data)
        return bool(data)

    def _move(self, pipe: int, most: int) -> int:
        if self._splices:
            try:
                return os.splice(pipe, self._fd, most, offset_dst=self._size, flags=os.SPLICE_F_NONBLOCK)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                self._splices = False  # a file system that cannot take pages from a pipe
        return os.pwrite(self._fd, os.read(pipe, min(most, 64 << 10)), self._size)

    def note(self, text: str) -> None:
        """A line of Shoal's own."""
        self._put(f"shoal: {text}\n".encode(errors="replace"))

    def cut(self, why: str) -> None:
        if not self._cut:
            self._cut = True
            with contextlib.suppress(OSError):
                self._put(f"\nshoal: {why}\n".encode())

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _put(self, data: bytes) -> None:
        try:
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                self._size = os.fstat(self._fd).st_size
            self._size += os.pwrite(self._fd, data, self._size)
        except OSError as error:
            if self._fd >= 0 and error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
                raise
            self._cut = True  # a full disk, or a directory that has gone: the task goes on without its log


class PipeOutput:
    """The pipe of one task. `writer` is what the task gets as stdout and stderr."""

    def __init__(self, log: LogFile, owner: tuple[int, int] | None) -> None:
        self.log = log
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)
        if owner is not None:
            os.fchown(self.writer, *owner)  # else the task's user could not open /dev/stdout anew

    def started(self) -> None:
        """The task has its end; ours must go, or the pipe never ends."""
        os.close(self.writer)
        self.writer = -1

    def copy(self, rounds: int = ROUNDS_PER_WAKE) -> bool:
        """Copies what is there; False when the pipe has come to its end."""
        for _ in range(rounds):
            more = self.log.take_from(self.reader)
            if more is None:
                return True
            if more is False:
                return False
        return True

    def close(self) -> None:
        for fd in (self.reader, self.writer):
            if fd >= 0:
                os.close(fd)
        self.reader = self.writer = -1
        self.log.close()

"""
The terminal of an interactive task: held by the supervisor, so that it outlives agent and connection.

What the task writes goes to its log and to everybody attached; a slow one loses output, never the task. The last screenful is
kept and shown to who comes later.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import termios
from collections.abc import Callable

from shoal.agent.supervisor.output import ROUNDS_PER_WAKE, LogFile
from shoal.agent.supervisor.wire import Window

REPLAY_BYTES = 16 << 10
READ_BYTES = 16 << 10
INPUT_BYTES_MAX = 1 << 20
"""Typed bytes that wait for a task that does not read."""


def open_terminal(window: Window) -> tuple[int, int]:
    """Both ends (ours, the task's) of a new pseudo-terminal."""
    ours, theirs = os.openpty()
    resize_terminal(ours, window)
    return ours, theirs


def resize_terminal(fd: int, window: Window) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", window.rows, window.columns, 0, 0))


class TerminalOutput:
    """As `output.PipeOutput`, for a task with a terminal."""

    def __init__(self, log: LogFile, window: Window, owner: tuple[int, int] | None) -> None:
        self.log = log
        self.reader, self.writer = open_terminal(window)
        os.set_blocking(self.reader, False)
        if owner is not None:
            os.fchown(self.writer, *owner)
        self._replay = bytearray()
        self._typed = bytearray()
        self.listeners: list[Callable[[bytes], None]] = []

    def started(self) -> None:
        os.close(self.writer)
        self.writer = -1

    def copy(self, rounds: int = ROUNDS_PER_WAKE) -> bool:
        """Copies what is there; False when the task's side is closed for good."""
        self._push()
        for _ in range(rounds):
            try:
                data = os.read(self.reader, READ_BYTES)
            except BlockingIOError:
                return True
            except OSError:
                return False  # EIO: the last holder of the other side is gone
            if not data:
                return False
            self._spread(data)
        return True

    def type(self, data: bytes) -> None:
        """Input from somebody attached; over the bound it is dropped, as a full keyboard buffer does."""
        if len(self._typed) + len(data) <= INPUT_BYTES_MAX:
            self._typed += data
            self._push()

    def resize(self, window: Window) -> None:
        resize_terminal(self.reader, window)

    def attach(self, listener: Callable[[bytes], None]) -> None:
        if self._replay:
            listener(bytes(self._replay))
        self.listeners.append(listener)

    def close(self) -> None:
        for fd in (self.reader, self.writer):
            if fd >= 0:
                os.close(fd)
        self.reader = self.writer = -1
        self.log.close()

    def _spread(self, data: bytes) -> None:
        self.log.write(data)
        self._replay += data
        del self._replay[:-REPLAY_BYTES]
        for listener in tuple(self.listeners):
            listener(data)

    def _push(self) -> None:
        if self._typed and self.reader >= 0:
            with contextlib.suppress(BlockingIOError, OSError):
                written = os.write(self.reader, self._typed)
                del self._typed[:written]

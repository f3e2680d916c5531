"""
What the supervisor must still know if it is killed: which allocations it held, what it started, how that ended.

One file of frames, only ever appended to and rewritten when mostly dead. A write is in the page cache at once, which survives every
death of a process; `sync` makes it survive the machine, and is called a little later for many ends at once (see loop.SYNC_EVERY_MS).
"""

from __future__ import annotations

import contextlib
import os

import msgspec

from shoal.agent.supervisor.wire import Frames, Open, TaskLook, frame

REWRITE_BYTES = 4 << 20
"""Rewritten at this size, or at four times what was alive at the last time if that is more."""


class Opened(msgspec.Struct, frozen=True, array_like=True, tag=True):
    order: Open


class Begun(msgspec.Struct, frozen=True, array_like=True, tag=True):
    allocation: str
    rank: int
    pid: int


class Ended(msgspec.Struct, frozen=True, array_like=True, tag=True):
    allocation: str
    task: TaskLook


class Forgotten(msgspec.Struct, frozen=True, array_like=True, tag=True):
    allocation: str


Entry = Opened | Begun | Ended | Forgotten


class Remembered(msgspec.Struct):
    """An allocation as the journal has it."""

    order: Open
    begun: dict[int, int] = {}
    """Pid by rank."""
    ended: dict[int, TaskLook] = {}


class Journal:
    """See module. `remembered` is what an earlier supervisor wrote, kept up with every `write`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.remembered = _read(path)
        self._fd = -1
        self._size = 0
        self.dirty = False
        """Something was written that is not synced yet."""
        self._rewrite_at = REWRITE_BYTES
        self._rewrite()

    def write(self, entry: Entry) -> None:
        """
        Survives this process from now on.

        On a full disk the entry is kept in memory alone: going on with less memory of it beats ending work that runs.
        """
        _apply(self.remembered, entry)
        data = frame(entry)
        try:
            written = os.write(self._fd, data)
        except OSError:
            written = 0
        if written < len(data):
            os.ftruncate(self._fd, self._size)  # half a frame would make all later ones unreadable
            return
        self._size += written
        self.dirty = True

    def sync(self) -> None:
        """What was written survives the machine too."""
        if self.dirty:
            with contextlib.suppress(OSError):
                os.fdatasync(self._fd)
            self.dirty = False

    def tidy(self) -> None:
        """Rewrites the file when it has grown far over what it has to hold."""
        if self._size > self._rewrite_at:
            with contextlib.suppress(OSError):
                self._rewrite()
            self._rewrite_at = max(REWRITE_BYTES, 4 * self._size)

    def close(self) -> None:
        self.sync()
        os.close(self._fd)

    def _rewrite(self) -> None:
        entries: list[Entry] = []
        for name, known in self.remembered.items():
            entries.append(Opened(known.order))
            entries += [Begun(name, rank, pid) for rank, pid in known.begun.items()]
            entries += [Ended(name, task) for task in known.ended.values()]
        data = b"".join(frame(entry) for entry in entries)
        new = self._path + ".new"
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.write(fd, data)
        os.fdatasync(fd)
        os.replace(new, self._path)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size, self.dirty = fd, len(data), False


def _apply(remembered: dict[str, Remembered], entry: Entry) -> None:
    match entry:
        case Opened(order):
            remembered.setdefault(order.allocation, Remembered(order))
        case Begun(allocation, rank, pid):
            if allocation in remembered:
                remembered[allocation].begun[rank] = pid
        case Ended(allocation, task):
            if allocation in remembered:
                remembered[allocation].ended[task.rank] = task
        case Forgotten(allocation):
            remembered.pop(allocation, None)


def _read(path: str) -> dict[str, Remembered]:
    """The allocations in a journal; a torn last frame (the machine died while writing) is left out."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return {}
    remembered: dict[str, Remembered] = {}
    decoder = msgspec.msgpack.Decoder(Entry)
    try:
        for body in Frames().feed(data):
            _apply(remembered, decoder.decode(body))
    except (msgspec.MsgspecError, ValueError):
        pass  # what follows a damaged frame cannot be trusted; its processes are found by their groups
    return remembered

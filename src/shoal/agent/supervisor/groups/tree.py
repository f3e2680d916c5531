"""A directory tree in one cgroup hierarchy: the part that versions 1 and 2 have in common."""

from __future__ import annotations

import contextlib
import errno
import os

from shoal.agent.supervisor.groups.processes import is_alive
from shoal.agent.supervisor.groups.protocol import check_name


class Tree:
    """Groups below `base` in one hierarchy: one directory per allocation, one per task inside it."""

    def __init__(self, base: str) -> None:
        self.base = base

    def path(self, allocation: str) -> str:
        return os.path.join(self.base, check_name(allocation))

    def make(self, allocation: str) -> str:
        path = self.path(allocation)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
        return path

    def make_task(self, allocation: str, rank: int) -> str:
        path = os.path.join(self.path(allocation), f"task{rank}")
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
        return path

    def names(self) -> tuple[str, ...]:
        """Allocations that have a directory here."""
        with contextlib.suppress(OSError):
            return tuple(sorted(entry.name for entry in os.scandir(self.base) if entry.is_dir()))
        return ()

    def pids(self, allocation: str) -> tuple[int, ...]:
        """Processes in the allocation's group and below. Zombies stay in `cgroup.procs` of version 1 until reaped: left out."""
        found: set[int] = set()
        for directory, _, _ in os.walk(self.path(allocation)):
            found.update(read_pids(os.path.join(directory, "cgroup.procs")))
        return tuple(sorted(pid for pid in found if is_alive(pid)))

    def remove(self, allocation: str) -> None:
        """Innermost first; a group that is still in use stays, and so do those above it."""
        for directory, _, _ in os.walk(self.path(allocation), topdown=False):
            try:
                os.rmdir(directory)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EBUSY):
                    raise


def read_pids(path: str) -> list[int]:
    """The numbers in a `cgroup.procs` file; none if the group is gone."""
    try:
        with open(path) as file:
            return [int(line) for line in file]
    except OSError:
        return []


def write_file(path: str, text: str) -> bool:
    """True if the kernel took the value."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(fd, text.encode())
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def read_number(path: str, key: str = "") -> int | None:
    """The number in a control file, or the one after `key` in a file of `key number` lines."""
    try:
        with open(path) as file:
            for line in file:
                word, _, rest = line.strip().partition(" ")
                if not key:
                    return int(word) if word.isdigit() else None
                if word == key:
                    return int(rest)
    except (OSError, ValueError):
        return None
    return None

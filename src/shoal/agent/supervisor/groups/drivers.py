"""The two drivers that stand on kernel groups: cgroup version 2, and a version 1 hierarchy (the freezer where there is one)."""

from __future__ import annotations

import contextlib
import os
import signal

from shoal.agent.supervisor.groups.limiters import Limiter
from shoal.agent.supervisor.groups.protocol import Doors, GroupLimits
from shoal.agent.supervisor.groups.tree import Tree, read_number, write_file


class _KernelGroups:
    """What both share. `home` is the `cgroup.procs` file of the group that the supervisor itself lives in."""

    isolation = ""

    def __init__(self, tree: Tree, limiter: Limiter, home: str) -> None:
        self._tree = tree
        self._limiter = limiter
        self._home = home
        self._limit_doors: dict[str, Doors] = {}
        self._limited: set[str] = set()
        self.base = tree.base
        self.controllers = limiter.controllers

    def make(self, allocation: str, limits: GroupLimits) -> None:
        self._tree.make(allocation)
        self._limit_doors[allocation] = self._limiter.make(allocation, limits)
        if limits.memory_bytes and "memory" in self.controllers:
            self._limited.add(allocation)

    def make_task(self, allocation: str, rank: int) -> Doors:
        door = os.path.join(self._tree.make_task(allocation, rank), "cgroup.procs")
        limits = self._limit_doors.get(allocation, Doors())
        if allocation in self._limited:
            return Doors(careful=(door, *limits.cheap, *limits.careful))
        return Doors(cheap=(door, *limits.cheap), home=(self._home, *limits.home))

    def marks(self, allocation: str) -> dict[str, str]:  # noqa: ARG002
        return {}

    def adopt(self, allocation: str, pid: int) -> None:
        pass

    def pids(self, allocation: str) -> tuple[int, ...]:
        return self._tree.pids(allocation)

    def alive(self, allocation: str) -> bool:
        return bool(self._tree.pids(allocation))

    def memory_peak_bytes(self, allocation: str) -> int | None:
        return self._limiter.memory_peak_bytes(allocation) if allocation in self._limited else None

    def oom_kills(self, allocation: str) -> int:
        return self._limiter.oom_kills(allocation) if allocation in self._limited else 0

    def remove(self, allocation: str) -> None:
        self._limited.discard(allocation)
        self._limit_doors.pop(allocation, None)
        with contextlib.suppress(OSError):
            self._tree.remove(allocation)
        self._limiter.remove(allocation)

    def found(self) -> tuple[str, ...]:
        return self._tree.names()


class Version2Groups(_KernelGroups):
    """One write kills a group with all that is below it."""

    isolation = "cgroup2"

    def alive(self, allocation: str) -> bool:
        """By `cgroup.events`: one read, whatever the number of processes. Zombies count there, so a yes is looked at again."""
        if not read_number(os.path.join(self._tree.path(allocation), "cgroup.events"), "populated"):
            return False
        return bool(self._tree.pids(allocation))

    def kill(self, allocation: str) -> None:
        if not write_file(os.path.join(self._tree.path(allocation), "cgroup.kill"), "1"):
            _kill_each(self._tree.pids(allocation))  # kernels before 5.14 have no cgroup.kill

    def cpu_ms(self, allocation: str) -> int | None:
        used_us = read_number(os.path.join(self._tree.path(allocation), "cpu.stat"), "usage_usec")
        return None if used_us is None else used_us // 1000


class Version1Groups(_KernelGroups):
    """A frozen group cannot fork, so one pass over its processes is enough; without the freezer the caller's loop converges."""

    isolation = "cgroup1"

    def kill(self, allocation: str) -> None:
        state = os.path.join(self._tree.path(allocation), "freezer.state")
        frozen = write_file(state, "FROZEN")
        try:
            _kill_each(self._tree.pids(allocation))
        finally:
            if frozen:
                write_file(state, "THAWED")

    def cpu_ms(self, allocation: str) -> int | None:
        used_ns = read_number(os.path.join(self._tree.path(allocation), "cpuacct.usage"))
        return None if used_ns is None else used_ns // 1_000_000


def _kill_each(pids: tuple[int, ...]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

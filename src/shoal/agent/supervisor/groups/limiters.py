"""
Limits on memory and CPU, by whichever version of the controllers the machine has; `none` where it has neither.

Memory is a hard limit: over it the kernel kills, and the task's end says `oom`. CPU is a weight.
"""

from __future__ import annotations

import contextlib
import os
from typing import Protocol

from shoal.agent.supervisor.groups.protocol import Doors, GroupLimits
from shoal.agent.supervisor.groups.tree import Tree, read_number, write_file

PIDS_MAX = 65_536
"""Processes and threads of one allocation: far over real work, far under what makes a machine unusable (version 2 only)."""


class Limiter(Protocol):
    """Sets limits for an allocation and reads what the kernel counted against them."""

    controllers: tuple[str, ...]

    def make(self, allocation: str, limits: GroupLimits) -> Doors:
        """Sets the limits; further doors that the allocation's processes must pass."""
        ...

    def memory_peak_bytes(self, allocation: str) -> int | None: ...

    def oom_kills(self, allocation: str) -> int: ...

    def remove(self, allocation: str) -> None: ...


class NoLimiter:
    """Nothing can be limited here, or is not to be: for reading alone."""

    controllers: tuple[str, ...] = ()

    def make(self, allocation: str, limits: GroupLimits) -> Doors:  # noqa: ARG002
        return Doors()

    def memory_peak_bytes(self, allocation: str) -> int | None:  # noqa: ARG002
        return None

    def oom_kills(self, allocation: str) -> int:  # noqa: ARG002
        return 0

    def remove(self, allocation: str) -> None:
        pass


class Version2Limiter:
    """Controllers in the tracking tree itself. `controllers` are those that its base hands down."""

    def __init__(self, tree: Tree, controllers: tuple[str, ...]) -> None:
        self._tree = tree
        self.controllers = controllers

    def make(self, allocation: str, limits: GroupLimits) -> Doors:
        path = self._tree.path(allocation)
        if "pids" in self.controllers:
            write_file(os.path.join(path, "pids.max"), str(PIDS_MAX))
        if "cpu" in self.controllers and limits.cpu_milli:
            write_file(os.path.join(path, "cpu.weight"), str(min(10_000, max(1, limits.cpu_milli // 10))))
        if "memory" in self.controllers and limits.memory_bytes:
            write_file(os.path.join(path, "memory.oom.group"), "1")
            write_file(os.path.join(path, "memory.swap.max"), "0")
            write_file(os.path.join(path, "memory.max"), str(limits.memory_bytes))
        return Doors()

    def memory_peak_bytes(self, allocation: str) -> int | None:
        return read_number(os.path.join(self._tree.path(allocation), "memory.peak"))

    def oom_kills(self, allocation: str) -> int:
        return read_number(os.path.join(self._tree.path(allocation), "memory.events"), "oom_kill") or 0

    def remove(self, allocation: str) -> None:
        pass


class Version1Limiter:
    """A tree of its own per controller; only allocations that ask for a limit get a group there, since entering one is dear."""

    def __init__(self, memory: Tree | None, cpu: Tree | None) -> None:
        self._memory = memory
        self._cpu = cpu
        self._home = () if cpu is None else (os.path.join(os.path.dirname(cpu.base), "cgroup.procs"),)
        self.controllers = tuple(name for name, tree in (("memory", memory), ("cpu", cpu)) if tree is not None)

    def make(self, allocation: str, limits: GroupLimits) -> Doors:
        cheap: tuple[str, ...] = ()
        careful: tuple[str, ...] = ()
        if self._memory is not None and limits.memory_bytes:
            path = self._memory.make(allocation)
            write_file(os.path.join(path, "memory.limit_in_bytes"), str(limits.memory_bytes))
            write_file(os.path.join(path, "memory.memsw.limit_in_bytes"), str(limits.memory_bytes))
            careful = (os.path.join(path, "cgroup.procs"),)
        if self._cpu is not None and limits.cpu_milli:
            path = self._cpu.make(allocation)
            write_file(os.path.join(path, "cpu.shares"), str(max(2, limits.cpu_milli * 1024 // 1000)))
            cheap = (os.path.join(path, "cgroup.procs"),)
        return Doors(cheap, careful, self._home[: len(cheap)])

    def memory_peak_bytes(self, allocation: str) -> int | None:
        if self._memory is None:
            return None
        return read_number(os.path.join(self._memory.path(allocation), "memory.max_usage_in_bytes"))

    def oom_kills(self, allocation: str) -> int:
        if self._memory is None:
            return 0
        return read_number(os.path.join(self._memory.path(allocation), "memory.oom_control"), "oom_kill") or 0

    def remove(self, allocation: str) -> None:
        for tree in (self._memory, self._cpu):
            if tree is not None:
                with contextlib.suppress(OSError):
                    tree.remove(allocation)

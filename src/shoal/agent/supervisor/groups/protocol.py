"""What a group driver can do. Used by the supervisor alone; the agent reads usage through `usage.py`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Zero means no limit. `cpu_milli` is a weight, not a ceiling: idle CPUs are anybody's."""

    memory_bytes: int = 0
    cpu_milli: int = 0


@dataclass(frozen=True, slots=True)
class Doors:
    """
    The `cgroup.procs` files that a process must be written into to be in a task's groups.

    `cheap` ones may be entered by the supervisor itself around a vfork, which saves a copy of its address space per task. `careful`
    ones limit memory: a supervisor inside could be chosen by the OOM killer, so the child enters them itself.
    """

    cheap: tuple[str, ...] = ()
    careful: tuple[str, ...] = ()
    home: tuple[str, ...] = ()
    """Where the supervisor goes back to, one for each of `cheap`."""


class Groups(Protocol):
    """See the package. `base` is where the groups are, `controllers` what can be limited (memory, cpu, pids)."""

    isolation: str
    base: str
    controllers: tuple[str, ...]

    def make(self, allocation: str, limits: GroupLimits) -> None:
        """The groups of an allocation exist. Idempotent."""
        ...

    def make_task(self, allocation: str, rank: int) -> Doors:
        """The child group of a task exists; how to get in."""
        ...

    def marks(self, allocation: str) -> dict[str, str]:
        """Variables that every process of the allocation must be started with, so that it is found again."""
        ...

    def adopt(self, allocation: str, pid: int) -> None:
        """Told of each process that the supervisor started; the weak driver finds the rest from these."""
        ...

    def pids(self, allocation: str) -> tuple[int, ...]:
        """Live processes of the allocation, zombies left out, ascending."""
        ...

    def alive(self, allocation: str) -> bool:
        """True while a process of the allocation is left."""
        ...

    def kill(self, allocation: str) -> None:
        """One blow at everything in the group. What forks meanwhile may be left: look, and call again."""
        ...

    def cpu_ms(self, allocation: str) -> int | None:
        """CPU time used since start, where the kernel counts it."""
        ...

    def memory_peak_bytes(self, allocation: str) -> int | None: ...

    def oom_kills(self, allocation: str) -> int:
        """Processes of the allocation that the OOM killer took."""
        ...

    def remove(self, allocation: str) -> None:
        """The groups go, if they are empty."""
        ...

    def found(self) -> tuple[str, ...]:
        """Allocations with a group or a marked process on this machine, also of an earlier supervisor."""
        ...


def check_name(name: str) -> str:
    """`name` as it may stand in a path; ValueError if it could lead elsewhere."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise ValueError(f"{name!r} cannot name a group; letters, digits, dot, dash and underscore only")
    return name

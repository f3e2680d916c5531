"""
What running allocations use, read from outside: CPU time, memory, processes; GPUs by the probe.

A sample every few seconds goes to the control plane for those who look; the agent keeps the sums that become a job's usage. Where the
kernel keeps a group the CPU time is the group's; without groups it is what the processes that are there now have used.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

from shoal.agent.probe.protocol import Probe
from shoal.agent.supervisor import wire
from shoal.agent.supervisor.groups.drivers import Version1Groups, Version2Groups
from shoal.agent.supervisor.groups.limiters import NoLimiter
from shoal.agent.supervisor.groups.processes import is_alive
from shoal.agent.supervisor.groups.protocol import Groups
from shoal.agent.supervisor.groups.tree import Tree
from shoal.agent.supervisor.groups.weak import WeakGroups
from shoal.base.clock import Clock
from shoal.model.command import Prepare
from shoal.model.job import Usage
from shoal.model.wire import Sample

PIDS_READ_MAX = 4_096
"""Processes whose memory is summed up; more are a fork bomb, and reading them would cost seconds."""
KEPT_MS = 200
"""A list of processes is good for so long: eight devices of one allocation are asked for one after another."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS_MS = 1000 // os.sysconf("SC_CLK_TCK")


def groups_to_read(greeting: wire.Greeting) -> Groups:
    """The supervisor's groups, for reading alone."""
    if greeting.isolation == "cgroup2":
        return Version2Groups(Tree(greeting.base), NoLimiter(), "")
    if greeting.isolation == "cgroup1":
        return Version1Groups(Tree(greeting.base), NoLimiter(), "")
    return WeakGroups(greeting.base, greeting.pid)


@dataclass(slots=True)
class _Sums:
    cpu_ms: int = 0
    memory_bytes_max: int = 0
    gpu_busy_ms: int = 0
    gpu_memory_bytes_max: int = 0
    gpu_busy: int = 0
    """Percent, summed over its GPUs, at the last look; holds from the look before until the next."""
    sampled_ms: int = 0


class Meter:
    """Looks at allocations. `usage` may be asked from the engine's thread while the uploader's samples."""

    def __init__(
        self,
        probe: Probe,
        clock: Clock,
        groups_of: Callable[[wire.Greeting], Groups] = groups_to_read,
        lives: Callable[[int], bool] = is_alive,
    ) -> None:
        self._probe = probe
        self._clock = clock
        self._groups_of = groups_of
        self._lives = lives
        self._lock = threading.Lock()
        self._groups: Groups | None = None
        self._sums: dict[str, _Sums] = {}
        self._pids: dict[str, tuple[int, tuple[int, ...]]] = {}

    def watch(self, greeting: wire.Greeting) -> None:
        """From now on the groups of this supervisor are read."""
        self._groups = self._groups_of(greeting)

    def begin(self, allocation: str) -> None:
        """Time on its GPUs counts from now."""
        with self._lock:
            self._sums.setdefault(allocation, _Sums(sampled_ms=self._clock.monotonic_ms()))

    def pids(self, allocation: str) -> tuple[int, ...]:
        """Its live processes; those that came within the last KEPT_MS may be missing."""
        groups = self._groups
        if groups is None:
            return ()
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            kept = self._pids.get(allocation)
        if kept is not None and now_ms - kept[0] < KEPT_MS:
            return tuple(pid for pid in kept[1] if self._lives(pid))
        pids = groups.pids(allocation) if groups.alive(allocation) else ()
        with self._lock:
            if len(self._pids) > 1_000:
                self._pids.clear()
            self._pids[allocation] = (now_ms, pids)
        return pids

    def sample(self, order: Prepare) -> Sample | None:
        """One look at an allocation; None if nothing of it runs."""
        groups, allocation = self._groups, order.allocation
        if groups is None:
            return None
        pids = groups.pids(allocation)
        if not pids:
            return None
        cpu_ms = groups.cpu_ms(allocation)
        if cpu_ms is None:
            cpu_ms = sum(_cpu_ms(pid) for pid in pids[:PIDS_READ_MAX])
        memory = sum(_memory_bytes(pid) for pid in pids[:PIDS_READ_MAX])
        uses = self._probe.use(order.claim.devices)
        gpus = tuple((uuid, use.utilisation, use.memory_bytes) for uuid, use in sorted(uses.items()))
        self._add(allocation, cpu_ms, memory, gpus)
        return Sample(
            allocation=allocation,
            job=order.job,
            at_ms=self._clock.now_ms(),
            cpu_ms=cpu_ms,
            memory_bytes=memory,
            processes=len(pids),
            gpus=gpus,
        )

    def usage(self, allocation: str, cpu_ms: int, memory_bytes_max: int) -> Usage:
        """All that it used, with what the supervisor counted at its end. Forgets it."""
        with self._lock:
            sums = self._sums.pop(allocation, _Sums())
            self._pids.pop(allocation, None)
        rest_ms = self._clock.monotonic_ms() - sums.sampled_ms
        return Usage(
            cpu_ms=max(cpu_ms, sums.cpu_ms),
            memory_bytes_max=max(memory_bytes_max, sums.memory_bytes_max),
            gpu_busy_ms=sums.gpu_busy_ms + rest_ms * sums.gpu_busy // 100,
            gpu_memory_bytes_max=sums.gpu_memory_bytes_max,
        )

    def _add(self, allocation: str, cpu_ms: int, memory: int, gpus: tuple[tuple[str, int, int], ...]) -> None:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            sums = self._sums.setdefault(allocation, _Sums(sampled_ms=now_ms))
            span_ms = now_ms - sums.sampled_ms
            sums.sampled_ms = now_ms
            sums.cpu_ms = max(sums.cpu_ms, cpu_ms)
            sums.memory_bytes_max = max(sums.memory_bytes_max, memory)
            sums.gpu_busy = sum(busy for _, busy, _ in gpus)
            sums.gpu_busy_ms += span_ms * sums.gpu_busy // 100
            sums.gpu_memory_bytes_max = max(sums.gpu_memory_bytes_max, sum(used for _, _, used in gpus))


def _memory_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _cpu_ms(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return (int(fields[11]) + int(fields[12])) * _TICKS_MS

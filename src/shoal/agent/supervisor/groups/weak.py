"""
No kernel group allowed: processes are found among the supervisor's descendants, by the task that they descend from or by the environment
mark SHOAL_ALLOCATION.

Since the supervisor is the subreaper, whatever a task starts stays below it, daemons that lost their parents included. But a process
that wipes its environment *and* loses its parent between two looks cannot be told to belong to one allocation or another: such a stray
counts to the allocation once there is only one left that it can be of, and dies at the latest when none is left. This is why the node
says `isolation: weak`.
"""

from __future__ import annotations

import contextlib
import os
import signal

from shoal.agent.supervisor.groups.processes import Process, all_processes, descendants_of, mark_of, read_process, with_descendants
from shoal.agent.supervisor.groups.protocol import Doors, GroupLimits, check_name

MARK = b"SHOAL_ALLOCATION"
NODE_MARK = b"SHOAL_SUPERVISOR"
"""Tells apart the supervisors of several nodes on one machine."""


class WeakGroups:
    isolation = "weak"
    controllers: tuple[str, ...] = ()

    def __init__(self, base: str, root: int | None = None) -> None:
        """`root` is the supervisor's pid for others who read; None means that whoever asks is the supervisor, or its guardian."""
        self.base = base
        self._root = root
        self._known: dict[str, dict[int, int]] = {}
        """Per allocation: pid to start time of each process that was ever seen to belong to it."""
        self._open: set[str] = set()

    def make(self, allocation: str, limits: GroupLimits) -> None:  # noqa: ARG002
        self._open.add(check_name(allocation))

    def make_task(self, allocation: str, rank: int) -> Doors:  # noqa: ARG002
        return Doors()

    def marks(self, allocation: str) -> dict[str, str]:
        return {MARK.decode(): allocation, NODE_MARK.decode(): self.base}

    def adopt(self, allocation: str, pid: int) -> None:
        process = read_process(pid)
        if process is not None:
            self._known.setdefault(allocation, {})[pid] = process.started

    def pids(self, allocation: str) -> tuple[int, ...]:
        known = self._known.get(allocation, {})
        processes = self._processes(known)
        owners = self._owners(processes)
        roots = {pid for pid, started in known.items() if pid in processes and processes[pid].started == started}
        roots |= {pid for pid, owner in owners.items() if owner == allocation}
        members = with_descendants(roots, processes)
        if self._open == {allocation}:
            members |= with_descendants(self._strays(processes, owners), processes)
        self._known[allocation] = {pid: processes[pid].started for pid in members}
        return tuple(sorted(members))

    def _processes(self, known: dict[int, int]) -> dict[int, Process]:
        """What is below the supervisor; the whole machine where some of `known` outlived an earlier supervisor and its guardian."""
        processes = descendants_of(self._root or os.getpid())
        for pid, started in known.items():
            process = None if pid in processes else read_process(pid)
            if process is not None and process.started == started and process.state not in "ZX":
                return all_processes()
        return processes

    def alive(self, allocation: str) -> bool:
        """Two looks before a no: between them nothing can hide by losing its parent."""
        return bool(self.pids(allocation) or self.pids(allocation))

    def kill(self, allocation: str) -> None:
        for pid in self.pids(allocation):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def cpu_ms(self, allocation: str) -> int | None:  # noqa: ARG002
        return None

    def memory_peak_bytes(self, allocation: str) -> int | None:  # noqa: ARG002
        return None

    def oom_kills(self, allocation: str) -> int:  # noqa: ARG002
        return 0

    def remove(self, allocation: str) -> None:
        self._known.pop(allocation, None)
        self._open.discard(allocation)
        if not self._open:
            processes = descendants_of(self._root or os.getpid())
            for pid in with_descendants(self._strays(processes, self._owners(processes)), processes):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def found(self) -> tuple[str, ...]:
        """Looks at the whole machine: what an earlier supervisor left may be anybody's child now."""
        owners = self._owners(all_processes())
        for pid, allocation in owners.items():
            self.adopt(allocation, pid)
        return tuple(sorted(set(owners.values())))

    def _owners(self, processes: dict[int, Process]) -> dict[int, str]:
        """Allocation by pid, of processes that carry this supervisor's marks."""
        owners: dict[int, str] = {}
        for pid in processes:
            if mark_of(pid, NODE_MARK) == self.base:
                allocation = mark_of(pid, MARK)
                if allocation:
                    owners[pid] = allocation
        return owners

    def _strays(self, processes: dict[int, Process], owners: dict[int, str]) -> set[int]:
        """Children of the supervisor that belong to nobody known."""
        root = self._root or os.getpid()
        known = {(pid, started) for of in self._known.values() for pid, started in of.items()}
        return {p.pid for p in processes.values() if p.parent == root and p.pid not in owners and (p.pid, p.started) not in known}

"""
Processes beside a task, for `shoal exec`: started in the task's groups, their open files handed to the agent.

The agent carries the bytes; the supervisor only starts the process, tells its end, and kills it when the agent's connection goes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass, field

from shoal.agent.supervisor import wire
from shoal.agent.supervisor.starting import StartFailed, Streams, start_program
from shoal.agent.supervisor.terminal import open_terminal
from shoal.agent.supervisor.wards import Wards


@dataclass(slots=True)
class Started:
    """`files` go to the agent and are then closed here."""

    pid: int
    process: subprocess.Popen[bytes]
    files: tuple[int, ...] = ()


@dataclass(slots=True)
class Execs:
    """Execs by pid; `owners` are whatever the loop uses to find the connection again."""

    wards: Wards
    owners: dict[int, object] = field(default_factory=dict)
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, order: wire.Exec, owner: object) -> Started | wire.Failed:
        """The process and its files, or why not."""
        ward = self.wards.wards.get(order.allocation)
        if ward is None or ward.halt is not None:
            return wire.Failed("unknown", f"allocation {order.allocation} is not running here")
        ours, theirs = _files(order)
        try:
            process = start_program(self.wards.program(order), self.wards.doors(order), _streams(theirs))
        except StartFailed as failure:
            _close(ours)
            return wire.Failed("start", str(failure))
        finally:
            _close(theirs)
        self.wards.adopt(order.allocation, process.pid)
        self.owners[process.pid] = owner
        self.processes[process.pid] = process
        return Started(process.pid, process, ours)

    def reap(self, pid: int, status: int) -> tuple[object, wire.Over] | None:
        """Who has to be told that this child ended, and what; None if it is no exec."""
        process = self.processes.pop(pid, None)
        if process is None:
            return None
        code = os.waitstatus_to_exitcode(status)
        process.returncode = code
        return self.owners.pop(pid), wire.Over(128 - code if code < 0 else code)

    def drop(self, owner: object) -> None:
        """The agent's end is gone: so goes the process, with what it has in its process group."""
        for pid in [pid for pid, of in self.owners.items() if of is owner]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            self.owners[pid] = None


def _files(order: wire.Exec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Our ends and the process's, in the order stdin, stdout, stderr; one each with a terminal."""
    owner = (-1, -1) if order.user is None else (order.user.uid, order.user.gid)
    if order.window is not None:
        ours, theirs = open_terminal(order.window)
        os.fchown(theirs, *owner)
        return (ours,), (theirs,)
    (in_r, in_w), (out_r, out_w), (err_r, err_w) = (os.pipe2(os.O_CLOEXEC) for _ in range(3))
    for fd in (out_w, err_w):
        os.fchown(fd, *owner)
    return (in_w, out_r, err_r), (in_r, out_w, err_w)


def _streams(theirs: tuple[int, ...]) -> Streams:
    return Streams(*theirs) if len(theirs) == 3 else Streams(theirs[0], theirs[0], theirs[0])


def _close(files: tuple[int, ...]) -> None:
    for fd in files:
        os.close(fd)

"""
Pretended processes of one machine: what the supervisor sees as control groups and programs, on virtual time.

A program's arguments say how it behaves: `swarm run_ms=3000 exit=0 term_ms=50`, where `stubborn` hears no SIGTERM and `stuck_ms=2000`
is in the kernel for so long when it is killed.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from shoal.agent.supervisor.groups.processes import Process
from shoal.agent.supervisor.groups.protocol import Doors, GroupLimits
from shoal.agent.supervisor.starting import Program, Streams
from shoal.sim.swarm.agenda import Agenda

MARK = "SWARM_ALLOCATION"
FIRST_PID = 10_000_000
"""Over any pid that the kernel gives: what reads /proc by mistake finds nothing."""
_NOTHING_USED = cast("resource.struct_rusage", type("NothingUsed", (), {"ru_utime": 0.0, "ru_stime": 0.0, "ru_maxrss": 0})())


@dataclass(slots=True)
class Task:
    """One pretended process. `status` is its wait status once it has ended."""

    pid: int
    allocation: str
    job: str
    attempt: int
    devices: tuple[str, ...]
    ways: dict[str, str]
    returncode: int | None = None
    status: int | None = None

    def way_ms(self, name: str) -> int:
        return int(self.ways.get(name, "0"))


@dataclass
class Tasks:
    """See module. `started` is told of each new process, `died` when there is one to be reaped."""

    agenda: Agenda
    machine: str
    started: Callable[[str, Task], None]
    died: Callable[[], None]
    isolation: str = "cgroup2"
    base: str = "pretended"
    controllers: tuple[str, ...] = ()
    living: dict[int, Task] = field(default_factory=dict)
    ended: list[Task] = field(default_factory=list)
    """Not reaped yet."""
    _next_pid: int = FIRST_PID

    # --- as programs ------------------------------------------------------------------------------------------------------------
    def start(self, program: Program, doors: Doors, streams: Streams) -> Task:  # noqa: ARG002
        self._next_pid += 1
        env = program.env
        devices = tuple(filter(None, env.get("CUDA_VISIBLE_DEVICES", "").split(",")))
        ways = dict(word.partition("=")[::2] for word in program.argv[1:])
        task = Task(self._next_pid, env[MARK], env["SHOAL_JOB_ID"], int(env["SHOAL_ATTEMPT"]), devices, ways)
        self.living[task.pid] = task
        os.write(streams.stdout, f"attempt {task.attempt} on {self.machine}\n".encode())
        self.agenda.note(f"{self.machine} starts {task.allocation} {task.pid}")
        self.agenda.after(task.way_ms("run_ms"), lambda: self._end(task, task.way_ms("exit") << 8))
        self.started(self.machine, task)
        return task

    def look(self, pid: int) -> Process | None:
        return Process(pid, 1, pid, "S", 0) if pid in self.living else None

    def is_ready_for(self, process: Process, number: int, boottime_ms: int) -> bool:  # noqa: ARG002
        return process.pid in self.living

    def signal(self, pid: int, number: int) -> None:
        task = self.living.get(pid)
        if task is None:
            raise ProcessLookupError(pid)
        if number == signal.SIGKILL:
            self.agenda.after(task.way_ms("stuck_ms"), lambda: self._end(task, signal.SIGKILL))
        elif number == signal.SIGTERM and "stubborn" not in task.ways:
            self.agenda.after(task.way_ms("term_ms"), lambda: self._end(task, signal.SIGTERM))

    def lives(self, pid: int) -> bool:
        return pid in self.living

    # --- as groups --------------------------------------------------------------------------------------------------------------
    def make(self, allocation: str, limits: GroupLimits) -> None:
        pass

    def make_task(self, allocation: str, rank: int) -> Doors:  # noqa: ARG002
        return Doors()

    def marks(self, allocation: str) -> dict[str, str]:
        return {MARK: allocation}

    def adopt(self, allocation: str, pid: int) -> None:
        pass

    def pids(self, allocation: str) -> tuple[int, ...]:
        return tuple(pid for pid, task in self.living.items() if task.allocation == allocation)

    def alive(self, allocation: str) -> bool:
        return any(task.allocation == allocation for task in self.living.values())

    def kill(self, allocation: str) -> None:
        for pid in self.pids(allocation):
            self.signal(pid, signal.SIGKILL)

    def cpu_ms(self, allocation: str) -> int | None:  # noqa: ARG002
        return 1

    def memory_peak_bytes(self, allocation: str) -> int | None:  # noqa: ARG002
        return 1

    def oom_kills(self, allocation: str) -> int:  # noqa: ARG002
        return 0

    def remove(self, allocation: str) -> None:
        pass

    def found(self) -> tuple[str, ...]:
        return tuple(sorted({task.allocation for task in self.living.values()}))

    # --- ends -------------------------------------------------------------------------------------------------------------------
    def reap(self) -> tuple[tuple[int, int, resource.struct_rusage], ...]:
        """Pid, wait status and use of those that have ended since."""
        ended, self.ended = self.ended, []
        return tuple((task.pid, task.status or 0, _NOTHING_USED) for task in ended)

    def kill_all(self) -> None:
        """The machine is switched off, or its guardian ends everything: nobody is told."""
        self.living.clear()
        self.ended.clear()

    def _end(self, task: Task, status: int) -> None:
        if self.living.pop(task.pid, None) is not None:
            self.agenda.note(f"{self.machine} {task.pid} ends by {status}")
            task.status = status
            self.ended.append(task)
            self.died()

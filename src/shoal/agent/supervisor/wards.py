"""
The allocations in the supervisor's care: orders carried out, ends noticed, stops driven, each in short steps that never wait.

`loop.py` calls `order`, `reap`, `tick` and the output callbacks; this module knows no sockets. A ward's life: Open, Spawn (setup, then
tasks), ends of tasks, perhaps Stop, and Forget once no process is left.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from shoal.agent.supervisor import wire
from shoal.agent.supervisor.groups.processes import outermost
from shoal.agent.supervisor.groups.protocol import Doors, GroupLimits, Groups
from shoal.agent.supervisor.journal import Begun, Ended, Forgotten, Journal, Opened
from shoal.agent.supervisor.output import LogFile, PipeOutput
from shoal.agent.supervisor.starting import Program, Programs, Running, StartFailed, Streams
from shoal.agent.supervisor.terminal import TerminalOutput
from shoal.base import limits

LOOK_EVERY_MS = 50
"""Between looks at a group that was told to end."""
KILL_EVERY_MS = 20
KILL_SLOWLY_MS = 1_000
"""Between blows at processes that did not die of the first fifty."""
DRAIN_ROUNDS = 4_096
"""Copies at most after a task's end: 64 KiB of pipe, or what its children still write."""

Output = PipeOutput | TerminalOutput


class Clock(Protocol):
    def now_ms(self) -> int: ...

    def boottime_ms(self) -> int: ...


class Readers(Protocol):
    """Who calls back when a descriptor has something to read."""

    def watch(self, fd: int, callback: Callable[[], None]) -> None: ...

    def unwatch(self, fd: int) -> None: ...


@dataclass(slots=True)
class Task:
    """One process that was asked for by rank; `process` and `output` are gone once it has ended."""

    rank: int
    process: Running | None
    pid: int
    output: Output | None = None
    end: wire.TaskLook | None = None


@dataclass(slots=True)
class Halt:
    """A stop under way. Times are boot-time."""

    why: str
    kill_at_ms: int
    next_ms: int
    killing_since_ms: int | None = None
    blows: int = 0
    told: bool = False
    through: bool = False


@dataclass(slots=True)
class Ward:
    """One allocation in our care."""

    opened: wire.Open
    tasks: dict[int, Task] = field(default_factory=dict)
    halt: Halt | None = None
    overdue: bool = False
    """Its lease has run out once: nothing more of it is started, renewed or not."""
    cpu_us: int = 0
    memory_bytes_max: int = 0

    @property
    def running(self) -> bool:
        return any(task.end is None for task in self.tasks.values())


class Wards:
    """See module. `publish` takes events; `readers` sees to it that output is copied when there is some."""

    def __init__(
        self,
        groups: Groups,
        programs: Programs,
        journal: Journal,
        clock: Clock,
        publish: Callable[[wire.Event], None],
        readers: Readers,
    ) -> None:
        self._groups = groups
        self._programs = programs
        self._journal = journal
        self._clock = clock
        self._publish = publish
        self._readers = readers
        self._null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._by_pid: dict[int, tuple[Ward, Task]] = {}
        self.wards: dict[str, Ward] = {}
        self.renewed_ms = 0

    def close(self) -> None:
        """Lets go of what is open, as the end of the process does."""
        for ward in self.wards.values():
            for task in ward.tasks.values():
                self._finish_output(task)
        os.close(self._null)

    # --- orders ---------------------------------------------------------------------------------------------------------
    def order(self, order: wire.Order) -> wire.Result:
        """Carries out one order; a system error is an answer and not an end of the supervisor."""
        try:
            match order:
                case wire.Open():
                    return self._open(order)
                case wire.Spawn():
                    return self._spawn(order)
                case wire.Signal():
                    return self._signal(order)
                case wire.Stop():
                    return self._stop(order)
                case wire.Forget():
                    return self._forget(order)
                case wire.Feed():
                    return self._feed(order)
                case wire.List():
                    return self._list()
                case _:
                    return wire.Failed("unknown", f"{type(order).__name__} cannot be given here")
        except Exception as error:
            # Also a defect: ending here would end the work of the whole node.
            return wire.Failed("system", f"{type(error).__name__}: {error}")

    def _feed(self, order: wire.Feed) -> wire.Result:
        """A lease that has run out unnoticed ends its work first: the control plane may have given it up, and a renewal mends nothing."""
        self._end_overdue(self._clock.boottime_ms())
        self.renewed_ms = max(self.renewed_ms, order.renewed_ms)
        return wire.Done()

    def _end_overdue(self, now_ms: int) -> None:
        for ward in self.wards.values():
            if ward.halt is None and now_ms > self._stop_by(ward):
                ward.overdue = True
                if ward.tasks and self._has_processes(ward):
                    self.halt(ward, "lease", ward.opened.signal, ward.opened.grace_ms)

    def _open(self, order: wire.Open) -> wire.Result:
        if order.allocation not in self.wards:
            self._groups.make(order.allocation, GroupLimits(order.memory_bytes, order.cpu_milli))
            self.wards[order.allocation] = Ward(order)
            self._journal.write(Opened(order))
        return wire.Done()

    def _spawn(self, order: wire.Spawn) -> wire.Result:
        ward = self.wards.get(order.allocation)
        if ward is None:
            return wire.Failed("unknown", f"no allocation {order.allocation!r} is open here")
        if order.rank in ward.tasks:
            return wire.Done()
        if ward.halt is not None:
            return wire.Failed("busy", f"allocation {order.allocation} is being stopped")
        if ward.overdue or self._clock.boottime_ms() > self._stop_by(ward):
            return wire.Failed("late", "the control plane has not been heard for longer than the job may run without it")
        log = LogFile(order.log)
        owner = None if order.user is None else (order.user.uid, order.user.gid)
        output: Output = PipeOutput(log, owner) if order.window is None else TerminalOutput(log, order.window, owner)
        self._begin(ward, order, output)
        return wire.Done()

    def _begin(self, ward: Ward, order: wire.Spawn, output: Output) -> None:
        program = self.program(order)
        stdin = self._null if order.window is None else output.writer
        doors = self._groups.make_task(order.allocation, order.rank)
        try:
            process = self._programs.start(program, doors, Streams(stdin, output.writer, output.writer))
        except StartFailed as failure:
            output.copy()  # what the child had to say
            output.log.note(str(failure))
            output.close()
            task = Task(order.rank, None, 0)
            ward.tasks[order.rank] = task
            self._ended(ward, task, failure.exit_code, None)
            return
        output.started()
        task = Task(order.rank, process, process.pid, output)
        ward.tasks[order.rank] = task
        self._by_pid[process.pid] = (ward, task)
        self._groups.adopt(order.allocation, process.pid)
        self._journal.write(Begun(order.allocation, order.rank, process.pid))
        self._readers.watch(output.reader, lambda: self._copy(task))

    def program(self, order: wire.Spawn | wire.Exec) -> Program:
        env = {**order.env, **self._groups.marks(order.allocation)}
        return Program(order.argv, env, order.cwd, order.user, order.binds, order.window is not None)

    def doors(self, order: wire.Exec) -> Doors:
        """How a further process gets into the groups of a task."""
        return self._groups.make_task(order.allocation, order.rank)

    def adopt(self, allocation: str, pid: int) -> None:
        """A further process of the allocation, started by somebody else in here."""
        self._groups.adopt(allocation, pid)

    def _signal(self, order: wire.Signal) -> wire.Result:
        ward = self.wards.get(order.allocation)
        if ward is None:
            return wire.Failed("unknown", f"no allocation {order.allocation!r} is open here")
        if not self._tell(ward, order.signal, order.rank):
            return wire.Failed("deaf", "no process has said what to do at this signal")
        return wire.Done()

    def _stop(self, order: wire.Stop) -> wire.Result:
        ward = self.wards.get(order.allocation)
        if ward is None:
            return wire.Failed("unknown", f"no allocation {order.allocation!r} is open here")
        self.halt(ward, "asked", order.signal, 0 if order.force else order.grace_ms)
        return wire.Done()

    def _forget(self, order: wire.Forget) -> wire.Result:
        ward = self.wards.get(order.allocation)
        if ward is None:
            return wire.Done()
        if ward.running or self._groups.alive(order.allocation):
            return wire.Failed("busy", f"processes of {order.allocation} are left")
        for task in ward.tasks.values():
            self._finish_output(task)
        self._groups.remove(order.allocation)
        del self.wards[order.allocation]
        self._journal.write(Forgotten(order.allocation))
        return wire.Done()

    def _list(self) -> wire.Listing:
        return wire.Listing(tuple(self._look(ward) for _, ward in sorted(self.wards.items())), self.renewed_ms)

    def _look(self, ward: Ward) -> wire.AllocationLook:
        name, halt = ward.opened.allocation, ward.halt
        tasks = tuple(task.end or wire.TaskLook(task.rank, task.pid) for _, task in sorted(ward.tasks.items()))
        alive = ward.running or self._groups.alive(name)
        return wire.AllocationLook(
            name, ward.opened.attempt, tasks, alive, halt is not None, halt.why if halt else "", self._cpu_ms(ward), self._memory(ward)
        )

    # --- ends -----------------------------------------------------------------------------------------------------------
    def reap(self, pid: int, status: int, usage: resource.struct_rusage) -> bool:
        """A child is gone; False if it is no task (an orphan that came to us, or an exec)."""
        found = self._by_pid.pop(pid, None)
        if found is None:
            return False
        ward, task = found
        ward.cpu_us += int((usage.ru_utime + usage.ru_stime) * 1e6)
        ward.memory_bytes_max = max(ward.memory_bytes_max, _peak_bytes(usage))
        code = os.waitstatus_to_exitcode(status)
        if task.process is not None:
            task.process.returncode = code  # it was reaped here, so that Popen does not wait for it
        number = -code if code < 0 else None
        self._drain(task)
        self._ended(ward, task, 128 - code if code < 0 else code, number)
        return True

    def _ended(self, ward: Ward, task: Task, exit_code: int, number: int | None) -> None:
        name, halt = ward.opened.allocation, ward.halt
        oom = exit_code != 0 and self._groups.oom_kills(name) > 0
        task.end = wire.TaskLook(task.rank, task.pid, exit_code, number, oom, halt is not None, self._clock.now_ms())
        self._journal.write(Ended(name, task.end))
        alive = ward.running or self._groups.alive(name)
        self._publish(wire.Exited(name, ward.opened.attempt, task.end, alive, self._cpu_ms(ward), self._memory(ward)))
        if halt is not None and not alive:
            halt.next_ms = 0

    def recover(self) -> None:
        """Takes up what an earlier supervisor left: how its tasks ended where that is known; what still runs is killed."""
        for name, known in self._journal.remembered.items():
            ward = self.wards[name] = Ward(known.order)
            self._groups.make(name, GroupLimits())
            for rank, pid in known.begun.items():
                end = known.ended.get(rank)
                ward.tasks[rank] = Task(rank, None, pid, None, end or _lost(rank, pid, self._clock.now_ms()))
            if len(known.ended) < len(known.begun) or self._groups.alive(name):
                self.halt(ward, "supervisor-lost", signal.SIGKILL, 0)
        for name in self._groups.found():
            if name not in self.wards:
                self.wards[name] = Ward(wire.Open(name, 0))
                self.halt(self.wards[name], "supervisor-lost", signal.SIGKILL, 0)

    # --- stops ----------------------------------------------------------------------------------------------------------
    def halt(self, ward: Ward, why: str, number: int, grace_ms: int) -> None:
        """The stop ladder begins, or becomes stronger; a weaker one changes nothing."""
        now_ms = self._clock.boottime_ms()
        kill_at_ms = now_ms + grace_ms
        if ward.halt is None:
            ward.halt = Halt(why, kill_at_ms, now_ms)
            if grace_ms > 0:
                self._soft(ward, number, None)
        elif kill_at_ms < ward.halt.kill_at_ms:
            ward.halt.kill_at_ms = kill_at_ms
            ward.halt.next_ms = min(ward.halt.next_ms, now_ms)

    def halt_all(self, why: str) -> None:
        """For the end of the machine: everything is told to end."""
        for ward in self.wards.values():
            self.halt(ward, why, ward.opened.signal, ward.opened.grace_ms)

    def _soft(self, ward: Ward, number: int, rank: int | None) -> None:
        """To the process groups of the tasks, as a terminal's Ctrl-C goes: a shell's child gets it too, a daemon does not."""
        leaders = {task.pid for task in ward.tasks.values() if task.pid and rank in (None, task.rank)}
        with_terminal = {task.pid for task in ward.tasks.values() if isinstance(task.output, TerminalOutput)}
        for pid in self._groups.pids(ward.opened.allocation):
            process = self._programs.look(pid)
            if process is None or process.group not in leaders:
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                self._programs.signal(pid, number)
                if process.group in with_terminal and number == signal.SIGTERM:
                    self._programs.signal(pid, signal.SIGHUP)  # an interactive shell does not hear TERM
                self._programs.signal(pid, signal.SIGCONT)

    def _tell(self, ward: Ward, number: int, rank: int | None) -> int:
        """A signal that only tells something, to whom it does not kill; how many have had it."""
        looks = [self._programs.look(pid) for pid in self._groups.pids(ward.opened.allocation)]
        processes = {look.pid: look for look in looks if look is not None}
        now_ms = self._clock.boottime_ms()
        ready = {pid for pid, process in processes.items() if self._programs.is_ready_for(process, number, now_ms)}
        leaders = [task.pid for task in ward.tasks.values() if task.pid and rank in (None, task.rank)]
        told = 0
        for pid in (pid for leader in leaders for pid in outermost(leader, processes, ready)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                self._programs.signal(pid, number)
                told += 1
        return told

    def tick(self) -> int | None:
        """Drives deadlines and stops; the boot-time instant of the next thing to do, None if there is none."""
        now_ms = self._clock.boottime_ms()
        wakes: list[int] = []
        self._end_overdue(now_ms)
        for ward in self.wards.values():
            if ward.halt is None:
                if ward.running:
                    wakes.append(self._stop_by(ward) + 1)
            elif not ward.halt.through:
                if now_ms >= ward.halt.next_ms:
                    self._step_halt(ward, ward.halt, now_ms)
                wakes.append(ward.halt.next_ms)
        return min(wakes, default=None)

    def _step_halt(self, ward: Ward, halt: Halt, now_ms: int) -> None:
        name = ward.opened.allocation
        if not self._has_processes(ward):
            halt.through = True
            for task in ward.tasks.values():
                self._drain(task)
            self._publish(wire.Stopped(name, ward.opened.attempt, halt.why, self._cpu_ms(ward), self._memory(ward)))
            return
        if now_ms < halt.kill_at_ms:
            halt.next_ms = min(now_ms + LOOK_EVERY_MS, halt.kill_at_ms)
            return
        if halt.killing_since_ms is None:
            halt.killing_since_ms = now_ms
        self._groups.kill(name)
        halt.blows += 1
        halt.next_ms = now_ms + (KILL_EVERY_MS if halt.blows < 50 else KILL_SLOWLY_MS)
        if not halt.told and now_ms - halt.killing_since_ms > limits.KILL_ESCALATION_MS:
            halt.told = True
            self._publish(wire.Unkillable(name, ward.opened.attempt, self._groups.pids(name)))

    def _has_processes(self, ward: Ward) -> bool:
        return ward.running or self._groups.alive(ward.opened.allocation)

    def _stop_by(self, ward: Ward) -> int:
        return self.renewed_ms + ward.opened.stop_after_ms

    # --- output and use -------------------------------------------------------------------------------------------------
    def _copy(self, task: Task) -> None:
        if task.output is not None and not task.output.copy():
            self._finish_output(task)

    def _drain(self, task: Task) -> None:
        if task.output is not None and not task.output.copy(DRAIN_ROUNDS):
            self._finish_output(task)

    def _finish_output(self, task: Task) -> None:
        if task.output is not None:
            self._readers.unwatch(task.output.reader)
            task.output.close()
            task.output = None

    def terminal(self, allocation: str, rank: int) -> TerminalOutput | None:
        ward = self.wards.get(allocation)
        task = ward.tasks.get(rank) if ward is not None else None
        return task.output if task is not None and isinstance(task.output, TerminalOutput) else None

    def _cpu_ms(self, ward: Ward) -> int:
        counted = self._groups.cpu_ms(ward.opened.allocation)
        return ward.cpu_us // 1000 if counted is None else max(counted, ward.cpu_us // 1000)

    def _memory(self, ward: Ward) -> int:
        return max(ward.memory_bytes_max, self._groups.memory_peak_bytes(ward.opened.allocation) or 0)


def _peak_bytes(usage: resource.struct_rusage) -> int:
    """The most memory that the process held. What is not over our own is what it inherited before it became a program: not known."""
    ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage.ru_maxrss << 10 if usage.ru_maxrss > ours + ours // 8 else 0


def _lost(rank: int, pid: int, now_ms: int) -> wire.TaskLook:
    return wire.TaskLook(rank, pid, 128 + signal.SIGKILL, signal.SIGKILL, False, False, now_ms, True)

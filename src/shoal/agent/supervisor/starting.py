"""
One process is started: groups entered, identity taken on, directories bound, program executed.

Two roads. The short one lets the supervisor step into the task's groups, vfork and step back, so that nothing of it is copied (about
a millisecond less per task on a machine of two cores). The long one forks and does everything in the child; it is taken where a
child has more to do than the standard library's C code does for us: memory limits, a terminal, directories of its own.
Turned down: writing the child's pid into its groups after the start (it could have forked by then), and a helper program in
between (a second exec per task).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import subprocess
import termios
from dataclasses import dataclass
from typing import Protocol

from shoal.agent.supervisor.binds import bind_all
from shoal.agent.supervisor.groups.processes import Process, is_ready_for, read_process
from shoal.agent.supervisor.groups.protocol import Doors
from shoal.agent.supervisor.wire import Bind, User

UMASK = 0o022
NO_COMMAND = 127
"""A program that is not there, as shells say it."""
NOT_RUNNABLE = 126

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Program:
    """What is to run, where, as whom, and what it sees."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    user: User | None = None
    binds: tuple[Bind, ...] = ()
    terminal: bool = False


@dataclass(frozen=True, slots=True)
class Streams:
    """File descriptors that become 0, 1 and 2."""

    stdin: int
    stdout: int
    stderr: int


class StartFailed(Exception):
    """The program could not be started; `exit_code` is what a shell would have given."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Running(Protocol):
    """A process that was started. `returncode` is set by whoever reaps it."""

    pid: int
    returncode: int | None


class Programs(Protocol):
    """What the supervisor does with single processes: `RealPrograms` on a machine, pretended ones in simulation."""

    def start(self, program: Program, doors: Doors, streams: Streams) -> Running:
        """The running process, leader of its own session. Raises StartFailed."""
        ...

    def look(self, pid: int) -> Process | None:
        """The process, None if it is gone."""
        ...

    def is_ready_for(self, process: Process, number: int, boottime_ms: int) -> bool:
        """Whether it may be given a signal that is to tell it something."""
        ...

    def signal(self, pid: int, number: int) -> None:
        """Gives a signal. Raises ProcessLookupError, PermissionError."""
        ...


class RealPrograms:
    """Processes of this machine."""

    def start(self, program: Program, doors: Doors, streams: Streams) -> Running:
        return start_program(program, doors, streams)

    def look(self, pid: int) -> Process | None:
        return read_process(pid)

    def is_ready_for(self, process: Process, number: int, boottime_ms: int) -> bool:
        return is_ready_for(process, number, boottime_ms)

    def signal(self, pid: int, number: int) -> None:
        os.kill(pid, number)


def become_subreaper() -> None:
    """Orphans among our descendants become our children, so that none gets away unseen."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def start_program(program: Program, doors: Doors, streams: Streams) -> subprocess.Popen[bytes]:
    """The running process, leader of its own session. Raises StartFailed."""
    try:
        if doors.careful or program.binds or program.terminal:
            return _start_carefully(program, doors, streams)
        return _start_quickly(program, doors, streams)
    except FileNotFoundError as error:
        missing = error.filename or program.argv[0]
        raise StartFailed(f"cannot start {program.argv[0]!r}: {missing!r} is not there", NO_COMMAND) from error
    except OSError as error:
        raise StartFailed(f"cannot start {program.argv[0]!r}: {error.strerror or error}", NOT_RUNNABLE) from error
    except subprocess.SubprocessError as error:
        raise StartFailed(f"cannot start {program.argv[0]!r}: its groups, user or directories could not be set up", NOT_RUNNABLE) from error
    except ValueError as error:
        raise StartFailed(f"cannot start {program.argv[0]!r}: {error}", NOT_RUNNABLE) from error


def _start_quickly(program: Program, doors: Doors, streams: Streams) -> subprocess.Popen[bytes]:
    user = program.user
    try:
        for door in doors.cheap:
            _enter(door)
        return subprocess.Popen(
            program.argv,
            env=program.env,
            cwd=program.cwd,
            stdin=streams.stdin,
            stdout=streams.stdout,
            stderr=streams.stderr,
            close_fds=False,  # everything that the supervisor opens is close-on-exec
            start_new_session=True,
            umask=UMASK,
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else user.groups,
        )
    finally:
        for door in doors.home:
            _enter(door)


def _start_carefully(program: Program, doors: Doors, streams: Streams) -> subprocess.Popen[bytes]:
    def in_child() -> None:
        try:
            for door in (*doors.cheap, *doors.careful):
                _enter(door)
            if program.terminal:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            if program.binds:
                bind_all(program.binds, program.user)
                _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            _become(program.user)
            os.chdir(program.cwd)
        except BaseException as error:
            os.write(2, f"shoal: {error}\n".encode(errors="replace"))
            raise

    return subprocess.Popen(
        program.argv,
        env=program.env,
        stdin=streams.stdin,
        stdout=streams.stdout,
        stderr=streams.stderr,
        close_fds=False,
        start_new_session=True,
        umask=UMASK,
        preexec_fn=in_child,
    )


def _enter(door: str) -> None:
    fd = os.open(door, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"0")
    finally:
        os.close(fd)


def _become(user: User | None) -> None:
    if user is not None:
        with contextlib.suppress(PermissionError):
            os.setgroups(user.groups)
        os.setgid(user.gid)
        os.setuid(user.uid)

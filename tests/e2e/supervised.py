"""A real supervisor for tests: started, spoken to, and gone with everything it held afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from shoal.agent.supervisor import wire
from shoal.agent.supervisor.groups.processes import all_processes, mark_of
from shoal.agent.supervisor.launch import start_supervisor
from shoal.agent.supervisor.link import Link, SupervisorGone, Watcher

T = TypeVar("T")
PATH = "/usr/local/bin:/usr/bin:/bin"


def boottime_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def eventually(look: Callable[[], T], within_s: float = 10.0) -> T:
    """The first true value of `look`; fails after `within_s`."""
    until = time.monotonic() + within_s
    while True:
        value = look()
        if value:
            return value
        assert time.monotonic() < until, f"nothing came within {within_s} s"
        time.sleep(0.01)


def marked(value: str) -> list[int]:
    """Live processes that carry TEST_MARK=value."""
    return [pid for pid in all_processes() if mark_of(pid, b"TEST_MARK") == value]


@dataclass
class Supervised:
    directory: Path
    name: str
    isolation: str
    link: Link = field(init=False)
    events: list[wire.Event] = field(default_factory=list)
    pid: int = 0
    base: str = ""

    def __post_init__(self) -> None:
        self.directory.mkdir(exist_ok=True)
        self.start()

    def start(self) -> None:
        """A supervisor is there and our connections with it."""
        start_supervisor(str(self.directory), self.name, self.isolation)
        self.link = Link(str(self.directory))
        greeting = self.link.greet()
        self.pid, self.base = greeting.pid, greeting.base
        threading.Thread(target=self._read, args=(Watcher(str(self.directory)),), daemon=True).start()
        self.feed()

    def feed(self, ago_ms: int = 0) -> None:
        self.link.give(wire.Feed(boottime_ms() - ago_ms))

    def open(self, allocation: str, **fields: int) -> None:
        assert self.link.give(wire.Open(allocation, 1, **fields)) == (wire.Done(),)

    def spawn(self, allocation: str, rank: int, script: str, window: wire.Window | None = None) -> wire.Result:
        env = {"PATH": PATH, "TEST_MARK": self.name}
        return self.link.give(
            wire.Spawn(allocation, rank, ("/bin/sh", "-c", script), env, "/", str(self.log_path(allocation, rank)), window=window)
        )[0]

    def run(self, allocation: str, script: str, **fields: int) -> None:
        self.open(allocation, **fields)
        assert self.spawn(allocation, 0, script) == wire.Done()

    def log_path(self, allocation: str, rank: int = 0) -> Path:
        return self.directory / f"{allocation}-{rank}.log"

    def log(self, allocation: str, rank: int = 0) -> str:
        """What the task has written so far; the file is made with its first byte."""
        path = self.log_path(allocation, rank)
        return path.read_text() if path.exists() else ""

    def exited(self, allocation: str, rank: int = 0, within_s: float = 10.0) -> wire.Exited:
        def look() -> wire.Exited | None:
            return next((e for e in self.events if isinstance(e, wire.Exited) and e.allocation == allocation and e.task.rank == rank), None)

        return eventually(look, within_s)  # type: ignore[return-value]

    def stopped(self, allocation: str, within_s: float = 10.0) -> wire.Stopped:
        def look() -> wire.Stopped | None:
            return next((e for e in self.events if isinstance(e, wire.Stopped) and e.allocation == allocation), None)

        return eventually(look, within_s)  # type: ignore[return-value]

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Nothing is left: no task, no supervisor, no guardian, no group."""
        with contextlib.suppress(SupervisorGone):
            for look in self.link.list().allocations:
                self.link.give(wire.Stop(look.allocation, force=True))
            for look in self.link.list().allocations:
                eventually(lambda a=look.allocation: self.link.give(wire.Forget(a)) == (wire.Done(),))  # type: ignore[misc]
            self.link.give(wire.Quit())
        self.link.close()
        eventually(lambda: not (self.directory / "socket").exists() or not Path(f"/proc/{self.pid}").exists())
        eventually(lambda: not Path(self.base).is_absolute() or not Path(self.base).exists())

    def _read(self, watcher: Watcher) -> None:
        for event in watcher.events():
            self.events.append(event)

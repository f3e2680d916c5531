"""
A whole Shoal as processes of a test's own: one server, some agents with pretended devices, short leases. Any of them may be killed.

Everything lives below one directory and carries a mark in its environment, so that a test can prove that nothing is left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from shoal.client.api import Api

LEASE = "renew=500ms,ttl=2s,kill=3s,skew=100ms,start=15s"
MARK = "SHOAL_TEST_MARK"


@dataclass
class Installation:
    """See module. `mark` is unique to the test; tasks inherit nothing of ours, so jobs set it in their own environment."""

    directory: Path
    mark: str
    nodes: int = 3
    devices: str = "h100:4"
    _server: subprocess.Popen[bytes] | None = None
    _agents: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _port: int = 0
    _api: Api | None = None

    @property
    def state_dir(self) -> Path:
        return self.directory / "state"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"n{i + 1}" for i in range(self.nodes))

    def start(self) -> None:
        """Returns when all agents have registered."""
        self.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.start_server()
        for name in self.names:
            self.start_agent(name)
        eventually(lambda: len(self.api().nodes.list()) == self.nodes, 30, "agents to register")

    def start_server(self) -> None:
        (self.state_dir / "url").unlink(missing_ok=True)
        command = [
            sys.executable,
            "-m",
            "shoal.run.server",
            "--state-dir",
            str(self.state_dir),
            "--port",
            str(self._port),
            "--lease",
            LEASE,
        ]
        self._server = self._spawn(command, "server.out")
        eventually((self.state_dir / "url").exists, 30, "the server to listen")
        self._port = int((self.state_dir / "url").read_text().strip().rsplit(":", 1)[1])

    def start_agent(self, name: str) -> None:
        command = [
            *(sys.executable, "-m", "shoal.run.agent", "--url", self.url, "--name", name),
            *("--state-dir", str(self.state_dir / "nodes" / name), "--pretend", self.devices),
            *("--join-token-file", str(self.state_dir / "join.token")),
        ]
        self._agents[name] = self._spawn(command, f"{name}.out")

    def _spawn(self, command: list[str], log: str) -> subprocess.Popen[bytes]:
        with (self.directory / log).open("ab") as out:
            return subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, env={**os.environ, MARK: self.mark})

    @property
    def url(self) -> str:
        return (self.state_dir / "url").read_text().strip()

    def api(self) -> Api:
        """The one client of the test. It has met the server, so it waits for one that restarts."""
        if self._api is None:
            self._api = Api(self.url, (self.state_dir / "admin.token").read_text().strip(), patience_s=30)
            self._api.meta()
        return self._api

    def kill_server(self) -> None:
        """SIGKILL, at once; the port stays ours."""
        assert self._server is not None
        self._server.kill()
        self._server.wait()

    def kill_agent(self, name: str) -> None:
        """SIGKILL of the agent alone: its supervisor and tasks live on."""
        self._agents[name].kill()
        self._agents[name].wait()

    def stop(self) -> None:
        """In order: agents, server, then whatever carries the mark, supervisors above all."""
        for process in (*self._agents.values(), self._server):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in (*self._agents.values(), self._server):
            if process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
        for pid in marked(MARK, self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def eventually(look: Callable[[], object], within_s: float, what: str) -> None:
    """Returns when `look` is true; fails after `within_s`."""
    until = time.monotonic() + within_s
    while not look():
        assert time.monotonic() < until, f"waited {within_s} s for {what}"
        time.sleep(0.02)


def marked(name: str, value: str) -> list[int]:
    """Live processes with `name=value` in their environment."""
    wanted = f"{name}={value}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found

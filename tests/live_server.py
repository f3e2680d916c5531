"""
A whole server for tests: store on disk, plane and its thread, HTTP on a loopback port, as `run.server` composes it.

`Serving` runs it in a thread of the test's process (quick, and its parts can be looked at); `ServerProcess` as a process that can be
killed. `HandAgent` is a node driven by hand over the agents' own API: it says what a test wants an agent to have seen.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from shoal.client.api import Api
from shoal.model.command import Command, Prepare
from shoal.model.event import AllocationPrepared, AllocationReleased, AllocationStarted, Report, TaskExited
from shoal.model.node import Device, NodeFacts
from shoal.model.wire import Commands, Held, Join, LogChunk, Register, Registered, TokenAsk, Upload, UploadReply
from shoal.run.http_server import HttpServer
from shoal.run.server import Options, read_options, run_server

READY_S = 20.0


class Serving:
    """A server in this process. `state` is its directory; a second one on the same directory is a restart."""

    def __init__(self, state: Path, *arguments: str) -> None:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.state = state
        self.options: Options = read_options(["--state-dir", str(state), "--port", "0", *arguments])
        self.server: HttpServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)

    def __enter__(self) -> Self:
        (self.state / "url").unlink(missing_ok=True)
        self._thread.start()
        wait_until(lambda: (self.state / "url").exists() or not self._thread.is_alive(), "the server to start")
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        if self._thread.is_alive() and self._loop is not None and self.server is not None:
            self._loop.call_soon_threadsafe(self.server.stop)
        self._thread.join(20)
        assert not self._thread.is_alive(), "the server did not stop"

    @property
    def url(self) -> str:
        return (self.state / "url").read_text().strip()

    @property
    def admin(self) -> str:
        return (self.state / "admin.token").read_text().strip()

    def api(self, token: str | None = None, *, project: str = "default", patience_s: float = 5.0) -> Api:
        """An API object for the administrator, or for `token`."""
        return Api(self.url, self.admin if token is None else token, project=project, patience_s=patience_s)

    def token(self, role: str, *, project: str | None = None, principal: str = "user/test") -> str:
        """The text of a new token."""
        return self.api().tokens.create(TokenAsk(principal=principal, role=role, project=project)).text  # type: ignore[arg-type]

    def _run(self) -> None:
        try:
            run_server(self.options, self._begun)
        except BaseException as error:
            self._error = error

    def _begun(self, server: HttpServer) -> None:
        self.server, self._loop = server, asyncio.get_running_loop()


class ServerProcess:
    """A server as a process of its own, on a port that stays the same over restarts."""

    def __init__(self, state: Path, *arguments: str) -> None:
        self.state = state
        self._arguments = arguments
        self._port = "0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        (self.state / "url").unlink(missing_ok=True)
        command = [sys.executable, "-m", "shoal.run.server", "--state-dir", str(self.state), "--port", self._port, *self._arguments]
        self.process = subprocess.Popen(command)
        process = self.process
        wait_until(lambda: (self.state / "url").exists() or process.poll() is not None, "the server to start")
        assert process.poll() is None, f"the server ended with {process.returncode}"
        self._port = self.url.rpartition(":")[2]
        return self

    @property
    def url(self) -> str:
        return (self.state / "url").read_text().strip()

    def api(self, patience_s: float = 20.0) -> Api:
        return Api(self.url, (self.state / "admin.token").read_text().strip(), patience_s=patience_s)

    def kill(self) -> None:
        """As the machine's memory killer would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> int:
        """Ends it as an init system would; gives its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


@contextmanager
def server_process(state: Path, *arguments: str) -> Iterator[ServerProcess]:
    server = ServerProcess(state, *arguments).start()
    try:
        yield server
    finally:
        server.stop()


def wait_until(true: Callable[[], object], what: str, timeout_s: float = READY_S) -> None:
    """Returns once `true()` is; fails the test after `timeout_s`."""
    until = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < until, f"waited {timeout_s} s for {what}"
        time.sleep(0.005)


class HandAgent:
    """One node with `gpus` pretended GPUs. It does nothing by itself."""

    def __init__(self, url: str, join_token: str, name: str = "n1", gpus: int = 8) -> None:
        devices = tuple(Device(uuid=f"GPU-{name}-{i}", index=i, model="h100", memory_bytes=80 * 10**9) for i in range(gpus))
        self.facts = NodeFacts(hostname=name, address="127.0.0.1", cpus=64, memory_bytes=2**38, devices=devices, boot_id=f"boot-{name}")
        self.name = name
        joined = Api(url, join_token).agent.join(Join(name=name, facts=self.facts))
        self.token = joined.token
        self.held: dict[str, Held] = {}
        self.store_id = joined.store_id
        self.connect(url)

    def connect(self, url: str) -> Registered:
        """Begins anew, as an agent that has restarted or met a new server."""
        self.api = Api(url, self.token, patience_s=0)
        registered = self.api.agent.register(Register(facts=self.facts, store_id=self.store_id, held=tuple(self.held.values())))
        self.epoch, self.after, self.seq = registered.epoch, 0, 0
        self.inbox: list[Command] = []
        return registered

    def poll(self, wait_ms: int = 5_000) -> Commands:
        """What there is to do; waits for something."""
        commands = self.api.agent.commands(self.after, wait_ms)
        self.after = commands.last
        return commands

    def report(self, *reports: Report, logs: tuple[LogChunk, ...] = ()) -> UploadReply:
        """One upload."""
        upload = Upload(epoch=self.epoch, boot_id=self.facts.boot_id, first_seq=self.seq, reports=reports, logs=logs)
        self.seq += len(reports)
        return self.api.agent.upload(upload)

    def await_prepare(self) -> Prepare:
        """The next Prepare among the commands."""
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            for at, command in enumerate(self.inbox):
                if isinstance(command, Prepare):
                    del self.inbox[: at + 1]
                    return command
            self.inbox = [row.body for row in self.poll().rows]
        raise AssertionError("no job was placed")

    def start(self, prepare: Prepare) -> None:
        """Prepared and started, as a single node's gang does at once."""
        self.held[prepare.allocation] = Held(allocation=prepare.allocation, job=prepare.job, attempt=prepare.attempt, state="STARTED")
        self.report(*_begin(prepare))

    def write(self, prepare: Prepare, offset: int, data: bytes, rank: int = 0) -> UploadReply:
        """Bytes of a task's output."""
        return self.report(logs=(LogChunk(job=prepare.job, attempt=prepare.attempt, rank=rank, offset=offset, data=data),))

    def finish(self, prepare: Prepare, exit_code: int = 0) -> None:
        """Every task of the allocation ends, then nothing is left of it."""
        self.held.pop(prepare.allocation, None)
        self.report(*_end(prepare, exit_code))

    def blink(self, prepare: Prepare) -> None:
        """Started and ended within one upload."""
        self.report(*_begin(prepare), *_end(prepare, 0))


def _begin(prepare: Prepare) -> tuple[Report, ...]:
    allocation, attempt = prepare.allocation, prepare.attempt
    return (
        AllocationPrepared(allocation=allocation, attempt=attempt, address="127.0.0.1", port=29_500),
        AllocationStarted(allocation=allocation, attempt=attempt, at_ms=_now_ms()),
    )


def _end(prepare: Prepare, exit_code: int) -> tuple[Report, ...]:
    allocation, attempt, now_ms = prepare.allocation, prepare.attempt, _now_ms()
    ranks = (task.rank for task in prepare.claim.tasks)
    exits = (TaskExited(allocation=allocation, attempt=attempt, rank=rank, exit_code=exit_code, at_ms=now_ms) for rank in ranks)
    return (*exits, AllocationReleased(allocation=allocation, attempt=attempt, at_ms=now_ms))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

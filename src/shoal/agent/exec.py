"""
Answers a user's call for a terminal: dials out, starts the command beside the task (or attaches to the task's own terminal), and
carries bytes until either side ends. One thread per session, plus one per stream.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from shoal.agent.holds import Hold, Phase
from shoal.agent.runtimes.host import HostRuntime
from shoal.agent.supervisor import wire
from shoal.agent.supervisor.link import AttachLink, ExecLink
from shoal.agent.supervisor.terminal import resize_terminal
from shoal.base.errors import ShoalError
from shoal.model.codec import decode_json
from shoal.model.wire import ExecResize, ExecSession, ExecStream

log = logging.getLogger(__name__)

READ_BYTES = 32 << 10
DRAIN_S = 2.0
"""After the command's end its last output is waited for so long; a daemon it left may hold the pipe for ever."""
CANNOT_START = 126
END_OF_INPUT = b"\x04"


class Terminal(Protocol):
    """Our end of the connection; `client.terminal.Terminal` is the real one."""

    def send(self, stream: ExecStream, data: bytes) -> None: ...

    def exit(self, exit_code: int, message: str = "") -> None: ...

    def messages(self) -> Iterator[tuple[ExecStream, bytes]]: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class ExecServer:
    """`dial` opens our end of a session; `find` gives the hold of an allocation."""

    directory: str
    runtime: HostRuntime
    dial: Callable[[str], Terminal]
    find: Callable[[str], Hold | None]

    def start(self, session: ExecSession) -> None:
        threading.Thread(target=self.serve, args=(session,), name=f"exec-{session.session[:8]}", daemon=True).start()

    def serve(self, session: ExecSession) -> None:
        """The whole session."""
        try:
            terminal = self.dial(session.session)
        except ShoalError as error:
            log.info("exec session %s is over before it began: %s", session.session, error.message)
            return
        try:
            self._serve(session, terminal)
        except ShoalError as error:
            with contextlib.suppress(ShoalError):
                terminal.exit(CANNOT_START, error.message)
        except OSError as error:
            with contextlib.suppress(ShoalError):
                terminal.exit(CANNOT_START, str(error))
        finally:
            terminal.close()

    def _serve(self, session: ExecSession, terminal: Terminal) -> None:
        hold = self.find(session.allocation)
        request = session.request
        task = next((t for t in hold.order.claim.tasks if t.rank == request.rank), None) if hold is not None else None
        if hold is None or task is None or hold.phase is not Phase.STARTED or hold.ready is None:
            terminal.exit(CANNOT_START, f"task {request.rank} of {session.allocation} is not running on this node")
            return
        window = wire.Window(request.rows, request.columns)
        if not request.command:
            if not (hold.order.spec.interactive and request.rank == 0):
                terminal.exit(CANNOT_START, "the job has no terminal of its own to attach to; give a command to run beside it")
                return
            self._attach(terminal, AttachLink(self.directory, session.allocation, request.rank, window))
            return
        order = self.runtime.exec(hold.order, hold.ready, hold.meeting, task, request.command)
        order = replace(order, env={**order.env, **request.env}, window=window if request.tty else None)
        link = ExecLink(self.directory, order)
        _Exec(terminal, link, request.tty).run()

    def _attach(self, terminal: Terminal, link: AttachLink) -> None:
        def show() -> None:
            try:
                code = link.told(lambda data: terminal.send(ExecStream.STDOUT, data))
                terminal.exit(code)
            except ShoalError as error:
                with contextlib.suppress(ShoalError):
                    terminal.exit(CANNOT_START, error.message)
            terminal.close()

        threading.Thread(target=show, name="attach-output", daemon=True).start()
        try:
            for stream, data in terminal.messages():
                if stream is ExecStream.STDIN:
                    link.type(data)
                elif stream is ExecStream.STDIN_END:
                    link.type(END_OF_INPUT)
                elif stream is ExecStream.RESIZE:
                    link.resize(_window(data))
        except (ShoalError, OSError):
            pass  # one side has gone; the task's terminal stays
        finally:
            link.close()


class _Exec:
    """One command: its files here, the user there."""

    def __init__(self, terminal: Terminal, link: ExecLink, tty: bool) -> None:
        self._terminal = terminal
        self._link = link
        self._tty = tty
        self._stdin = link.files[0]
        outputs = ((link.files[0], ExecStream.STDOUT),) if tty else zip(link.files[1:], (ExecStream.STDOUT, ExecStream.STDERR), strict=True)
        self._readers = [threading.Thread(target=self._show, args=output, daemon=True) for output in outputs]

    def run(self) -> None:
        """Carries the user's input until the user goes; the command's end closes the terminal, which ends that too."""
        for reader in self._readers:
            reader.start()
        threading.Thread(target=self._await_end, daemon=True).start()
        try:
            for stream, data in self._terminal.messages():
                self._take(stream, data)
        except (ShoalError, OSError):
            pass
        finally:
            self._link.close()
            for reader in self._readers:
                reader.join(DRAIN_S)
            for fd in {self._stdin, *self._link.files} - {-1}:
                with contextlib.suppress(OSError):
                    os.close(fd)

    def _take(self, stream: ExecStream, data: bytes) -> None:
        if stream is ExecStream.STDIN and self._stdin >= 0:
            with contextlib.suppress(BrokenPipeError):
                while data:
                    data = data[os.write(self._stdin, data) :]
        elif stream is ExecStream.STDIN_END and self._stdin >= 0:
            if self._tty:
                os.write(self._stdin, END_OF_INPUT)
            else:
                os.close(self._stdin)
                self._link.files = self._link.files[1:]
                self._stdin = -1
        elif stream is ExecStream.RESIZE and self._tty:
            resize_terminal(self._stdin, _window(data))

    def _show(self, fd: int, stream: ExecStream) -> None:
        while True:
            try:
                data = os.read(fd, READ_BYTES)
            except OSError:
                return  # a terminal says EIO when its other side is closed
            if not data:
                return
            try:
                self._terminal.send(stream, data)
            except ShoalError:
                return

    def _await_end(self) -> None:
        try:
            code = self._link.wait()
        except OSError:
            return  # closed by us
        for reader in self._readers:
            reader.join(DRAIN_S)
        with contextlib.suppress(ShoalError):
            self._terminal.exit(code)
        self._terminal.close()


def _window(data: bytes) -> wire.Window:
    size = decode_json(data, ExecResize)
    return wire.Window(size.rows, size.columns)

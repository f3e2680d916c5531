"""
The agent's side of the supervisor's socket. Orders wait for their answers; events come on a connection of their own.

A supervisor that is gone shows as `SupervisorGone`, here and as the last event; the owner then starts a new one and lists.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator

from shoal.agent.supervisor import wire
from shoal.base.errors import Unavailable

ANSWER_SECONDS_MAX = 60
"""An answer comes in milliseconds; a machine that swaps may need longer. Past this the supervisor counts as gone."""
READ_BYTES = 256 << 10


class SupervisorGone(Unavailable):
    """The connection is closed: the supervisor has ended or was killed."""


def connect(directory: str) -> socket.socket:
    """A connection to the supervisor at home in `directory`, whatever the length of its path. Raises SupervisorGone."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    home = -1
    try:
        home = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        connection.connect(f"/proc/self/fd/{home}/socket")  # socket paths have 107 bytes at most
    except OSError as error:
        connection.close()
        raise SupervisorGone(f"no supervisor listens in {directory}: {error.strerror}") from error
    finally:
        if home >= 0:
            os.close(home)
    return connection


class Link:
    """Orders to a supervisor. Any thread; one order batch at a time."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._number = 0
        self._frames = wire.Frames()
        self._socket = connect(directory)
        self._socket.settimeout(ANSWER_SECONDS_MAX)

    def greet(self) -> wire.Greeting:
        """Who is there. Raises Unavailable for one that speaks another version."""
        greeting = self.give(wire.Hello(wire.VERSION))[0]
        if not isinstance(greeting, wire.Greeting) or greeting.version != wire.VERSION:
            raise Unavailable(f"the running supervisor speaks another version than {wire.VERSION}; it ends when its work has ended")
        return greeting

    def give(self, *orders: wire.Order) -> tuple[wire.Result, ...]:
        """Has the orders carried out, in order; one result each."""
        if not orders:
            return ()
        with self._lock:
            self._number += 1
            try:
                self._socket.sendall(wire.frame(wire.Request(self._number, orders)))
                return self._answer(self._number)
            except (OSError, ValueError) as error:
                raise SupervisorGone(f"the supervisor is gone: {error}") from error

    def list(self) -> wire.Listing:
        """Everything that the supervisor holds."""
        listing = self.give(wire.List())[0]
        assert isinstance(listing, wire.Listing)
        return listing

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def _answer(self, number: int) -> tuple[wire.Result, ...]:
        while True:
            data = self._socket.recv(READ_BYTES)
            if not data:
                raise SupervisorGone("the supervisor has closed the connection")
            for body in self._frames.feed(data):
                told = wire.told_decoder.decode(body)
                if isinstance(told, wire.Answer) and told.number == number:
                    return told.results


class Watcher:
    """Events of a supervisor from the moment that this object is made, by a connection of their own."""

    def __init__(self, directory: str) -> None:
        self._socket = connect(directory)
        self._socket.settimeout(ANSWER_SECONDS_MAX)
        self._told = told_by(self._socket)
        try:
            self._socket.sendall(wire.frame(wire.Request(1, (wire.Watch(),))))
        except OSError as error:
            raise SupervisorGone(f"the supervisor is gone: {error}") from error
        if next(self._told, None) is None:
            raise SupervisorGone("the supervisor has closed the connection")
        self._socket.settimeout(None)

    def events(self) -> Iterator[wire.Event]:
        """Ends when the supervisor does. For a thread of its own."""
        for told in self._told:
            if isinstance(told, wire.Exited | wire.Stopped | wire.Unkillable):
                yield told

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def told_by(connection: socket.socket) -> Iterator[wire.Told]:
    """Everything that comes over a connection until it ends."""
    frames = wire.Frames()
    while True:
        try:
            data = connection.recv(READ_BYTES)
        except OSError:
            return
        if not data:
            return
        for body in frames.feed(data):
            yield wire.told_decoder.decode(body)


class ExecLink:
    """A process beside a task, with its open files here: one (a terminal) or three (stdin, stdout, stderr)."""

    def __init__(self, directory: str, order: wire.Exec) -> None:
        self._socket = connect(directory)
        self._socket.settimeout(ANSWER_SECONDS_MAX)
        self._socket.sendall(wire.frame(wire.Request(1, (order,))))
        data, files, _, _ = socket.recv_fds(self._socket, READ_BYTES, wire.OPEN_FILES_PER_MESSAGE_MAX)
        self.files = tuple(files)
        self._over: wire.Over | None = None
        self._frames = wire.Frames()
        for body in self._frames.feed(data):
            told = wire.told_decoder.decode(body)
            if isinstance(told, wire.Answer) and isinstance(told.results[0], wire.Failed):
                self.close()
                raise Unavailable(told.results[0].message)
            if isinstance(told, wire.Over):
                self._over = told
        if not data:
            raise SupervisorGone("the supervisor has closed the connection")
        self._socket.settimeout(None)

    def wait(self) -> int:
        """The exit code; 255 if the supervisor died first."""
        while self._over is None:
            data = self._socket.recv(READ_BYTES)
            if not data:
                return 255
            for body in self._frames.feed(data):
                told = wire.told_decoder.decode(body)
                if isinstance(told, wire.Over):
                    self._over = told
        return self._over.exit_code

    def close(self) -> None:
        """Ends the process if it still runs. The files stay the caller's."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class AttachLink:
    """The terminal of an interactive task. One thread may read while another types."""

    def __init__(self, directory: str, allocation: str, rank: int, window: wire.Window) -> None:
        self._socket = connect(directory)
        self._socket.sendall(wire.frame(wire.Request(1, (wire.Attach(allocation, rank, window),))))

    def told(self, on_output: Callable[[bytes], None]) -> int:
        """Gives output on as it comes; returns the exit code. Raises Unavailable if there is no such terminal."""
        for told in told_by(self._socket):
            if isinstance(told, wire.Bytes):
                on_output(told.data)
            elif isinstance(told, wire.Over):
                return told.exit_code
            elif isinstance(told, wire.Answer) and isinstance(told.results[0], wire.Failed):
                raise Unavailable(told.results[0].message)
        return 255

    def type(self, data: bytes) -> None:
        self._socket.sendall(wire.frame(wire.Bytes(data)))

    def resize(self, window: wire.Window) -> None:
        self._socket.sendall(wire.frame(wire.Resize(window)))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

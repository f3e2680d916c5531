"""
What agent and supervisor say to each other over the unix socket: frames of MessagePack, four bytes of length before each.

A request frame holds a batch of orders and is answered by one `Answer` with one result per order, in order: a busy agent pays one
round trip for many tasks. Events (`Exited`, `Stopped`, `Unkillable`) come unasked to whoever sent `Watch`; they may be lost with the
connection, and `List` then tells the whole state. Every order may be sent twice.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

VERSION: Final = 1
"""Raised when an old supervisor cannot be used by a new agent; the agent then waits for it to be empty and starts a new one."""
FRAME_BYTES_MAX: Final = 64 << 20
"""A thousand tasks with an environment of 64 KiB each."""
OPEN_FILES_PER_MESSAGE_MAX: Final = 4
_LENGTH: Final = struct.Struct("<I")


class User(msgspec.Struct, frozen=True, array_like=True):
    """Whom a task runs as."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class Bind(msgspec.Struct, frozen=True, array_like=True):
    """A directory shown at another place, in a mount namespace of the task's own."""

    source: str
    target: str
    read_only: bool = False


class Window(msgspec.Struct, frozen=True, array_like=True):
    """The size of a terminal."""

    rows: int = 24
    columns: int = 80


class _Order(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class Hello(_Order, frozen=True, array_like=True, tag=True):
    version: int


class Watch(_Order, frozen=True, array_like=True, tag=True):
    """Send events over this connection from now on."""


class Open(_Order, frozen=True, array_like=True, tag=True):
    """An allocation begins: its groups are made. The last five fields are what the supervisor needs when it acts by itself."""

    allocation: str
    attempt: int
    memory_bytes: int = 0
    cpu_milli: int = 0
    signal: int = 15
    grace_ms: int = 30_000
    stop_after_ms: int = 300_000


class Spawn(_Order, frozen=True, array_like=True, tag=True):
    """
    Starts a task once per (allocation, rank): a second order is a no-op, also after the task's end, until `Forget`.

    `log` is the file that stdout and stderr go to, in order of writing. With `window` the task gets a terminal.
    """

    allocation: str
    rank: int
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    log: str
    user: User | None = None
    binds: tuple[Bind, ...] = ()
    window: Window | None = None


class Signal(_Order, frozen=True, array_like=True, tag=True):
    """A signal to an allocation's tasks, or to one rank: to the outermost processes of each that would not die of it."""

    allocation: str
    signal: int
    rank: int | None = None


class Stop(_Order, frozen=True, array_like=True, tag=True):
    """The stop ladder: signal, grace, kill of everything in the group. `force` goes to the kill. A weaker stop changes nothing."""

    allocation: str
    signal: int = 15
    grace_ms: int = 30_000
    force: bool = False


class List(_Order, frozen=True, array_like=True, tag=True):
    pass


class Feed(_Order, frozen=True, array_like=True, tag=True):
    """The control plane answered a renewal that was sent at this boot-time instant."""

    renewed_ms: int


class Forget(_Order, frozen=True, array_like=True, tag=True):
    """The allocation is over and told of; its groups go. Refused while processes of it are left."""

    allocation: str


class Exec(_Order, frozen=True, array_like=True, tag=True):
    """
    A process beside a task, in its group. Must be alone on its connection: the answer carries the open files (the terminal, or
    stdin, stdout, stderr), `Over` follows at its end, and closing the connection kills it.
    """

    allocation: str
    rank: int
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    user: User | None = None
    binds: tuple[Bind, ...] = ()
    window: Window | None = None


class Attach(_Order, frozen=True, array_like=True, tag=True):
    """The terminal of a task that has one. Alone on its connection: `Bytes` and `Resize` then go both ways until `Over`."""

    allocation: str
    rank: int
    window: Window


class Quit(_Order, frozen=True, array_like=True, tag=True):
    """Ends the supervisor if it holds nothing."""


Order = Hello | Watch | Open | Spawn | Signal | Stop | List | Feed | Forget | Exec | Attach | Quit


class Done(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """
    `kind`: unknown (no such allocation), late (the lease has run out), busy, deaf (no process is ready for the signal), system (the
    operating system refused).
    """

    kind: str
    message: str


class Greeting(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Who answers, and what it can do on this machine."""

    version: int
    pid: int
    isolation: str
    base: str
    """Where the groups are, as the group driver of `isolation` understands it."""
    controllers: tuple[str, ...] = ()
    """What can be limited: memory, cpu, pids."""


class TaskLook(msgspec.Struct, frozen=True, array_like=True):
    """A task as it is now, or how it ended. `stopped`: a stop had reached it before that."""

    rank: int
    pid: int
    exit_code: int | None = None
    signal: int | None = None
    oom: bool = False
    stopped: bool = False
    at_ms: int = 0
    lost: bool = False
    """It was running when an earlier supervisor died; how it ended is not known."""


class AllocationLook(msgspec.Struct, frozen=True, array_like=True):
    """An allocation as it is now. `why` it stops: asked, lease, shutdown, supervisor-lost."""

    allocation: str
    attempt: int
    tasks: tuple[TaskLook, ...]
    alive: bool
    """Processes of it are left, tasks or not."""
    stopping: bool
    why: str
    cpu_ms: int = 0
    memory_bytes_max: int = 0


class Listing(msgspec.Struct, frozen=True, array_like=True, tag=True):
    allocations: tuple[AllocationLook, ...]
    renewed_ms: int


Result = Done | Failed | Greeting | Listing


class Request(msgspec.Struct, frozen=True, array_like=True):
    number: int
    orders: tuple[Order, ...]


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=True):
    number: int
    results: tuple[Result, ...]


class Exited(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A task ended. `alive`: other processes of the allocation are left."""

    allocation: str
    attempt: int
    task: TaskLook
    alive: bool
    cpu_ms: int = 0
    memory_bytes_max: int = 0


class Stopped(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A stop is through: no process of the allocation is left. `why`: asked or lease."""

    allocation: str
    attempt: int
    why: str
    cpu_ms: int = 0
    memory_bytes_max: int = 0


class Unkillable(msgspec.Struct, frozen=True, array_like=True, tag=True):
    allocation: str
    attempt: int
    pids: tuple[int, ...]


class Bytes(msgspec.Struct, frozen=True, array_like=True, tag=True):
    data: bytes


class Resize(msgspec.Struct, frozen=True, array_like=True, tag=True):
    window: Window


class Over(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The process of an exec or an attach has ended."""

    exit_code: int


Event = Exited | Stopped | Unkillable
Told = Answer | Exited | Stopped | Unkillable | Bytes | Over
"""All that a supervisor sends."""
Typed = Bytes | Resize
"""What an attached client sends."""

_encoder = msgspec.msgpack.Encoder()
request_decoder = msgspec.msgpack.Decoder(Request)
told_decoder = msgspec.msgpack.Decoder(Told)
typed_decoder = msgspec.msgpack.Decoder(Typed)


def frame(message: msgspec.Struct) -> bytes:
    """`message` as it goes over the socket."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Cuts a byte stream into frame bodies."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes. Raises ValueError for a frame over FRAME_BYTES_MAX: the peer is not one of ours."""
        self._buffer += data
        bodies: list[bytes] = []
        at = 0
        while len(self._buffer) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer, at)
            if size > FRAME_BYTES_MAX:
                raise ValueError(f"frame of {size} bytes, at most {FRAME_BYTES_MAX} are read")
            if len(self._buffer) - at - _LENGTH.size < size:
                break
            bodies.append(bytes(self._buffer[at + _LENGTH.size : at + _LENGTH.size + size]))
            at += _LENGTH.size + size
        del self._buffer[:at]
        return bodies

"""
The supervisor's one loop: sockets, ended children, output pipes, deadlines. Nothing in it waits but the selector.

Called by `__main__`. Each round: what is readable, then children that ended, then deadlines, then one sync of the journal if ends
were written. A connection that does not read its events is closed; its owner lists anew when it comes back.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from shoal.agent.supervisor import wire
from shoal.agent.supervisor.execs import Execs, Started
from shoal.agent.supervisor.groups.protocol import Groups
from shoal.agent.supervisor.journal import Journal
from shoal.agent.supervisor.starting import RealPrograms
from shoal.agent.supervisor.terminal import TerminalOutput
from shoal.agent.supervisor.wards import Clock, Wards

WAIT_MS_MAX = 1_000
"""The selector's clock stands still while the machine sleeps; after waking, a deadline is seen at most so much later."""
IDLE_EXIT_MS = 30_000
"""
With nothing alive and nobody connected for so long the supervisor ends: an agent that comes back starts a new one, which knows from
the journal how everything ended.
"""
SYNC_EVERY_MS = 100
"""Ends are synced to the disk this often, many at once: only the machine's own death can lose them earlier."""
UNSENT_BYTES_MAX = 8 << 20
READ_BYTES = 256 << 10


@dataclass(slots=True, eq=False)
class Peer:
    """A connection. With `terminal` its frames are keys and not orders."""

    socket: socket.socket
    frames: wire.Frames = field(default_factory=wire.Frames)
    unsent: bytearray = field(default_factory=bytearray)
    watching: bool = False
    terminal: TerminalOutput | None = None
    listener: Callable[[bytes], None] | None = None
    attached: tuple[str, int] | None = None
    closing: bool = False


class Supervisor:
    """See module."""

    def __init__(self, groups: Groups, journal: Journal, clock: Clock, listener: socket.socket) -> None:
        self._groups = groups
        self._journal = journal
        self._clock = clock
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._peers: set[Peer] = set()
        self._wards = Wards(groups, RealPrograms(), journal, clock, self._publish, self)
        self._execs = Execs(self._wards)
        self._leaving = False
        self._idle_since_ms = clock.boottime_ms()
        self._synced_ms = 0

    def run(self) -> None:
        """Returns when there is nothing left to watch over and nobody needs it."""
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        wakeup = self._signals()
        self._selector.register(wakeup, selectors.EVENT_READ, lambda _mask: self._drain(wakeup))
        self._wards.recover()
        self._reap()
        while not self._finished():
            wait_ms = self._wait_ms(self._wards.tick())
            for key, mask in self._selector.select(wait_ms / 1000):
                key.data(mask)
            self._reap()
            self._sync()
        self._journal.close()

    # --- rounds ---------------------------------------------------------------------------------------------------------
    def _signals(self) -> int:
        """Signals arrive as bytes on a pipe, so that the selector wakes. A handler must stand, or they would be ignored."""
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        return reader

    def _drain(self, wakeup: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in os.read(wakeup, 4096):
                if number == signal.SIGTERM:
                    self._leaving = True
                    self._wards.halt_all("shutdown")

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if not self._wards.reap(pid, status, usage):
                told = self._execs.reap(pid, status)
                if told is not None and isinstance(told[0], Peer):
                    self._send(told[0], told[1])
                    told[0].closing = True
                    self._flush(told[0])

    def _wait_ms(self, next_ms: int | None) -> int:
        most_ms = SYNC_EVERY_MS if self._journal.dirty else WAIT_MS_MAX
        if next_ms is None:
            return most_ms
        return max(0, min(most_ms, next_ms - self._clock.boottime_ms()))

    def _sync(self) -> None:
        now_ms = self._clock.boottime_ms()
        if now_ms - self._synced_ms >= SYNC_EVERY_MS:
            self._synced_ms = now_ms
            self._journal.sync()
            self._journal.tidy()

    def _finished(self) -> bool:
        now_ms = self._clock.boottime_ms()
        if self._peers or self._anything_lives():
            self._idle_since_ms = now_ms
        if self._leaving:
            return not self._anything_lives()
        return now_ms - self._idle_since_ms > IDLE_EXIT_MS

    def _anything_lives(self) -> bool:
        return any(ward.running or self._groups.alive(name) for name, ward in self._wards.wards.items())

    # --- sockets --------------------------------------------------------------------------------------------------------
    def _accept(self, _mask: int) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            peer = Peer(connection)
            self._peers.add(peer)
            self._selector.register(connection, selectors.EVENT_READ, lambda mask: self._serve(peer, mask))

    def _serve(self, peer: Peer, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                self._flush(peer)
            if mask & selectors.EVENT_READ and peer in self._peers:
                data = peer.socket.recv(READ_BYTES)
                if not data:
                    self._drop(peer)
                    return
                for body in peer.frames.feed(data):
                    self._take(peer, body)
        except (OSError, ValueError, msgspec.MsgspecError):
            self._drop(peer)

    def _take(self, peer: Peer, body: bytes) -> None:
        if peer.terminal is not None:
            typed = wire.typed_decoder.decode(body)
            if isinstance(typed, wire.Bytes):
                peer.terminal.type(typed.data)
            else:
                peer.terminal.resize(typed.window)
            return
        request = wire.request_decoder.decode(body)
        first = request.orders[0] if len(request.orders) == 1 else None
        if isinstance(first, wire.Exec):
            self._exec(peer, request.number, first)
        elif isinstance(first, wire.Attach):
            self._attach(peer, request.number, first)
        else:
            self._send(peer, wire.Answer(request.number, tuple(self._order(peer, order) for order in request.orders)))

    def _order(self, peer: Peer, order: wire.Order) -> wire.Result:
        match order:
            case wire.Hello():
                return wire.Greeting(wire.VERSION, os.getpid(), self._groups.isolation, self._groups.base, self._groups.controllers)
            case wire.Watch():
                peer.watching = True
                return wire.Done()
            case wire.Quit():
                if self._wards.wards:
                    return wire.Failed("busy", f"{len(self._wards.wards)} allocations are held")
                self._leaving = True
                return wire.Done()
            case _:
                return self._wards.order(order)

    def _exec(self, peer: Peer, number: int, order: wire.Exec) -> None:
        outcome = self._execs.start(order, peer)
        if not isinstance(outcome, Started):
            self._send(peer, wire.Answer(number, (outcome,)))
            return
        data = wire.frame(wire.Answer(number, (wire.Done(),)))
        try:
            socket.send_fds(peer.socket, [data], list(outcome.files))
        finally:
            for fd in outcome.files:
                os.close(fd)

    def _attach(self, peer: Peer, number: int, order: wire.Attach) -> None:
        terminal = self._wards.terminal(order.allocation, order.rank)
        if terminal is None:
            failed = wire.Failed("unknown", f"task {order.rank} of {order.allocation} has no terminal, or has ended")
            self._send(peer, wire.Answer(number, (failed,)))
            return
        self._send(peer, wire.Answer(number, (wire.Done(),)))
        terminal.resize(order.window)

        def listener(data: bytes) -> None:
            if len(peer.unsent) < UNSENT_BYTES_MAX // 8:
                self._send(peer, wire.Bytes(data))

        peer.terminal, peer.listener, peer.attached = terminal, listener, (order.allocation, order.rank)
        terminal.attach(listener)

    def _publish(self, event: wire.Event) -> None:
        for peer in tuple(self._peers):
            if peer.watching:
                self._send(peer, event)
            elif isinstance(event, wire.Exited) and peer.attached == (event.allocation, event.task.rank):
                self._send(peer, wire.Over(event.task.exit_code or 0))
                peer.closing = True
                self._flush(peer)

    def _send(self, peer: Peer, message: msgspec.Struct) -> None:
        peer.unsent += wire.frame(message)
        if len(peer.unsent) > UNSENT_BYTES_MAX:
            self._drop(peer)
        else:
            self._flush(peer)

    def _flush(self, peer: Peer) -> None:
        if peer not in self._peers:
            return
        try:
            while peer.unsent:
                sent = peer.socket.send(peer.unsent)
                del peer.unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(peer)
            return
        if peer.closing and not peer.unsent:
            self._drop(peer)
            return
        mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.unsent else 0)
        if self._selector.get_key(peer.socket).events != mask:
            self._selector.modify(peer.socket, mask, self._selector.get_key(peer.socket).data)

    def _drop(self, peer: Peer) -> None:
        if peer not in self._peers:
            return
        self._peers.discard(peer)
        self._selector.unregister(peer.socket)
        peer.socket.close()
        self._execs.drop(peer)
        if peer.terminal is not None and peer.listener in peer.terminal.listeners:
            peer.terminal.listeners.remove(peer.listener)

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Calls back when the descriptor has something to read."""
        self._selector.register(fd, selectors.EVENT_READ, lambda _mask: callback())

    def unwatch(self, fd: int) -> None:
        """Calls back no more."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(fd)

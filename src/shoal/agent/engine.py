"""
The agent's one deciding thread: messages in, orders to the supervisor and mail out. What follows from what is `course.py`.

Others post messages (`poller`, `uploader`, worker threads, the supervisor's events); nobody else touches holds. Messages that wait are
handled together and their orders go in one batch, so a busy node pays one round trip for many tasks.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from shoal.agent.course import Answer, Course
from shoal.agent.home import Home, write_whole
from shoal.agent.lease import Lease
from shoal.agent.messages import Came, DevicesLost, Gone, Judged, Message, Prepared, Said
from shoal.agent.runtimes.host import Ready
from shoal.agent.supervisor import wire
from shoal.agent.supervisor.link import SupervisorGone
from shoal.agent.takeup import go_on, reconcile, restore
from shoal.agent.unprepared import Unprepared
from shoal.base.errors import Unavailable
from shoal.model.command import CommandRow, Commit, Prepare, Regroup, Save, Stop
from shoal.model.wire import Held

log = logging.getLogger(__name__)

BATCH_MAX = 256
"""Messages handled before their orders are given."""
IDLE_MS = 1_000
SUPERVISOR_RETRY_MS = 2_000


class Supervised(Protocol):
    """A way to the node's supervisor; `agent.keeper.Keeper` is the real one."""

    def ensure(self) -> wire.Greeting: ...

    def list(self) -> wire.Listing: ...

    def give(self, *orders: wire.Order) -> tuple[wire.Result, ...]: ...

    def is_current(self, gone: Gone) -> bool: ...


@dataclass(slots=True)
class Engine:
    """`boot_id` is this boot of the machine; the home remembers that of the last start. `lease` says whether work may be started."""

    course: Course
    keeper: Supervised
    home: Home
    boot_id: str
    lease: Lease
    inbox: queue.SimpleQueue[Message]
    _taken: int = 0
    _rebooted: bool = False
    _broken_until_ms: int = 0
    _unconnected: bool = False
    """No supervisor could be had the last time."""
    _stop: threading.Event = field(default_factory=threading.Event)
    ready: threading.Event = field(default_factory=threading.Event)
    """Set once what an earlier agent held has been taken up: `held` is then the truth."""

    def run(self) -> None:
        """Until `stop`."""
        self.begin()
        while not self._stop.is_set():
            self.round(self._take(self.wait_ms()))

    def begin(self) -> None:
        """What an earlier agent held is taken up."""
        self._restore()
        self._connect()
        self.ready.set()

    def round(self, batch: list[Message]) -> None:
        """Obeys what has come and does what is due. A message that meets a defect is logged and dropped: the node's other work goes on."""
        if self._unconnected and self.course.clock.monotonic_ms() >= self._broken_until_ms:
            self._connect()
        for message in batch:
            self._guard(lambda m=message: self._handle(m))  # type: ignore[misc]
        self._guard(self.course.tick)
        self._give()
        for message in batch:
            if isinstance(message, Came):
                message.done.set()

    def wait_ms(self) -> int:
        """How long nothing is due if no message comes."""
        now_ms, next_ms = self.course.clock.monotonic_ms(), self.course.tick()
        if self._unconnected:
            next_ms = self._broken_until_ms if next_ms is None else min(next_ms, self._broken_until_ms)
        return IDLE_MS if next_ms is None else max(1, min(IDLE_MS, next_ms - now_ms))

    def stop(self) -> None:
        self._stop.set()
        self.inbox.put(Judged())

    def held(self) -> tuple[Held, ...]:
        """What is on this node, for the control plane. Any thread."""
        holds = sorted(self.course.holds.values(), key=lambda hold: hold.id)
        return tuple(Held(allocation=h.id, job=h.order.job, attempt=h.order.attempt, state=str(h.state)) for h in holds)

    def begin_anew(self) -> None:
        """The node has joined: commands are numbered by the installation, so the last one of an earlier installation says nothing."""
        self._taken = 0

    @property
    def taken(self) -> int:
        """The last command that has been carried out, so far as it is in the journals."""
        return self._taken

    # --- rounds ---------------------------------------------------------------------------------------------------------
    def _take(self, wait_ms: int) -> list[Message]:
        batch: list[Message] = []
        try:
            batch.append(self.inbox.get(timeout=wait_ms / 1000))
            while len(batch) < BATCH_MAX:
                batch.append(self.inbox.get_nowait())
        except queue.Empty:
            pass
        return batch

    def _handle(self, message: Message) -> None:
        match message:
            case Came():
                self._commands(message)
            case Prepared(allocation=allocation, outcome=outcome):
                self.course.prepared(allocation, outcome)
            case Said(event=event):
                self._event(event)
            case Gone():
                if self.keeper.is_current(message):
                    log.error("the supervisor is gone; a new one is started")
                    self._connect()
            case Judged(kill=kill, forget=forget):
                for allocation in forget:
                    self.course.forget(allocation)
                for allocation in kill:
                    self.course.kill(allocation)
            case DevicesLost(uuids=uuids):
                self.course.lose_devices(uuids)

    def _commands(self, came: Came) -> None:
        """Without the lease they are thrown away, to be asked for again once it is renewed; but a Stop can only end what runs."""
        if self.lease.covers(came.asked_ms):
            for row in came.rows:
                self._guard(lambda r=row: self._command(r))  # type: ignore[misc]
            self._remember_taken()
            return
        came.stale.set()
        log.warning("%d commands are asked for again: the lease has run out since they were asked for", len(came.rows))
        for stop in [row.body for row in came.rows if isinstance(row.body, Stop) and row.seq > self._taken]:
            self._guard(lambda s=stop: self.course.stop(s))  # type: ignore[misc]

    def _command(self, row: CommandRow) -> None:
        if row.seq <= self._taken:
            return
        match row.body:
            case Prepare():
                self.course.prepare(row.body)
            case Commit():
                self.course.commit(row.body)
            case Regroup():
                self.course.regroup(row.body)
            case Save():
                self.course.save(row.body)
            case Stop():
                self.course.stop(row.body)
        self._taken = row.seq

    def _event(self, event: wire.Event) -> None:
        match event:
            case wire.Exited():
                self.course.exited(event)
            case wire.Stopped():
                self.course.stopped(event)
            case wire.Unkillable():
                self.course.unkillable(event)

    def _give(self) -> None:
        """Gives the collected orders, and those that their answers bring, until there are none."""
        while self.course.orders:
            orders, self.course.orders = self.course.orders, []
            try:
                results = self.keeper.give(*(order for order, _ in orders))
            except SupervisorGone:
                if not self._connect():
                    self.course.orders = orders + self.course.orders
                    return
                continue  # what these orders wanted has been derived anew
            for (_, answer), result in zip(orders, results, strict=True):
                self._answer(answer, result)

    def _answer(self, answer: Answer | None, result: wire.Result) -> None:
        if answer is not None:
            self._guard(lambda: answer(result))

    def _guard(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception:
            log.exception("a defect; the agent goes on")

    # --- taking up ------------------------------------------------------------------------------------------------------
    def _restore(self) -> None:
        home = self.home
        self._taken = int(_read(home.taken) or "0")
        before = _read(home.root / "boot_id")
        self._rebooted = bool(before) and before != self.boot_id
        write_whole(home.root / "boot_id", self.boot_id.encode())
        self._guard(lambda: restore(self.course))
        self._guard(lambda: go_on(self.course, self._rebooted))

    def _connect(self) -> bool:
        """A supervisor is there, and what it holds agrees with what we hold. False if none can be had: it is tried again later."""
        now_ms = self.course.clock.monotonic_ms()
        if now_ms < self._broken_until_ms:
            return False
        try:
            greeting = self.keeper.ensure()
            self.course.meter.watch(greeting)
            listing = self.keeper.list()
        except Unavailable as error:
            log.error("no supervisor: %s", error)
            self._broken_until_ms, self._unconnected = now_ms + SUPERVISOR_RETRY_MS, True
            return False
        self._unconnected = False
        self.course.orders = []
        self._guard(lambda: reconcile(self.course, listing, self._rebooted))
        return True

    def _remember_taken(self) -> None:
        try:
            write_whole(self.home.taken, str(self._taken).encode())
        except OSError as error:
            log.warning("the number of the last command could not be written: %s", error)


def prepare_in(
    submit: Callable[[Callable[[], None]], None], inbox: queue.SimpleQueue[Message], prepare: Callable[[Prepare], Ready]
) -> Callable[[Prepare], None]:
    """A way to prepare in a worker thread; the outcome comes as a message."""

    def work(order: Prepare) -> None:
        outcome: Ready | Unprepared
        try:
            outcome = prepare(order)
        except Unprepared as unprepared:
            outcome = unprepared
        except Exception as error:
            log.exception("preparing %s met a defect", order.allocation)
            outcome = Unprepared(f"preparing met a defect of the agent: {error}", of_node=True)
        inbox.put(Prepared(order.allocation, outcome))

    return lambda order: submit(lambda: work(order))


def _read(path: object) -> str:
    try:
        with open(str(path)) as file:
            return file.read().strip()
    except OSError:
        return ""

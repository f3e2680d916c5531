"""
One node's agent in the swarm: the real engine, course, uploader and poller over a machine, driven by the agenda in place of threads.

An agent dies (all it had in memory is gone, its machine works on), hangs (everything that it would do waits), and starts again.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path
from typing import cast

from shoal.agent.control import Control, Pauses
from shoal.agent.course import Course
from shoal.agent.engine import BATCH_MAX, Engine
from shoal.agent.holds import HoldJournal
from shoal.agent.home import Home
from shoal.agent.keeper import Keeper
from shoal.agent.lease import Lease
from shoal.agent.mail import Mail
from shoal.agent.messages import Came, Message, Prepared
from shoal.agent.outbox import Outbox
from shoal.agent.poller import Poller
from shoal.agent.probe.pretended import PretendedProbe
from shoal.agent.runtimes.host import HostRuntime
from shoal.agent.session import Session, keep_identity, read_identity
from shoal.agent.supervisor import wire
from shoal.agent.supervisor.link import SupervisorGone
from shoal.agent.uploader import Letter, Uploader
from shoal.agent.use import Meter
from shoal.base.errors import NotFound, ShoalError, Unauthenticated
from shoal.base.rng import Rng
from shoal.model.codec import decode_json, decode_pack, encode_json, encode_pack
from shoal.model.command import Prepare
from shoal.model.node import NodeFacts
from shoal.model.wire import Commands, Join, Joined, LeaseTerms, Register, Registered, UploadReply
from shoal.sim.swarm.agenda import Agenda, Alarm
from shoal.sim.swarm.machine import Machine, Supervisor
from shoal.sim.swarm.network import Network, Reply, Request

POLL_MS = 25_000
_JSON = ((b"content-type", b"application/json"),)
_PACK = ((b"content-type", b"application/msgpack"),)
ROUND_MS_MAX = 4
"""How soon the engine sees a message."""
SLOW_MS_MAX = 60
"""What is done aside (removing files) takes up to so long."""


class _Port:
    """A port of a machine's, pretended."""

    def __init__(self, taken: dict[int, None], port: int) -> None:
        self._taken = taken
        self.port = port
        taken[port] = None

    def release(self) -> None:
        self._taken.pop(self.port, None)


class _Line:
    """Orders to one supervisor of the machine."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def greet(self) -> wire.Greeting:
        return cast("wire.Greeting", self.give(wire.Hello(wire.VERSION))[0])

    def give(self, *orders: wire.Order) -> tuple[wire.Result, ...]:
        return self._supervisor.give(orders)

    def list(self) -> wire.Listing:
        return cast("wire.Listing", self.give(wire.List())[0])

    def close(self) -> None:
        pass


class _Reach:
    """The machine's supervisor, as the agent's keeper reaches it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def start(self) -> None:
        self._machine.start_supervisor()

    def line(self) -> _Line:
        return _Line(self._found())

    def listen(self, hear: Callable[[wire.Event], None], ended: Callable[[], None]) -> None:
        self._found().listeners.append((hear, ended))

    def _found(self) -> Supervisor:
        if self._machine.supervisor is None:
            raise SupervisorGone("no supervisor is running")
        return self._machine.supervisor


class _Nothing:
    """No files and no secrets: jobs of the swarm have none."""

    def fetch_blob(self, sha256: str, target: Path) -> None:  # noqa: ARG002
        raise NotFound("no such archive")

    def secrets(self, allocation: str) -> dict[str, bytes]:  # noqa: ARG002
        return {}


class Agent:
    """See module."""

    def __init__(self, machine: Machine, home: Home, network: Network, rng: Rng, join_token: Callable[[], str]) -> None:
        self.machine = machine
        self.dead = False
        self._frozen_until_ms = 0
        self._agenda: Agenda = machine.agenda
        self._network = network
        self._rng = rng
        self._join_token = join_token
        self._home = home
        clock = machine.clock
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._mail = Mail(home, Outbox(home.outbox))
        self._journal = HoldJournal(home.holds)
        keeper = Keeper(home, machine.name, "auto", self._post, _Reach(machine))
        self._probe = PretendedProbe(machine.name, "h100:4", clock, self._pids_on)
        self._meter = Meter(self._probe, clock, lambda _: machine.tasks, machine.tasks.lives)
        self.course = Course(
            journal=self._journal,
            mail=self._mail,
            runtime=HostRuntime(home, _Nothing(), {}),
            probe=self._probe,
            meter=self._meter,
            clock=clock,
            rng=rng.stream("ports"),
            address=machine.name,
            prepare_aside=self._prepare_aside,
            aside=self._aside,
            ports=self._hold_port,
        )
        self._lease = Lease(clock)
        self._keeper = keeper
        self._engine = Engine(self.course, keeper, home, machine.boot_id, self._lease, self._inbox)
        self._uploader: Uploader | None = None
        self._poller: Poller | None = None
        self._round: Alarm | None = None
        self._speech: Alarm | None = None
        self._speaking = False
        self._polling = False
        self._came: Came | None = None
        self._guarded(self._begin)

    # --- life -------------------------------------------------------------------------------------------------------------------
    def _begin(self) -> None:
        self._engine.begin()
        self._want_round(0)
        if read_identity(self._home.identity) is None:
            self._join(Pauses(self._rng.stream("join")))
        else:
            self._meet()

    def kill(self) -> None:
        """As by `kill -9`: its files stay, its ports are free again."""
        self._agenda.note(f"{self.machine.name} loses its agent")
        self.dead = True
        self._mail.outbox.close()
        self._journal.close()
        for hold in self.course.holds.values():
            if hold.port is not None:
                hold.port.release()

    def freeze(self, for_ms: int) -> None:
        """As by SIGSTOP: nothing that it would do is done before then."""
        self._agenda.note(f"{self.machine.name}'s agent hangs for {for_ms}")
        self._frozen_until_ms = self._agenda.now_ms + for_ms

    def _later(self, delay_ms: int, act: Callable[[], None]) -> Alarm:
        return self._agenda.after(delay_ms, lambda: self._guarded(act))

    def _guarded(self, act: Callable[[], None]) -> None:
        """Does what a thread of this process would do, once it may."""
        left_ms = self._frozen_until_ms - self._agenda.now_ms
        if left_ms > 0:
            self._agenda.after(left_ms, lambda: self._guarded(act))
        elif not self.dead:
            act()

    # --- the engine's thread ------------------------------------------------------------------------------------------------
    def _post(self, message: Message) -> None:
        self._inbox.put(message)
        self._want_round(self._rng.below(ROUND_MS_MAX))

    def _want_round(self, delay_ms: int) -> None:
        if self._round is not None:
            self._round.cancel()
        self._round = self._later(delay_ms, self._take_round)

    def _take_round(self) -> None:
        self._round = None
        batch: list[Message] = []
        while len(batch) < BATCH_MAX and not self._inbox.empty():
            batch.append(self._inbox.get_nowait())
        if batch:
            self._agenda.note(f"{self.machine.name} handles {' '.join(type(message).__name__ for message in batch)}")
        self._engine.round(batch)
        if self._round is None:
            self._want_round(0 if not self._inbox.empty() else self._engine.wait_ms())
        self._want_speech()
        if self._came is not None and self._came.done.is_set():
            came, self._came = self._came, None
            self._poll_again(came.stale.is_set())

    # --- joining --------------------------------------------------------------------------------------------------------------
    def _join(self, pauses: Pauses) -> None:
        ask = Join(name=self.machine.name, facts=self._facts())
        request = Request("POST", "/v1/agent/join", self._join_token(), encode_json(ask), _JSON)

        def heard(outcome: Reply | ShoalError) -> None:
            if isinstance(outcome, ShoalError):
                self._later(int(pauses.next_s() * 1_000), lambda: self._join(pauses))
                return
            keep_identity(self._home, decode_json(outcome.body, Joined), "swarm")
            self._engine.begin_anew()
            self._meet()

        self._ask(request, heard)

    def _meet(self) -> None:
        identity = read_identity(self._home.identity)
        assert identity is not None
        session = Session(
            control=cast("Control", None),  # calls go by `_ask`
            identity=identity,
            facts=self._facts,
            held=self._engine.held,
            post=self._post,
            renewed=self._keeper.feed,
            learned=self._learned,
            clock=self.machine.clock,
            lease=self._lease,
        )
        self._uploader = Uploader(
            session=session,
            mail=self._mail,
            meter=self._meter,
            probe=self._probe,
            clock=self.machine.clock,
            boot_id=self.machine.boot_id,
            pauses=Pauses(self._rng.stream("upload")),
            holds=lambda: tuple(self.course.holds.values()),
            post=self._post,
            rejoin=lambda: None,
        )
        self._poller = Poller(session, Pauses(self._rng.stream("poll")), lambda: self._engine.taken, self._post, lambda _: None)
        self._want_speech()
        self._poll()

    def _learned(self, terms: LeaseTerms) -> None:
        self.course.terms = terms

    # --- the uploader's thread --------------------------------------------------------------------------------------------------
    def _want_speech(self) -> None:
        if self._uploader is None or self._speaking:
            return
        if self._speech is not None:
            self._speech.cancel()
        wait_ms = self._uploader.due_ms() - self.machine.clock.monotonic_ms()
        self._speech = self._later(max(1, wait_ms), self._speak)

    def _speak(self) -> None:
        assert self._uploader is not None
        call = self._uploader.next_call()
        if call is None:
            self._want_speech()
            return
        self._speaking = True
        if isinstance(call, Register):
            request = Request("POST", "/v1/agent/register", self._token(), encode_json(call), _JSON)
        else:
            request = Request("POST", "/v1/agent/upload", self._token(), encode_pack(call.upload), _PACK)
        self._ask(request, lambda outcome: self._hear(call, outcome))

    def _hear(self, call: Register | Letter, outcome: Reply | ShoalError) -> None:
        uploader = self._uploader
        assert uploader is not None
        self._speaking = False
        try:
            if isinstance(outcome, ShoalError):
                raise outcome
            answer: Registered | UploadReply
            answer = decode_json(outcome.body, Registered) if isinstance(call, Register) else decode_pack(outcome.body, UploadReply)
            uploader.answered(call, answer)
        except ShoalError as error:
            uploader.pause(uploader.failed(error))
            if isinstance(error, NotFound | Unauthenticated):
                raise AssertionError(f"{self.machine.name} is not known any more: {error.message}") from error
        self._want_speech()

    # --- the poller's thread ------------------------------------------------------------------------------------------------------
    def _poll(self) -> None:
        poller = self._poller
        assert poller is not None
        if not poller.session.registered.is_set():
            self._later(500, self._poll)
            return
        asked_ms = self.machine.clock.boottime_ms()
        query = f"after={self._engine.taken}&wait={POLL_MS}ms"
        request = Request("GET", "/v1/agent/commands", self._token(), query=query, timeout_ms=POLL_MS + 10_000)
        self._ask(request, lambda outcome: self._polled(asked_ms, outcome))

    def _polled(self, asked_ms: int, outcome: Reply | ShoalError) -> None:
        assert self._poller is not None
        if isinstance(outcome, ShoalError):
            self._poll_again(pause=True)
            return
        came = self._poller.came(decode_json(outcome.body, Commands), asked_ms)
        if came is None:
            self._poll_again(pause=False)
        else:
            self._came = came

    def _poll_again(self, pause: bool) -> None:
        assert self._poller is not None
        if not pause:
            self._poller.pauses.reset()
        self._later(int(self._poller.pauses.next_s() * 1_000) if pause else 0, self._poll)

    # --- odds and ends ----------------------------------------------------------------------------------------------------------
    def _ask(self, request: Request, heard: Callable[[Reply | ShoalError], None]) -> None:
        self._network.ask(self.machine.name, request, lambda outcome: self._guarded(lambda: heard(outcome)))

    def _token(self) -> str:
        assert self._poller is not None
        return self._poller.session.identity.token

    def _prepare_aside(self, order: Prepare) -> None:
        self._later(self._rng.below(SLOW_MS_MAX), lambda: self._post(Prepared(order.allocation, self.course.runtime.prepare(order))))

    def _aside(self, work: Callable[[], None]) -> None:
        self._later(self._rng.below(SLOW_MS_MAX), work)

    def _hold_port(self, rng: Rng, wanted: int) -> _Port:
        port = wanted or 20_000 + rng.below(10_000)
        while port in self.machine.ports:
            port = 20_000 + rng.below(10_000)
        return _Port(self.machine.ports, port)

    def _pids_on(self, uuid: str) -> tuple[int, ...]:
        return tuple(pid for allocation in self.course.devices.holders(uuid) for pid in self._meter.pids(allocation))

    def _facts(self) -> NodeFacts:
        name = self.machine.name
        return NodeFacts(
            hostname=name,
            address=name,
            cpus=64,
            memory_bytes=256 << 30,
            devices=self._probe.devices(),
            boot_id=self.machine.boot_id,
            kernel="swarm",
            driver="pretended",
            isolation="cgroup2",
            as_root=False,
            pretended=True,
            agent_version="swarm",
        )

"""
Wires between people, agents and the control plane: each request and each answer takes its time, or is lost, late or doubled.

Requests go through the real API as ASGI messages: bytes in, bytes out, with tokens, routing and every rule on the way.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shoal.base.errors import ShoalError, Unavailable
from shoal.base.rng import Rng
from shoal.client.answers import raise_problem
from shoal.sim.swarm.agenda import Agenda
from shoal.sim.swarm.server import Server

LATE_MS_MAX = 4_000


@dataclass(frozen=True, slots=True)
class Request:
    """What goes over a wire. `timeout_ms`: how long the asker waits for an answer."""

    method: str
    target: str
    token: str
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    query: str = ""
    timeout_ms: int = 15_000


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[bytes, bytes]
    body: bytes


Heard = Callable[[Reply | ShoalError], None]


@dataclass(slots=True)
class Weather:
    """Chances in thousandths, for each message."""

    lose: int = 0
    delay: int = 0
    repeat: int = 0


@dataclass
class Network:
    """See module. `cut` holds those whom nothing reaches and who reach nobody."""

    agenda: Agenda
    rng: Rng
    server: Server
    weather: Weather = field(default_factory=Weather)
    cut: dict[str, None] = field(default_factory=dict)

    def ask(self, who: str, request: Request, heard: Heard) -> None:
        """Sends a request; `heard` gets its answer or the error that stands for it, once."""
        call = _Call(who, request, heard)
        self.agenda.after(request.timeout_ms, lambda: call.end(Unavailable("no answer came in time")))
        for _ in range(2 if self._chance(self.weather.repeat) else 1):
            if not self._chance(self.weather.lose):
                self.agenda.after(self._way_ms(), lambda: self._arrive(call))

    def _arrive(self, call: _Call) -> None:
        server, request = self.server, call.request
        if call.who in self.cut:
            return
        if not server.up or server.loop is None or server.app is None:
            self.agenda.note(f"{call.who} finds no server")
            self.agenda.after(self._way_ms(), lambda: call.end(Unavailable("no server listens")))
            return
        self.agenda.note(f"{call.who} {request.method} {request.target}?{request.query} {zlib.crc32(request.body)}")
        server.on_death.append(lambda: self._break(call))
        exchange = _Exchange(request, lambda reply: self._answer(call, reply))
        server.loop.create_task(exchange.serve(server.app))
        server.take_turn()

    def _break(self, call: _Call) -> None:
        if not call.over:
            self.agenda.after(self._way_ms(), lambda: call.end(Unavailable("the connection broke")))

    def _answer(self, call: _Call, reply: Reply) -> None:
        if call.who in self.cut or self._chance(self.weather.lose):
            return
        self.agenda.after(self._way_ms(), lambda: self._deliver(call, reply))

    def _deliver(self, call: _Call, reply: Reply) -> None:
        if call.over or call.who in self.cut:
            return
        self.agenda.note(f"{call.who} hears {reply.status} {zlib.crc32(reply.body)}")
        if reply.status < 400:
            call.end(reply)
            return
        try:
            raise_problem(reply.status, reply.body)
        except ShoalError as error:
            call.end(error)

    def _way_ms(self) -> int:
        return 1 + self.rng.below(LATE_MS_MAX if self._chance(self.weather.delay) else 8)

    def _chance(self, thousandths: int) -> bool:
        return thousandths > 0 and self.rng.below(1_000) < thousandths


@dataclass(slots=True)
class _Call:
    who: str
    request: Request
    heard: Heard
    over: bool = False

    def end(self, outcome: Reply | ShoalError) -> None:
        """The first outcome counts."""
        if not self.over:
            self.over = True
            self.heard(outcome)


@dataclass(slots=True)
class _Exchange:
    """One request inside of the server, as ASGI has it."""

    request: Request
    answered: Callable[[Reply], None]
    _status: int = 0
    _headers: dict[bytes, bytes] = field(default_factory=dict)
    _given: bool = False

    async def serve(self, app: Any) -> None:
        request = self.request
        headers = [(b"authorization", b"Bearer " + request.token.encode()), *request.headers]
        scope = {
            "type": "http",
            "method": request.method,
            "path": request.target,
            "raw_path": request.target.encode(),
            "root_path": "",
            "query_string": request.query.encode(),
            "headers": headers,
        }
        await app(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        self._given = True
        return {"type": "http.request", "body": self.request.body, "more_body": False}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], dict(message["headers"])
        elif not message.get("more_body", False):
            self.answered(Reply(self._status, self._headers, message.get("body", b"")))

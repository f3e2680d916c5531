"""
WebSocket handlers: a terminal beside a task. The user's end asks, the agent's end answers the call; `bridges` carries the bytes.

Errors before the handshake are ordinary problems; after it they come as a text message with the problem, then the close.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from shoal.api.bridges import CLOSE_GOING_AWAY, Socket, pump
from shoal.api.endpoint import bearer_of, request_id_of
from shoal.api.operations import RANK
from shoal.api.problems import encode_problem, problem_headers, problem_of
from shoal.base.errors import Forbidden, Malformed, NotFound, ShoalError, Unavailable
from shoal.base.limits import TERMINAL_WAIT_MS
from shoal.control.access import Caller, authenticate
from shoal.control.terminals import close_terminal, open_terminal, take_terminal
from shoal.model.codec import decode_json
from shoal.model.problem import Problem
from shoal.model.wire import ExecRequest

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from shoal.api.service import Service

log = logging.getLogger("shoal.api")

ASK_WAIT_S = 10.0
"""How long an accepted user may take to say what to run."""
CLOSE_WAIT_S = 2.0
CLOSE_ERROR = 4000
"""Plus the HTTP status: the close code of a refusal after the handshake."""
Attend = Callable[["TerminalEndpoint", Caller, dict[str, str], Socket], Awaitable[None]]


class TerminalEndpoint:
    """One WebSocket path as an ASGI application; `attend` is what happens once the caller is known."""

    def __init__(self, service: Service, attend: Attend, role: str) -> None:
        self.service = service
        self._attend = attend
        self._role = role

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = request_id_of(headers, self.service)
        socket = Socket(receive, send)
        await receive()  # websocket.connect
        accepted = False
        try:
            caller = authenticate(self.service.plane, bearer_of(headers))
            self._check(caller, scope["path_params"])
            await send({"type": "websocket.accept", "headers": [(b"x-request-id", request_id.encode())]})
            accepted = True
            await self._attend(self, caller, scope["path_params"], socket)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            problem = problem_of(error, request_id=request_id, instance=scope["path"])
            if not isinstance(error, ShoalError):
                log.exception("terminal failed", extra={"request_id": request_id, "path": scope["path"]})
            await (_refuse_late(socket, problem) if accepted else _refuse(receive, send, problem))

    def _check(self, caller: Caller, path: dict[str, str]) -> None:
        project = path.get("project")
        if project is not None and caller.project is not None and caller.project != project:
            raise NotFound(f"there is no project {project!r}")
        allowed = caller.role == "node" if self._role == "node" else RANK.get(caller.role, 0) >= RANK["member"]
        if not allowed:
            raise Forbidden(f"permission jobs.exec is missing: it takes the role {self._role}, {caller.principal} has {caller.role}")


async def attend_user(endpoint: TerminalEndpoint, caller: Caller, path: dict[str, str], user: Socket) -> None:
    """Asks the node for the user's terminal and carries it until either side goes."""
    service = endpoint.service
    request = await _read_request(user)
    if request is None:
        return
    terminal = open_terminal(service.plane, caller, path["project"], path["ref"], request)
    session = terminal.call.session
    bridge = service.bridges.expect(session)
    try:
        agent = await _agent_of(bridge.agent, user, terminal.node)
        if agent is not None:
            await pump(user, agent, bridge.over)
    finally:
        service.bridges.forget(session)
        close_terminal(service.plane, session)


async def attend_agent(endpoint: TerminalEndpoint, caller: Caller, path: dict[str, str], agent: Socket) -> None:
    """Brings the node's end to the user who waits for it."""
    take_terminal(endpoint.service.plane, caller, path["session"])
    await endpoint.service.bridges.join(path["session"], agent)
    await agent.close()


async def _read_request(user: Socket) -> ExecRequest | None:
    try:
        async with asyncio.timeout(ASK_WAIT_S):
            message = await user.next()
    except TimeoutError:
        raise Malformed(f"no request came within {ASK_WAIT_S:.0f} s; the first message says what to run") from None
    if message is None:
        return None
    text = message.get("text")
    if text is None:
        raise Malformed("the first message is the request, as JSON text")
    return decode_json(text, ExecRequest)


async def _agent_of(arrival: asyncio.Future[Socket], user: Socket, node: str) -> Socket | None:
    """The agent's socket once it has dialled out; None when the user went meanwhile. What the user types meanwhile waits in its socket."""
    done, _ = await asyncio.wait((arrival,), timeout=TERMINAL_WAIT_MS / 1_000)
    if not done:
        raise Unavailable(f"node {node} did not answer the call for a terminal within {TERMINAL_WAIT_MS // 1_000} s; is its agent running?")
    if arrival.cancelled():
        await user.close(CLOSE_GOING_AWAY, "the server goes down")
        return None
    return arrival.result()


async def _refuse(receive: Receive, send: Send, problem: Problem) -> None:
    """Before the handshake: an ordinary HTTP answer. Returns when the connection is closed, else uvicorn complains that none came."""
    body = encode_problem(problem)
    headers: list[Any] = [*problem_headers(problem), (b"content-length", str(len(body)).encode())]
    await send({"type": "websocket.http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_WAIT_S):
            await receive()  # The refusal itself.
            await receive()  # The end of the connection.


async def _refuse_late(socket: Socket, problem: Problem) -> None:
    if not socket.closed:
        await socket.send({"type": "websocket.send", "text": encode_problem(problem).decode()})
        await socket.close(CLOSE_ERROR + problem.status, problem.detail.encode()[:120].decode("utf-8", "ignore"))

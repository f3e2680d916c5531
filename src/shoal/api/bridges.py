"""
Terminals: the user's WebSocket and the agent's, brought together and pumped into each other.

Frames pass as they are (`model.wire.ExecStream`); the server looks at none but the user's first message. Each direction reads a
message only when the last one was taken by the other side, so a slow reader slows its writer and nothing piles up here. Whichever side
goes, the other is closed, and the agent then stops the command. Nothing of this survives a restart.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Send

CLOSE_NORMAL = 1000
CLOSE_GOING_AWAY = 1001


@dataclass(slots=True, eq=False)
class Socket:
    """One accepted WebSocket, as ASGI gives it."""

    receive: Receive
    send: Send
    closed: bool = False

    async def next(self) -> Message | None:
        """The next message, None when the peer has gone."""
        if self.closed:
            return None
        message = await self.receive()
        if message["type"] != "websocket.receive":
            self.closed = True
            return None
        return message

    async def pass_on(self, message: Message) -> None:
        """Sends what another socket received; waits while the peer does not read."""
        data = message.get("bytes")
        content: dict[str, Any] = {"text": message.get("text")} if data is None else {"bytes": data}
        await self.send({"type": "websocket.send", **content})

    async def close(self, code: int = CLOSE_NORMAL, reason: str = "") -> None:
        """Idempotent; a peer that has gone is no error."""
        if not self.closed:
            self.closed = True
            with suppress(Exception):
                await self.send({"type": "websocket.close", "code": code, "reason": reason[:120]})


@dataclass(slots=True, eq=False)
class Bridge:
    """A user who waits for the agent of a session, and both until either goes."""

    agent: asyncio.Future[Socket]
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Bridges:
    """Bridges by session; on the event loop alone."""

    def __init__(self) -> None:
        self._open: dict[str, Bridge] = {}

    @property
    def count(self) -> int:
        return len(self._open)

    def expect(self, session: str) -> Bridge:
        """A bridge whose user is there; `forget` it in the end."""
        bridge = Bridge(asyncio.get_running_loop().create_future())
        self._open[session] = bridge
        return bridge

    def forget(self, session: str) -> None:
        bridge = self._open.pop(session, None)
        if bridge is not None:
            bridge.over.set()

    async def join(self, session: str, agent: Socket) -> None:
        """The agent's end: returns when the bridge is over. At once when the user has gone."""
        bridge = self._open.get(session)
        if bridge is None or bridge.agent.done():
            await agent.close(CLOSE_GOING_AWAY, "the user has gone")
            return
        bridge.agent.set_result(agent)
        await bridge.over.wait()

    def close(self) -> None:
        """The server goes: every bridge ends."""
        for bridge in self._open.values():
            bridge.over.set()
            if not bridge.agent.done():
                bridge.agent.cancel()


async def pump(user: Socket, agent: Socket, over: asyncio.Event) -> None:
    """Carries messages both ways until either side goes or `over` is set; then both are closed."""
    tasks = [asyncio.ensure_future(_carry(user, agent)), asyncio.ensure_future(_carry(agent, user)), asyncio.ensure_future(over.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await agent.close()
        await user.close(CLOSE_GOING_AWAY if over.is_set() else CLOSE_NORMAL)


async def _carry(source: Socket, target: Socket) -> None:
    while (message := await source.next()) is not None:
        await target.pass_on(message)

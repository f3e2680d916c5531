"""Handlers: what agents say. A node's identity is its token's, never what it writes into a body."""

from __future__ import annotations

import asyncio

import msgspec

from shoal.api.blobs import send_blob
from shoal.api.endpoint import still_holds
from shoal.api.operations import Answer, Call, Stream
from shoal.api.parts import wait_ms_of
from shoal.api.tail import log_key
from shoal.control import nodes as use
from shoal.control.secrets import open_for_allocation
from shoal.model.wire import Commands, OpenedSecrets, Upload


class CommandsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`after` is the last seq that the agent has taken: what is up to it is confirmed."""

    after: int = 0
    wait: str | None = None


async def join(call: Call) -> Answer:
    """A machine's first contact."""
    return Answer(await call.service.settle(use.join_node(call.service.plane, call.caller, call.body)))


async def register(call: Call) -> Answer:
    """An agent has started."""
    return Answer(await call.service.settle(use.register_node(call.service.plane, call.caller, call.body)))


async def poll_commands(call: Call) -> Answer:
    """Commands beyond `after`, waited for without a thread: the mailbox rings."""
    query: CommandsQuery = call.query
    plane, loop = call.service.plane, asyncio.get_running_loop()
    until = loop.time() + wait_ms_of(query.wait) / 1_000
    with call.service.tail.alarm() as watch:
        stop = plane.agents.on_mail(call.caller.node, watch.ring_from_thread)
        try:
            while True:
                commands: Commands = use.poll_commands(plane, call.caller, query.after)
                left_s = until - loop.time()
                if commands.rows or commands.execs or left_s <= 0 or call.service.tail.closing:
                    return Answer(commands)
                await watch.next(left_s)
                still_holds(call)  # of a node that was removed, and perhaps joined anew as another machine
        finally:
            stop()


async def upload(call: Call) -> Answer:
    """What an agent saw; those who follow a log of it are woken once it is in the log store."""
    body: Upload = call.body
    reply = await call.service.settle(use.record_upload(call.service.plane, call.caller, body))
    for chunk in body.logs:
        call.service.tail.touch(log_key(chunk.job, chunk.attempt, chunk.rank))
    return Answer(reply)


async def get_blob(call: Call) -> Answer | Stream:
    """The files of a job."""
    return await send_blob(call, call.path["sha256"])


async def get_secrets(call: Call) -> Answer:
    """What an allocation of this node may open."""
    files = open_for_allocation(call.service.plane, call.caller, call.path["id"])
    return Answer(OpenedSecrets(files=files), headers=(("Cache-Control", "no-store"),))

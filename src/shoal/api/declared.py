"""Handlers: nodes, queues, tokens, secrets: what is declared, and little of it."""

from __future__ import annotations

from shoal.api.operations import Answer, Call
from shoal.api.parts import etag_headers, if_match_of
from shoal.control import nodes, queues, secrets, tokens
from shoal.model.queue import Queue


# --- nodes ---------------------------------------------------------------------------------------------------------------------
async def list_nodes(call: Call) -> Answer:
    return Answer(nodes.list_nodes(call.service.plane, call.caller))


async def get_node(call: Call) -> Answer:
    view = nodes.get_node(call.service.plane, call.caller, call.path["id"])
    return Answer(view, headers=etag_headers(view.node.version))


async def drain_node(call: Call) -> Answer:
    return Answer(await call.service.settle(nodes.drain_node(call.service.plane, call.caller, call.path["id"], call.body.reason)))


async def cordon_node(call: Call) -> Answer:
    return Answer(await call.service.settle(nodes.cordon_node(call.service.plane, call.caller, call.path["id"], call.body.reason)))


async def resume_node(call: Call) -> Answer:
    return Answer(await call.service.settle(nodes.resume_node(call.service.plane, call.caller, call.path["id"], call.body.reason)))


async def remove_node(call: Call) -> Answer:
    await call.service.settle(nodes.remove_node(call.service.plane, call.caller, call.path["id"]))
    return Answer()


# --- queues --------------------------------------------------------------------------------------------------------------------
async def list_queues(call: Call) -> Answer:
    return Answer(await call.service.in_looks(queues.list_queues, call.service.plane, call.caller))


async def get_queue(call: Call) -> Answer:
    view = await call.service.in_looks(queues.view_queue, call.service.plane, call.caller, call.path["name"])
    return Answer(view, headers=etag_headers(view.version))


async def set_queue(call: Call) -> Answer:
    wanted = if_match_of(call)
    future = queues.set_queue(call.service.plane, call.caller, call.path["name"], call.body, if_version=wanted)
    queue: Queue = await call.service.settle(future)
    return Answer(queue, headers=etag_headers(queue.version))


async def delete_queue(call: Call) -> Answer:
    wanted = if_match_of(call)
    await call.service.settle(queues.delete_queue(call.service.plane, call.caller, call.path["name"], if_version=wanted))
    return Answer()


# --- tokens --------------------------------------------------------------------------------------------------------------------
async def list_tokens(call: Call) -> Answer:
    return Answer(tokens.list_tokens(call.service.plane, call.caller))


async def create_token(call: Call) -> Answer:
    made = await call.service.settle(tokens.create_token(call.service.plane, call.caller, call.body))
    return Answer(made, headers=(("Cache-Control", "no-store"),))


async def revoke_token(call: Call) -> Answer:
    await call.service.settle(tokens.revoke_token(call.service.plane, call.caller, call.path["id"]))
    return Answer()


# --- secrets -------------------------------------------------------------------------------------------------------------------
async def list_secrets(call: Call) -> Answer:
    return Answer(secrets.list_secrets(call.service.plane, call.caller, call.project))


async def set_secret(call: Call) -> Answer:
    future = secrets.set_secret(call.service.plane, call.caller, call.project, call.path["name"], call.body.value)
    return Answer(await call.service.settle(future))


async def delete_secret(call: Call) -> Answer:
    await call.service.settle(secrets.delete_secret(call.service.plane, call.caller, call.project, call.path["name"]))
    return Answer()

"""Handlers: what-if questions and snapshots of a cycle. Both take long on a large fleet, so they run off the loop."""

from __future__ import annotations

from shoal.api.operations import Answer, Call
from shoal.base.errors import Invalid
from shoal.control import questions as use
from shoal.formats.shorthand import expand
from shoal.model.codec import convert, decode_plain
from shoal.model.what_if import WhatIfAsk


def read_ask(raw: bytes) -> WhatIfAsk:
    """The question in a body; its jobs may be in the short forms of job files."""
    plain = decode_plain(raw)
    if not isinstance(plain, dict):
        raise Invalid("a what-if question is an object")
    jobs = plain.get("submit", [])
    if isinstance(jobs, list):
        plain = {**plain, "submit": [expand(job) for job in jobs]}
    return convert(plain, WhatIfAsk)


async def what_if(call: Call) -> Answer:
    return Answer(await call.service.in_looks(use.ask_what_if, call.service.plane, call.caller, call.project, call.body))


async def snapshot(call: Call) -> Answer:
    return Answer(await call.service.in_looks(use.debug_snapshot, call.service.plane, call.caller))

"""
Handlers: logs, by byte offset. A follower holds no thread: it sleeps on the tail until bytes or an end come.

A stream is ended when the attempt is over, after IDLE_S without a byte, or when the server goes down. The client asks again from
where it is: an answer that begins with `Shoal-Log-Complete: true` is the last one. That costs one request and makes a lost
connection, a restarted server and a quiet task the same case.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import msgspec

from shoal.api.endpoint import admit
from shoal.api.operations import Answer, Call, Headers, Stream
from shoal.api.parts import clamp_limit
from shoal.api.tail import Watch, job_key, log_key
from shoal.base.errors import Malformed, NotFound
from shoal.base.limits import TASKS_PER_JOB_MAX
from shoal.base.units import parse_whole
from shoal.control import jobs as use
from shoal.model.job import LIVE, Job

PIECE_BYTES = 256 << 10
READ_BYTES_MAX = 4 << 20
"""Of an answer that is not followed; more is read by offset."""
IDLE_S = 30.0
"""Then a follower asks again, which also looks at its token again."""
START_WAIT_S = 25.0
"""How long a follower of a job that has not started is held before the answer begins."""


class LogQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`after` is a byte offset; `attempt` is the current one unless given."""

    attempt: int | None = None
    after: int = 0
    follow: bool = False
    limit: int = READ_BYTES_MAX


@dataclass(slots=True, frozen=True)
class _Task:
    job: str
    attempt: int
    rank: int


async def list_logs(call: Call) -> Answer:
    """Which tasks have written how much."""
    job = use.get_job(call.service.plane, call.caller, call.project, call.path["ref"])
    return Answer(await call.service.in_files(call.service.plane.logs.tasks, job.id))


async def read_log(call: Call) -> Answer | Stream:
    """Bytes from an offset on: what there is, or a stream that goes on."""
    query: LogQuery = call.query
    if query.after < 0:
        raise Malformed(f"after is {query.after}; it is a byte offset of 0 or more")
    rank = _rank(call.path["rank"])
    job = use.get_job(call.service.plane, call.caller, call.project, call.path["ref"])
    if query.follow and not query.attempt and job.attempt == 0:
        job = await _started(call, job)
    attempt = query.attempt or job.attempt
    if attempt > job.attempt or attempt < 0:
        raise NotFound(f"job {job.address} has had {job.attempt} attempts; there is no attempt {attempt}")
    task = _Task(job.id, attempt, rank)
    over = _is_over(job, attempt)
    if query.follow:
        return Stream(_follow(call, task, query.after, over), headers=_headers(task, query.after, over))
    size = call.service.plane.logs.size(task.job, task.attempt, task.rank) if attempt else 0
    data = await _read(call, task, query.after, clamp_limit(query.limit, READ_BYTES_MAX)) if query.after < size else b""
    return Answer(data, headers=(*_headers(task, query.after, over and query.after + len(data) >= size), ("Shoal-Log-Size", str(size))))


async def _started(call: Call, job: Job) -> Job:
    """The job once it has an attempt, or as it is when it ends or START_WAIT_S is over."""
    loop = asyncio.get_running_loop()
    until = loop.time() + START_WAIT_S
    with call.service.tail.watch(job_key(job.id)) as watch:
        while True:
            job = use.get_job(call.service.plane, call.caller, call.project, job.id)
            left_s = until - loop.time()
            if job.attempt or job.ended_ms is not None or left_s <= 0 or call.service.tail.closing:
                return job
            await watch.next(left_s)


async def _follow(call: Call, task: _Task, offset: int, over: bool) -> AsyncGenerator[bytes, None]:
    service = call.service
    with service.tail.watch(job_key(task.job), log_key(task.job, task.attempt, task.rank)) as watch:
        while not service.tail.closing:
            # The order counts: an attempt that is over before the size is read writes nothing after it.
            over = over or _is_over(use.get_job(service.plane, call.caller, call.project, task.job), task.attempt)
            while offset < service.plane.logs.size(task.job, task.attempt, task.rank):
                data = await _read(call, task, offset, PIECE_BYTES)
                offset += len(data)
                yield data
            if over or not await _more(call, watch):
                return


async def _more(call: Call, watch: Watch) -> bool:
    """Waits for a change. False after IDLE_S without one; raises when the token does not hold any more."""
    if await watch.next(IDLE_S):
        return True
    admit(call)
    return False


async def _read(call: Call, task: _Task, offset: int, limit: int) -> bytes:
    """Off the loop: bytes that are not in memory any more would hold up everybody."""
    return await call.service.read_log(task.job, task.attempt, task.rank, offset, limit)


def _is_over(job: Job, attempt: int) -> bool:
    """True once no more bytes can come from that attempt: its nodes have sent them before they said that it ended."""
    if job.attempt > attempt or job.ended_ms is not None:
        return True
    return attempt > 0 and job.state not in LIVE


def _headers(task: _Task, offset: int, complete: bool) -> Headers:
    return (
        ("Shoal-Log-Attempt", str(task.attempt)),
        ("Shoal-Log-Offset", str(offset)),
        ("Shoal-Log-Complete", "true" if complete else "false"),
    )


def _rank(text: str) -> int:
    """The rank in a path; -1 is the setup script of the first node."""
    if text == "-1":
        return -1
    rank = parse_whole(text)
    if rank is None or rank >= TASKS_PER_JOB_MAX:
        raise NotFound(f"no task {text!r}; tasks are numbered from 0")
    return rank

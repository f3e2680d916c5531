"""
What every handler shares in one server process: the plane, the landing for durable writes, the tail, page tokens, open terminals.

Made by the composition root on the running event loop, closed by it before the loop ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from shoal.api.bridges import Bridges
from shoal.api.cursors import Cursors
from shoal.api.landing import Landing
from shoal.api.tail import Tail
from shoal.control.plane import Plane
from shoal.model.codec import encode_json
from shoal.model.wire import Health

T = TypeVar("T")
P = ParamSpec("P")

FILE_THREADS = 8
LOOK_THREADS = 4


class Service:
    """See module. `secret` seals page tokens; `health` says how the plane's own thread does."""

    def __init__(self, plane: Plane, loop: asyncio.AbstractEventLoop, *, secret: bytes, health: Callable[[], Health]) -> None:
        self.plane = plane
        self.health = health
        self.landing = Landing(loop)
        self.tail = Tail(plane.store, loop)
        self.cursors = Cursors(secret)
        self.bridges = Bridges()
        # Two pools, so that those who wait for the scheduler's cycle (why, queues) never keep those who read a log from doing so.
        self._files = ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="files")
        self._looks = ThreadPoolExecutor(LOOK_THREADS, thread_name_prefix="looks")
        self._loop = loop
        self._log_reads: dict[tuple[str, int, int, int, int], asyncio.Future[bytes]] = {}
        self.openapi = b""
        """The document, printed when first asked for."""
        self._prefix = plane.ids.uuid(plane.clock.now_ms()).replace("-", "")[:20]
        self._requests = 0

    async def settle(self, future: Future[T]) -> T:
        """The answer of a use case once it is durable."""
        return await self.landing.settle(future)

    async def in_files(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`work(...)` off the loop: it reads or writes files, and what is not in memory any more would hold up everybody."""
        return await self._loop.run_in_executor(self._files, partial(work, *args, **kwargs))

    async def read_log(self, job: str, attempt: int, rank: int, offset: int, limit: int) -> bytes:
        """Bytes of a log. Those who follow one log ask for the same at the same moment: one read serves them all."""
        key = (job, attempt, rank, offset, limit)
        reading = self._log_reads.get(key)
        if reading is None:
            reading = self._loop.run_in_executor(self._files, partial(self.plane.logs.read, *key))
            self._log_reads[key] = reading
            reading.add_done_callback(lambda _: self._log_reads.pop(key, None))
        return await asyncio.shield(reading)  # one who goes must not end it for the others

    async def in_looks(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`work(...)` off the loop: it reads much of the store, or waits for the cycle that runs."""
        return await self._loop.run_in_executor(self._looks, partial(work, *args, **kwargs))

    def new_request_id(self) -> str:
        """Unique, and rising within a process. A counter under a random prefix: a UUID per request would cost more than routing it."""
        self._requests += 1
        return f"{self._prefix}-{self._requests:x}"

    def print_openapi(self, document: Callable[[], object]) -> bytes:
        """The OpenAPI document as bytes; made once."""
        if not self.openapi:
            self.openapi = encode_json(document())
        return self.openapi

    def close(self) -> None:
        """Ends long answers and terminals. Idempotent."""
        self.tail.close()
        self.bridges.close()
        self._files.shutdown(wait=False)
        self._looks.shutdown(wait=False)

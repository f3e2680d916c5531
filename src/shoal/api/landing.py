"""
Waiting on the event loop for futures that the store's writer thread sets.

`asyncio.wrap_future` wakes the loop once per future: a system call each. A commit carries up to COMMIT_GROUP_MAX writes, whose futures
are set one after the other, so here the loop is woken once and lands all of them. Made once per server, used by every handler.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class Landing:
    """See module. `settle` is for the loop's thread; the futures may be set on any."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._landed: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()
        self._woken = False

    async def settle(self, future: Future[T]) -> T:
        """
        The future's result, or its error raised.

        A caller that is cancelled leaves the future alone: a write handed over is done, whoever waits for it.
        """
        if future.done():
            return future.result()
        waiter: asyncio.Future[T] = self._loop.create_future()
        future.add_done_callback(lambda done: self._land(waiter, done))
        return await waiter

    def _land(self, waiter: asyncio.Future[Any], done: Future[Any]) -> None:
        self._landed.append((waiter, done))
        if not self._woken:
            # Setting the flag before the call keeps a wake-up from being lost: _drain clears it before it looks.
            self._woken = True
            with suppress(RuntimeError):  # The loop is closed: the server has gone, and with it everybody who waited.
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._woken = False
        while self._landed:
            waiter, done = self._landed.popleft()
            if waiter.done():
                continue
            if done.cancelled():
                waiter.cancel()
            elif (error := done.exception()) is not None:
                waiter.set_exception(error)
            else:
                waiter.set_result(done.result())

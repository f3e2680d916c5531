"""
An event loop on virtual time: what coroutines need of one, and nothing that waits.

The API's handlers are coroutines; here their timers are events of the agenda and their worker threads do their work at once. Not
asyncio's own loop with another clock: that would ask the kernel for sockets at every turn, and hides what is ready.
"""

from __future__ import annotations

import asyncio
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

from shoal.base import limits
from shoal.sim.swarm.agenda import Agenda, Alarm


class _Timer(asyncio.TimerHandle):
    """A handle whose event goes from the agenda with it."""

    alarm: Alarm | None = None

    def cancel(self) -> None:
        if self.alarm is not None:
            self.alarm.cancel()
        super().cancel()


class VirtualLoop(asyncio.AbstractEventLoop):
    """See module. `woken` is called when something becomes ready; who hears it calls `turn` soon."""

    def __init__(self, agenda: Agenda, woken: Callable[[], None]) -> None:
        self._agenda = agenda
        self._woken = woken
        self._ready: deque[asyncio.Handle] = deque()
        self._closed = False

    def turn(self) -> int:
        """Does everything that is ready, and what this makes ready; says how much that was."""
        done = 0
        while self._ready and not self._closed and done < limits.LOOP_TURNS_MAX:
            handle = self._ready.popleft()
            if not handle.cancelled():
                _set_running_loop(self)
                try:
                    handle._run()  # noqa: SLF001  (a handle's way to be run; asyncio's own loops call it)
                finally:
                    _set_running_loop(None)
                done += 1
        return done

    def close(self) -> None:
        """Nothing runs any more, as in a process that was killed."""
        self._closed = True
        self._ready.clear()

    # --- what asyncio asks of a loop --------------------------------------------------------------------------------------------
    def time(self) -> float:
        return self._agenda.now_ms / 1_000

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._closed

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **_: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        return asyncio.Task(coro, loop=self)

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        handle = asyncio.Handle(callback, args, self, context)
        if not self._closed:
            self._ready.append(handle)
            self._woken()
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there is one thread

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        # Never at once for what lies ahead by less than a millisecond: who waits for it would look, find it ahead, and wait again.
        delay_ms = max(round(when * 1_000) - self._agenda.now_ms, 1 if when > self.time() else 0)
        timer.alarm = self._agenda.after(delay_ms, lambda: self._ring(timer))
        return timer

    def _ring(self, timer: asyncio.TimerHandle) -> None:
        if not self._closed and not timer.cancelled():
            self._ready.append(timer)
            self._woken()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Its event has gone already."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]  # noqa: ARG002
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A task that was lost with its server is no news; any other defect must not pass unseen."""
        error = context.get("exception")
        if error is not None and not self._closed:
            raise error

"""The command loop: one long poll after the other. Its own thread; a poll confirms what the engine has written into its journals."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from shoal.agent.control import Pauses
from shoal.agent.messages import Came, Message
from shoal.agent.session import Session
from shoal.base.errors import ShoalError
from shoal.model.wire import Commands, ExecSession

log = logging.getLogger(__name__)

WAIT_MS = 25_000
"""Under the 30 s after which middle boxes and the server itself give up a silent connection."""
CARRIED_OUT_S_MAX = 300.0
"""The engine takes milliseconds; past this the commands are asked for again rather than lost from sight."""


@dataclass(slots=True)
class Poller:
    """`taken` is the last command carried out; `serve` starts answering a call for a terminal."""

    session: Session
    pauses: Pauses
    taken: Callable[[], int]
    post: Callable[[Message], None]
    serve: Callable[[ExecSession], None]
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until `stop`; a poll in flight is left to end by itself."""
        while not self._stop.is_set():
            if not self.session.registered.wait(0.5):
                continue
            try:
                if self._poll():
                    self.pauses.reset()
                else:
                    self._stop.wait(self.pauses.next_s())
            except ShoalError as error:
                log.info("no commands: %s", error.message)
                self._stop.wait(self.pauses.next_s())
            except Exception:
                log.exception("a defect in the command loop; it goes on")
                self._stop.wait(self.pauses.next_s())

    def stop(self) -> None:
        self._stop.set()

    def came(self, commands: Commands, asked_ms: int) -> Came | None:
        """The answer to a poll that was sent at `asked_ms` (boot-time), handed to the engine; None if there is nothing to obey."""
        for call in commands.execs:
            self.serve(call)
        if not commands.rows:
            return None
        came = Came(commands.rows, asked_ms)
        self.post(came)
        return came

    def _poll(self) -> bool:
        """False if what came was thrown away for want of the lease."""
        asked_ms = self.session.clock.boottime_ms()
        commands = self.session.control.commands(self.taken(), WAIT_MS)
        if self._stop.is_set():
            return True  # not confirmed, so the next agent gets them
        came = self.came(commands, asked_ms)
        if came is None:
            return True
        came.done.wait(CARRIED_OUT_S_MAX)
        return not came.stale.is_set()

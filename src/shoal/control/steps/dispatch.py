"""
Commands from the outbox into the backends' hands: exactly what the outbox holds, in its order.

On start the outbox is read once, and again when the world has lost the tail; else commands arrive with the changes that caused them. A
command that is handed over twice is dropped by its seq. It leaves the outbox when its receiver confirms it, not here.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from shoal.base import limits
from shoal.control.steps.base import Progress, log
from shoal.model.change import Change
from shoal.model.command import CommandRow

if TYPE_CHECKING:
    from shoal.control.plane import Plane


class DispatchStep:
    name = "dispatch"

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._arrived: deque[CommandRow] = deque()
        self._loaded_at: int | None = None
        """The world's count of jumps when the outbox was read."""
        plane.world.on_change(self._note)

    def _note(self, change: Change) -> None:
        self._arrived.extend(change.commands)

    def step(self, now_ms: int) -> Progress:
        """Hands over what arrived since the last step."""
        del now_ms
        self._plane.world.catch_up()
        jumps = self._plane.world.jumps
        if self._loaded_at != jumps:
            self._load()
            self._loaded_at = jumps
        did = 0
        while self._arrived:
            did += self._act(self._arrived.popleft())
        return Progress(did)

    def _load(self) -> None:
        """Everything in the outbox, before what has arrived since: only complete when all pages are read, so it is repeated whole."""
        for name in self._plane.backends:
            seq = 0
            while rows := self._plane.store.commands_after(name, seq, limits.COMMANDS_PER_POLL_MAX):
                for row in rows:
                    self._act(row)
                seq = rows[-1].seq

    def _act(self, row: CommandRow) -> int:
        backend = self._plane.backends.get(row.backend)
        if backend is None:
            log.warning("command %d for backend %r waits in the outbox: this server has no such backend", row.seq, row.backend)
            return 0
        backend.act(row)
        return 1

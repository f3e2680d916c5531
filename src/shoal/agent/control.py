"""What the agent asks of the control plane; `client.agent.AgentCalls` is the real one."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from shoal.base.rng import Rng
from shoal.model.wire import Commands, Join, Joined, Register, Registered, Upload, UploadReply

PAUSE_FIRST_S = 0.1
PAUSE_MAX_S = 5.0
"""Half a renewal: a server that is back must hear of us before a lease is in danger."""


class Control(Protocol):
    """Each call is tried once and raises an error of `base.errors` when it does not get through."""

    def join(self, join: Join) -> Joined: ...

    def register(self, register: Register) -> Registered: ...

    def commands(self, after: int, wait_ms: int) -> Commands: ...

    def upload(self, upload: Upload) -> UploadReply: ...

    def fetch_blob(self, sha256: str, target: Path) -> None: ...

    def secrets(self, allocation: str) -> dict[str, bytes]: ...


class Pauses:
    """Growing pauses between tries, each drawn between half and the whole, so that a fleet does not come back in one beat."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._next_s = PAUSE_FIRST_S

    def reset(self) -> None:
        self._next_s = PAUSE_FIRST_S

    def next_s(self) -> float:
        pause_s = self._next_s * (0.5 + 0.5 * self._rng.unit())
        self._next_s = min(self._next_s * 2, PAUSE_MAX_S)
        return pause_s

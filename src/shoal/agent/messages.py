"""What reaches the engine's thread from the others."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from shoal.agent.runtimes.host import Ready
from shoal.agent.supervisor import wire
from shoal.agent.unprepared import Unprepared
from shoal.model.command import CommandRow


@dataclass(frozen=True, slots=True)
class Came:
    """
    Commands from the control plane, asked for at `asked_ms` (boot-time). `done` is set when all are in the journals: only then may they
    be confirmed. `stale` is set before that when some were thrown away, since the lease has not held since they were asked for.
    """

    rows: tuple[CommandRow, ...]
    asked_ms: int
    done: threading.Event = field(default_factory=threading.Event)
    stale: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Prepared:
    allocation: str
    outcome: Ready | Unprepared


@dataclass(frozen=True, slots=True)
class Said:
    """An event of the supervisor."""

    event: wire.Event


@dataclass(frozen=True, slots=True)
class Gone:
    """The supervisor that was the `generation`-th of this agent has ended."""

    generation: int


@dataclass(frozen=True, slots=True)
class Judged:
    """The control plane's word on what we hold: `kill` is not ours to run, `forget` is recorded as ended."""

    kill: tuple[str, ...] = ()
    forget: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DevicesLost:
    uuids: tuple[str, ...]


Message = Came | Prepared | Said | Gone | Judged | DevicesLost

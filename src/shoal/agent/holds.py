"""
What the agent holds: one `Hold` per allocation, and its journal, from which an agent that was killed takes it up again.

    PREPARING -> PREPARED -> STARTED -> EMPTY -> RELEASED
                                                    |
    any, when the control plane says so             `-> forgotten

Only the engine's thread changes holds.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import msgspec

from shoal.agent.environment import Meeting
from shoal.agent.frames import FrameFile, read_frames
from shoal.agent.home import Home, safe
from shoal.agent.ports import HeldPort
from shoal.agent.runtimes.host import Ready
from shoal.model.attempt import AllocationState
from shoal.model.command import Commit, Prepare, Stop
from shoal.model.event import AllocationReleased, TaskExited
from shoal.model.job import CancelMode, Usage
from shoal.model.reason import Reason


class Phase(StrEnum):
    PREPARING = "PREPARING"
    PREPARED = "PREPARED"
    STARTED = "STARTED"
    EMPTY = "EMPTY"
    """No process is left; the devices are being looked at."""
    RELEASED = "RELEASED"


# --- the journal's entries ------------------------------------------------------------------------------------------------
class _Entry(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    pass


class Took(_Entry, frozen=True, kw_only=True, tag=True):
    order: Prepare


class Made(_Entry, frozen=True, kw_only=True, tag=True):
    """Prepared; `port` was held for the gang to meet."""

    port: int


class Began(_Entry, frozen=True, kw_only=True, tag=True):
    """Told to start: written before anything is started."""

    commit: Commit
    at_ms: int


class Ended(_Entry, frozen=True, kw_only=True, tag=True):
    report: TaskExited


class Told(_Entry, frozen=True, kw_only=True, tag=True):
    stop: Stop


class Over(_Entry, frozen=True, kw_only=True, tag=True):
    """Nothing is left of it; the last report, to be sent after the last bytes of its logs. None: it was never prepared."""

    report: AllocationReleased | None


Entry = Took | Made | Began | Ended | Told | Over


@dataclass(slots=True)
class Hold:
    order: Prepare
    journal: FrameFile
    phase: Phase = Phase.PREPARING
    ready: Ready | None = None
    port: HeldPort | None = None
    port_number: int = 0
    commit: Commit | None = None
    exits: dict[int, TaskExited] = field(default_factory=dict)
    stop: Stop | None = None
    stop_given: CancelMode = CancelMode.NONE
    """The strongest stop that the supervisor was told; kept in memory alone, telling it again does no harm."""
    reason: Reason | None = None
    """Why it ends, when neither its tasks' ends nor a command say so."""
    told_started: bool = False
    usage: Usage = field(default_factory=Usage)
    last_word: AllocationReleased | None = None
    device_checks: int = 0
    next_check_ms: int = 0

    @property
    def id(self) -> str:
        return self.order.allocation

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(task.rank for task in self.order.claim.tasks)

    @property
    def log_ranks(self) -> tuple[int, ...]:
        """Ranks that may have written output here."""
        return (*((-1,) if self.order.spec.setup is not None else ()), *self.ranks)

    @property
    def all_exited(self) -> bool:
        return self.setup_failed or all(rank in self.exits for rank in self.ranks)

    @property
    def setup_failed(self) -> bool:
        return -1 in self.exits and self.exits[-1].exit_code != 0

    @property
    def meeting(self) -> Meeting:
        assert self.commit is not None
        return Meeting(self.commit.master_address, self.commit.master_port, self.commit.members)

    @property
    def stop_mode(self) -> CancelMode:
        return self.stop.mode if self.stop is not None else CancelMode.NONE

    @property
    def state(self) -> AllocationState:
        """As the control plane names it."""
        if self.phase is Phase.RELEASED:
            return AllocationState.RELEASED
        if self.stop is not None or self.phase is Phase.EMPTY:
            return AllocationState.STOPPING
        return {
            Phase.PREPARING: AllocationState.CLAIMED,
            Phase.PREPARED: AllocationState.PREPARED,
            Phase.STARTED: AllocationState.STARTED,
        }[self.phase]

    def write(self, entry: Entry) -> None:
        """The entry counts from now on, also for the next agent. A full disk must not stop work: then it counts for this one alone."""
        with contextlib.suppress(OSError):
            self.journal.append(entry)
        self.apply(entry)

    def apply(self, entry: Entry) -> None:
        match entry:
            case Took():
                pass
            case Made(port=port):
                self.phase, self.port_number = Phase.PREPARED, port
            case Began(commit=commit):
                self.phase, self.commit = Phase.STARTED, commit
            case Ended(report=report):
                self.exits[report.rank] = report
            case Told(stop=stop):
                if stronger(stop.mode, self.stop_mode):
                    self.stop = stop
            case Over(report=report):
                self.phase, self.last_word = Phase.RELEASED, report


def stronger(mode: CancelMode, than: CancelMode) -> bool:
    order = (CancelMode.NONE, CancelMode.GRACEFUL, CancelMode.FORCE)
    return order.index(mode) > order.index(than)


def take_hold(home: Home, order: Prepare) -> Hold:
    """A new hold with its journal begun. Raises OSError."""
    path = _path(home, order.allocation)
    path.unlink(missing_ok=True)
    hold = Hold(order, FrameFile(path))
    hold.journal.append(Took(order=order))
    return hold


def read_holds(home: Home) -> list[Hold]:
    """The holds of an earlier agent. A journal without a readable beginning says nothing: its allocation was not taken."""
    holds: list[Hold] = []
    for path in sorted(home.holds.iterdir()):
        entries: list[Entry] = read_frames(path, Entry)
        if not entries or not isinstance(entries[0], Took):
            path.unlink(missing_ok=True)
            continue
        hold = Hold(entries[0].order, FrameFile(path))
        for entry in entries:
            hold.apply(entry)
        holds.append(hold)
    return holds


def drop_hold(home: Home, hold: Hold) -> None:
    """The journal goes."""
    hold.journal.close()
    _path(home, hold.id).unlink(missing_ok=True)


def _path(home: Home, allocation: str) -> Path:
    return home.holds / safe(allocation)

"""
What the agent holds: one `Hold` per allocation, and its journal, from which an agent that was killed takes it up again.

    PREPARING -> PREPARED -> STARTED -> EMPTY -> RELEASED
                                                    |
    any, when the control plane says so             `-> forgotten

Only the engine's thread changes holds and their journal.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import msgspec

from shoal.agent.environment import Meeting
from shoal.agent.frames import FrameFile, read_frames
from shoal.agent.ports import Port
from shoal.agent.runtimes.host import Ready
from shoal.model.attempt import AllocationState
from shoal.model.command import Commit, Member, Prepare, Save, Stop
from shoal.model.event import AllocationReleased, TaskExited
from shoal.model.job import CancelMode, Usage
from shoal.model.reason import Reason

REWRITE_BYTES = 4 << 20
"""The journal is rewritten at this size, or at four times what was alive at the last time if that is more."""


class Phase(StrEnum):
    """How far a hold is; see module."""

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


class Regrouped(_Entry, frozen=True, kw_only=True, tag=True):
    """Somebody has joined the gang or left it."""

    members: tuple[Member, ...]


class Ended(_Entry, frozen=True, kw_only=True, tag=True):
    report: TaskExited


class Asked(_Entry, frozen=True, kw_only=True, tag=True):
    """To save. `mark_ns` is the time of its checkpoint file before that; `given` are ranks that have had the signal."""

    save: Save
    mark_ns: int
    given: tuple[int, ...] = ()


class Told(_Entry, frozen=True, kw_only=True, tag=True):
    stop: Stop


class Over(_Entry, frozen=True, kw_only=True, tag=True):
    """Nothing is left of it; the last report, to be sent after the last bytes of its logs. None: it was never prepared."""

    report: AllocationReleased | None


class Dropped(_Entry, frozen=True, kw_only=True, tag=True):
    """The control plane has recorded its end."""


Entry = Took | Made | Began | Regrouped | Ended | Asked | Told | Over | Dropped


class Line(msgspec.Struct, frozen=True, array_like=True):
    """A line of the journal."""

    allocation: str
    entry: Entry


@dataclass(slots=True)
class Hold:
    """One allocation on this node. What stands in its journal is set through `write`; the rest is found again or not needed."""

    order: Prepare
    journal: HoldJournal
    phase: Phase = Phase.PREPARING
    ready: Ready | None = None
    port: Port | None = None
    port_number: int = 0
    commit: Commit | None = None
    exits: dict[int, TaskExited] = field(default_factory=dict)
    asked: Asked | None = None
    answered: bool = False
    """What it was asked to save has been reported; kept in memory alone, reporting it again does no harm."""
    ask_again_ms: int | None = None
    """Monotonic instant at which ranks that were not ready for a signal are given it again."""
    regroup_signals: dict[int, str] = field(default_factory=dict)
    """By rank: what tells of new members and has not been had yet. In memory alone."""
    stop: Stop | None = None
    stop_given: CancelMode = CancelMode.NONE
    """The strongest stop that the supervisor was told; kept in memory alone, telling it again does no harm."""
    reason: Reason | None = None
    """Why it ends, when neither its tasks' ends nor a command say so."""
    told_started: bool = False
    usage: Usage = field(default_factory=Usage)
    last_word: AllocationReleased | None = None
    entries: list[Entry] = field(default_factory=list)
    """All that was written of it: what a rewritten journal keeps."""
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
    def awaits_save(self) -> bool:
        """True from when it was asked to save until it has, or is stopped."""
        return self.asked is not None and not self.answered and self.stop is None

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
            self.journal.append(self.id, entry)
        self.entries.append(entry)
        self.apply(entry)

    def apply(self, entry: Entry) -> None:
        match entry:
            case Took() | Dropped():
                pass
            case Made(port=port):
                self.phase, self.port_number = Phase.PREPARED, port
            case Began(commit=commit):
                self.phase, self.commit = Phase.STARTED, commit
            case Regrouped(members=members) if self.commit is not None:
                self.commit = msgspec.structs.replace(self.commit, members=members)
            case Ended(report=report):
                self.exits[report.rank] = report
            case Asked():
                self.asked = entry
            case Told(stop=stop):
                if stronger(stop.mode, self.stop_mode):
                    self.stop = stop
            case Over(report=report):
                self.phase, self.last_word = Phase.RELEASED, report


def stronger(mode: CancelMode, than: CancelMode) -> bool:
    order = (CancelMode.NONE, CancelMode.GRACEFUL, CancelMode.FORCE)
    return order.index(mode) > order.index(than)


class HoldJournal:
    """
    One file for all holds, appended to, and rewritten when it has grown and most of it is of what has gone.

    Not a file per allocation: making and removing one costs more than all that is written into it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._live: dict[str, Hold] = {}
        self._file = FrameFile(path)
        self._rewrite_at = REWRITE_BYTES

    def read(self) -> list[Hold]:
        """The holds of an earlier agent. Lines without a readable beginning say nothing: such an allocation was not taken."""
        for line in read_frames(self._path, Line):
            known = self._live.get(line.allocation)
            if isinstance(line.entry, Took):
                known = self._live[line.allocation] = Hold(line.entry.order, self)
            elif isinstance(line.entry, Dropped):
                self._live.pop(line.allocation, None)
                continue
            if known is not None:
                known.entries.append(line.entry)
                known.apply(line.entry)
        with contextlib.suppress(OSError):
            self._rewrite()
        return list(self._live.values())

    def close(self) -> None:
        """Lets go of the file, as the end of the process does."""
        self._file.close()

    def take(self, order: Prepare) -> Hold:
        """A new hold. Raises OSError: what cannot be written down is not taken."""
        hold = Hold(order, self)
        took = Took(order=order)
        self.append(hold.id, took)
        hold.entries.append(took)
        self._live[hold.id] = hold
        return hold

    def append(self, allocation: str, entry: Entry) -> None:
        self._file.append(Line(allocation, entry))

    def drop(self, hold: Hold) -> None:
        self._live.pop(hold.id, None)
        with contextlib.suppress(OSError):
            self.append(hold.id, Dropped())
            if self._file.size > self._rewrite_at:
                self._rewrite()

    def _rewrite(self) -> None:
        self._file.replace([Line(hold.id, entry) for hold in self._live.values() for entry in hold.entries])
        self._rewrite_at = max(REWRITE_BYTES, 4 * self._file.size)

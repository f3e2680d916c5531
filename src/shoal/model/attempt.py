"""One try of a gang (`Attempt`) and its part on one node (`Allocation`): named devices, state, lease."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from shoal.model.job import JobEnd, Usage
from shoal.model.part import DevicePart


class AllocationState(StrEnum):
    """CLAIMED -> PREPARED -> STARTED -> STOPPING -> RELEASED; or LOST, then FENCED. Devices return at RELEASED or FENCED only."""

    CLAIMED = "CLAIMED"
    PREPARED = "PREPARED"
    STARTED = "STARTED"
    STOPPING = "STOPPING"
    RELEASED = "RELEASED"
    LOST = "LOST"
    FENCED = "FENCED"


HOLDING = frozenset(
    {
        AllocationState.CLAIMED,
        AllocationState.PREPARED,
        AllocationState.STARTED,
        AllocationState.STOPPING,
        AllocationState.LOST,
    }
)
"""States in which an allocation holds its devices, CPUs, memory and quota."""


class TaskPlace(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One process to be: its global rank, its rank on the node, and the devices it sees."""

    rank: int
    local_rank: int
    devices: tuple[str, ...] = ()
    parts: tuple[DevicePart, ...] = ()


class Allocation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """
    What one attempt holds on one node. Fencing and release are per allocation.

    `id` is `<job id>.<attempt>.<node rank>`, so that a backend finds what it made before it makes it again.
    """

    id: str
    job: str
    job_number: int
    project: str
    queue: str
    attempt: int
    node: str
    backend: str = "agents"
    """The node's, so that commands find their way without the node's record."""
    node_rank: int
    group: str = ""
    group_rank: int = 0
    devices: tuple[str, ...] = ()
    """Whole ones."""
    parts: tuple[DevicePart, ...] = ()
    """Pieces of others."""
    gpu_model: str = ""
    cpu_milli: int = 0
    memory_bytes: int = 0
    tasks: tuple[TaskPlace, ...] = ()
    state: AllocationState = AllocationState.CLAIMED
    address: str = ""
    """Where peers reach this member; set when PREPARED."""
    port: int = 0
    """The rendezvous port that node rank 0 opened; set when PREPARED."""
    exits: dict[int, int] = {}
    """Exit code by global rank, as far as known; 128 + signal for a killed task."""
    claimed_ms: int = 0
    started_ms: int | None = None
    released_ms: int | None = None
    stop_sent: str = ""
    """The strongest stop already sent: a CancelMode value, or empty."""
    saved_ms: int = 0
    """When it last said that the job's work was saved, by its node's own clock: a report of that time is no news."""
    stuck: tuple[int, ...] = ()
    """Processes that outlived the kill (uninterruptible): time alone never fences this allocation."""
    usage: Usage = Usage()
    joined: bool = False
    """It came to a gang that ran already."""
    leaving: bool = False
    """Told to leave a gang that goes on without it: how its tasks end is nothing to the gang."""
    version: int = 0

    @property
    def gpu_milli(self) -> int:
        """What it has of GPUs, in thousandths of one: whole ones, and what its parts are charged."""
        whole = 1_000 * len(self.devices)
        return whole + sum(part.charge for part in self.parts) if self.parts else whole

    @property
    def gpus_touched(self) -> tuple[str, ...]:
        """Every GPU that it has, or has a part of, once each."""
        return tuple(dict.fromkeys((*self.devices, *(part.device for part in self.parts)))) if self.parts else self.devices


class Attempt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """
    One try of a gang; its number fences off every other try. `members` are allocation ids in node-rank order.

    Members may join and leave an elastic gang that is resized in place; then `members` are those that have not left or been told to.
    """

    id: str
    """`<job id>.<number>`"""
    job: str
    number: int
    members: tuple[str, ...]
    prepare_by_ms: int
    """Every member must have said PREPARED by then, else the attempt is given up without counting against retries."""
    ranks: int = 0
    """Node ranks given out so far, where somebody has joined or left: none is given twice. 0: one to each member."""
    join_by_ms: int | None = None
    """Whoever is joining must have said PREPARED by then; others do not wait for it longer."""
    committed_ms: int | None = None
    save_by_ms: int | None = None
    """While it gives its room away and is left time to save: when it is stopped, saved or not."""
    ended_ms: int | None = None
    end: JobEnd | None = None
    predicted: str = ""
    """What its place costs it, in words; empty where nothing is lost."""
    version: int = 0

"""
Is the whole plane sound? The oracle of tests and simulation, and what `shoal check` asks of a live system. Reads, never writes.

Two questions: are the stored records legal (`scheduling.check`: devices, capacity, gangs, queues; `lifecycle.audit`: attempts and what
they hold), and does the live picture equal the store. Cost: everything there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.lifecycle.audit import audit
from shoal.model.attempt import HOLDING
from shoal.model.snapshot import Snapshot
from shoal.scheduling.check import check_snapshot

if TYPE_CHECKING:
    from shoal.control.plane import Plane


def check_plane(plane: Plane) -> tuple[str, ...]:
    """Every violation in words; empty when all is well. Exact only while nothing is being written."""
    snapshot = plane.store.snapshot()
    plane.world.catch_up()
    # A snapshot leaves out members that have given back already; the audit of a live attempt wants those too.
    released = tuple(a for a in tuple(plane.world.allocations.values()) if a.state not in HOLDING)
    return (
        *check_snapshot(snapshot),
        *audit(snapshot.jobs, snapshot.attempts, (*snapshot.allocations, *released)),
        *_differences(snapshot, plane.world.records()),
    )


def _differences(stored: Snapshot, live: Snapshot) -> list[str]:
    """Where the live picture is not what is stored."""
    found = [] if stored.version == live.version else [f"the live picture is at version {live.version}, the store at {stored.version}"]
    for kind in ("jobs", "attempts", "allocations", "nodes", "queues", "claims"):
        ours, theirs = ({record.id: record for record in getattr(snapshot, kind)} for snapshot in (stored, live))
        wrong = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
        found.extend(f"{kind}: {name} is stored as {ours.get(name)!r} and seen as {theirs.get(name)!r}" for name in wrong)
    return found

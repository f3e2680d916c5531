"""
Reservations in time: which nodes a job may not be on, since somebody else, or nobody, has them before it would end.

    a job of length L at time t   must not be on a node whose window begins before t + L and ends after t, unless it may use the window
    a job without a limit         must not be on a node that has a window to come
    who may use a window          jobs of the users, projects and queues that it names; all others keep off as above

Jobs that run when a window begins are not stopped: they started before it was made. The board owns one `Windows` and says when
reservations, jobs or nodes moved; `reserve` and `preempt` ask for the rows that are closed to a candidate. Which windows a job may use is
part of what it is filed under (`pending`), so that jobs of one shape that differ in it are not taken for each other.
Cost: one pass over the reservations, and over rows for each distinct set of windows that meets somebody; nothing where there are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.base import limits
from shoal.model.change import Record
from shoal.model.job import Job
from shoal.model.node import Node
from shoal.model.reservation import PERIODS_MS, Reservation, ReservationSpec
from shoal.scheduling.columns import Columns
from shoal.scheduling.pending import Pending

Flags = NDArray[np.bool_]
Times = NDArray[np.int64]
FOREVER = 1 << 62
"""An end past all ends: of a job without a time limit."""


class Window(NamedTuple):
    """One occurrence of a reservation."""

    start_ms: int
    end_ms: int


# --- one reservation ----------------------------------------------------------------------------------------------------------
def window_meeting(spec: ReservationSpec, from_ms: int, until_ms: int) -> Window | None:
    """The first occurrence that begins before `until_ms` and ends after `from_ms`."""
    start_ms, end_ms = spec.start_ms, spec.end_ms
    if end_ms <= from_ms and spec.repeat is not None:
        period_ms = PERIODS_MS[spec.repeat]
        passed = (from_ms - end_ms) // period_ms + 1
        start_ms, end_ms = start_ms + passed * period_ms, end_ms + passed * period_ms
    return Window(start_ms, end_ms) if end_ms > from_ms and start_ms < until_ms else None


def windows_overlap(one: ReservationSpec, other: ReservationSpec) -> bool:
    """
    True if some occurrence of one meets some occurrence of the other.

    Where both repeat, one occurrence of the rarer one that begins after both have begun stands for all that follow, since its period is a
    whole number of the other's.
    """
    if window_meeting(one, other.start_ms, other.end_ms) or window_meeting(other, one.start_ms, one.end_ms):
        return True
    if one.repeat is None or other.repeat is None:
        return False
    rare, often = (one, other) if PERIODS_MS[one.repeat] >= PERIODS_MS[other.repeat] else (other, one)
    late = window_meeting(rare, max(one.end_ms, other.end_ms) + PERIODS_MS["weekly"], FOREVER)
    return late is not None and window_meeting(often, late.start_ms, late.end_ms) is not None


def fits_between(spec: ReservationSpec, length_ms: int) -> bool:
    """True if a job of this length that keeps off the nodes has room after some window; behind the last one anything has."""
    return spec.repeat is None or length_ms <= PERIODS_MS[spec.repeat] - (spec.end_ms - spec.start_ms)


def may_use(spec: ReservationSpec, job: Job) -> bool:
    """True if the reservation is for this job. A user may be written without the kind of principal: anna for `user/anna`."""
    owners = (job.owner, job.owner.rpartition("/")[2])
    return any(owner in spec.users for owner in owners) or job.project in spec.projects or job.queue in spec.queues


def covers(spec: ReservationSpec, node: Node) -> bool:
    """True if the reservation is of this node."""
    if spec.domain is not None:
        level, _, name = spec.domain.partition("=")
        return (level, name) in node.topology
    return node.pool == spec.pool if spec.pool is not None else node.id in spec.nodes


def passes_of(job: Job, reservations: Mapping[str, Reservation]) -> tuple[str, ...]:
    """The reservations that are for a job, ascending."""
    if not reservations:
        return ()
    return tuple(name for name, reservation in sorted(reservations.items()) if may_use(reservation.spec, job))


def ends_by(job: Job, from_ms: int) -> int:
    """When its time limit ends a job that starts, or starts again, then; FOREVER for one without."""
    return FOREVER if job.time_limit_ms is None else from_ms + job.time_limit_ms


def leaves_within_ms(job: Job) -> int:
    """The longest that a job holds its room after it was told to give it away: it saves if it does that, then ends."""
    grace_ms = min(job.spec.stop.grace.ms, limits.CHECKPOINT_WAIT_MS_MAX)
    rule = job.spec.checkpoint
    if rule is None:
        return grace_ms
    takes_ms = min(rule.takes.ms, limits.CHECKPOINT_WAIT_MS_MAX) if rule.takes is not None else 0
    return grace_ms + max(grace_ms, takes_ms)


def keepers_of(job: Job, node: Node, span: Window, reservations: Iterable[Reservation]) -> list[str]:
    """The reservations that keep a job off a node from `span.start_ms` to `span.end_ms`. For `check`."""
    specs = ((reservation.id, reservation.spec) for reservation in reservations)
    return [name for name, spec in specs if window_meeting(spec, *span) and covers(spec, node) and not may_use(spec, job)]


# --- all of them, over the columns ----------------------------------------------------------------------------------------------
class Windows:
    """See module."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self.reservations: dict[str, Reservation] = {}
        self._rows: dict[str, Flags] = {}
        self.moves = 0
        """Counts changes of reservations."""
        self._epoch = -1
        self._closed: dict[tuple[str, ...], Flags] = {}

    def load(self, reservations: Iterable[Reservation]) -> None:
        """Takes in all that there are."""
        for reservation in reservations:
            self.put(reservation)

    def put(self, record: Record) -> bool:
        """
        A reservation is new, or changed; other records are none of it.

        True if it was one: jobs may be free to use others now (see `with_other_passes`).
        """
        if not isinstance(record, Reservation):
            return False
        self.reservations[record.id] = record
        self.moves += 1
        self._epoch = -1
        return True

    def drop(self, record: Record) -> bool:
        """A reservation is gone; as `put`."""
        if not isinstance(record, Reservation):
            return False
        self.reservations.pop(record.id, None)
        self.moves += 1
        self._epoch = -1
        return True

    def with_other_passes(self, pending: Pending, jobs: Mapping[str, Job]) -> dict[str, None]:
        """Pending jobs that were filed as free to use other reservations than they are now. Costs the queue; reservations seldom move."""
        return {
            job_id: None for job_id, passes in pending.passes() if job_id in jobs and passes != passes_of(jobs[job_id], self.reservations)
        }

    def meeting(self, from_ms: int, until_ms: int, passes: tuple[str, ...]) -> list[tuple[str, Window]]:
        """Those that keep a job off their nodes that would run from `from_ms` to `until_ms`; by name."""
        found = []
        for name, reservation in sorted(self.reservations.items()):
            if name not in passes:
                window = window_meeting(reservation.spec, from_ms, until_ms)
                if window is not None:
                    found.append((name, window))
        return found

    def closed(self, from_ms: int, until_ms: int, passes: tuple[str, ...]) -> Flags | None:
        """Per row: is it closed to such a job? None where no row is. Not to be written to."""
        if not self.reservations:
            return None
        names = tuple(name for name, _ in self.meeting(from_ms, until_ms, passes))
        if not names:
            return None
        self._bring_up()
        closed = self._closed.get(names)
        if closed is None:
            if len(self._closed) >= limits.WINDOW_SETS_KEPT_MAX:
                self._closed.clear()
            closed = self._closed[names] = np.logical_or.reduce([self._rows[name] for name in names])
        return closed if closed.any() else None

    def postponed(self, rows: Times, times: Times, length_ms: int, passes: tuple[str, ...]) -> Times:
        """
        Per row the first time, not before the one given, from which it is open to a job for `length_ms`; FOREVER where none is found.

        Each round moves a start behind a window that it meets; after limits.WINDOWS_PASSED_MAX rounds the last time reached stands, which
        is then a bound from below.
        """
        self._bring_up()
        times = times.copy()
        for _ in range(limits.WINDOWS_PASSED_MAX):
            before = times.copy()
            for name, reservation in sorted(self.reservations.items()):
                if name not in passes:
                    at = np.flatnonzero(self._rows[name][rows] & (times < FOREVER))
                    if len(at):
                        times[at] = _behind(reservation.spec, times[at], length_ms)
            if np.array_equal(before, times):
                break
        return times

    def ends_after(self, time_ms: int) -> int | None:
        """When the first window ends after a time: then somebody may be able to start."""
        found = [window.end_ms for r in self.reservations.values() if (window := window_meeting(r.spec, time_ms, FOREVER)) is not None]
        return min(found, default=None)

    def rows_of(self, name: str) -> Flags:
        """Per row: is the node in this reservation?"""
        self._bring_up()
        return self._rows[name]

    def _bring_up(self) -> None:
        """Works out the rows again when nodes, or reservations, have moved."""
        if self._epoch == self._columns.epoch:
            return
        self._epoch = self._columns.epoch
        self._closed.clear()
        nodes = self._columns.nodes
        self._rows = {
            name: np.fromiter((covers(reservation.spec, node) for node in nodes), np.bool_, len(nodes))
            for name, reservation in self.reservations.items()
        }


def _behind(spec: ReservationSpec, times: Times, length_ms: int) -> Times:
    """Each time moved behind the occurrence that a job of this length would meet, once."""
    start = np.full_like(times, spec.start_ms)
    if spec.repeat is not None:
        period_ms = PERIODS_MS[spec.repeat]
        if not fits_between(spec, length_ms):
            return np.where(times + length_ms <= spec.start_ms, times, FOREVER)
        start += np.maximum(0, (times - spec.end_ms) // period_ms + 1) * period_ms
    end = start + (spec.end_ms - spec.start_ms)
    meets = (times < end) & (times + length_ms > start)
    moved: Times = np.where(meets, end, times)
    return moved

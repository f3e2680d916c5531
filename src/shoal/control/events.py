"""What happened, in the order of commits: pages of events of a project. Called by `api`, which wakes its watchers itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shoal.base import limits
from shoal.control.access import Caller, see_project
from shoal.model.event import EventRow
from shoal.model.wire import EventPage

if TYPE_CHECKING:
    from shoal.control.plane import Plane


READS_PER_PAGE_MAX = 32
"""Reads of nothing but other projects' events in one page; bounds what a page costs."""


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Events that concern a project after a version; `kinds` empty means all, `subject` None means everybody's."""

    project: str
    after: int = 0
    kinds: tuple[str, ...] = ()
    subject: str | None = None
    limit: int = limits.EVENTS_PER_READ_MAX


def read_events(plane: Plane, caller: Caller, query: EventQuery) -> EventPage:
    """
    Events with a version over `query.after`, oldest first. `resource_version` is the place to go on from.

    A version's events are never split, so going on from it neither skips nor repeats. A page may be short before the end, and even
    empty after READS_PER_PAGE_MAX reads of events that are all others'; the end is where `resource_version` does not move any more.
    """
    see_project(plane, caller, query.project)
    limit = max(1, min(query.limit, limits.EVENTS_PER_READ_MAX))
    after = query.after
    items: tuple[EventRow, ...] = ()
    for _ in range(READS_PER_PAGE_MAX):
        reached = plane.store.version()
        rows = plane.store.events_after(None, after, limit, query.kinds, query.subject)
        items = tuple(row for row in rows if sees_event(caller, query.project, row))
        # While there are rows, only what was read is passed by: the store leaves out a last version that the limit would split.
        after = rows[-1].version if rows else max(reached, after)
        if items or not rows:
            break
    return EventPage(items=items, resource_version=after)


def sees_event(caller: Caller, project: str, row: EventRow) -> bool:
    """
    True for events of `project` and for those of no project: nodes are everybody's. Whose tokens are made and revoked is told to those
    alone who may see tokens of all projects.
    """
    if row.project == project:
        return True
    return not row.project and (row.kind != "access" or (caller.role == "admin" and caller.project is None))

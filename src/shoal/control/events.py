"""What happened, in the order of commits: pages of events of a project. Called by `api`, which wakes its watchers itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shoal.base import limits
from shoal.control.access import Caller, see_project
from shoal.model.wire import EventPage

if TYPE_CHECKING:
    from shoal.control.plane import Plane


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Events of a project after a version; `kinds` empty means all, `subject` None means everybody's."""

    project: str
    after: int = 0
    kinds: tuple[str, ...] = ()
    subject: str | None = None
    limit: int = limits.EVENTS_PER_READ_MAX


def read_events(plane: Plane, caller: Caller, query: EventQuery) -> EventPage:
    """
    Events with a version over `query.after`, oldest first. `resource_version` is the place to go on from.

    A version's events are never split, so going on from it neither skips nor repeats.
    """
    see_project(plane, caller, query.project)
    reached = plane.store.version()
    limit = max(1, min(query.limit, limits.EVENTS_PER_READ_MAX))
    rows = plane.store.events_after(query.project, query.after, limit, query.kinds, query.subject)
    at_end = len(rows) < limit
    last = rows[-1].version if rows else query.after
    return EventPage(items=rows, resource_version=max(reached, last) if at_end else last)

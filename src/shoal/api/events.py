"""
Handlers: the event stream of a project, as pages with a long poll or as server-sent events that resume.

The id of an event is the store's version, so `Last-Event-ID` (or `after`) resumes. A version may carry several events: all but its last
have the id `VERSION.ORDINAL`, so a client that breaks off in the middle of a version neither loses nor repeats the rest.
Bookmarks, at most BOOKMARK_S apart, carry the version reached: they keep the connection alive and an idle watcher from falling behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass

import msgspec

from shoal.api.endpoint import admit
from shoal.api.operations import Answer, Call, Stream
from shoal.api.parts import clamp_limit, wait_ms_of
from shoal.api.tail import EVENTS
from shoal.base.errors import Malformed, VersionExpired
from shoal.base.limits import EVENTS_PER_READ_MAX
from shoal.base.units import parse_whole
from shoal.control import events as use
from shoal.model.codec import encode_json
from shoal.model.event import EventRow
from shoal.model.wire import EventPage

BOOKMARK_S = 15.0
SSE = "text/event-stream"


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`after` is a version; a stream without it begins now, a page without it at the oldest event kept."""

    after: str | None = None
    kinds: tuple[str, ...] = ()
    subject: str | None = None
    limit: int = EVENTS_PER_READ_MAX
    wait: str | None = None


@dataclass(slots=True)
class _Place:
    """Everything up to `version` was sent, and of the next version the events up to `ordinal`."""

    version: int
    ordinal: int = -1

    def passes(self, row: EventRow) -> bool:
        return row.version != self.version + 1 or row.ordinal > self.ordinal


async def read_events(call: Call) -> Answer | Stream:
    """A stream for those who accept one, else a page."""
    query: EventsQuery = call.query
    asked = call.headers.get(b"last-event-id", b"").decode("latin-1") or query.after
    version_now = call.service.plane.store.version()
    if SSE.encode() in call.headers.get(b"accept", b""):
        place = _place(asked, version_now) if asked else _Place(version_now)
        use.read_events(call.service.plane, call.caller, _wanted(call, place.version, 1))
        return Stream(_stream(call, place), media_type=SSE, headers=(("X-Accel-Buffering", "no"),))
    place = _place(asked, version_now) if asked else _Place(0)
    return Answer(await _page(call, place))


def _place(text: str, version_now: int) -> _Place:
    before, dot, after = text.partition(".")
    version, ordinal = parse_whole(before), parse_whole(after) if dot else 0
    if version is None or ordinal is None:
        raise Malformed(f"event id {text!r}: use the id of an event, such as 17, to get what came after it")
    if version > version_now:
        raise VersionExpired(f"version {version} is of the future; this server is at {version_now}: list again and watch from there")
    return _Place(version - 1, ordinal) if dot else _Place(version)


def _wanted(call: Call, version: int, limit: int) -> use.EventQuery:
    query: EventsQuery = call.query
    return use.EventQuery(project=call.project, after=version, kinds=query.kinds, subject=query.subject, limit=limit)


async def _page(call: Call, place: _Place) -> EventPage:
    """A page; an empty one is held back for the query's `wait`."""
    query: EventsQuery = call.query
    limit = clamp_limit(query.limit, EVENTS_PER_READ_MAX)
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_ms_of(query.wait, 0) / 1_000
    with call.service.tail.watch(EVENTS) as watch:
        while True:
            page = await call.service.in_looks(use.read_events, call.service.plane, call.caller, _wanted(call, place.version, limit))
            rows = tuple(row for row in page.items if place.passes(row))
            left_s = until - loop.time()
            if rows or left_s <= 0 or call.service.tail.closing:
                return EventPage(items=rows, resource_version=page.resource_version)
            if page.resource_version > place.version:
                place.version, place.ordinal = page.resource_version, -1
            else:
                await watch.next(left_s)


async def _stream(call: Call, place: _Place) -> AsyncGenerator[bytes, None]:
    tail = call.service.tail
    with tail.watch(EVENTS) as watch:
        yield _bookmark(place)
        while not tail.closing:
            rows, version = await _next(call, place)
            if rows:
                yield b"".join(_messages(rows))
            if version > place.version:
                place.version, place.ordinal = version, -1
            elif not await watch.next(BOOKMARK_S):
                admit(call)
                yield _bookmark(place)


async def _next(call: Call, place: _Place) -> tuple[list[EventRow], int]:
    """The rows after a place that the caller asked for, and the version that they reach; from memory when it is recent."""
    query: EventsQuery = call.query
    tail = call.service.tail
    recent = tail.recent(place.version, EVENTS_PER_READ_MAX)
    if recent is None:
        wanted = _wanted(call, place.version, EVENTS_PER_READ_MAX)
        page = await call.service.in_looks(use.read_events, call.service.plane, call.caller, wanted)
        return [row for row in page.items if place.passes(row)], page.resource_version
    version = recent[-1].version if len(recent) >= EVENTS_PER_READ_MAX else max(tail.place, place.version)
    rows = [row for row in recent if place.passes(row) and use.sees_event(call.caller, call.project, row)]
    if query.kinds:
        rows = [row for row in rows if row.kind in query.kinds]
    if query.subject is not None:
        rows = [row for row in rows if row.subject == query.subject]
    return rows, version


def _messages(rows: Iterable[EventRow]) -> Iterable[bytes]:
    held: EventRow | None = None
    for row in rows:
        if held is not None:
            yield _message(held, last=held.version != row.version)
        held = row
    if held is not None:
        yield _message(held, last=True)


def _message(row: EventRow, *, last: bool) -> bytes:
    event_id = str(row.version) if last else f"{row.version}.{row.ordinal}"
    return b"id: %b\ndata: %b\n\n" % (event_id.encode(), encode_json(row))


def _bookmark(place: _Place) -> bytes:
    version = place.version if place.ordinal < 0 else f"{place.version + 1}.{place.ordinal}"
    return f'id: {version}\nevent: bookmark\ndata: {{"resource_version": {place.version}}}\n\n'.encode()

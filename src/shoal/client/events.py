"""The event stream over HTTP: pages, and a watch that resumes after its last event wherever it broke off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from shoal.base.errors import Unavailable
from shoal.client.transport import Patience, segment
from shoal.model.codec import decode_json
from shoal.model.event import EventRow
from shoal.model.wire import EventPage

if TYPE_CHECKING:
    from shoal.client.api import Api

QUIET_S_MAX = 45.0
"""Three bookmarks missed: the connection is dead."""


class Events:
    """`api.events`. `kinds` are of `EventRow.kind` (job, node, queue, access); `subject` is one id of these."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._http = api.transport

    def read(
        self,
        *,
        after: int = 0,
        kinds: Sequence[str] = (),
        subject: str | None = None,
        limit: int | None = None,
        wait: str | None = None,
    ) -> EventPage:
        """Events after a version, oldest first; with `wait` (`10s`) an empty page is held back that long."""
        query = {"after": after, "kinds": tuple(kinds), "subject": subject, "limit": limit, "wait": wait}
        return decode_json(self._http.request("GET", self._path(), query=query).body, EventPage)

    def watch(self, *, after: int | None = None, kinds: Sequence[str] = (), subject: str | None = None) -> Iterator[EventRow]:
        """
        Every event after a version (None: from now on), in the order of commits, once; for ever.

        Resumes over broken connections and server restarts. Raises VersionExpired when `after` is older than what is kept.
        """
        query: dict[str, object] = {"after": after, "kinds": tuple(kinds), "subject": subject}
        patience = Patience(self._http.patience_s)
        last_id: str | None = None
        while True:
            try:
                for event_id, row in self._stream(query, last_id):
                    patience.renew()
                    last_id = event_id or last_id
                    if row is not None:
                        yield row
            except Unavailable as error:
                patience.pause(error)

    def _stream(self, query: dict[str, object], last_id: str | None) -> Iterator[tuple[str, EventRow | None]]:
        """(id, event) as they come; bookmarks have no event."""
        headers = {"Accept": "text/event-stream"}
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        with self._http.stream(self._path(), query=query, headers=headers, timeout_s=QUIET_S_MAX) as pieces:
            fields: dict[str, str] = {}
            for line in pieces.lines():
                if line:
                    name, _, value = line.decode().partition(":")
                    fields[name] = value.removeprefix(" ")
                    continue
                if fields:
                    is_row = "data" in fields and fields.get("event") != "bookmark"
                    yield fields.get("id", ""), decode_json(fields["data"], EventRow) if is_row else None
                fields = {}

    def _path(self) -> str:
        return f"/v1/projects/{segment(self._api.project)}/events"

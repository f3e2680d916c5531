"""Logs over HTTP: by byte offset, so that a follower goes on exactly where a connection or a server broke off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.base.errors import Unavailable
from shoal.client.transport import Patience, segment
from shoal.model.codec import decode_json
from shoal.model.wire import TaskLog

if TYPE_CHECKING:
    from shoal.client.api import Api

PIECE_BYTES = 64 << 10
QUIET_S_MAX = 90.0
"""The server ends an idle stream well before; past this the connection is dead without having said so."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of one task's output from `offset` on."""

    attempt: int
    offset: int
    data: bytes


@dataclass(slots=True)
class _Place:
    """How far a follower is."""

    attempt: int | None
    offset: int
    complete: bool = False


class Logs:
    """`api.logs`."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._http = api.transport

    def tasks(self, ref: str | int) -> tuple[TaskLog, ...]:
        """Which tasks of the job have written how many bytes, by attempt and rank."""
        return decode_json(self._http.request("GET", self._path(ref)).body, tuple[TaskLog, ...])

    def read(self, ref: str | int, rank: int = 0, *, attempt: int | None = None, after: int = 0, limit: int | None = None) -> Piece:
        """What the task has written from `after` on, at most `limit` bytes; of the current attempt unless told."""
        query = {"attempt": attempt, "after": after, "limit": limit}
        reply = self._http.request("GET", f"{self._path(ref)}/{rank}", query=query)
        return Piece(int(reply.headers.get("Shoal-Log-Attempt", "0")), int(reply.headers.get("Shoal-Log-Offset", after)), reply.body)

    def follow(self, ref: str | int, rank: int = 0, *, attempt: int | None = None, after: int = 0) -> Iterator[Piece]:
        """
        What the task has written and writes, until its attempt is over: no byte lost, none twice, also across server restarts.

        Without `attempt` it is the job's current one, waited for if the job has not started. While the server is away it is tried
        again for the transport's patience, counted from the last byte.
        """
        place = _Place(attempt, after)
        patience = Patience(self._http.patience_s)
        while not place.complete:
            try:
                for piece in self._stream(ref, rank, place):
                    patience.renew()
                    if piece.data:
                        yield piece
            except Unavailable as error:
                patience.pause(error)

    def _stream(self, ref: str | int, rank: int, place: _Place) -> Iterator[Piece]:
        """One connection's part; moves `place` on. Begins with an empty piece: the server is there."""
        query = {"attempt": place.attempt, "after": place.offset, "follow": 1}
        with self._http.stream(f"{self._path(ref)}/{rank}", query=query, timeout_s=QUIET_S_MAX) as pieces:
            place.attempt = int(pieces.headers.get("Shoal-Log-Attempt", "0")) or place.attempt
            complete = pieces.headers.get("Shoal-Log-Complete") == "true"
            yield Piece(place.attempt or 0, place.offset, b"")
            while data := pieces.read(PIECE_BYTES):
                piece = Piece(place.attempt or 0, place.offset, data)
                place.offset += len(data)
                yield piece
            place.complete = complete

    def _path(self, ref: str | int) -> str:
        return f"/v1/projects/{segment(self._api.project)}/jobs/{segment(str(ref))}/logs"

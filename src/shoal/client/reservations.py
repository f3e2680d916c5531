"""Reservations of nodes over HTTP. A change names the version it was made on, so that two people do not undo each other unseen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.client.transport import segment
from shoal.model.codec import decode_json, encode_json
from shoal.model.reservation import ReservationSpec
from shoal.model.wire import ReservationView

if TYPE_CHECKING:
    from shoal.client.api import Api


class Reservations:
    """`api.reservations`."""

    def __init__(self, api: Api) -> None:
        self._http = api.transport

    def list(self) -> tuple[ReservationView, ...]:
        """All reservations, each with its nodes and next window; those that have passed come last."""
        return decode_json(self._http.request("GET", "/v1/reservations").body, tuple[ReservationView, ...])

    def get(self, name: str) -> ReservationView:
        return decode_json(self._http.request("GET", f"/v1/reservations/{segment(name)}").body, ReservationView)

    def set(self, name: str, spec: ReservationSpec, *, version: int | None = None) -> ReservationView:
        """
        Makes or changes a reservation. `version` is the one that was read; 0 means that it must not exist yet, None does not look.

        Raises Conflict where it overlaps another, VersionConflict when somebody changed it meanwhile.
        """
        headers = {"Content-Type": "application/json"}
        if version == 0:
            headers["If-None-Match"] = "*"
        elif version is not None:
            headers["If-Match"] = f'"{version}"'
        reply = self._http.request("PUT", f"/v1/reservations/{segment(name)}", body=encode_json(spec), headers=headers)
        return decode_json(reply.body, ReservationView)

    def delete(self, name: str, *, version: int | None = None) -> None:
        """The nodes are everybody's again."""
        headers = {} if version is None else {"If-Match": f'"{version}"'}
        self._http.request("DELETE", f"/v1/reservations/{segment(name)}", headers=headers)

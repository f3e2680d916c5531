"""Schedules of a project over HTTP. A change may name the version it was made on, so that two people do not undo each other unseen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.client.transport import segment
from shoal.model.codec import decode_json, encode_json
from shoal.model.schedule import Schedule, ScheduleSpec

if TYPE_CHECKING:
    from shoal.client.api import Api


class Schedules:
    """`api.schedules`."""

    def __init__(self, api: Api) -> None:
        self._http = api.transport
        self._base = f"/v1/projects/{segment(api.project)}/schedules"

    def list(self) -> tuple[Schedule, ...]:
        """All schedules of the project, by name."""
        return decode_json(self._http.request("GET", self._base).body, tuple[Schedule, ...])

    def get(self, name: str) -> Schedule:
        return decode_json(self._http.request("GET", f"{self._base}/{segment(name)}").body, Schedule)

    def set(self, name: str, spec: ScheduleSpec, *, version: int | None = None) -> Schedule:
        """
        Makes or changes a schedule. `version` is the one that was read; 0 means that it must not exist yet, None does not look.

        Raises Invalid for a time that is none, or a job that could not be submitted; VersionConflict when it ran or was changed meanwhile.
        """
        headers = {"Content-Type": "application/json"}
        if version == 0:
            headers["If-None-Match"] = "*"
        elif version is not None:
            headers["If-Match"] = f'"{version}"'
        reply = self._http.request("PUT", f"{self._base}/{segment(name)}", body=encode_json(spec), headers=headers)
        return decode_json(reply.body, Schedule)

    def delete(self, name: str, *, version: int | None = None) -> None:
        """It comes no more; its jobs stay."""
        headers = {} if version is None else {"If-Match": f'"{version}"'}
        self._http.request("DELETE", f"{self._base}/{segment(name)}", headers=headers)

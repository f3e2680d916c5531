"""Queues over HTTP. A change names the version it was made on, so that two people do not undo each other unseen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.client.transport import segment
from shoal.model.codec import decode_json, encode_json
from shoal.model.queue import Queue, QueueSpec
from shoal.model.wire import QueueView

if TYPE_CHECKING:
    from shoal.client.api import Api


class Queues:
    """`api.queues`."""

    def __init__(self, api: Api) -> None:
        self._http = api.transport

    def list(self) -> tuple[QueueView, ...]:
        """All queues by name, each with quota, use and what waits."""
        return decode_json(self._http.request("GET", "/v1/queues").body, tuple[QueueView, ...])

    def get(self, name: str) -> QueueView:
        return decode_json(self._http.request("GET", f"/v1/queues/{segment(name)}").body, QueueView)

    def set(self, name: str, spec: QueueSpec, *, version: int | None = None) -> Queue:
        """
        Makes or changes a queue. `version` is the one that was read; 0 means that it must not exist yet, None does not look.

        Raises VersionConflict when somebody changed it meanwhile.
        """
        headers = {"Content-Type": "application/json"}
        if version == 0:
            headers["If-None-Match"] = "*"
        elif version is not None:
            headers["If-Match"] = f'"{version}"'
        reply = self._http.request("PUT", f"/v1/queues/{segment(name)}", body=encode_json(spec), headers=headers)
        return decode_json(reply.body, Queue)

    def delete(self, name: str, *, version: int | None = None) -> None:
        """Removes a queue that no job and no other queue needs."""
        headers = {} if version is None else {"If-Match": f'"{version}"'}
        self._http.request("DELETE", f"/v1/queues/{segment(name)}", headers=headers)

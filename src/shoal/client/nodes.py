"""Nodes over HTTP: list, take out of service, bring back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.client.transport import REPEATABLE, segment
from shoal.model.codec import decode_json, encode_json
from shoal.model.wire import NodeAsk, NodeView

if TYPE_CHECKING:
    from shoal.client.api import Api


class Nodes:
    """`api.nodes`."""

    def __init__(self, api: Api) -> None:
        self._http = api.transport

    def list(self) -> tuple[NodeView, ...]:
        """All nodes by id, each with its devices and what is on it."""
        return decode_json(self._http.request("GET", "/v1/nodes").body, tuple[NodeView, ...])

    def get(self, node_id: str) -> NodeView:
        return decode_json(self._http.request("GET", f"/v1/nodes/{segment(node_id)}").body, NodeView)

    def drain(self, node_id: str, reason: str = "") -> NodeView:
        """Takes no new work and lets what runs come to its end."""
        return self._ask(node_id, "drain", reason)

    def cordon(self, node_id: str, reason: str = "") -> NodeView:
        """Takes no new work."""
        return self._ask(node_id, "cordon", reason)

    def resume(self, node_id: str, reason: str = "") -> NodeView:
        """Takes work again."""
        return self._ask(node_id, "resume", reason)

    def remove(self, node_id: str) -> None:
        """Forgets a node that holds no work."""
        self._http.request("DELETE", f"/v1/nodes/{segment(node_id)}")

    def _ask(self, node_id: str, verb: str, reason: str) -> NodeView:
        body = encode_json(NodeAsk(reason=reason))
        headers = {"Content-Type": "application/json"}
        reply = self._http.request("POST", f"/v1/nodes/{segment(node_id)}:{verb}", body=body, headers=headers, manner=REPEATABLE)
        return decode_json(reply.body, NodeView)

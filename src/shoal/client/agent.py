"""What a node's agent says to the control plane: join, register, poll for commands, upload. The token is the node's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shoal.client.transport import REPEATABLE, Manner, segment
from shoal.model.codec import decode_json, decode_pack, encode_json, encode_pack
from shoal.model.wire import Commands, Join, Joined, OpenedSecrets, Register, Registered, Upload, UploadReply

if TYPE_CHECKING:
    from shoal.client.api import Api

POLL_MARGIN_S = 10.0
UPLOAD_TIMEOUT_S = 15.0
"""Under half a lease: an upload that hangs must not cost the next one its chance."""
_JSON = {"Content-Type": "application/json"}
_PACK = {"Content-Type": "application/msgpack", "Accept": "application/msgpack"}


class AgentCalls:
    """`api.agent`. An agent makes its Api with `patience_s=0`: it has its own loop and must know at once when nobody answers."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._http = api.transport

    def join(self, join: Join) -> Joined:
        """First contact, with the join token; the answer has the node's own. Repeating it gives a new token and ends the old one's life."""
        body = encode_json(join)
        return decode_json(self._http.request("POST", "/v1/agent/join", body=body, headers=_JSON, manner=REPEATABLE).body, Joined)

    def register(self, register: Register) -> Registered:
        body = encode_json(register)
        return decode_json(self._http.request("POST", "/v1/agent/register", body=body, headers=_JSON, manner=REPEATABLE).body, Registered)

    def commands(self, after: int, wait_ms: int = 25_000) -> Commands:
        """Commands beyond `after`, which also confirms those up to it; waits for some up to `wait_ms`."""
        timeout_s = wait_ms / 1_000 + POLL_MARGIN_S
        reply = self._http.request(
            "GET", "/v1/agent/commands", query={"after": after, "wait": f"{wait_ms}ms"}, manner=Manner(timeout_s=timeout_s)
        )
        return decode_json(reply.body, Commands)

    def upload(self, upload: Upload) -> UploadReply:
        """Reports, log bytes and samples, which also renews the node's lease. Repeating one changes nothing."""
        body = encode_pack(upload)
        reply = self._http.request(
            "POST", "/v1/agent/upload", body=body, headers=_PACK, manner=Manner(repeatable=True, timeout_s=UPLOAD_TIMEOUT_S)
        )
        return decode_pack(reply.body, UploadReply)

    def fetch_blob(self, sha256: str, target: Path) -> None:
        """The archive of a job's files; whole and checked, or not there."""
        self._api.blobs.get_to(sha256, target, path=f"/v1/agent/blobs/{segment(sha256)}")

    def secrets(self, allocation: str) -> dict[str, bytes]:
        """File name under $SHOAL_SECRETS -> value, for an allocation that this node holds."""
        reply = self._http.request("GET", f"/v1/agent/allocations/{segment(allocation)}/secrets")
        return decode_json(reply.body, OpenedSecrets).files

"""Tokens and secrets over HTTP. A token's text is told once, a secret's value never again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.client.transport import segment
from shoal.model.codec import decode_json, encode_json
from shoal.model.wire import SecretValue, SecretView, TokenAsk, TokenMade, TokenView

if TYPE_CHECKING:
    from shoal.client.api import Api

_JSON = {"Content-Type": "application/json"}


class Tokens:
    """`api.tokens`."""

    def __init__(self, api: Api) -> None:
        self._http = api.transport

    def list(self) -> tuple[TokenView, ...]:
        return decode_json(self._http.request("GET", "/v1/tokens").body, tuple[TokenView, ...])

    def create(self, ask: TokenAsk) -> TokenMade:
        """A new token. Not sent twice: a lost answer leaves a token that nobody knows, seen in the list and revoked there."""
        return decode_json(self._http.request("POST", "/v1/tokens", body=encode_json(ask), headers=_JSON).body, TokenMade)

    def revoke(self, token_id: str) -> None:
        self._http.request("DELETE", f"/v1/tokens/{segment(token_id)}")


class Secrets:
    """`api.secrets`, of the api's project."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._http = api.transport

    def list(self) -> tuple[SecretView, ...]:
        return decode_json(self._http.request("GET", self._path()).body, tuple[SecretView, ...])

    def set(self, name: str, value: bytes) -> SecretView:
        """Stores a secret, or a new value for it; jobs that start later see the new one."""
        body = encode_json(SecretValue(value=value))
        return decode_json(self._http.request("PUT", f"{self._path()}/{segment(name)}", body=body, headers=_JSON).body, SecretView)

    def delete(self, name: str) -> None:
        self._http.request("DELETE", f"{self._path()}/{segment(name)}")

    def _path(self) -> str:
        return f"/v1/projects/{segment(self._api.project)}/secrets"

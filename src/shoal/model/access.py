"""Who may do what: principals with hashed tokens, sealed secrets, idempotency keys. No plain secret is ever in a record."""

from __future__ import annotations

from typing import Literal

import msgspec

Role = Literal["viewer", "member", "maintainer", "admin", "node", "join"]


class Token(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A bearer token. `id` is its public part; `hash` is SHA-256 (hex) of the whole: high-entropy random text needs no slow hash."""

    id: str
    hash: str
    principal: str
    """`user/anna`, `service/ci`, `node/n1`."""
    project: str | None = None
    """None: every project."""
    role: Role = "member"
    unix_user: str | None = None
    note: str = ""
    created_ms: int = 0
    expires_ms: int | None = None
    revoked_ms: int | None = None
    version: int = 0


class Secret(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A secret of a project; `sealed` is AES-256-GCM under the installation's key (nonce, then ciphertext)."""

    id: str
    """`<project>/<name>`"""
    project: str
    name: str
    sealed: bytes
    created_ms: int = 0
    version: int = 0


class IdempotencyKey(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A create that was done: written in the same transaction as what it made, so a repeat finds it or finds nothing."""

    project: str
    principal: str
    operation: str
    key: str
    fingerprint: str
    """SHA-256 (hex) of the canonical body, before defaults."""
    resource: str
    """Id of what was made. Empty: a cancel came before the create, which will be born cancelled."""
    created_ms: int = 0

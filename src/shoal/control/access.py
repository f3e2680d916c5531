"""
Who asks, and what they may see: bearer tokens to callers, and the rule that other projects' things are not there at all.

Called by `api` for every request and by the use cases before they look anything up. Which role an operation needs stands with the
operation (`api.operations`); here is what every road must hold to, whoever drives it.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from typing import TYPE_CHECKING

import msgspec

from shoal.base.errors import Forbidden, NotFound, Unauthenticated
from shoal.model.access import Role, Token
from shoal.model.job import Job

if TYPE_CHECKING:
    from shoal.control.plane import Plane

PREFIX = "shoal"
DEFAULT_PROJECT = "default"
_RANK: dict[str, int] = {"viewer": 1, "member": 2, "maintainer": 3, "admin": 4}


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks. `project` None: bound to none, so sees all; `unix_user` is whom the caller's tasks run as."""

    principal: str
    project: str | None = None
    role: Role = "member"
    unix_user: str | None = None

    @property
    def node(self) -> str:
        """The node that this caller speaks for; empty for everybody else."""
        return self.principal.removeprefix("node/") if self.role == "node" else ""


SYSTEM = Caller(principal="shoal", role="admin")
"""Shoal itself: composition roots, first start."""


def authenticate(plane: Plane, bearer: str) -> Caller:
    """
    The caller that a bearer token stands for.

    Raises: Unauthenticated for text that is no token, an unknown one, a wrong one, an expired or revoked one; which of these is told to
    the operator alone.
    """
    token = _find(plane, bearer)
    now_ms = plane.clock.now_ms()
    if token.revoked_ms is not None and token.revoked_ms <= now_ms:
        raise Unauthenticated("this token does not hold; ask for a new one", internal=f"token {token.id} was revoked")
    if token.expires_ms is not None and token.expires_ms <= now_ms:
        raise Unauthenticated("this token does not hold; ask for a new one", internal=f"token {token.id} has expired")
    return Caller(principal=token.principal, project=token.project, role=token.role, unix_user=token.unix_user)


def _find(plane: Plane, bearer: str) -> Token:
    token_id = read_token_id(bearer)
    token = plane.world.tokens.get(token_id)
    if token is None and token_id:
        plane.world.catch_up()
        token = plane.world.tokens.get(token_id)
    if token is None or not hmac.compare_digest(token.hash, hash_token(bearer)):
        raise Unauthenticated("no such token; give one with --token or $SHOAL_TOKEN", internal=f"unknown token {token_id!r}")
    return token


def hash_token(text: str) -> str:
    """What is stored of a token: SHA-256 in hex. High-entropy random text needs no slow hash."""
    return hashlib.sha256(text.encode()).hexdigest()


def format_token(token_id: str, secret: bytes) -> str:
    """The text of a token: prefix, public id, secret, and a checksum so that a scanner of leaked keys can tell it from other text."""
    body = f"{PREFIX}_{token_id}_{secret.hex()}"
    return f"{body}_{zlib.crc32(body.encode()):08x}"


def read_token_id(text: str) -> str:
    """The public id in a token's text; empty where it is not the text of a token."""
    parts = text.split("_")
    if len(parts) != 4 or parts[0] != PREFIX or not text.isascii():
        return ""
    body = text.rpartition("_")[0]
    return parts[1] if parts[3] == f"{zlib.crc32(body.encode()):08x}" else ""


def see_project(plane: Plane, caller: Caller, project: str) -> str:
    """`project`, if it exists and the caller may see it. Raises NotFound for either, in the same words."""
    if (caller.project is not None and caller.project != project) or not project_exists(plane, project):
        raise NotFound(f"there is no project {project!r}")
    return project


def project_exists(plane: Plane, project: str) -> bool:
    """A project is there once a queue belongs to it; `default` always is."""
    return project == DEFAULT_PROJECT or any(queue.spec.project == project for queue in tuple(plane.world.queues.values()))


def see_job(caller: Caller, job: Job | None, project: str, ref: str) -> Job:
    """`job`, if it is one of `project` that the caller may see; NotFound in the same words for what is not there and what is another's."""
    if job is None or job.project != project or (caller.project is not None and caller.project != project):
        raise NotFound(f"there is no job {ref!r} in project {project!r}")
    return job


def need(caller: Caller, role: Role, what: str) -> None:
    """Raises Forbidden where the caller's role is under `role`."""
    if _RANK.get(caller.role, 0) < _RANK[role]:
        raise Forbidden(f"{what} needs the role {role}; {caller.principal} has {caller.role}")


def need_all_projects(caller: Caller, what: str) -> None:
    """Raises Forbidden for a caller that is bound to one project: nodes, queues and their kind are everybody's."""
    if caller.project is not None:
        raise Forbidden(f"{what} concerns every project; {caller.principal} is bound to {caller.project!r}")

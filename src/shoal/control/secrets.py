"""
Secrets of a project: set, listed by name, deleted, and opened for a node that holds an allocation which names them.

Called by `api`. A value is sealed before it is stored and never read back by people.
"""

from __future__ import annotations

import re
from concurrent.futures import Future
from typing import TYPE_CHECKING

from shoal.base import limits
from shoal.base.errors import Fault, Forbidden, Invalid, NotFound, TooLarge
from shoal.control.access import Caller, need, see_project
from shoal.control.answers import then
from shoal.control.lanes import RecordSubject
from shoal.model.access import Secret
from shoal.model.attempt import HOLDING
from shoal.model.change import ChangeSet
from shoal.model.event import AccessChanged, EventRow
from shoal.model.wire import SecretView

if TYPE_CHECKING:
    from shoal.control.plane import Plane

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?")


def set_secret(plane: Plane, caller: Caller, project: str, name: str, value: bytes) -> Future[SecretView]:
    """The secret, once it is durable; one of the same name is replaced. Raises: Invalid for a bad name, TooLarge."""
    need(caller, "member", "setting a secret")
    see_project(plane, caller, project)
    if not _NAME.fullmatch(name) or len(name) > limits.NAME_CHARS_MAX:
        rule = "letters, digits, dots, dashes and underscores"
        raise Invalid(f"a secret's name has {rule}; got {name!r}", (Fault(f"a secret's name has {rule}", "/name"),))
    if len(value) > limits.ENV_VALUE_BYTES_MAX:
        raise TooLarge(f"the secret has {len(value)} bytes, at most {limits.ENV_VALUE_BYTES_MAX} are taken; put larger things into a mount")
    sealed = plane.sealer.seal(value, _id(project, name))
    now_ms = plane.clock.now_ms()

    def judge(before: Secret | None) -> ChangeSet:
        version = before.version if before is not None else 0
        secret = Secret(id=_id(project, name), project=project, name=name, sealed=sealed, created_ms=now_ms, version=version)
        return ChangeSet(put=(secret,), events=(_row(caller, secret, "secret set", now_ms),))

    return then(plane.lanes.ask(_subject(plane, project, name), judge), lambda secret: _view(_found(secret, project, name)))


def delete_secret(plane: Plane, caller: Caller, project: str, name: str) -> Future[None]:
    """The secret is gone; jobs that name it and have not started will fail to prepare. Raises, by the future, NotFound."""
    need(caller, "member", "deleting a secret")
    see_project(plane, caller, project)
    now_ms = plane.clock.now_ms()

    def judge(before: Secret | None) -> ChangeSet:
        secret = _found(before, project, name)
        return ChangeSet(delete=(secret,), events=(_row(caller, secret, "secret deleted", now_ms),))

    return then(plane.lanes.ask(_subject(plane, project, name), judge), lambda _gone: None)


def list_secrets(plane: Plane, caller: Caller, project: str) -> tuple[SecretView, ...]:
    """The names of a project's secrets."""
    see_project(plane, caller, project)
    return tuple(_view(secret) for secret in plane.store.secrets(project))


def open_for_allocation(plane: Plane, caller: Caller, allocation_id: str) -> dict[str, bytes]:
    """
    File name under $SHOAL_SECRETS -> value, for the node that holds the allocation.

    Raises: Forbidden for anybody but a node; NotFound for an allocation that is not there or another node's, or a secret that is gone.
    """
    if not caller.node:
        raise Forbidden(f"only a node may open secrets; {caller.principal} has the role {caller.role}")
    plane.world.catch_up()
    allocation = plane.world.allocations.get(allocation_id)
    job = plane.world.jobs.get(allocation.job) if allocation is not None else None
    if allocation is None or job is None or allocation.node != caller.node or allocation.state not in HOLDING:
        raise NotFound(f"node {caller.node} holds no allocation {allocation_id!r}")
    opened: dict[str, bytes] = {}
    for file, name in job.spec.secrets.items():
        secret = _found(plane.store.secret(job.project, name), job.project, name)
        opened[file] = plane.sealer.unseal(secret.sealed, secret.id)
    return opened


def _id(project: str, name: str) -> str:
    return f"{project}/{name}"


def _subject(plane: Plane, project: str, name: str) -> RecordSubject[Secret]:
    return RecordSubject(Secret, _id(project, name), lambda _id: plane.store.secret(project, name))


def _found(secret: Secret | None, project: str, name: str) -> Secret:
    if secret is None:
        raise NotFound(f"project {project!r} has no secret {name!r}")
    return secret


def _view(secret: Secret) -> SecretView:
    return SecretView(name=secret.name, project=secret.project, created_ms=secret.created_ms, version=secret.version)


def _row(caller: Caller, secret: Secret, what: str, now_ms: int) -> EventRow:
    body = AccessChanged(what=what, subject=secret.name)
    return EventRow(kind="access", subject=secret.id, project=secret.project, at_ms=now_ms, body=body, actor=caller.principal)

"""
Cancel by key: for a client that sent a create, heard nothing, and wants it gone. It knows the key that it sent, and no job.

Whichever of the two requests comes first, the other finds it, because both write the key's row: a create that was there is cancelled, one
that comes later is born cancelled (`submissions`).
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from shoal.control.access import Caller, see_project
from shoal.control.answers import chain, done, then
from shoal.control.jobs import CancelAsk, cancel_job
from shoal.control.submissions import BORN_CANCELLED, OPERATION
from shoal.model.access import IdempotencyKey
from shoal.model.change import Applied, ChangeSet, Outcome
from shoal.model.job import Job

if TYPE_CHECKING:
    from shoal.control.plane import Plane


def cancel_by_key(plane: Plane, caller: Caller, project: str, key: str, ask: CancelAsk) -> Future[Job | None]:
    """What the caller's create with this key has made, with the wish to end it recorded; None where no create has come yet."""
    see_project(plane, caller, project)
    mark = IdempotencyKey(
        project=project,
        principal=caller.principal,
        operation=OPERATION,
        key=key,
        fingerprint="",
        resource="",
        created_ms=plane.clock.now_ms(),
    )
    written = plane.store.apply(ChangeSet(key=mark), plane.term)
    return chain(written, partial(_cancelled, plane, caller, ask, mark))


def _cancelled(plane: Plane, caller: Caller, ask: CancelAsk, mark: IdempotencyKey, outcome: Outcome) -> Future[Job | None]:
    if isinstance(outcome, Applied):
        return done(None)
    made = outcome.key.resource or _born_cancelled(plane, mark)
    if not made:
        return done(None)
    return then(cancel_job(plane, caller, mark.project, made, ask), _same)


def _born_cancelled(plane: Plane, mark: IdempotencyKey) -> str:
    """The id of the job that a late create with this key has made."""
    found = plane.store.find_key(mark.project, mark.principal, BORN_CANCELLED, mark.key)
    return found.resource if found is not None else ""


def _same(job: Job) -> Job | None:
    return job

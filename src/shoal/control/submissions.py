"""
New jobs: what is asked is checked, its names are resolved, and everything that makes it true is handed to the store as one set.

Called by `api` through `control.jobs`. The idempotency key is written in the same transaction as the job, so that a repeat finds the
job or finds nothing; there is no state in between. Nothing is looked up beforehand for a key: the store's answer says who came first.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from shoal.base import limits
from shoal.base.errors import Fault, Forbidden, Invalid, KeyReused, NotFound, Refused, ShoalError
from shoal.base.units import format_duration_ms
from shoal.control.access import Caller, see_project
from shoal.control.answers import chain, done, then
from shoal.control.elements import bring_to_birth
from shoal.control.finding import find_job
from shoal.lifecycle.array import new_array
from shoal.lifecycle.job import Origin, advance_job, new_job
from shoal.lifecycle.picture import merged
from shoal.lifecycle.spec_rules import check_spec
from shoal.model.access import IdempotencyKey
from shoal.model.array import element_of
from shoal.model.change import Applied, ChangeSet, Outcome
from shoal.model.event import CancelRequested
from shoal.model.job import CancelMode, Dependency, Job, JobSpec
from shoal.model.queue import Queue
from shoal.model.snapshot import Picture
from shoal.scheduling.fit import could_ever_fit

if TYPE_CHECKING:
    from shoal.control.plane import Plane

DEFAULT_QUEUE = "default"
OPERATION = "jobs.create"
BORN_CANCELLED = "jobs.create.cancelled"
"""Keys whose cancel came before their create, once that has come."""


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """One create. `fingerprint` is that of the body as sent; without a `key` every create makes a job."""

    project: str
    spec: JobSpec
    key: str | None = None
    fingerprint: str = ""
    must_fit: bool = False
    """Refuse what today's fleet could never hold, in place of waiting for a larger one."""
    dry_run: bool = False
    """Check everything, write nothing; the answer's job has no number."""


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """`job` as it is now; `replayed` when an earlier request with the same key had made it."""

    job: Job
    replayed: bool = False


def submit_job(plane: Plane, caller: Caller, submission: Submission) -> Future[Submitted]:
    """
    The job, once it is durable. An array answers with its parent.

    Raises: NotFound for the project; Invalid with all faults; Forbidden for another's Unix user; Refused by `must_fit`; RateLimited where
    as many wait as the queue lets wait; by the future, KeyReused for a key that came with another body.
    """
    see_project(plane, caller, submission.project)
    plane.world.catch_up()
    spec, queue = _resolved(plane, caller, submission)
    if submission.dry_run:
        return done(Submitted(job=_birth(spec, _origin(plane, caller, submission.project, queue, spec)).put[0]))  # type: ignore[arg-type]
    origin = _origin(plane, caller, submission.project, queue, spec, numbers=1 + _elements(spec))
    changes = _birth(spec, origin)
    if submission.must_fit:
        _must_fit(plane, changes)
    keyed = msgspec.structs.replace(changes, key=_key_row(caller, submission, origin))
    count = _elements(spec) or 1
    if _limits_waiting(queue) and not _was_made(plane, caller, submission):
        plane.waiting.admit(plane, queue.id, caller.principal, count)
        written = plane.store.apply(keyed, plane.term)
        plane.waiting.settled(queue.id, caller.principal, count, written)
    else:
        written = plane.store.apply(keyed, plane.term)
    return chain(written, partial(_settled, plane, caller, submission, keyed))


def birth_of(plane: Plane, caller: Caller, project: str, spec: JobSpec, *, dry: bool = False) -> ChangeSet:
    """
    What would make the job of `spec`, for who writes it together with something else. `dry`: only to see that it can be taken.

    Raises as `submit_job` does; that as many wait as the queue lets wait is judged as of now.
    """
    resolved, queue = _resolved(plane, caller, Submission(project=project, spec=spec))
    if dry:
        return _birth(resolved, _origin(plane, caller, project, queue, resolved))
    if _limits_waiting(queue):
        plane.waiting.look(plane, queue.id, caller.principal, _elements(resolved) or 1)
    return _birth(resolved, _origin(plane, caller, project, queue, resolved, numbers=1 + _elements(resolved)))


def _limits_waiting(queue: Queue) -> bool:
    return queue.spec.limits.queued_jobs is not None or queue.spec.limits.queued_jobs_per_user is not None


def _was_made(plane: Plane, caller: Caller, submission: Submission) -> bool:
    """True for a repeat: it makes nothing, so no limit may keep it from its answer."""
    if submission.key is None:
        return False
    return plane.store.find_key(submission.project, caller.principal, OPERATION, submission.key) is not None


def submit_batch(plane: Plane, caller: Caller, submissions: Sequence[Submission]) -> tuple[Future[Submitted] | ShoalError, ...]:
    """An answer for each, in order: a future as of `submit_job`, or the error that it met before anything was written."""
    if len(submissions) > limits.BATCH_JOBS_MAX:
        raise Invalid(f"{len(submissions)} jobs in one batch, at most {limits.BATCH_JOBS_MAX} are taken; send several batches")
    answers: list[Future[Submitted] | ShoalError] = []
    for submission in submissions:
        try:
            answers.append(submit_job(plane, caller, submission))
        except ShoalError as error:
            answers.append(error)
    return tuple(answers)


# --- checking and resolving -----------------------------------------------------------------------------------------------
def _resolved(plane: Plane, caller: Caller, submission: Submission) -> tuple[JobSpec, Queue]:
    """The spec with its names made definite, and its queue. Raises Invalid with every fault found."""
    spec = _as_user(plane, caller, submission.spec)
    faults = [*check_spec(spec)]
    queue = _queue_of(plane, submission.project, spec, faults)
    depends_on = _dependencies(plane, caller, submission.project, spec, faults)
    faults.extend(_missing_things(plane, submission.project, spec))
    if queue is not None and spec.time is not None:
        faults.extend(time_faults(queue, spec.time.ms))
    if faults or queue is None:
        raise Invalid(f"the job cannot be taken: {faults[0].message}", tuple(faults[: limits.FAULTS_SHOWN_MAX]))
    if depends_on != spec.depends_on:
        spec = msgspec.structs.replace(spec, depends_on=depends_on)
    return spec, queue


def _as_user(plane: Plane, caller: Caller, spec: JobSpec) -> JobSpec:
    """
    The spec with the Unix user that its tasks run as: the caller's own; another only for an admin.

    Without one a task runs as its agent does. Where an agent is root that would make every member root, so it is refused.
    """
    if spec.user is not None and spec.user != caller.unix_user and caller.role != "admin":
        own = f"as {caller.unix_user!r}" if caller.unix_user else "without `user`, as the agents' own user"
        raise Forbidden(f"{caller.principal} cannot run jobs as Unix user {spec.user!r}; submit {own}")
    if caller.unix_user is not None:
        return spec if spec.user is not None else msgspec.structs.replace(spec, user=caller.unix_user)
    if caller.role != "admin" and (roots := sorted(node.id for node in tuple(plane.world.nodes.values()) if node.facts.as_root)):
        raise Forbidden(
            f"{caller.principal} is mapped to no Unix user, and the agent of {roots[0]} runs as root: its jobs would be root there; "
            "an administrator makes a token with --unix-user NAME"
        )
    return spec


def _queue_of(plane: Plane, project: str, spec: JobSpec, faults: list[Fault]) -> Queue | None:
    name = spec.queue or default_queue(plane, project)
    queue = plane.world.queues.get(name)
    if queue is None or queue.spec.project != project:
        mine = tuple(sorted(q.id for q in tuple(plane.world.queues.values()) if q.spec.project == project))
        faults.append(Fault(f"project {project!r} has no queue {name!r}", "/queue", allowed=mine))
        return None
    if plane.world.is_parent(name):
        faults.append(Fault(f"queue {name!r} has queues under it; submit to one of those", "/queue"))
    return queue


def default_queue(plane: Plane, project: str) -> str:
    """Where a job without a queue goes: `default` if it is the project's, else the project's first by name."""
    queues = dict(plane.world.queues)
    if DEFAULT_QUEUE in queues and queues[DEFAULT_QUEUE].spec.project == project:
        return DEFAULT_QUEUE
    parents = {queue.spec.parent for queue in queues.values()}
    return min((q.id for q in queues.values() if q.spec.project == project and q.id not in parents), default=DEFAULT_QUEUE)


def _dependencies(plane: Plane, caller: Caller, project: str, spec: JobSpec, faults: list[Fault]) -> tuple[Dependency, ...]:
    """The same with ids in place of numbers. What exists already cannot depend on what is being made, so there is no cycle to find."""
    resolved: list[Dependency] = []
    for place, dependency in enumerate(spec.depends_on):
        try:
            job = find_job(plane, caller, project, dependency.job)
        except NotFound as error:
            faults.append(Fault(error.message, f"/depends_on/{place}/job"))
            continue
        if job.array is not None and not job.version:
            bring_to_birth(plane, job)  # Written before this job is, so that its end will be heard of.
        resolved.append(msgspec.structs.replace(dependency, job=job.id))
    return tuple(resolved)


def _missing_things(plane: Plane, project: str, spec: JobSpec) -> list[Fault]:
    faults: list[Fault] = []
    for file, name in spec.secrets.items():
        if plane.store.secret(project, name) is None:
            faults.append(Fault(f"project {project!r} has no secret {name!r}; set it with shoal secret set", f"/secrets/{file}"))
    if spec.workdir is not None and spec.workdir.blob is not None and not plane.blobs.has(spec.workdir.blob):
        faults.append(Fault("this archive has not been uploaded; the command line does it before it submits", "/workdir/blob"))
    return faults


# --- making ---------------------------------------------------------------------------------------------------------------
def _elements(spec: JobSpec) -> int:
    return len(spec.array.indices) if spec.array is not None else 0


def _origin(plane: Plane, caller: Caller, project: str, queue: Queue, spec: JobSpec, *, numbers: int = 0) -> Origin:
    now_ms = plane.clock.now_ms()
    return Origin(
        id=plane.ids.uuid(now_ms) if numbers else "",
        number=plane.store.reserve_numbers(numbers) if numbers else 0,
        project=project,
        owner=caller.principal,
        queue=queue.id,
        now_ms=now_ms,
        default_time_ms=_default_time_ms(queue),
        expected_ms=plane.world.expected_ms(project, caller.principal, spec),
    )


def _default_time_ms(queue: Queue) -> int | None:
    """The limit of a job that names none: the queue's default, and no more than the longest that it takes."""
    return min((ms for ms in (queue.spec.default_time_ms, queue.spec.limits.time_ms) if ms is not None), default=None)


def time_faults(queue: Queue, time_ms: int) -> tuple[Fault, ...]:
    """What is wrong with a time limit in this queue."""
    most = queue.spec.limits.time_ms
    if most is None or time_ms <= most:
        return ()
    asked, longest = format_duration_ms(time_ms), format_duration_ms(most)
    return (Fault(f"queue {queue.id!r} takes jobs of up to {longest} (limit time); {asked} was asked for", "/time"),)


def _birth(spec: JobSpec, origin: Origin) -> ChangeSet:
    """The record of a new job or array."""
    try:
        if spec.array is None:
            return new_job(spec, origin)
        return new_array(spec, origin)
    except ValueError as error:  # A begin time that is none: checked before, but the calendar has the last word.
        raise Invalid(f"the job cannot be taken: {error}", (Fault(str(error), "/begin"),)) from error


def _must_fit(plane: Plane, changes: ChangeSet) -> None:
    job = changes.put[0]
    assert isinstance(job, Job)
    if job.is_array:
        job = element_of(job, 0)
    reason = could_ever_fit(tuple(plane.world.nodes.values()), tuple(plane.world.queues.values()), job)
    if reason is not None:
        raise Refused(f"today's fleet could never hold this job: {reason.message}")


def _key_row(caller: Caller, submission: Submission, origin: Origin) -> IdempotencyKey | None:
    if submission.key is None:
        return None
    return IdempotencyKey(
        project=submission.project,
        principal=caller.principal,
        operation=OPERATION,
        key=submission.key,
        fingerprint=submission.fingerprint,
        resource=origin.id,
        created_ms=origin.now_ms,
    )


def _settled(plane: Plane, caller: Caller, submission: Submission, changes: ChangeSet, outcome: Outcome) -> Future[Submitted]:
    """The answer; where the key was cancelled before this create came, after the job has been written as a cancelled one."""
    if isinstance(outcome, Applied) or outcome.key.resource:
        return done(_answer(plane, submission, changes, outcome))
    job, key = changes.put[0], changes.key
    assert isinstance(job, Job)
    assert key is not None
    wish = CancelRequested(mode=CancelMode.GRACEFUL, reason="its key was cancelled before the request to create it came")
    ended = advance_job(Picture(job=job), wish, plane.clock.now_ms(), plane.terms, caller.principal)
    whole = msgspec.structs.replace(
        merged(msgspec.structs.replace(changes, key=None), ended), key=msgspec.structs.replace(key, operation=BORN_CANCELLED)
    )
    return then(plane.store.apply(whole, plane.term), partial(_answer, plane, submission, whole))


def _answer(plane: Plane, submission: Submission, changes: ChangeSet, outcome: Outcome) -> Submitted:
    """The store's word as an answer: what was made now, or what an earlier request with the same key had made."""
    if isinstance(outcome, Applied):
        job = changes.put[0]
        assert isinstance(job, Job)
        return Submitted(job=msgspec.structs.replace(job, version=outcome.version))
    if outcome.key.fingerprint != submission.fingerprint:
        raise KeyReused("this idempotency key was used with another body; make a new key for a new job, or repeat the request unchanged")
    made = plane.world.job(outcome.key.resource) or plane.store.job(outcome.key.resource)
    if made is None:
        raise NotFound("this idempotency key made a job that has been purged; make a new key to submit again")
    return Submitted(job=made, replayed=True)

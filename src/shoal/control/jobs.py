"""
What people do with jobs that exist: look, wait, cancel, hold, release, requeue, update, ask why. New ones are in `submissions`.

Called by `api`. Every change goes through the job's lane; an answer is a future that is done when it is durable. What is asked of an
array is asked of its elements: by the reconcile step, some hundred at a time, so that the request itself is short.
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from shoal.base import limits
from shoal.base.errors import Conflict, Fault, Invalid, NotFound
from shoal.control.access import Caller, see_project
from shoal.control.answers import chain, done, then
from shoal.control.elements import bring_to_birth
from shoal.control.finding import find_job, find_job_to_change
from shoal.control.lanes import JobSubject
from shoal.control.submissions import Submission, Submitted, submit_batch, submit_job, time_faults
from shoal.formats.partition import part_text
from shoal.lifecycle.array import counted
from shoal.lifecycle.job import advance_job
from shoal.model.attempt import Allocation
from shoal.model.change import ChangeSet
from shoal.model.event import CancelRequested, Event, JobHeld, JobUnheld, JobUpdated, RequeueRequested, ResizeRequested
from shoal.model.job import ENDED, CancelMode, Job, JobState
from shoal.model.snapshot import Picture
from shoal.model.values import Duration
from shoal.model.wire import Explanation, JobPage, JobPatch, JobView, RankView
from shoal.store.protocol import JobQuery

if TYPE_CHECKING:
    from shoal.control.plane import Plane

__all__ = [
    "CancelAsk",
    "Submission",
    "Submitted",
    "cancel_job",
    "get_job",
    "hold_job",
    "list_jobs",
    "release_job",
    "requeue_job",
    "resize_job",
    "submit_batch",
    "submit_job",
    "update_job",
    "view_job",
    "why_job",
]


class CancelAsk(msgspec.Struct, frozen=True, kw_only=True):
    """How a job is to be cancelled; `grace_ms` None: the job's own."""

    mode: CancelMode = CancelMode.GRACEFUL
    grace_ms: int | None = None
    reason: str = ""


# --- looking --------------------------------------------------------------------------------------------------------------
def get_job(plane: Plane, caller: Caller, project: str, ref: str) -> Job:
    """The job `ref` (number, `12_3` or id). Raises NotFound, in the same words for what is not there and what is another's."""
    return find_job(plane, caller, project, ref)


def list_jobs(plane: Plane, caller: Caller, query: JobQuery) -> JobPage:
    """
    Up to `query.limit` jobs, newest first, with the promise of JobQuery.

    `next` is the number to go on before, as text, while there is more; `api` seals it. `resource_version` is the first page's version.
    """
    see_project(plane, caller, query.project)
    limit = max(1, min(query.limit, limits.PAGE_ROWS_MAX))
    as_of = plane.store.version() if query.as_of is None else query.as_of
    found = plane.store.list_jobs(msgspec.structs.replace(query, limit=limit + 1, as_of=as_of))
    more = len(found) > limit
    items = _with_reasons(plane, found[:limit])
    return JobPage(items=items, next=str(items[-1].number) if more else None, resource_version=as_of)


def _with_reasons(plane: Plane, jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """The jobs, those that wait for quota, room or their turn with the reason that no record holds, since it changes with every cycle."""
    silent = tuple(job.id for job in jobs if job.state is JobState.QUEUED and job.reason is None and not job.is_array)
    if not silent:
        return jobs
    reasons = plane.schedule.brief_reasons(silent, plane.clock.now_ms())
    return tuple(msgspec.structs.replace(job, reason=reasons[job.id]) if job.id in reasons else job for job in jobs)


def view_job(plane: Plane, caller: Caller, project: str, ref: str) -> JobView:
    """The job with its places, what it uses, its array's counts, and why it waits if it does."""
    job = find_job(plane, caller, project, ref)
    picture = plane.world.picture(job.id) or plane.store.picture(job.id)
    members = picture.allocations if picture is not None else ()
    samples = tuple(sample for a in members if (sample := plane.samples.last(a.id)) is not None)
    counts = counted(job, plane.world.element_counts(job.id) or plane.store.count_elements(job.id)) if job.is_array else {}
    return JobView(
        job=job,
        places=tuple((a.node, a.node_rank, a.gpus_touched, str(a.state)) for a in members),
        ranks=_ranks(plane, members),
        samples=samples,
        why=plane.schedule.explain(job.id, plane.clock.now_ms()) if job.id in plane.world.jobs and not job.is_array else None,
        elements={str(state): count for state, count in sorted(counts.items())},
        predicted=picture.attempt.predicted if picture is not None and picture.attempt is not None else "",
    )


def _ranks(plane: Plane, members: tuple[Allocation, ...]) -> tuple[RankView, ...]:
    """Which task sees which devices."""
    seats = sorted(((task, member.node) for member in members for task in member.tasks), key=lambda seat: seat[0].rank)
    found = []
    for task, node_id in seats[: limits.RANKS_TOLD_MAX]:
        node = plane.world.nodes.get(node_id)
        index = {device.uuid: device.index for device in node.facts.devices} if node is not None else {}
        devices = (*task.devices, *(part.device for part in task.parts))
        gpus = tuple(index[uuid] for uuid in devices if uuid in index)
        parts = tuple(part_text(part) for part in task.parts)
        found.append(RankView(rank=task.rank, node=node_id, gpus=gpus, devices=devices, parts=parts))
    return tuple(found)


def why_job(plane: Plane, caller: Caller, project: str, ref: str) -> Explanation:
    """Why the job is where it is, with numbers. May wait for the cycle that runs; `api` calls it off its loop."""
    job = find_job(plane, caller, project, ref)
    now_ms = plane.clock.now_ms()
    if job.state in ENDED:
        return Explanation(job=job.address, state=str(job.state), headline=_how_it_ended(job), queue=job.queue, as_of_ms=now_ms)
    explained = plane.schedule.explain(job.id, now_ms)
    if explained is None and job.array is not None and not job.version:
        return _behind_its_first(plane, job, now_ms)
    if explained is None:
        raise NotFound(f"there is no job {ref!r} in project {project!r}")
    return explained


def _behind_its_first(plane: Plane, job: Job, now_ms: int) -> Explanation:
    """An element that has no record yet waits for those before it, and its array says for what these wait."""
    assert job.array is not None
    answer = Explanation(job=job.address, state=str(job.state), headline="", queue=job.queue, as_of_ms=now_ms)
    of_array = plane.schedule.explain(job.array.array_id, now_ms)
    told = of_array.headline if of_array is not None else "its array has ended"
    reasons, hints = (of_array.reasons, of_array.hints) if of_array is not None else ((), ())
    headline = f"waits behind the elements of {job.array.array} before it: {told}"
    return msgspec.structs.replace(answer, headline=headline, reasons=reasons, hints=hints)


def _how_it_ended(job: Job) -> str:
    told = job.outcome.message if job.outcome is not None and job.outcome.message else job.reason.message if job.reason else ""
    return f"it has ended as {job.state}" + (f": {told}" if told else "")


# --- changing -------------------------------------------------------------------------------------------------------------
def cancel_job(plane: Plane, caller: Caller, project: str, ref: str, ask: CancelAsk) -> Future[Job]:
    """
    The job with the wish to end it recorded; it has ended when its members have given back what they hold. Asking an ended job, or for
    less than was asked before, changes nothing.
    """
    if ask.mode is CancelMode.NONE:
        raise Invalid("a cancel is graceful or force", (Fault("a cancel is graceful or force", "/mode", allowed=("graceful", "force")),))
    job = find_job_to_change(plane, caller, project, ref, "cancelling")
    event = CancelRequested(mode=ask.mode, reason=ask.reason, grace_ms=ask.grace_ms)
    answer = _advance(plane, caller, job, event)
    if job.is_array and job.state not in ENDED:
        # The wish stands in the parent, durable; its elements follow, also after a restart.
        return then(answer, partial(_and_wake, plane))
    return answer


def hold_job(plane: Plane, caller: Caller, project: str, ref: str, reason: str = "") -> Future[Job]:
    """The job HELD: it does not start. Raises, by the future, Conflict for one that has started."""
    return _ask_all(plane, caller, find_job_to_change(plane, caller, project, ref, "holding"), JobHeld(reason=reason))


def release_job(plane: Plane, caller: Caller, project: str, ref: str) -> Future[Job]:
    """A held job, QUEUED again."""
    return _ask_all(plane, caller, find_job_to_change(plane, caller, project, ref, "releasing"), JobUnheld())


def requeue_job(plane: Plane, caller: Caller, project: str, ref: str, reason: str = "") -> Future[Job]:
    """The job on its way to another attempt, with the same id. Of an array: only its elements one by one."""
    return _advance(plane, caller, find_job_to_change(plane, caller, project, ref, "requeueing"), RequeueRequested(reason=reason))


def resize_job(plane: Plane, caller: Caller, project: str, ref: str, size: int | None) -> Future[Job]:
    """The job that shall have so many nodes, or with None as many as there is room for. It has them once a cycle has seen to it."""
    return _advance(plane, caller, find_job_to_change(plane, caller, project, ref, "resizing"), ResizeRequested(size=size))


def update_job(plane: Plane, caller: Caller, project: str, ref: str, patch: JobPatch) -> Future[Job]:
    """The job with another priority, time limit or queue; of an array, its elements too."""
    job = find_job_to_change(plane, caller, project, ref, "changing")
    changed: dict[str, tuple[Any, Any]] = {}
    if patch.priority is not None:
        changed["priority"] = (None, patch.priority)
    if patch.time is not None:
        _check_time(plane, job, patch)
        changed["time"] = (None, patch.time)
    if patch.queue is not None:
        _check_queue(plane, job, patch.queue)
        changed["queue"] = (None, patch.queue)
    if not changed:
        return done(job)
    return _ask_all(plane, caller, job, JobUpdated(changed=changed))


def _check_time(plane: Plane, job: Job, patch: JobPatch) -> None:
    queue = plane.world.queues.get(patch.queue or job.queue)
    try:
        asked_ms = Duration.parse(patch.time).ms
    except ValueError:
        return  # The lifecycle tells what is wrong with it.
    faults = time_faults(queue, asked_ms) if queue is not None else ()
    if faults:
        raise Invalid(faults[0].message, faults)


def _check_queue(plane: Plane, job: Job, name: str) -> None:
    queue = plane.world.queues.get(name)
    if queue is None or queue.spec.project != job.project:
        mine = tuple(sorted(q.id for q in tuple(plane.world.queues.values()) if q.spec.project == job.project))
        message = f"project {job.project!r} has no queue {name!r}"
        raise Invalid(message, (Fault(message, "/queue", allowed=mine),))
    if any(other.spec.parent == name for other in tuple(plane.world.queues.values())):
        message = f"queue {name!r} has queues under it; name one of those"
        raise Invalid(message, (Fault(message, "/queue"),))


def _advance(plane: Plane, caller: Caller, job: Job, event: Event) -> Future[Job]:
    if job.array is not None and not job.version:
        return chain(bring_to_birth(plane, job), lambda _: advance(plane, job.id, event, caller.principal))
    return advance(plane, job.id, event, caller.principal)


def advance(plane: Plane, job_id: str, event: Event, by: str) -> Future[Job]:
    """`event` made true of a job, in its lane. Used by the verbs above and by the reconcile step for an array's elements."""

    def judge(picture: Picture | None) -> ChangeSet:
        if picture is None:
            raise NotFound(f"job {job_id} is gone")
        return advance_job(picture, event, plane.clock.now_ms(), plane.terms, by)

    return then(plane.lanes.ask(JobSubject(plane.world, plane.store, job_id), judge), _job_of)


def _job_of(picture: Picture | None) -> Job:
    assert picture is not None
    return picture.job


def _and_wake(plane: Plane, job: Job) -> Job:
    plane.wake()
    return job


def _ask_all(plane: Plane, caller: Caller, job: Job, event: Event) -> Future[Job]:
    """
    Of a single job, `event` itself; of an array, of the parent, which speaks for the elements that have no record yet, then of each of
    the others that has not ended.
    """
    if not job.is_array:
        return _advance(plane, caller, job, event)
    if job.state in ENDED:
        raise Conflict(f"array {job.address} has ended as {job.state}")
    asked = _advance(plane, caller, job, event)
    return chain(asked, lambda parent: _ask_elements(plane, caller, parent, event))


def _ask_elements(plane: Plane, caller: Caller, parent: Job, event: Event) -> Future[Job]:
    errand = plane.reconcile.errand(plane.world.live_elements(parent.id), event, caller.principal)
    return then(errand, lambda _count: parent)

"""Handlers: jobs. Creating is the hot path of the server: one decode, one use case, one wait for the commit."""

from __future__ import annotations

import asyncio

import msgspec

from shoal.api.idempotency import fingerprint, parse_key
from shoal.api.operations import Answer, Call
from shoal.api.parts import clamp_limit, duration_of, etag_headers, wait_ms_of
from shoal.api.problems import problem_of
from shoal.api.tail import job_key
from shoal.base.errors import Fault, Invalid, Malformed, ShoalError
from shoal.base.limits import PAGE_ROWS_DEFAULT
from shoal.base.units import parse_whole
from shoal.control import jobs as use
from shoal.control.key_cancel import cancel_by_key as by_key
from shoal.formats.shorthand import expand
from shoal.model.codec import convert, decode_json, decode_plain, to_plain
from shoal.model.job import ENDED, Job, JobSpec, JobState
from shoal.model.wire import BatchAnswer, CancelRequest, JobPage, KeyCancelled, KeyCancelRequest
from shoal.store.protocol import JobQuery


class CreateQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`must_fit`: refuse what no state of today's fleet could run. `dry_run`: say what would happen, create nothing."""

    must_fit: bool = False
    dry_run: bool = False


class ListQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Filters are conjunctive; `state` may be given several times or comma-separated. The owner `me` is who asks."""

    state: tuple[JobState, ...] = ()
    queue: str | None = None
    owner: str | None = None
    array: str | None = None
    top_level: bool = False
    limit: int = PAGE_ROWS_DEFAULT
    cursor: str | None = None


class WaitQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    timeout: str | None = None


class _RawItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    spec: msgspec.Raw


class RawBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch before its specs are read: a broken one is its own item's problem, not the batch's."""

    items: tuple[_RawItem, ...]


def read_spec(raw: bytes) -> JobSpec:
    """The spec in a create's body, short forms opened. All faults are gathered, but only once there is one: that reading is slower."""
    plain = decode_plain(raw)
    try:
        return convert(expand(plain), JobSpec)
    except Invalid:
        from shoal.formats.jobfile import decode_spec

        return decode_spec(plain)


def read_batch(raw: bytes) -> RawBatch:
    """The items of a batch, their specs not yet read."""
    return decode_json(raw, RawBatch)


async def create_job(call: Call) -> Answer:
    """The job, durable; what an earlier request with the key made, if there was one."""
    query: CreateQuery = call.query
    key = parse_key(call.headers.get(b"idempotency-key"))
    mark = fingerprint(call.raw, path=call.target) if key else ""
    submission = use.Submission(
        project=call.project, spec=call.body, key=key, fingerprint=mark, must_fit=query.must_fit, dry_run=query.dry_run
    )
    submitted = await call.service.settle(use.submit_job(call.service.plane, call.caller, submission))
    job = submitted.job
    headers = [*etag_headers(job.version)]
    if not query.dry_run:
        headers.append(("Location", f"/v1/projects/{job.project}/jobs/{job.id}"))
    if submitted.replayed:
        headers.append(("Idempotency-Replayed", "true"))
    return Answer(job, status=200 if query.dry_run else 201, headers=tuple(headers))


async def create_batch(call: Call) -> Answer:
    """An answer per item. All are handed to the store before the first is waited for, so a batch costs a few commits."""
    batch: RawBatch = call.body
    answers: list[BatchAnswer | None] = [None] * len(batch.items)
    submissions: list[use.Submission] = []
    places: list[int] = []
    for place, item in enumerate(batch.items):
        try:
            submissions.append(_submission(call, item))
            places.append(place)
        except ShoalError as error:
            answers[place] = _refusal(call, error)
    begun = use.submit_batch(call.service.plane, call.caller, submissions)
    for place, future in zip(places, begun, strict=True):
        try:
            if isinstance(future, ShoalError):
                raise future
            submitted = await call.service.settle(future)
            answers[place] = BatchAnswer(job=submitted.job, replayed=submitted.replayed)
        except ShoalError as error:
            answers[place] = _refusal(call, error)
    return Answer(answers)


def _submission(call: Call, item: _RawItem) -> use.Submission:
    key = parse_key(item.key.encode("utf-8"))
    # The same fingerprint as a create of this item alone: a client may fall back from the batch to single requests.
    mark = fingerprint(bytes(item.spec), path=call.target.removesuffix(":batch"))
    return use.Submission(project=call.project, spec=read_spec(bytes(item.spec)), key=key, fingerprint=mark)


def _refusal(call: Call, error: ShoalError) -> BatchAnswer:
    return BatchAnswer(problem=problem_of(error, request_id=call.request_id, instance=call.target))


async def list_jobs(call: Call) -> Answer:
    """A page, and the sealed place of the next."""
    query: ListQuery = call.query
    service = call.service
    now_ms = service.plane.clock.now_ms()
    filters = (call.project, query.state, query.queue, query.owner, query.array, query.top_level)
    place = service.cursors.open(query.cursor, call.operation.id, to_plain(filters), now_ms=now_ms) if query.cursor else None
    wanted = JobQuery(
        project=call.project,
        states=query.state,
        queue=query.queue,
        owner=call.caller.principal if query.owner == "me" else query.owner,
        array=_array_number(query.array),
        top_level=query.top_level,
        before=place.last if place else None,
        as_of=place.as_of if place else None,
        limit=clamp_limit(query.limit),
    )
    page = await service.in_looks(use.list_jobs, service.plane, call.caller, wanted)
    if page.next is None:
        return Answer(page)
    last, as_of = int(page.next), page.resource_version
    token = service.cursors.seal(call.operation.id, to_plain(filters), last=last, as_of=as_of, now_ms=now_ms)
    return Answer(JobPage(items=page.items, next=token, resource_version=as_of))


def _array_number(text: str | None) -> int | None:
    if text is None:
        return None
    number = parse_whole(text)
    if number is None:
        raise Malformed(f"array {text!r}: give the number of an array, such as 12")
    return number


async def get_job(call: Call) -> Answer:
    """The job with where it is."""
    view = await call.service.in_looks(use.view_job, call.service.plane, call.caller, call.project, call.path["ref"])
    return Answer(view, headers=etag_headers(view.job.version))


async def update_job(call: Call) -> Answer:
    """The job with what was changed."""
    future = use.update_job(call.service.plane, call.caller, call.project, call.path["ref"], call.body)
    return _job_answer(await call.service.settle(future))


async def cancel_job(call: Call) -> Answer:
    """202 for a wish that is on its way, 200 where the job has ended."""
    wish: CancelRequest = call.body
    ask = use.CancelAsk(mode=wish.mode, grace_ms=duration_of(wish.grace, "/grace"), reason=wish.reason)
    future = use.cancel_job(call.service.plane, call.caller, call.project, call.path["ref"], ask)
    job = await call.service.settle(future)
    return Answer(job, status=200 if job.state in ENDED else 202, headers=etag_headers(job.version))


async def cancel_by_key(call: Call) -> Answer:
    """202, with what a create with this key has made."""
    wish: KeyCancelRequest = call.body
    key = parse_key(wish.key.encode("utf-8"))
    if key is None:
        raise Invalid("the key is empty", (Fault("the key is empty", "/key"),))
    ask = use.CancelAsk(mode=wish.mode, grace_ms=duration_of(wish.grace, "/grace"), reason=wish.reason)
    job = await call.service.settle(by_key(call.service.plane, call.caller, call.project, key, ask))
    return Answer(KeyCancelled(job=job), status=202)


async def hold_job(call: Call) -> Answer:
    """The job, held."""
    future = use.hold_job(call.service.plane, call.caller, call.project, call.path["ref"], reason=call.body.reason)
    return _job_answer(await call.service.settle(future))


async def release_job(call: Call) -> Answer:
    """The job, waiting again."""
    future = use.release_job(call.service.plane, call.caller, call.project, call.path["ref"])
    return _job_answer(await call.service.settle(future))


async def requeue_job(call: Call) -> Answer:
    """The job, on its way to another attempt."""
    future = use.requeue_job(call.service.plane, call.caller, call.project, call.path["ref"], reason=call.body.reason)
    return _job_answer(await call.service.settle(future))


async def resize_job(call: Call) -> Answer:
    """The job with the size that it shall have."""
    future = use.resize_job(call.service.plane, call.caller, call.project, call.path["ref"], size=call.body.size)
    return _job_answer(await call.service.settle(future))


async def why_job(call: Call) -> Answer:
    """Why the job is where it is."""
    return Answer(await call.service.in_looks(use.why_job, call.service.plane, call.caller, call.project, call.path["ref"]))


async def wait_job(call: Call) -> Answer:
    """The job once it has ended, or as it is when the time is over or the server goes down."""
    loop = asyncio.get_running_loop()
    query: WaitQuery = call.query
    until = loop.time() + wait_ms_of(query.timeout) / 1_000
    service, ref = call.service, call.path["ref"]
    job = use.get_job(service.plane, call.caller, call.project, ref)
    with service.tail.watch(job_key(job.id)) as watch:
        while True:
            job = use.get_job(service.plane, call.caller, call.project, ref)
            left_s = until - loop.time()
            if job.state in ENDED or left_s <= 0 or service.tail.closing:
                return _job_answer(job)
            await watch.next(left_s)


def _job_answer(job: Job) -> Answer:
    return Answer(job, headers=etag_headers(job.version))

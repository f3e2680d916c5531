"""
START HERE: every operation of the API, one record each. Routes, checks and the OpenAPI document all follow from this list.

Those that come often stand first: the router looks from the top. To add one: the record here, its handler in the module of its noun,
its call in `client`, its line in `docs/reference/http-api.md` (a test compares).
"""

from __future__ import annotations

from typing import Literal

from shoal.api import agents, blobs, declared, events, jobs, logs, meta, questions
from shoal.api.operations import Handler, Operation
from shoal.api.planning import PLANNING
from shoal.api.reservations import RESERVATIONS
from shoal.api.schedules import SCHEDULES
from shoal.base.limits import JOB_FILE_BYTES_MAX, LOG_BYTES_PER_UPLOAD_MAX, REQUEST_BYTES_MAX, WORKDIR_BYTES_MAX
from shoal.model.job import Job, JobSpec
from shoal.model.queue import Queue, QueueSpec
from shoal.model.what_if import WhatIf, WhatIfAsk
from shoal.model.wire import (
    Batch,
    BatchAnswer,
    CancelRequest,
    Commands,
    EventPage,
    Explanation,
    Health,
    JobAsk,
    JobPage,
    JobPatch,
    JobResize,
    JobView,
    Join,
    Joined,
    KeyCancelled,
    KeyCancelRequest,
    Meta,
    NodeAsk,
    NodeView,
    OpenedSecrets,
    QueueView,
    Register,
    Registered,
    SecretValue,
    SecretView,
    TaskLog,
    TokenAsk,
    TokenMade,
    TokenView,
    Upload,
    UploadReply,
)

_PROJECT = "/v1/projects/{project:name}"
_JOBS = _PROJECT + "/jobs"
_JOB = _JOBS + "/{ref:ref}"
_KEY = {"Idempotency-Key": "1 to 255 visible ASCII characters, with or without quotes. A repeat gives what the first request made."}
_VERSIONED = {"If-Match": "The ETag of the version that was read.", "If-None-Match": "`*`: it must not exist yet."}
_ETAG = {"ETag": "The record's version."}
_UPLOAD_BYTES_MAX = REQUEST_BYTES_MAX + LOG_BYTES_PER_UPLOAD_MAX


def _verb(name: str, handler: Handler, summary: str, *, status: int = 200, body: type = JobAsk) -> Operation:
    """A wish about a job: `POST .../jobs/12:cancel`. All are safe to repeat."""
    return Operation(
        id=f"jobs.{name}",
        method="POST",
        path=f"{_JOB}:{name}",
        handler=handler,
        need="member",
        summary=summary,
        body=body,
        takes="json",
        optional_body=True,
        answer=Job,
        status=status,
        answer_headers=_ETAG,
        other_answers={200: "The job has ended; nothing was changed."} if status != 200 else {},
    )


def _node_verb(name: str, handler: Handler, summary: str) -> Operation:
    return Operation(
        id=f"nodes.{name}",
        method="POST",
        path="/v1/nodes/{id:name}:" + name,
        handler=handler,
        need="admin",
        summary=summary,
        body=NodeAsk,
        takes="json",
        optional_body=True,
        answer=NodeView,
    )


def _blob(method: Literal["GET", "HEAD", "PUT"], handler: Handler, summary: str) -> Operation:
    put = method == "PUT"
    return Operation(
        id={"GET": "blobs.get", "HEAD": "blobs.has", "PUT": "blobs.put"}[method],
        method=method,
        path=_PROJECT + "/blobs/{sha256:name}",
        handler=handler,
        need="member" if put else "viewer",
        summary=summary,
        takes="bytes" if put else "none",
        streams_body=put,
        body_bytes_max=WORKDIR_BYTES_MAX,
        gives="bytes" if method == "GET" else "none",
        status=201 if put else 200,
        other_answers={200: "It was there already."} if put else {},
    )


JOBS = (
    Operation(
        id="jobs.create",
        method="POST",
        path=_JOBS,
        handler=jobs.create_job,
        need="member",
        summary="Create a job",
        description="Durable when answered. The short forms of job files (`gpus: 8`, `depends_on: 12`) are read here too.",
        query=jobs.CreateQuery,
        body=JobSpec,
        takes="json",
        decode=jobs.read_spec,
        answer=Job,
        status=201,
        other_answers={200: "Of a dry run: the job as it would be; nothing was created."},
        request_headers=_KEY,
        answer_headers={**_ETAG, "Location": "The job's address.", "Idempotency-Replayed": "`true` when an earlier request made it."},
        body_bytes_max=JOB_FILE_BYTES_MAX,
    ),
    Operation(
        id="jobs.get",
        method="GET",
        path=_JOB,
        handler=jobs.get_job,
        need="viewer",
        summary="A job with where it is, what it uses and why it waits",
        answer=JobView,
        answer_headers=_ETAG,
    ),
    Operation(
        id="jobs.list",
        method="GET",
        path=_JOBS,
        handler=jobs.list_jobs,
        need="viewer",
        summary="List jobs, newest first",
        description="A job that matches from the first page to the last is listed exactly once; one that changes may or may not be.",
        query=jobs.ListQuery,
        answer=JobPage,
    ),
    Operation(
        id="jobs.wait",
        method="GET",
        path=_JOB + "/wait",
        handler=jobs.wait_job,
        need="viewer",
        summary="The job once it has ended, or as it is after `timeout`",
        query=jobs.WaitQuery,
        answer=Job,
        answer_headers=_ETAG,
    ),
    Operation(
        id="jobs.why",
        method="GET",
        path=_JOB + "/why",
        handler=jobs.why_job,
        need="viewer",
        summary="Why the job is where it is, with numbers",
        answer=Explanation,
    ),
    Operation(
        id="jobs.update",
        method="PATCH",
        path=_JOB,
        handler=jobs.update_job,
        need="member",
        summary="Change priority, time limit or queue",
        body=JobPatch,
        takes="json",
        answer=Job,
        answer_headers=_ETAG,
    ),
    Operation(
        id="jobs.batch",
        method="POST",
        path=_JOBS + ":batch",
        handler=jobs.create_batch,
        need="member",
        summary="Create several jobs, each with a key and an answer of its own",
        body=Batch,
        takes="json",
        decode=jobs.read_batch,
        answer=tuple[BatchAnswer, ...],
    ),
    Operation(
        id="jobs.cancel_by_key",
        method="POST",
        path=_JOBS + ":cancelByKey",
        handler=jobs.cancel_by_key,
        need="member",
        summary="State the wish that what a create with this key makes ends",
        description="For a client that did not hear the answer to its create. A create that comes later is born cancelled. Safe to repeat.",
        body=KeyCancelRequest,
        takes="json",
        answer=KeyCancelled,
        status=202,
    ),
    _verb("cancel", jobs.cancel_job, "State the wish that the job ends", status=202, body=CancelRequest),
    _verb("hold", jobs.hold_job, "Keep a waiting job from starting"),
    _verb("release", jobs.release_job, "Let a held job start again"),
    _verb("requeue", jobs.requeue_job, "Stop the job's attempt and queue it again"),
    _verb("resize", jobs.resize_job, "Say how many nodes of its range the job shall have", body=JobResize),
)

LOGS = (
    Operation(
        id="logs.list",
        method="GET",
        path=_JOB + "/logs",
        handler=logs.list_logs,
        need="viewer",
        summary="Which tasks have written how many bytes",
        answer=tuple[TaskLog, ...],
    ),
    Operation(
        id="logs.read",
        method="GET",
        path=_JOB + "/logs/{rank:name}",
        handler=logs.read_log,
        need="viewer",
        summary="A task's output from a byte offset on, followed if asked",
        query=logs.LogQuery,
        gives="bytes",
        answer_headers={
            "Shoal-Log-Offset": "Where the answer begins.",
            "Shoal-Log-Attempt": "Of which attempt; 0 while there is none.",
            "Shoal-Log-Complete": "`true`: nothing comes after this answer.",
            "Shoal-Log-Size": "Bytes there are; not when followed.",
        },
    ),
)

EVENTS = (
    Operation(
        id="events.read",
        method="GET",
        path=_PROJECT + "/events",
        handler=events.read_events,
        need="viewer",
        summary="What happened, in the order of commits; as pages or as server-sent events",
        description="With `Accept: text/event-stream` a stream that `Last-Event-ID` resumes without loss or repeat.",
        query=events.EventsQuery,
        answer=EventPage,
        request_headers={"Accept": "text/event-stream for a stream.", "Last-Event-ID": "The id of the last event seen."},
    ),
)

BLOBS = (
    _blob("HEAD", blobs.has_blob, "Whether a blob is there"),
    _blob("PUT", blobs.put_blob, "Store a blob under the SHA-256 of its bytes"),
    _blob("GET", blobs.get_blob, "A blob's bytes"),
)

SECRETS = (
    Operation(
        id="secrets.list",
        method="GET",
        path=_PROJECT + "/secrets",
        handler=declared.list_secrets,
        need="member",
        summary="List secrets, without their values",
        answer=tuple[SecretView, ...],
    ),
    Operation(
        id="secrets.set",
        method="PUT",
        path=_PROJECT + "/secrets/{name:name}",
        handler=declared.set_secret,
        need="member",
        summary="Store a secret, or a new value for it",
        body=SecretValue,
        takes="json",
        answer=SecretView,
    ),
    Operation(
        id="secrets.delete",
        method="DELETE",
        path=_PROJECT + "/secrets/{name:name}",
        handler=declared.delete_secret,
        need="member",
        summary="Delete a secret",
        gives="none",
        status=204,
    ),
)

NODES = (
    Operation(
        id="nodes.list",
        method="GET",
        path="/v1/nodes",
        handler=declared.list_nodes,
        need="viewer",
        summary="List nodes with their devices and what is on them",
        answer=tuple[NodeView, ...],
    ),
    Operation(
        id="nodes.get",
        method="GET",
        path="/v1/nodes/{id:name}",
        handler=declared.get_node,
        need="viewer",
        summary="One node",
        answer=NodeView,
        answer_headers=_ETAG,
    ),
    Operation(
        id="nodes.remove",
        method="DELETE",
        path="/v1/nodes/{id:name}",
        handler=declared.remove_node,
        need="admin",
        summary="Forget a node that holds no work",
        gives="none",
        status=204,
    ),
    _node_verb("drain", declared.drain_node, "Take no new work, let what runs come to its end"),
    _node_verb("cordon", declared.cordon_node, "Take no new work"),
    _node_verb("resume", declared.resume_node, "Take work again"),
)

QUEUES = (
    Operation(
        id="queues.list",
        method="GET",
        path="/v1/queues",
        handler=declared.list_queues,
        need="viewer",
        summary="List queues with quota, use and what waits",
        answer=tuple[QueueView, ...],
    ),
    Operation(
        id="queues.get",
        method="GET",
        path="/v1/queues/{name:name}",
        handler=declared.get_queue,
        need="viewer",
        summary="One queue",
        answer=QueueView,
        answer_headers=_ETAG,
    ),
    Operation(
        id="queues.set",
        method="PUT",
        path="/v1/queues/{name:name}",
        handler=declared.set_queue,
        need="admin",
        summary="Make or change a queue",
        body=QueueSpec,
        takes="json",
        answer=Queue,
        request_headers=_VERSIONED,
        answer_headers=_ETAG,
    ),
    Operation(
        id="queues.delete",
        method="DELETE",
        path="/v1/queues/{name:name}",
        handler=declared.delete_queue,
        need="admin",
        summary="Delete a queue that nothing needs",
        gives="none",
        status=204,
        request_headers={"If-Match": _VERSIONED["If-Match"]},
    ),
)

TOKENS = (
    Operation(
        id="tokens.list",
        method="GET",
        path="/v1/tokens",
        handler=declared.list_tokens,
        need="admin",
        summary="List tokens, without their text",
        answer=tuple[TokenView, ...],
    ),
    Operation(
        id="tokens.create",
        method="POST",
        path="/v1/tokens",
        handler=declared.create_token,
        need="admin",
        summary="Make a token; its text is told once",
        body=TokenAsk,
        takes="json",
        answer=TokenMade,
        status=201,
    ),
    Operation(
        id="tokens.revoke",
        method="DELETE",
        path="/v1/tokens/{id:name}",
        handler=declared.revoke_token,
        need="admin",
        summary="Revoke a token",
        gives="none",
        status=204,
    ),
)

AGENTS = (
    Operation(
        id="agent.upload",
        method="POST",
        path="/v1/agent/upload",
        handler=agents.upload,
        need="node",
        summary="Reports, log bytes and samples; renews the lease",
        body=Upload,
        takes="pack",
        answer=UploadReply,
        gives="pack",
        body_bytes_max=_UPLOAD_BYTES_MAX,
    ),
    Operation(
        id="agent.commands",
        method="GET",
        path="/v1/agent/commands",
        handler=agents.poll_commands,
        need="node",
        summary="Commands beyond `after`, waited for",
        query=agents.CommandsQuery,
        answer=Commands,
    ),
    Operation(
        id="agent.register",
        method="POST",
        path="/v1/agent/register",
        handler=agents.register,
        need="node",
        summary="An agent has started: what its machine is and holds",
        body=Register,
        takes="json",
        answer=Registered,
    ),
    Operation(
        id="agent.join",
        method="POST",
        path="/v1/agent/join",
        handler=agents.join,
        need="join",
        summary="A machine's first contact; gives it a token of its own",
        body=Join,
        takes="json",
        answer=Joined,
    ),
    Operation(
        id="agent.blob",
        method="GET",
        path="/v1/agent/blobs/{sha256:name}",
        handler=agents.get_blob,
        need="node",
        summary="The files of a job, for a node",
        gives="bytes",
    ),
    Operation(
        id="agent.secrets",
        method="GET",
        path="/v1/agent/allocations/{id:name}/secrets",
        handler=agents.get_secrets,
        need="node",
        summary="The secrets of an allocation, for the node that holds it",
        answer=OpenedSecrets,
    ),
)

META = (
    Operation(
        id="meta.get",
        method="GET",
        path="/v1/meta",
        handler=meta.get_meta,
        need="open",
        summary="What this server is and can",
        answer=Meta,
    ),
    Operation(
        id="meta.health",
        method="GET",
        path="/healthz",
        handler=meta.get_health,
        need="open",
        summary="Whether the server does its work",
        answer=Health,
    ),
    Operation(
        id="meta.openapi",
        method="GET",
        path="/openapi.json",
        handler=meta.get_openapi,
        need="open",
        summary="This document",
        gives="bytes",
        media_type="application/json",
    ),
)

QUESTIONS = (
    Operation(
        id="what_if.ask",
        method="POST",
        path=_PROJECT + "/what-if",
        handler=questions.what_if,
        need="member",
        summary="What the next cycle would do otherwise if jobs, quotas or nodes were others",
        description="Changes nothing. Jobs of projects that the caller does not see are counted in `others`, and not told.",
        body=WhatIfAsk,
        takes="json",
        decode=questions.read_ask,
        answer=WhatIf,
    ),
    Operation(
        id="debug.snapshot",
        method="GET",
        path="/v1/debug/snapshot",
        handler=questions.snapshot,
        need="admin",
        summary="All that the next cycle judges, for `shoal debug replay`",
        description="What jobs run, their labels, and the values of their variables and secrets are masked.",
        gives="bytes",
        media_type="application/json",
    ),
)

OPERATIONS: tuple[Operation, ...] = (
    JOBS[0],
    AGENTS[0],
    *JOBS[1:],
    *LOGS,
    *EVENTS,
    *AGENTS[1:],
    *NODES,
    *QUEUES,
    *RESERVATIONS,
    *SCHEDULES,
    *PLANNING,
    *BLOBS,
    *SECRETS,
    *TOKENS,
    *QUESTIONS,
    *META,
)

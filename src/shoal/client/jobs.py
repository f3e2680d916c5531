"""Jobs over HTTP: create (always with a key), look, change, wait."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from shoal.base.ids import uuid7
from shoal.base.limits import LONG_POLL_MS_MAX, PAGE_ROWS_MAX
from shoal.client.transport import REPEATABLE, Manner, segment
from shoal.model.codec import decode_json, encode_json
from shoal.model.job import ENDED, CancelMode, Job, JobSpec
from shoal.model.what_if import WhatIf, WhatIfAsk
from shoal.model.wire import (
    Batch,
    BatchAnswer,
    CancelRequest,
    Explanation,
    JobAsk,
    JobPage,
    JobPatch,
    JobResize,
    JobView,
    KeyCancelled,
    KeyCancelRequest,
)

if TYPE_CHECKING:
    from shoal.client.api import Api

POLL_MARGIN_S = 15.0
"""How much longer than a long poll its answer may take."""
_JSON = {"Content-Type": "application/json"}


def new_key() -> str:
    """A fresh idempotency key (UUIDv7)."""
    return uuid7(time.time_ns() // 1_000_000, int.from_bytes(os.urandom(10), "big"))


class JobFilters(TypedDict, total=False):
    """Which jobs to list; all that are given must hold. The owner `me` is the token's."""

    states: Sequence[str]
    queue: str | None
    owner: str | None
    array: str | int | None
    """Elements of this array only."""
    top_level: bool
    """Each array as one row."""


class Jobs:
    """`api.jobs`. A `ref` is an id, a number (`12`) or an array element (`12_3`)."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._http = api.transport

    def submit(
        self, spec: JobSpec | Mapping[str, Any], *, key: str | None = None, must_fit: bool = False, project: str | None = None
    ) -> Job:
        """
        The created job; durable when this returns.

        A repeat with the same `key` and spec gives the same job. Without a key one is made, which covers the retries of this call.
        `must_fit`: refuse (Refused) what no state of today's fleet could run.
        """
        return self.submit_body(encode_json(spec), key=key or new_key(), must_fit=must_fit, project=project)[0]

    def submit_body(self, body: bytes, *, key: str, must_fit: bool = False, project: str | None = None) -> tuple[Job, bool]:
        """As `submit`, from bytes as they were kept on disk; also tells if this was a repeat."""
        reply = self._http.request(
            "POST",
            self._all(project),
            query={"must_fit": 1 if must_fit else None},
            body=body,
            headers={**_JSON, "Idempotency-Key": key},
            manner=REPEATABLE,
        )
        return decode_json(reply.body, Job), reply.headers.get("Idempotency-Replayed") == "true"

    def dry_run(self, spec: JobSpec | Mapping[str, Any], *, must_fit: bool = False) -> Job:
        """The job as it would be, without a number; nothing is created. Raises what `submit` would."""
        query = {"dry_run": 1, "must_fit": 1 if must_fit else None}
        reply = self._http.request("POST", self._all(), query=query, body=encode_json(spec), headers=_JSON, manner=REPEATABLE)
        return decode_json(reply.body, Job)

    def submit_batch(self, batch: Batch) -> tuple[BatchAnswer, ...]:
        """An answer per item, in their order; each item's key makes the whole safe to repeat."""
        reply = self._http.request("POST", f"{self._all()}:batch", body=encode_json(batch), headers=_JSON, manner=REPEATABLE)
        return decode_json(reply.body, tuple[BatchAnswer, ...])

    def list(self, *, limit: int | None = None, cursor: str | None = None, **filters: Unpack[JobFilters]) -> JobPage:
        """
        One page, newest first.

        `next` of the page, given as `cursor` with the same filters, is the next one.
        """
        query: dict[str, Any] = {**filters, "limit": limit, "cursor": cursor}
        query["state"] = tuple(query.pop("states", ()))
        query["top_level"] = 1 if query.get("top_level") else None
        return decode_json(self._http.request("GET", self._all(), query=query).body, JobPage)

    def list_all(self, *, count_max: int | None = None, **filters: Unpack[JobFilters]) -> Iterator[Job]:
        """All jobs that match, newest first, page by page; at most `count_max`."""
        left = count_max if count_max is not None else 1 << 62
        cursor: str | None = None
        while left > 0:
            page = self.list(**filters, limit=min(left, PAGE_ROWS_MAX), cursor=cursor)
            yield from page.items[:left]
            left -= len(page.items)
            cursor = page.next
            if cursor is None:
                return

    def get(self, ref: str | int) -> JobView:
        """The job with where it is, what it uses and why it waits."""
        return decode_json(self._http.request("GET", self._one(ref)).body, JobView)

    def update(self, ref: str | int, patch: JobPatch) -> Job:
        """Changes priority, time limit or queue."""
        body = {name: value for name, value in _plain(patch).items() if value is not None}
        reply = self._http.request("PATCH", self._one(ref), body=encode_json(body), headers=_JSON, manner=REPEATABLE)
        return decode_json(reply.body, Job)

    def cancel(self, ref: str | int, *, mode: CancelMode = CancelMode.GRACEFUL, grace: str | None = None, reason: str = "") -> Job:
        """States the wish that the job ends; it has ended when its state says so (`wait`)."""
        return self._wish(ref, "cancel", CancelRequest(mode=mode, grace=grace, reason=reason))

    def cancel_key(self, key: str, *, mode: CancelMode = CancelMode.GRACEFUL, reason: str = "") -> Job | None:
        """
        States the wish that whatever a `submit` with this key made, or will make, ends: for when its answer was not heard.

        The job, or None where none was made yet; a create that comes later is born cancelled.
        """
        body = encode_json(KeyCancelRequest(key=key, mode=mode, reason=reason))
        reply = self._http.request("POST", f"{self._all()}:cancelByKey", body=body, headers=_JSON, manner=REPEATABLE)
        return decode_json(reply.body, KeyCancelled).job

    def hold(self, ref: str | int, reason: str = "") -> Job:
        """Keeps a waiting job from starting."""
        return self._wish(ref, "hold", JobAsk(reason=reason))

    def release(self, ref: str | int, reason: str = "") -> Job:
        """Lets a held job start again."""
        return self._wish(ref, "release", JobAsk(reason=reason))

    def requeue(self, ref: str | int, reason: str = "") -> Job:
        """Stops the job's attempt, if there is one, and queues it again."""
        return self._wish(ref, "requeue", JobAsk(reason=reason))

    def resize(self, ref: str | int, size: int | None) -> Job:
        """Says how many nodes of its range the job shall have; None: as many as there is room for."""
        return self._wish(ref, "resize", JobResize(size=size))

    def why(self, ref: str | int) -> Explanation:
        """Why the job is where it is, with numbers."""
        return decode_json(self._http.request("GET", f"{self._one(ref)}/why").body, Explanation)

    def debug_snapshot(self) -> bytes:
        """All that the next cycle judges, as JSON for `shoal debug replay`; for admins, with what jobs run masked."""
        return self._http.request("GET", "/v1/debug/snapshot").body

    def what_if(self, ask: WhatIfAsk) -> WhatIf:
        """What the next cycle would do otherwise if all of this held; nothing is changed."""
        path = f"/v1/projects/{segment(self._api.project)}/what-if"
        return decode_json(self._http.request("POST", path, body=encode_json(ask), headers=_JSON, manner=REPEATABLE).body, WhatIf)

    def wait(self, ref: str | int, timeout_s: float | None = None) -> Job:
        """The job once it has ended, or as it is after `timeout_s`. Survives restarts of the server within the patience."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = LONG_POLL_MS_MAX / 1_000 if until is None else min(until - time.monotonic(), LONG_POLL_MS_MAX / 1_000)
            wait_ms = max(0, round(left_s * 1_000))
            query = {"timeout": f"{wait_ms}ms"}
            reply = self._http.request(
                "GET", f"{self._one(ref)}/wait", query=query, manner=Manner(timeout_s=wait_ms / 1_000 + POLL_MARGIN_S)
            )
            job = decode_json(reply.body, Job)
            if job.state in ENDED or (until is not None and time.monotonic() >= until):
                return job

    def _wish(self, ref: str | int, verb: str, wish: Any) -> Job:
        reply = self._http.request("POST", f"{self._one(ref)}:{verb}", body=encode_json(wish), headers=_JSON, manner=REPEATABLE)
        return decode_json(reply.body, Job)

    def _all(self, project: str | None = None) -> str:
        return f"/v1/projects/{segment(project or self._api.project)}/jobs"

    def _one(self, ref: str | int) -> str:
        return f"{self._all()}/{segment(str(ref))}"


def _plain(patch: JobPatch) -> dict[str, Any]:
    return {"priority": patch.priority, "time": patch.time, "queue": patch.queue}

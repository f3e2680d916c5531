"""`Client`: a server, and jobs on it. Thin over `client.Api`, which it shows as `api` for everything that has no short form here."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shoal.client.jobs import new_key
from shoal.client.settings import find_settings, need_token
from shoal.client.submissions import Submissions
from shoal.model.codec import encode_json, to_plain
from shoal.model.event import EventRow
from shoal.model.job import JobSpec
from shoal.model.schedule import Schedule
from shoal.model.wire import NodeView, QueueView, ReservationView
from shoal.sdk.job import Job


class Client:
    """
    A server and a project. Without arguments: `$SHOAL_URL`, `$SHOAL_TOKEN`, `$SHOAL_PROJECT`, else the local server's files.

    Raises Unavailable where there is no token to be found.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        project: str | None = None,
        state_dir: Path | None = None,
        patience_s: float = 30.0,
    ) -> None:
        settings = need_token(find_settings(os.environ, url=url, token=token, project=project, state_dir=state_dir))
        self.api = settings.api(patience_s)
        self._submissions = Submissions(settings.state_dir / "submissions")

    def submit(self, spec: JobSpec | Mapping[str, Any] | None = None, *, key: str | None = None, **fields: Any) -> Job:
        """
        A new job, durable when this returns. `spec` is a JobSpec or a mapping in the words of a job file; `fields` are laid over it.

        Safe against lost answers: the key is kept on disk until the server has answered. With a `key` of your own the same call gives
        the same job, from any process. Raises Invalid with every fault of the spec.
        """
        body = _body(spec, fields)
        if key is not None:
            return Job(self.api, self.api.jobs.submit_body(body, key=key)[0])
        now_ms = time.time_ns() // 1_000_000
        with self._submissions.begin(body, key=new_key(), url=self.api.url, project=self.api.project, now_ms=now_ms) as kept:
            return Job(self.api, self.api.jobs.submit_body(kept.body, key=kept.key)[0])

    def job(self, ref: str | int) -> Job:
        """The job with that number, array element (`12_3`) or id."""
        return Job(self.api, self.api.jobs.get(ref).job)

    def jobs(self, *, count_max: int | None = None, **filters: Any) -> Iterator[Job]:
        """Jobs newest first; filters as of `api.jobs.list` (`states`, `queue`, `owner`, `array`)."""
        return (Job(self.api, record) for record in self.api.jobs.list_all(count_max=count_max, **filters))

    def nodes(self) -> tuple[NodeView, ...]:
        """All nodes with what is on them."""
        return self.api.nodes.list()

    def reservations(self) -> tuple[ReservationView, ...]:
        """Reservations of nodes with their next windows. They are made by `api.reservations.set`."""
        return self.api.reservations.list()

    def schedules(self) -> tuple[Schedule, ...]:
        """The project's schedules with their last runs. They are made by `api.schedules.set`."""
        return self.api.schedules.list()

    def queues(self) -> tuple[QueueView, ...]:
        """All queues with quota and use."""
        return self.api.queues.list()

    def events(self, *, after: int | None = None, kinds: tuple[str, ...] = ()) -> Iterator[EventRow]:
        """What happens from now on (or after a version), for ever; survives restarts of the server."""
        return self.api.events.watch(after=after, kinds=kinds)

    def close(self) -> None:
        """Closes idle connections."""
        self.api.close()


def _body(spec: JobSpec | Mapping[str, Any] | None, fields: Mapping[str, Any]) -> bytes:
    """What is sent: the mapping as it was written; the server opens short forms. So a second try is the same request."""
    given = to_plain(spec) if isinstance(spec, JobSpec) else dict(spec or {})
    return encode_json({**given, **fields})

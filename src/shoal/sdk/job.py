"""`Job`: one job of a server, as it was when last looked at; its verbs ask the server and move it forward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from shoal.model.job import ENDED, CancelMode, JobSpec, JobState
from shoal.model.job import Job as Record
from shoal.model.wire import Explanation, JobPatch, TaskLog

if TYPE_CHECKING:
    from shoal.client.api import Api


class JobFailed(Exception):
    """A job that was waited for with `check=True` ended otherwise than SUCCEEDED. `job` tells how."""

    def __init__(self, job: Job) -> None:
        reason = job.record.outcome.message if job.record.outcome else ""
        super().__init__(f"job {job.address} ended as {job.state}" + (f": {reason}" if reason else ""))
        self.job = job


class Job:
    """See module. `record` is everything the server said at the last look."""

    def __init__(self, api: Api, record: Record) -> None:
        self._api = api
        self.record = record

    def __repr__(self) -> str:
        return f"<Job {self.address} {self.record.spec.name!r} {self.state}>"

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def number(self) -> int:
        return self.record.number

    @property
    def address(self) -> str:
        """What people type: `12`, or `12_3`."""
        return self.record.address

    @property
    def spec(self) -> JobSpec:
        return self.record.spec

    @property
    def state(self) -> JobState:
        """At the last look; `refresh` looks again."""
        return self.record.state

    @property
    def ended(self) -> bool:
        return self.record.state in ENDED

    @property
    def exit_code(self) -> int | None:
        """Of the first failing task, 128 + signal for a killed one; 0 for success; None while there is none."""
        if self.record.outcome is not None:
            return self.record.outcome.exit_code
        return 0 if self.record.state is JobState.SUCCEEDED else None

    def refresh(self) -> Job:
        """Looks again; gives itself."""
        self.record = self._api.jobs.get(self.id).job
        return self

    def wait(self, timeout_s: float | None = None, *, check: bool = False) -> Job:
        """Itself once it has ended, or as it is after `timeout_s`. `check`: raises JobFailed for an end that is no success."""
        self.record = self._api.jobs.wait(self.id, timeout_s)
        if check and self.ended and self.state is not JobState.SUCCEEDED:
            raise JobFailed(self)
        return self

    def logs(self, rank: int = 0, *, attempt: int | None = None, follow: bool = True) -> Iterator[str]:
        """Lines of one task's output, without their ends; until the attempt is over, or up to now with `follow=False`."""
        rest = b""
        for data in self.output(rank, attempt=attempt, follow=follow):
            *lines, rest = (rest + data).split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in lines)
        if rest:
            yield rest.decode("utf-8", "replace")

    def output(self, rank: int = 0, *, attempt: int | None = None, follow: bool = True) -> Iterator[bytes]:
        """As `logs`, in the bytes that the task wrote."""
        if follow:
            for piece in self._api.logs.follow(self.id, rank, attempt=attempt):
                yield piece.data
            return
        after = 0
        while data := self._api.logs.read(self.id, rank, attempt=attempt, after=after).data:
            after += len(data)
            yield data

    def tasks(self) -> tuple[TaskLog, ...]:
        """Which tasks have written how much."""
        return self._api.logs.tasks(self.id)

    def cancel(self, *, force: bool = False, grace: str | None = None, reason: str = "") -> Job:
        """States the wish that it ends, at once with `force`; `wait` tells when it has."""
        mode = CancelMode.FORCE if force else CancelMode.GRACEFUL
        self.record = self._api.jobs.cancel(self.id, mode=mode, grace=grace, reason=reason)
        return self

    def hold(self) -> Job:
        self.record = self._api.jobs.hold(self.id)
        return self

    def release(self) -> Job:
        self.record = self._api.jobs.release(self.id)
        return self

    def requeue(self, reason: str = "") -> Job:
        self.record = self._api.jobs.requeue(self.id, reason)
        return self

    def resize(self, size: int | None) -> Job:
        """Says how many nodes of its range it shall have; None: as many as there is room for."""
        self.record = self._api.jobs.resize(self.id, size)
        return self

    def update(self, *, priority: int | None = None, time: str | None = None, queue: str | None = None) -> Job:
        """Changes what may change on a job that exists."""
        self.record = self._api.jobs.update(self.id, JobPatch(priority=priority, time=time, queue=queue))
        return self

    def why(self) -> Explanation:
        """Why it is where it is, with numbers."""
        return self._api.jobs.why(self.id)

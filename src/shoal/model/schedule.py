"""A schedule: a job that is submitted again and again, at times that a cron expression names."""

from __future__ import annotations

from typing import Literal

import msgspec

from shoal.model.job import JobSpec, Spec
from shoal.model.values import Duration


class ScheduleSpec(Spec, frozen=True, kw_only=True):
    """What a person sets."""

    cron: str
    """`30 2 * * mon-fri`: minute, hour, day, month, weekday; or `@daily` and the like."""
    time_zone: str = "UTC"
    """In which the times are meant: a name such as `Europe/Berlin`."""
    job: JobSpec
    """What is submitted, as if its owner did."""
    overlap: Literal["forbid", "allow", "replace"] = "forbid"
    """While the job of an earlier run has not ended. forbid: the new run is left out. replace: the earlier job is cancelled first."""
    start_within: Duration = Duration(3_600_000)
    """A run that could not be submitted so long after its time (the server was down) is missed. Of several that are due only the last is
    submitted; the others are missed too."""
    keep: int = 20
    """Runs that are remembered, the newest. Their jobs are kept as all jobs are."""
    paused: bool = False
    """No runs, and none is made up for when it is resumed."""


class ScheduledRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One time that came: `job` and `number` where a job was submitted, else why not."""

    due_ms: int
    outcome: Literal["submitted", "overlap", "missed", "refused"]
    job: str = ""
    number: int = 0
    message: str = ""


class Schedule(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A schedule as stored. `id` is `<project>/<name>`; its runs are the natural key of what it submits: (schedule, due time)."""

    id: str
    project: str
    name: str
    spec: ScheduleSpec
    owner: str
    """Who set it last: its jobs are his."""
    unix_user: str | None = None
    role: Literal["viewer", "member", "maintainer", "admin"] = "member"
    next_ms: int | None = None
    """The next time; None while it is paused."""
    runs: tuple[ScheduledRun, ...] = ()
    """Oldest first."""
    created_ms: int = 0
    version: int = 0

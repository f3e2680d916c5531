"""
Schedules of a project: set, delete, list, and what happens when their time comes.

Called by `api`, and `run_due` by the cron step. What a time that has come leads to is `lifecycle.schedule`'s to say. The new job and the
schedule's record are one ChangeSet on the version that was read, so a run is submitted once, whatever is killed between two steps.
"""

from __future__ import annotations

import dataclasses
import re
from concurrent.futures import Future
from typing import TYPE_CHECKING, Literal

import msgspec

from shoal.base import limits
from shoal.base.errors import Conflict, Fault, Invalid, NotFound, ShoalError, VersionConflict
from shoal.control.access import Caller, need, see_project
from shoal.control.answers import then
from shoal.control.lanes import JobSubject, RecordSubject
from shoal.control.submissions import birth_of
from shoal.lifecycle.job import advance_job
from shoal.lifecycle.schedule import Due, first_time, judge_due, with_runs
from shoal.model.change import ChangeSet
from shoal.model.event import CancelRequested, Event, EventRow, ScheduleDeleted, ScheduleRan, ScheduleSet
from shoal.model.job import CancelMode, Dependency, Job, JobSpec
from shoal.model.schedule import Schedule, ScheduledRun, ScheduleSpec
from shoal.model.snapshot import Picture

if TYPE_CHECKING:
    from shoal.control.plane import Plane

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
LABEL = "shoal.schedule"
"""Of every job that a schedule submits: the schedule's name."""


def set_schedule(
    plane: Plane, caller: Caller, project: str, name: str, spec: ScheduleSpec, *, if_version: int | None = None
) -> Future[Schedule]:
    """
    The schedule as stored, once it is durable. Its job is checked as if it were submitted now.

    Raises: NotFound for the project; Invalid with each fault; by the future, Conflict where there are too many, VersionConflict,
    Forbidden for a member who would change another's.
    """
    need(caller, "member", "setting a schedule")
    see_project(plane, caller, project)
    plane.world.catch_up()
    now_ms = plane.clock.now_ms()
    next_ms = _checked(plane, caller, project, name, spec, now_ms)

    def judge(before: Schedule | None) -> ChangeSet:
        _expect(before, name, if_version)
        _need_own(caller, before, "setting")
        if before is None and _count(plane) >= limits.SCHEDULES_MAX:
            raise Conflict(f"there are {_count(plane)} schedules, at most {limits.SCHEDULES_MAX} are kept: delete some")
        same = before is not None and (before.spec.cron, before.spec.time_zone, before.spec.paused) == (
            spec.cron,
            spec.time_zone,
            spec.paused,
        )
        made = Schedule(
            id=_id(project, name),
            project=project,
            name=name,
            spec=spec,
            owner=caller.principal,
            unix_user=caller.unix_user,
            role=_role(caller),
            next_ms=before.next_ms if before is not None and same else next_ms,
            runs=before.runs if before is not None else (),
            created_ms=before.created_ms if before is not None else now_ms,
            version=before.version if before is not None else 0,
        )
        return ChangeSet(put=(with_runs(made),), events=(_row(made, ScheduleSet(created=before is None), now_ms, caller.principal),))

    return then(plane.lanes.ask(_subject(plane, project, name), judge), lambda schedule: _found(schedule, project, name))


def delete_schedule(plane: Plane, caller: Caller, project: str, name: str, *, if_version: int | None = None) -> Future[None]:
    """It comes no more, once that is durable; its jobs stay. Raises, by the future: NotFound; VersionConflict; Forbidden for another's."""
    need(caller, "member", "deleting a schedule")
    see_project(plane, caller, project)
    now_ms = plane.clock.now_ms()

    def judge(before: Schedule | None) -> ChangeSet:
        schedule = _found(before, project, name)
        _expect(before, name, if_version)
        _need_own(caller, schedule, "deleting")
        return ChangeSet(delete=(schedule,), events=(_row(schedule, ScheduleDeleted(), now_ms, caller.principal),))

    return then(plane.lanes.ask(_subject(plane, project, name), judge), lambda _gone: None)


def list_schedules(plane: Plane, caller: Caller, project: str) -> tuple[Schedule, ...]:
    """A project's schedules by name."""
    see_project(plane, caller, project)
    plane.world.catch_up()
    mine = (schedule for schedule in tuple(plane.world.schedules.values()) if schedule.project == project)
    return tuple(sorted(mine, key=lambda schedule: schedule.name))


def get_schedule(plane: Plane, caller: Caller, project: str, name: str) -> Schedule:
    """One schedule with the runs that it remembers."""
    see_project(plane, caller, project)
    plane.world.catch_up()
    return _found(plane.world.schedules.get(_id(project, name)), project, name)


# --- its time has come --------------------------------------------------------------------------------------------------------
def run_due(plane: Plane, schedule: Schedule, now_ms: int) -> Future[Schedule | None]:
    """The schedule once what is due of it has been submitted, or written down as left out."""

    def judge(before: Schedule | None) -> ChangeSet:
        earlier = _live_jobs(plane, before) if before is not None else ()
        due = judge_due(before, now_ms, earlier_live=bool(earlier)) if before is not None else None
        return ChangeSet() if due is None else _carried_out(plane, due, earlier, now_ms)

    return plane.lanes.ask(_subject(plane, schedule.project, schedule.name), judge)


def cancel_replaced(plane: Plane, schedule: Schedule, now_ms: int) -> list[Future[Picture | None]]:
    """With `replace`: the wish that jobs of earlier runs than the last end; the last waits for that. Nothing to do costs a look."""
    jobs = _live_jobs(plane, schedule)[:-1] if schedule.spec.overlap == "replace" else ()
    wish = CancelRequested(mode=CancelMode.GRACEFUL, reason=f"replaced by the next run of schedule {schedule.name}")

    def judge(picture: Picture | None) -> ChangeSet:
        return ChangeSet() if picture is None else advance_job(picture, wish, now_ms, plane.terms, schedule.owner)

    wanted = [job for job in jobs if job.cancel is CancelMode.NONE]
    return [plane.lanes.ask(JobSubject(plane.world, plane.store, job.id), judge) for job in wanted]


def _carried_out(plane: Plane, due: Due, earlier: tuple[Job, ...], now_ms: int) -> ChangeSet:
    schedule, due_ms = due
    if due_ms is None:
        return ChangeSet(put=(schedule,), events=(_row(schedule, _told(schedule.runs[-1]), now_ms, "shoal"),))
    try:
        born = birth_of(plane, _caller_of(schedule), schedule.project, _spec_of(schedule, earlier))
    except ShoalError as error:
        run = ScheduledRun(due_ms=due_ms, outcome="refused", message=error.message)
        after = with_runs(schedule, run)
        return ChangeSet(put=(after,), events=(_row(after, _told(run), now_ms, "shoal"),))
    job = born.put[0]
    assert isinstance(job, Job)
    run = ScheduledRun(due_ms=due_ms, outcome="submitted", job=job.id, number=job.number)
    after = with_runs(schedule, run)
    row = _row(after, _told(run), now_ms, "shoal")
    return msgspec.structs.replace(born, put=(*born.put, after), events=(*born.events, row))


def _spec_of(schedule: Schedule, earlier: tuple[Job, ...]) -> JobSpec:
    """The job, marked as the schedule's; with `replace` it waits until the earlier ones have ended."""
    spec = schedule.spec.job
    waits = tuple(Dependency(job=job.id, condition="afterany") for job in earlier) if schedule.spec.overlap == "replace" else ()
    labels = {**spec.labels, LABEL: schedule.name}
    return msgspec.structs.replace(spec, labels=labels, depends_on=(*spec.depends_on, *waits))


def _live_jobs(plane: Plane, schedule: Schedule) -> tuple[Job, ...]:
    """Jobs of the runs that it remembers which have not ended, oldest first."""
    found = (plane.world.jobs.get(run.job) for run in schedule.runs if run.job)
    return tuple(job for job in found if job is not None)


def _role(caller: Caller) -> Literal["viewer", "member", "maintainer", "admin"]:
    """The role that its jobs are submitted with; a node has none of these."""
    return caller.role if caller.role in ("viewer", "member", "maintainer", "admin") else "member"


def _caller_of(schedule: Schedule) -> Caller:
    return Caller(principal=schedule.owner, project=schedule.project, role=schedule.role, unix_user=schedule.unix_user)


def _told(run: ScheduledRun) -> Event:
    return ScheduleRan(due_ms=run.due_ms, outcome=run.outcome, number=run.number, message=run.message)


# --- what is refused ----------------------------------------------------------------------------------------------------------
def _checked(plane: Plane, caller: Caller, project: str, name: str, spec: ScheduleSpec, now_ms: int) -> int | None:
    """When it comes first. Raises Invalid with the first kind of fault that there is."""
    faults = []
    if not _NAME.fullmatch(name) or len(name) > limits.NAME_CHARS_MAX:
        faults.append(Fault(f"a schedule's name has letters, digits, dots, dashes and underscores; got {name!r}"))
    if not 0 < spec.keep <= limits.SCHEDULE_RUNS_KEPT_MAX:
        faults.append(Fault(f"1 to {limits.SCHEDULE_RUNS_KEPT_MAX} runs are remembered, got {spec.keep}", "/keep"))
    next_ms = None
    try:
        next_ms = first_time(spec, now_ms)
    except ValueError as error:
        faults.append(Fault(str(error), "/time_zone" if "time zone" in str(error) else "/cron"))
    if faults:
        raise Invalid(f"schedule {name!r} cannot be set: {faults[0].message}", tuple(faults))
    try:
        birth_of(plane, caller, project, spec.job, dry=True)
    except Invalid as error:
        raise Invalid(error.message, tuple(dataclasses.replace(f, pointer=f"/job{f.pointer}") for f in error.faults)) from error
    return next_ms


def _expect(before: Schedule | None, name: str, if_version: int | None) -> None:
    found = before.version if before else 0
    if if_version is not None and if_version != found:
        raise VersionConflict(f"schedule {name!r} is at version {found}, not {if_version}: it ran or somebody changed it; read it again")


def _need_own(caller: Caller, schedule: Schedule | None, what: str) -> None:
    """As for jobs, which whoever sets a schedule may also end: another's needs a maintainer. Raises Forbidden."""
    if schedule is not None and schedule.owner != caller.principal:
        need(caller, "maintainer", f"{what} schedule {schedule.name} of {schedule.owner}")


def _count(plane: Plane) -> int:
    return len(plane.world.schedules)


def _found(schedule: Schedule | None, project: str, name: str) -> Schedule:
    if schedule is None:
        raise NotFound(f"project {project!r} has no schedule {name!r}")
    return schedule


def _id(project: str, name: str) -> str:
    return f"{project}/{name}"


def _subject(plane: Plane, project: str, name: str) -> RecordSubject[Schedule]:
    return RecordSubject(Schedule, _id(project, name), plane.world.schedules.get)


def _row(schedule: Schedule, body: Event, now_ms: int, actor: str) -> EventRow:
    return EventRow(kind="schedule", subject=schedule.id, project=schedule.project, at_ms=now_ms, body=body, actor=actor)

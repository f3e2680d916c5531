"""
What a schedule's time that has come leads to: a run, or why there is none. Pure; `control.steps.cron` carries it out.

    times passed since it looked last -> the last of them, if it is not too late, is tried; all before it are missed
    forbid, and an earlier job lives  -> left out
    replace, and an earlier job lives -> the earlier ones are cancelled, the new one is submitted

The schedule's record and the new job are written in one ChangeSet, on the version at which the record was read: a crash before it leaves
the time due, one after it leaves it done, and two servers cannot both write it.
"""

from __future__ import annotations

from typing import NamedTuple
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from shoal.base.limits import CRON_TIMES_MAX
from shoal.base.units import format_duration_ms
from shoal.formats.cron import Cron, next_time, parse_cron, zone_of
from shoal.model.schedule import Schedule, ScheduledRun, ScheduleSpec


class Due(NamedTuple):
    """`after` is the schedule with all passed times judged; `due_ms` the time to submit for, if any, whose run is not in `after` yet."""

    after: Schedule
    due_ms: int | None = None


def first_time(spec: ScheduleSpec, now_ms: int) -> int | None:
    """When a schedule that is set now comes first. Raises ValueError for a cron expression or zone that is none."""
    cron, zone = parse_cron(spec.cron), zone_of(spec.time_zone)
    return None if spec.paused else next_time(cron, zone, now_ms)


def judge_due(schedule: Schedule, now_ms: int, *, earlier_live: bool) -> Due | None:
    """What has come due by now; None if nothing has. `earlier_live`: a job of an earlier run has not ended."""
    spec = schedule.spec
    if spec.paused or schedule.next_ms is None or schedule.next_ms > now_ms:
        return None
    cron, zone = parse_cron(spec.cron), zone_of(spec.time_zone)
    passed = [schedule.next_ms]
    passed += _between(cron, zone, schedule.next_ms, now_ms)
    if len(passed) > CRON_TIMES_MAX:  # Down for long: what cannot be submitted any more need not be counted one by one.
        passed += _between(cron, zone, max(passed[-1], now_ms - spec.start_within.ms), now_ms)
    following = next_time(cron, zone, now_ms)
    due_ms = passed.pop()
    runs = [ScheduledRun(due_ms=at, outcome="missed", message="a later time had come too") for at in passed]
    after = replace(schedule, next_ms=following)
    late_ms = now_ms - due_ms
    if late_ms > spec.start_within.ms:
        message = f"{format_duration_ms(late_ms)} late; {format_duration_ms(spec.start_within.ms)} are allowed"
        return Due(with_runs(after, *runs, ScheduledRun(due_ms=due_ms, outcome="missed", message=message)))
    if earlier_live and spec.overlap == "forbid":
        message = "the job of an earlier run had not ended"
        return Due(with_runs(after, *runs, ScheduledRun(due_ms=due_ms, outcome="overlap", message=message)))
    return Due(with_runs(after, *runs), due_ms)


def _between(cron: Cron, zone: ZoneInfo, after_ms: int, until_ms: int) -> list[int]:
    """The first CRON_TIMES_MAX times after one moment, up to another."""
    found: list[int] = []
    for _ in range(CRON_TIMES_MAX):
        at_ms = next_time(cron, zone, found[-1] if found else after_ms)
        if at_ms is None or at_ms > until_ms:
            break
        found.append(at_ms)
    return found


def with_runs(schedule: Schedule, *runs: ScheduledRun) -> Schedule:
    """The schedule with these runs remembered, the newest `keep` of all."""
    kept = (*schedule.runs, *runs)
    return replace(schedule, runs=kept[max(0, len(kept) - schedule.spec.keep) :])

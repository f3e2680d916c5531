"""Schedules in life: each time submits once, whatever is killed in between; overlap, times that were missed, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from serving import ANNA, SYSTEM, Service, spec_of
from shoal.base.errors import Conflict, Forbidden, Invalid, NotFound, VersionConflict
from shoal.base.limits import SCHEDULES_MAX
from shoal.base.rng import Rng
from shoal.control import queues, schedules
from shoal.control.access import Caller
from shoal.model.change import ChangeSet
from shoal.model.job import Dependency, Job, JobState
from shoal.model.queue import QueueLimits, QueueSpec
from shoal.model.schedule import Schedule, ScheduleSpec
from shoal.model.values import Duration
from shoal.model.wire import LeaseTerms
from shoal.store.protocol import JobQuery

MINUTE = 60_000
BEN = Caller(principal="user/ben", project="default", role="member")
CHIEF = Caller(principal="user/chief", project="default", role="maintainer")


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service(terms=LeaseTerms(renew_every_ms=20_000, ttl_ms=90_000, kill_bound_ms=2_000, skew_ms=500, start_deadline_ms=60_000))
    for name in ("n1", "n2"):
        service.add_node(name)
    service.run(100)
    yield service
    service.check()
    service.close()


def every_minute(service: Service, name: str = "often", run_ms: int = 0, **fields: Any) -> Schedule:
    spec = ScheduleSpec(**{"cron": "* * * * *", "job": spec_of(run_ms=run_ms, name=name), **fields})
    return service.settle(schedules.set_schedule(service.plane, ANNA, "default", name, spec))


def seen(service: Service, name: str = "often") -> Schedule:
    return schedules.get_schedule(service.plane, ANNA, "default", name)


def outcomes(service: Service, name: str = "often") -> list[str]:
    return [run.outcome for run in seen(service, name).runs]


def jobs_of(service: Service) -> list[Job]:
    known = {**service.plane.world.ended, **service.plane.world.jobs}
    return sorted((job for job in known.values() if "shoal.schedule" in job.spec.labels), key=lambda job: job.number)


def pass_minutes(service: Service, count: int) -> None:
    service.run(count * MINUTE, tick_ms=5_000)


def test_each_minute_has_its_job_which_is_its_owners_and_says_whose_it_is(service: Service) -> None:
    made = every_minute(service)
    assert made.next_ms is not None
    assert made.next_ms % MINUTE == 0
    pass_minutes(service, 3)
    found = jobs_of(service)
    runs = seen(service).runs
    assert [run.outcome for run in runs] == ["submitted"] * 3
    assert [run.number for run in runs] == [job.number for job in found]
    assert [b.due_ms - a.due_ms for a, b in pairwise(runs)] == [MINUTE] * 2
    assert {(job.owner, job.spec.labels["shoal.schedule"], job.state) for job in found} == {("user/anna", "often", JobState.SUCCEEDED)}


@pytest.mark.parametrize("seed", range(8))
def test_a_time_is_submitted_once_wherever_the_plane_is_killed(service: Service, seed: int) -> None:
    """
    1. the time comes, the step judges; 2. it is killed before or after the write, between any two steps; 3. another plane judges again.
    """
    rng = Rng(seed)
    every_minute(service, overlap="allow", run_ms=MINUTE * 3)
    for _ in range(60):
        steps = service.plane.steps()
        cut = rng.below(2 * len(steps))
        for at, step in enumerate(steps):
            if at == cut:
                break
            step.step(service.clock.now_ms())
        if cut < len(steps):
            service.restart()
        service.run(100)
        service.clock.advance(5_000)
    service.run(100)
    due = [run.due_ms for run in seen(service).runs]
    assert len(due) >= 5
    assert due == [due[0] + at * MINUTE for at in range(len(due))], "no time twice, none left out"
    numbers = [run.number for run in seen(service).runs]
    assert len(set(numbers)) == len(numbers)
    found = service.store.list_jobs(JobQuery(project="default", limit=100))
    assert sorted(job.number for job in found) == numbers, "no job beside those that are remembered"


def test_a_write_that_was_lost_with_the_plane_is_made_again(service: Service) -> None:
    made = every_minute(service)
    assert made.next_ms is not None
    service.clock.advance(made.next_ms - service.clock.now_ms())
    lost = schedules.run_due(service.plane, made, service.clock.now_ms())
    assert not lost.done(), "judged, and not written yet"
    service.restart()
    service.run(200)
    assert outcomes(service) == ["submitted"]
    assert len(jobs_of(service)) == 1


def test_two_judgements_of_one_time_make_one_job(service: Service) -> None:
    made = every_minute(service)
    assert made.next_ms is not None
    service.clock.advance(made.next_ms - service.clock.now_ms())
    both = [schedules.run_due(service.plane, made, service.clock.now_ms()) for _ in range(2)]
    for future in both:
        service.settle(future)
    assert len(jobs_of(service)) == 1


def test_forbid_leaves_a_run_out_while_the_earlier_one_lives(service: Service) -> None:
    every_minute(service, run_ms=150_000)
    pass_minutes(service, 5)
    assert outcomes(service)[:4] == ["submitted", "overlap", "overlap", "submitted"]
    assert "had not ended" in seen(service).runs[1].message


def test_allow_starts_beside_it(service: Service) -> None:
    every_minute(service, run_ms=150_000, overlap="allow")
    pass_minutes(service, 3)
    assert outcomes(service) == ["submitted"] * 3
    assert [job.state for job in jobs_of(service)][1:] == [JobState.RUNNING] * 2


def test_replace_cancels_the_earlier_one_and_starts_when_it_has_ended(service: Service) -> None:
    every_minute(service, run_ms=600_000, overlap="replace")
    pass_minutes(service, 3)
    service.run(2_000)
    first, second, third = jobs_of(service)[:3]
    assert [job.state for job in (first, second, third)] == [JobState.CANCELLED, JobState.CANCELLED, JobState.RUNNING]
    assert "replaced by the next run of schedule often" in first.cancel_reason
    assert third.spec.depends_on == (Dependency(job=second.id, condition="afterany"),)


def test_after_a_long_silence_the_last_time_is_submitted_and_the_others_are_missed(service: Service) -> None:
    every_minute(service, keep=50)
    pass_minutes(service, 1)
    service.clock.advance(10 * MINUTE)
    service.run(1_000)
    assert outcomes(service) == ["submitted", *["missed"] * 9, "submitted"]
    assert len(jobs_of(service)) == 2


def test_a_run_that_is_too_late_is_missed_with_its_figures(service: Service) -> None:
    spec = ScheduleSpec(cron="@hourly", job=spec_of(), start_within=Duration(5 * MINUTE))
    made = service.settle(schedules.set_schedule(service.plane, ANNA, "default", "often", spec))
    assert made.next_ms is not None
    service.clock.advance(made.next_ms - service.clock.now_ms() + 6 * MINUTE)
    service.run(200)
    (run,) = seen(service).runs
    assert (run.outcome, run.message) == ("missed", "6m late; 5m are allowed")
    assert seen(service).next_ms == made.next_ms + 60 * MINUTE


def test_a_thousand_missed_times_are_not_told_one_by_one(service: Service) -> None:
    every_minute(service, keep=200)
    service.clock.advance(5_000 * MINUTE)
    service.run(200)
    found = seen(service)
    assert [run.outcome for run in found.runs[-2:]] == ["missed", "submitted"]
    assert 100 < len(found.runs) < 200
    assert service.clock.now_ms() - found.runs[-1].due_ms <= 2 * MINUTE
    assert found.next_ms is not None
    assert 0 < found.next_ms - service.clock.now_ms() <= MINUTE


def test_paused_it_does_not_come_and_nothing_is_made_up_for(service: Service) -> None:
    made = every_minute(service)
    paused = service.settle(schedules.set_schedule(service.plane, ANNA, "default", "often", replace(made.spec, paused=True)))
    assert paused.next_ms is None
    pass_minutes(service, 3)
    assert jobs_of(service) == []
    service.settle(schedules.set_schedule(service.plane, ANNA, "default", "often", made.spec))
    pass_minutes(service, 2)
    assert outcomes(service) == ["submitted"] * 2


def test_only_the_newest_runs_are_remembered(service: Service) -> None:
    every_minute(service, keep=2)
    pass_minutes(service, 4)
    assert len(seen(service).runs) == 2
    assert len(jobs_of(service)) == 4


def test_what_cannot_be_submitted_any_more_is_told_and_the_next_time_comes(service: Service) -> None:
    limits = QueueLimits(queued_jobs=0)
    every_minute(service)
    service.settle(queues.set_queue(service.plane, SYSTEM, "default", QueueSpec(limits=limits)))
    pass_minutes(service, 2)
    assert outcomes(service) == ["refused"] * 2
    assert "lets 0 jobs wait (queued_jobs)" in seen(service).runs[-1].message
    service.settle(queues.set_queue(service.plane, SYSTEM, "default", QueueSpec()))
    pass_minutes(service, 1)
    assert outcomes(service)[-1] == "submitted"


def test_deleted_it_comes_no_more_and_its_jobs_stay(service: Service) -> None:
    every_minute(service, run_ms=600_000)
    pass_minutes(service, 1)
    service.settle(schedules.delete_schedule(service.plane, ANNA, "default", "often"))
    pass_minutes(service, 2)
    (job,) = jobs_of(service)
    assert job.state is JobState.RUNNING
    with pytest.raises(NotFound, match="no schedule 'often'"):
        seen(service)


def test_what_is_no_schedule_is_refused_with_every_fault(service: Service) -> None:
    def refused(name: str = "x", **fields: Any) -> list[str | None]:
        with pytest.raises(Invalid) as error:
            every_minute(service, name, **fields)
        return [fault.pointer for fault in error.value.faults]

    assert refused(cron="61 * * * *") == ["/cron"]
    assert refused(time_zone="Mars/Olympus") == ["/time_zone"]
    assert refused(keep=0) == ["/keep"]
    assert refused("no name") == [""]
    assert refused(job=spec_of(queue="nowhere")) == ["/job/queue"]


def test_versions_and_rights_are_held_to(service: Service) -> None:
    made = every_minute(service)
    with pytest.raises(VersionConflict, match="it ran or somebody changed it"):
        service.settle(schedules.set_schedule(service.plane, CHIEF, "default", "often", made.spec, if_version=made.version - 1))
    viewer = Caller(principal="user/eve", project="default", role="viewer")
    with pytest.raises(Forbidden):
        schedules.set_schedule(service.plane, viewer, "default", "mine", made.spec)
    other = Caller(principal="user/zoe", project="elsewhere", role="member")
    with pytest.raises(NotFound):
        schedules.list_schedules(service.plane, other, "default")
    taken = service.settle(schedules.set_schedule(service.plane, CHIEF, "default", "often", made.spec))
    assert (taken.owner, taken.next_ms) == ("user/chief", made.next_ms), "who sets it last owns it; its times stay"


def test_there_is_a_bound_on_schedules(service: Service) -> None:
    made = every_minute(service)
    more = tuple(replace(made, id=f"default/s{at}", name=f"s{at}", next_ms=None, version=0) for at in range(SCHEDULES_MAX - 1))
    service.settle(service.store.apply(ChangeSet(put=more), service.plane.term))
    with pytest.raises(Conflict, match="at most 1000 are kept"):
        every_minute(service, "another")
    assert every_minute(service).next_ms == made.next_ms, "one that is there may be changed"


def test_anothers_schedule_is_left_alone_by_a_member_and_not_by_a_maintainer(service: Service) -> None:
    made = every_minute(service, overlap="replace")
    with pytest.raises(Forbidden, match="setting schedule often of user/anna needs the role maintainer; user/ben has member"):
        service.settle(schedules.set_schedule(service.plane, BEN, "default", "often", made.spec))
    with pytest.raises(Forbidden, match="deleting schedule often of user/anna"):
        service.settle(schedules.delete_schedule(service.plane, BEN, "default", "often"))
    assert seen(service).owner == "user/anna"
    service.settle(schedules.delete_schedule(service.plane, CHIEF, "default", "often"))
    with pytest.raises(NotFound):
        seen(service)

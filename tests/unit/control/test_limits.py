"""Limits of queues on running and waiting jobs: held in the cycle, told by their name with their holders, freed when a job ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from serving import ANNA, SYSTEM, Service, spec_of
from shoal.base.errors import Invalid, RateLimited
from shoal.base.rng import Rng
from shoal.control import jobs, queues
from shoal.control.access import Caller
from shoal.model.job import Job, JobState
from shoal.model.queue import QueueLimits, QueueSpec
from shoal.model.reason import ReasonCode
from shoal.model.values import ArrayList, CountRange, Duration
from shoal.model.wire import JobPatch
from shoal.scheduling.board import Board
from shoal.scheduling.check import check_plan
from shoal.scheduling.cycle import schedule
from shoal.scheduling.policy import Policy

BEN = Caller(principal="user/ben", project="default")


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    for name in ("n1", "n2", "n3"):
        service.add_node(name)
    service.run(100)
    yield service
    service.close()


def limit(service: Service, **bounds: Any) -> None:
    order = bounds.pop("order", "best-effort")
    service.settle(queues.set_queue(service.plane, SYSTEM, "default", QueueSpec(limits=QueueLimits(**bounds), order=order)))
    service.run(100)


def running(service: Service, *wanted: Job) -> list[bool]:
    return [service.job(job).state is JobState.RUNNING for job in wanted]


def submit(service: Service, count: int, caller: Caller = ANNA, **fields: Any) -> list[Job]:
    return [service.submit(spec_of(**{"run_ms": 60_000, **fields}), caller) for _ in range(count)]


def test_case_40_a_limit_is_told_by_its_name_with_those_who_hold_it(service: Service) -> None:
    """Platform case 40 (dagster#21297, PrefectHQ/prefect#9500): blocked by a limit, and nothing says so."""
    limit(service, running_jobs_per_user=2)
    mine = submit(service, 3)
    service.run(500)
    assert running(service, *mine) == [True, True, False]
    why = jobs.why_job(service.plane, ANNA, "default", str(mine[2].number))
    (reason,) = why.reasons
    assert reason.code is ReasonCode.USER_JOBS_LIMIT
    assert (reason.capacity, reason.free, reason.blockers) == (2, 0, (mine[0].address, mine[1].address))
    assert [(holder.jobs, holder.gpus) for holder in reason.holders] == [(2, 2)]
    assert why.headline == "queue default limits running jobs of user/anna to 2 (running_jobs_per_user); there are 2"


@pytest.mark.parametrize("order", ["best-effort", "strict"])
def test_who_is_at_a_limit_holds_up_nobody_and_goes_on_when_one_of_his_ends(service: Service, order: str) -> None:
    limit(service, running_jobs_per_user=1, order=order)
    first, second = submit(service, 2)
    (other,) = submit(service, 1, BEN)
    service.run(500)
    assert running(service, first, second, other) == [True, False, True]
    service.cancel(first)
    service.run(2_000)
    assert running(service, second, other) == [True, True]
    service.check()


def test_a_limit_on_the_queue_counts_everybody(service: Service) -> None:
    limit(service, running_jobs=3)
    anna, ben = submit(service, 2), submit(service, 2, BEN)
    service.run(500)
    assert sum(running(service, *anna, *ben)) == 3
    (last,) = [job for job in (*anna, *ben) if service.job(job).state is JobState.QUEUED]
    assert jobs.why_job(service.plane, ANNA, "default", str(last.number)).reasons[0].code is ReasonCode.QUEUE_JOBS_LIMIT


def test_gpus_of_a_user_are_limited_and_a_range_of_nodes_starts_small(service: Service) -> None:
    limit(service, gpus_per_user=8)
    (gang,) = submit(service, 1, nodes=1, gpus=4)
    wide = service.submit(replace(spec_of(run_ms=60_000, gpus=4), nodes=CountRange(1, 3)))
    (single,) = submit(service, 1)
    service.run(500)
    assert running(service, gang, wide, single) == [True, True, False]
    assert service.free_gpus() == 4
    reason = jobs.why_job(service.plane, ANNA, "default", str(single.number)).reasons[0]
    assert (reason.code, reason.asked, reason.free, reason.capacity) == (ReasonCode.USER_GPUS_LIMIT, 1, 0, 8)
    (other,) = submit(service, 1, BEN)
    service.run(500)
    assert running(service, other) == [True]


def test_a_limit_that_is_raised_or_taken_away_lets_the_next_start(service: Service) -> None:
    limit(service, running_jobs_per_user=1)
    mine = submit(service, 3)
    service.run(500)
    assert sum(running(service, *mine)) == 1
    limit(service, running_jobs_per_user=2)
    service.run(500)
    assert sum(running(service, *mine)) == 2
    limit(service)
    service.run(500)
    assert sum(running(service, *mine)) == 3


def test_limits_hold_for_elements_of_arrays_too(service: Service) -> None:
    limit(service, running_jobs_per_user=3)
    array = service.submit(spec_of(run_ms=500, array=ArrayList.parse("0-19")))
    seen: list[int] = []
    service.run(4_000, each=lambda: seen.append(_live(service)))
    assert max(seen) == 3
    service.run_until_ended(array)
    assert service.job(array).state is JobState.SUCCEEDED


def _live(service: Service) -> int:
    return sum(1 for job in service.plane.world.jobs.values() if job.state is JobState.RUNNING and not job.is_array)


def test_more_may_not_wait_than_the_limit_and_a_repeat_is_answered_all_the_same(service: Service) -> None:
    limit(service, queued_jobs_per_user=5, running_jobs=0)
    submission = jobs.Submission(project="default", spec=spec_of(), key="k", fingerprint="f")
    first = service.settle(jobs.submit_job(service.plane, ANNA, submission))
    submit(service, 4)
    with pytest.raises(RateLimited, match=r"lets 5 jobs of user/anna wait \(queued_jobs_per_user\); 5 wait already") as refused:
        submit(service, 1)
    assert refused.value.retry_after_ms == 60_000
    again = service.settle(jobs.submit_job(service.plane, ANNA, submission))
    assert (again.replayed, again.job.id) == (True, first.job.id)
    submit(service, 5, BEN)
    with pytest.raises(RateLimited, match="and 6 more were asked for"):
        service.submit(spec_of(array=ArrayList.parse("0-5")), Caller(principal="user/carla", project="default"))
    service.cancel(first.job)
    service.run(200)
    submit(service, 1)


def test_a_burst_is_judged_as_if_each_had_been_written(service: Service) -> None:
    limit(service, queued_jobs=3, running_jobs=0)
    wanted = [jobs.Submission(project="default", spec=spec_of()) for _ in range(10)]
    answers = jobs.submit_batch(service.plane, ANNA, wanted)
    assert [isinstance(answer, RateLimited) for answer in answers] == [False] * 3 + [True] * 7
    for answer in answers[:3]:
        service.settle(answer)  # type: ignore[arg-type]
    service.run(100)
    service.cancel(service.plane.world.jobs[service.plane.world.jobs_in("default")[0]])
    service.run(100)
    submit(service, 1)


def test_a_longer_time_than_the_queue_takes_is_refused_and_none_becomes_the_longest(service: Service) -> None:
    limit(service, time_ms=3_600_000)
    with pytest.raises(Invalid, match="takes jobs of up to 1h") as refused:
        service.submit(spec_of(time=Duration(7_200_000)))
    assert [fault.pointer for fault in refused.value.faults] == ["/time"]
    job = service.submit(spec_of())
    assert job.time_limit_ms == 3_600_000
    with pytest.raises(Invalid, match="takes jobs of up to 1h"):
        jobs.update_job(service.plane, ANNA, "default", str(job.number), JobPatch(time="2h"))


def test_limits_below_nothing_are_refused(service: Service) -> None:
    with pytest.raises(Invalid, match="a limit is a whole number of 0 or more"):
        limit(service, running_jobs=-1)


def test_a_plan_that_breaks_a_limit_is_not_legal(service: Service) -> None:
    submit(service, 3)
    board = Board.of(service.plane.store.snapshot())
    plan = schedule(board, Policy(), service.clock.now_ms(), Rng(1))
    assert len(plan.decisions) == 3
    assert check_plan(board.records, plan) == ()
    service.settle(
        queues.set_queue(service.plane, SYSTEM, "default", QueueSpec(limits=QueueLimits(running_jobs_per_user=1, gpus_per_user=2)))
    )
    snapshot = service.plane.store.snapshot()
    for records in (snapshot, Board.of(snapshot).records):
        told = check_plan(records, plan)
        assert [fault.partition("breaks limit ")[2].partition(" ")[0] for fault in told] == ["running_jobs_per_user"] * 2

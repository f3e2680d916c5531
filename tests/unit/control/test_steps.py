"""Steps: safe to repeat, bounded, and a bug in one of them stops neither the others nor does it harm."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from serving import ANNA, SYSTEM, Service, facts_of, spec_of
from shoal.base.errors import InvariantViolated, Unauthenticated, Unavailable
from shoal.control import jobs, nodes, queues
from shoal.control.access import authenticate
from shoal.control.steps import Progress
from shoal.control.steps.base import AFTER_FAILURE_MS, IDLE_MS_MAX, await_all, step_through
from shoal.model.event import PrepareLate
from shoal.model.job import JobState
from shoal.model.plan import Place, PlacedMember
from shoal.model.queue import QueueSpec, Quota
from shoal.model.reason import ReasonCode
from shoal.model.values import Duration
from shoal.model.wire import JobPatch, Join
from shoal.scheduling.policy import Policy


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    service.add_node("n1")
    service.run(100)
    yield service
    service.close()


class Broken:
    name = "broken"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def step(self, now_ms: int) -> Progress:
        raise self.error


class Sound:
    name = "sound"

    def step(self, now_ms: int) -> Progress:
        return Progress(2, now_ms + 50)


@pytest.mark.parametrize("error", [InvariantViolated("a bug"), Unavailable("the disk is slow")])
def test_what_one_step_meets_is_noted_and_the_others_go_on(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    troubles: dict[str, str] = {}
    with caplog.at_level(logging.WARNING):
        progress = step_through([Broken(error), Sound()], 1_000, troubles)
    assert progress == Progress(2, 1_050)
    assert troubles == {"broken": str(error)}
    assert len(caplog.records) == 1
    broken = Broken(error)
    broken.name = "sound"
    step_through([broken, Sound()], 1_000, troubles)
    assert troubles == {"broken": str(error)}, "a step that went well again is in no trouble"


def test_a_driver_sleeps_until_time_alone_gives_it_work() -> None:
    assert Progress(0, None).wait_ms(1_000) == IDLE_MS_MAX
    assert Progress(0, 1_200).wait_ms(1_000) == 200
    assert Progress(0, 900).wait_ms(1_000) == 0
    assert (Progress(1, 70) + Progress(2, 50)) == Progress(3, 50)
    assert AFTER_FAILURE_MS > 0


def test_a_round_with_no_news_does_nothing_and_costs_no_write(service: Service) -> None:
    service.submit(spec_of(nodes=9))
    service.round()
    version = service.store.version()
    for _ in range(5):
        assert service.plane.step_all(service.clock.now_ms()).did == 0
    assert service.store.version() == version


def test_gangs_of_one_cycle_are_awaited_as_one_group(service: Service) -> None:
    for _ in range(4):
        service.submit(spec_of(run_ms=1_000))
    groups: list[int] = []
    step = service.store.writer.step

    def counted() -> int:
        groups.append(count := step())
        return count

    service.plane.write = counted
    service.plane.schedule.step(service.clock.now_ms())
    assert groups == [4]


def test_a_plan_that_is_not_legal_is_not_carried_out(service: Service) -> None:
    """The checker is not the planner: a board that has lost sight of what is held plans badly, and the records say so."""
    first = service.submit(spec_of(gpus=4, run_ms=60_000))
    service.run(300)
    assert service.job(first).state is JobState.RUNNING
    second = service.submit(spec_of(gpus=4))
    board = service.plane.schedule._board
    for allocation in service.plane.world.allocations_of(first.id):
        board.columns.hold(allocation.node, allocation.id, None)
        board.columns.refresh(board.columns.row[allocation.node])
    service.run(300)
    assert "schedule" in service.plane.troubles
    assert "given twice" in service.plane.troubles["schedule"]
    assert service.job(second).state is JobState.QUEUED
    service.check()


def test_a_start_that_is_late_is_given_up_and_the_node_avoided(service: Service) -> None:
    service.add_node("n2")
    service.run(100)
    job = service.submit(spec_of(nodes=2, gpus=4, labels={"prepare": "hang"}))
    service.run(300)
    assert service.job(job).state is JobState.STARTING
    service.run(service.terms.start_deadline_ms + 500, each=service.check)
    after = service.job(job)
    assert after.state is JobState.QUEUED
    assert after.reason is not None
    assert after.reason.code is ReasonCode.START_LATE
    assert set(after.avoid) == {"n1", "n2"}
    rows = service.store.events_after("default", 0, 1_000, subject=job.id)
    assert any(isinstance(row.body, PrepareLate) for row in rows)


def test_a_time_limit_that_is_raised_in_time_counts_and_one_that_is_lowered_too(service: Service) -> None:
    longer = service.submit(spec_of(run_ms=3_000, time=Duration(2_000)))
    shorter = service.submit(spec_of(run_ms=3_000, time=Duration(60_000)))
    service.run(1_000)
    for job, time in ((longer, "10s"), (shorter, "1s")):
        service.settle(jobs.update_job(service.plane, ANNA, "default", job.id, JobPatch(time=time)))
    service.run_until_ended()
    assert service.job(longer).state is JobState.SUCCEEDED
    assert service.job(shorter).state is JobState.TIMEOUT


def test_a_wall_clock_that_jumps_loses_no_node(service: Service) -> None:
    job = service.submit(spec_of(run_ms=2_000))
    service.run(300)
    service.clock.jump(86_400_000)
    service.round()
    assert service.job(job).state is JobState.RUNNING
    assert service.plane.world.nodes["n1"].reason is None


def test_a_removed_nodes_token_holds_no_longer(service: Service) -> None:
    joined = service.settle(nodes.join_node(service.plane, SYSTEM, Join(name="n9", facts=facts_of("n9"))))
    assert authenticate(service.plane, joined.token).node == "n9"
    service.settle(nodes.remove_node(service.plane, SYSTEM, "n9"))
    with pytest.raises(Unauthenticated):
        authenticate(service.plane, joined.token)


def test_a_wait_for_writes_that_nobody_does_is_an_error_and_no_hang() -> None:
    with pytest.raises(Unavailable):
        await_all([Future()], lambda: 0)


def test_a_job_that_moves_to_another_queue_while_its_start_is_on_the_way_is_not_started_past_that_queues_quota(service: Service) -> None:
    """
    1. A job is queued where there is room. Its owner raises its priority; the write is on its way.
    2. They move it to a queue without quota; that waits in the job's lane.
    3. The cycle, which has seen neither, starts the job: that waits behind both.
    """
    spec = QueueSpec(quotas={"gpu": Quota(nominal=0, borrowing_limit=0)})
    service.settle(queues.set_queue(service.plane, SYSTEM, "empty", spec))
    job = service.submit(spec_of())
    for patch in (JobPatch(priority=1), JobPatch(queue="empty")):
        jobs.update_job(service.plane, ANNA, "default", job.id, patch)
    assert service.plane.schedule.step(service.clock.now_ms()).did == 1
    service.run(300, each=service.check)
    after = service.job(job)
    assert (after.queue, after.state, after.attempt) == ("empty", JobState.QUEUED, 0)


def test_a_node_drained_since_the_plan_was_made_gets_no_work(service: Service) -> None:
    job = service.job(service.submit(spec_of()))
    picture = service.plane.world.picture(job.id)
    assert picture is not None
    place = Place(job=job.id, members=(PlacedMember(node="n1", devices=("GPU-n1-0",)),), gpu_model="h100")
    step, now_ms = service.plane.schedule, service.clock.now_ms()
    assert not step._judge(place, picture.job, now_ms, picture).empty
    service.settle(nodes.drain_node(service.plane, SYSTEM, "n1"))
    assert step._judge(place, picture.job, now_ms, picture).empty


def test_what_queues_have_used_outlives_the_control_plane() -> None:
    service = Service(policy=Policy(fair_share="decayed"))
    service.add_node("n1")
    service.run(100)
    service.run_until_ended(service.submit(spec_of(gpus=4, run_ms=30_000)))
    service.run(61_000)
    before = queues.list_queues(service.plane, SYSTEM)[0].used_lately
    assert before["gpu"] > 0
    service.restart()
    service.run(100)
    after = queues.list_queues(service.plane, SYSTEM)[0].used_lately
    assert after == pytest.approx(before, rel=0.01)
    service.check()
    service.close()

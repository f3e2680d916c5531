"""Lanes: one judgement after another on what the one before made true, however they come."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from serving import Service
from shoal.base.errors import Conflict, Unavailable, VersionConflict
from shoal.control.lanes import RecordSubject
from shoal.model.change import ChangeSet
from shoal.model.queue import Queue, QueueSpec


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


def subject(service: Service) -> RecordSubject[Queue]:
    return RecordSubject(Queue, "default", service.plane.world.queues.get)


def heavier(queue: Queue | None) -> ChangeSet:
    """One more weight: wrong in the end if two are judged on the same picture."""
    assert queue is not None
    return ChangeSet(put=(replace(queue, spec=replace(queue.spec, weight=queue.spec.weight + 1)),))


def test_asks_that_come_while_a_write_is_on_its_way_become_one_more_write(service: Service) -> None:
    version = service.store.version()
    asked = [service.plane.lanes.ask(subject(service), heavier) for _ in range(10)]
    while service.store.writer.step():
        pass
    assert all(future.done() for future in asked)
    service.plane.world.catch_up()
    assert service.plane.world.queues["default"].spec.weight == 1_010
    assert service.store.version() == version + 2


def test_the_answer_is_the_record_as_stored(service: Service) -> None:
    queue = service.settle(service.plane.lanes.ask(subject(service), heavier))
    assert queue == service.store.queue("default")


def test_a_judge_that_refuses_harms_nobody_else(service: Service) -> None:
    def refuse(_queue: Queue | None) -> ChangeSet:
        raise Conflict("not now")

    lanes = service.plane.lanes
    first, refused, last = (lanes.ask(subject(service), judge) for judge in (heavier, refuse, heavier))
    while service.store.writer.step():
        pass
    assert first.exception() is None
    assert last.exception() is None
    with pytest.raises(Conflict, match="not now"):
        refused.result()


def test_a_write_of_somebody_else_in_between_makes_it_judge_again(service: Service) -> None:
    seen: list[int] = []

    def judge(queue: Queue | None) -> ChangeSet:
        assert queue is not None
        seen.append(queue.spec.weight)
        return heavier(queue)

    other = service.plane.world.queues["default"]
    service.store.apply(ChangeSet(put=(replace(other, spec=QueueSpec(weight=7)),)), service.plane.term)
    answer = service.settle(service.plane.lanes.ask(subject(service), judge))
    assert answer is not None
    assert answer.spec.weight == 8
    assert seen == [1_000, 7]


def test_one_that_loses_every_race_is_told_to_come_back(service: Service) -> None:
    stale = service.plane.world.queues["default"]
    service.settle(service.plane.lanes.ask(subject(service), heavier))
    answer = service.plane.lanes.ask(subject(service), lambda _queue: heavier(stale))
    with pytest.raises(Unavailable, match="changed"):
        service.settle(answer)
    assert service.settle(service.plane.lanes.ask(subject(service), heavier)) is not None, "the lane is still usable"


def test_a_failing_store_fails_the_asker_and_frees_the_lane(service: Service) -> None:
    service.plane.store.take_term("somebody else")
    with pytest.raises(Conflict, match="term"):
        service.settle(service.plane.lanes.ask(subject(service), heavier))
    service.restart()
    assert service.settle(service.plane.lanes.ask(subject(service), heavier)) is not None


def test_an_asker_that_goes_away_takes_nothing_back(service: Service) -> None:
    answer = service.plane.lanes.ask(subject(service), heavier)
    assert not answer.cancel()
    assert service.settle(answer) is not None


def test_what_is_no_news_is_not_written(service: Service) -> None:
    version = service.store.version()
    assert service.plane.lanes.ask(subject(service), lambda _queue: ChangeSet()).result() == service.store.queue("default")
    assert service.store.version() == version


def test_a_conflict_that_is_the_judges_own_is_not_tried_again(service: Service) -> None:
    tries: list[int] = []

    def judge(_queue: Queue | None) -> ChangeSet:
        tries.append(1)
        raise VersionConflict("you read an older one")

    with pytest.raises(VersionConflict):
        service.plane.lanes.ask(subject(service), judge).result()
    assert len(tries) == 1

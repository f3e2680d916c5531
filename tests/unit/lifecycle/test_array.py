"""Arrays: born together, the parent's state derived and seldom written."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shoal.base.ids import uuid7
from shoal.lifecycle.array import advance_array, array_state, bear, counted, new_array, worst_end
from shoal.lifecycle.job import Origin, advance_job
from shoal.model.array import Spans, element_id, unborn_count, without
from shoal.model.event import CancelRequested, JobHeld
from shoal.model.job import CancelMode, Job, JobEnd, JobState
from shoal.model.snapshot import Picture
from shoal.model.values import ArrayList
from shoal.testing.gangs import TERMS, a_spec

J = JobState
SPEC = a_spec(array=ArrayList.parse("2-8:3%2"))
ORIGIN = Origin(id="parent", number=12, project="default", owner="user/anna", queue="night", now_ms=1_000, default_time_ms=60_000)


def parent_of() -> Job:
    (parent,) = (record for record in new_array(SPEC, ORIGIN).put if isinstance(record, Job))
    return parent


def born(parent: Job | None = None, positions: tuple[int, ...] = (0, 1, 2)) -> tuple[Job, ...]:
    return tuple(record for record in bear(parent or parent_of(), positions).put if isinstance(record, Job))


def test_an_array_costs_one_record_until_its_elements_start() -> None:
    (parent,) = new_array(a_spec(array=ArrayList.parse("0-9999")), ORIGIN).put
    assert isinstance(parent, Job)
    assert (parent.unborn, unborn_count(parent)) == (((0, 10_000),), 10_000)


def test_elements_are_born_with_the_numbers_and_ids_that_were_set_aside() -> None:
    parent, *elements = born()
    assert (parent.is_array, parent.number, parent.address, parent.queue, parent.unborn) == (True, 12, "12", "night", ())
    assert [(e.id, e.number, e.address, e.is_array) for e in elements] == [
        ("parent.000000", 13, "12_2", False),
        ("parent.000001", 14, "12_5", False),
        ("parent.000002", 15, "12_8", False),
    ]
    assert all(e.array is not None and (e.array.array_id, e.array.count) == ("parent", 3) for e in elements)
    assert all(e.time_limit_ms == 60_000 for e in elements)
    assert elements[0].spec is elements[2].spec


def test_who_is_named_is_born_alone_and_nobody_twice() -> None:
    parent, five = born(positions=(1,))
    assert (five.address, parent.unborn) == ("12_5", ((0, 1), (2, 3)))
    assert bear(parent, (1,)).empty
    assert [job.address for job in born(parent, (0, 1, 2))[1:]] == ["12_2", "12_8"]


def test_elements_are_born_as_their_parent_is_by_then() -> None:
    held = replace(parent_of(), hold=True, priority=7, time_limit_ms=5)
    element = born(held, (2,))[1]
    assert (element.state, element.priority, element.time_limit_ms, element.hold) == (J.HELD, 7, 5, False)


def test_the_ids_of_elements_are_the_next_ones_of_their_parents_kind() -> None:
    array_id = uuid7(1_700_000_000_000, (1 << 74) - 1)
    assert element_id(array_id, 0) == uuid7(1_700_000_000_000, ((1 << 74) - 1) >> 62 << 62)
    assert len({element_id(array_id, at) for at in range(1_000)} | {array_id}) == 1_001


@pytest.mark.parametrize(
    ("spans", "gone", "left"),
    [
        (((0, 5),), (0,), ((1, 5),)),
        (((0, 5),), (4,), ((0, 4),)),
        (((0, 5),), (1, 3), ((0, 1), (2, 3), (4, 5))),
        (((0, 2), (5, 7)), (0, 1, 5), ((6, 7),)),
        (((0, 2), (5, 7)), (3,), ((0, 2), (5, 7))),
        (((0, 3),), (0, 1, 2), ()),
    ],
)
def test_positions_leave_the_ranges_they_are_in(spans: Spans, gone: tuple[int, ...], left: Spans) -> None:
    assert without(spans, gone) == left


def test_elements_without_a_record_count_as_their_parent_has_them() -> None:
    parent = parent_of()
    assert counted(parent, {J.RUNNING: 1}) == {J.RUNNING: 1, J.QUEUED: 3}
    assert counted(replace(parent, hold=True), {}) == {J.HELD: 3}
    assert counted(replace(parent, cancel=CancelMode.FORCE, hold=True), {J.SUCCEEDED: 1}) == {J.SUCCEEDED: 1, J.CANCELLED: 3}


@pytest.mark.parametrize(
    ("counts", "want"),
    [
        ({J.QUEUED: 3}, J.QUEUED),
        ({J.HELD: 3}, J.HELD),
        ({J.HELD: 2, J.QUEUED: 1}, J.QUEUED),
        ({J.STARTING: 1, J.QUEUED: 2}, J.QUEUED),
        ({J.RUNNING: 1, J.QUEUED: 2}, J.RUNNING),
        ({J.SUCCEEDED: 2, J.QUEUED: 1}, J.RUNNING),
        ({J.FAILED: 1, J.HELD: 2}, J.RUNNING),
        ({J.CANCELLED: 2, J.QUEUED: 1}, J.QUEUED),
        ({J.CANCELLED: 2, J.HELD: 1}, J.HELD),
        ({J.CANCELLING: 1, J.CANCELLED: 2}, J.RUNNING),
        ({J.SUCCEEDED: 3, J.QUEUED: 0}, J.SUCCEEDED),
        ({J.SUCCEEDED: 2, J.CANCELLED: 1}, J.CANCELLED),
        ({J.SUCCEEDED: 1, J.CANCELLED: 1, J.TIMEOUT: 1}, J.TIMEOUT),
        ({J.SUCCEEDED: 98, J.OOM: 1, J.FAILED: 1}, J.FAILED),
        ({J.CANCELLED: 3}, J.CANCELLED),
    ],
)
def test_the_state_of_an_array_is_that_of_its_elements(counts: dict[JobState, int], want: JobState) -> None:
    assert array_state(counts) is want


def test_the_parent_is_written_when_it_runs_and_when_it_ends_and_not_between() -> None:
    parent = born()[0]
    writes = []
    for counts in ({J.STARTING: 1, J.QUEUED: 2}, {J.RUNNING: 1, J.QUEUED: 2}, {J.RUNNING: 3}, {J.SUCCEEDED: 2, J.RUNNING: 1}):
        changes = advance_array(parent, counts, None, 2_000)
        writes.append(not changes.empty)
        parent = parent if changes.empty else changes.put[0]  # type: ignore[assignment]
    assert (writes, parent.state, parent.started_ms) == ([False, True, False, False], J.RUNNING, 2_000)
    worst = JobEnd(exit_code=9, node="n1")
    ended = advance_array(parent, {J.SUCCEEDED: 2, J.FAILED: 1}, worst, 3_000).put[0]
    assert isinstance(ended, Job)
    assert (ended.state, ended.outcome, ended.ended_ms) == (J.FAILED, worst, 3_000)
    assert ended.reason is not None
    assert ended.reason.message == "all elements ended: 1 FAILED, 2 SUCCEEDED"
    again = advance_array(ended, {J.SUCCEEDED: 2, J.QUEUED: 1}, None, 4_000).put[0]
    assert isinstance(again, Job)
    assert (again.state, again.outcome, again.ended_ms, again.started_ms) == (J.RUNNING, None, None, 2_000)


def test_the_exit_code_of_an_array_is_its_highest() -> None:
    elements = born()[1:]
    ended = [replace(e, outcome=JobEnd(exit_code=code, node=e.id)) for e, code in zip(elements, (3, 137, 137), strict=True)]
    worst = worst_end(ended)
    assert worst is not None
    assert (worst.exit_code, worst.node) == (137, elements[1].id)
    assert worst_end(elements) is None


def test_a_wish_on_the_parent_is_kept_there_and_leaves_its_state_to_the_elements() -> None:
    parent = born()[0]
    changes = advance_job(Picture(job=parent), CancelRequested(mode=CancelMode.GRACEFUL), 2_000, TERMS, "user/anna")
    (wished,) = changes.put
    assert isinstance(wished, Job)
    assert (wished.state, wished.cancel, wished.generation) == (J.QUEUED, CancelMode.GRACEFUL, 2)
    assert advance_job(Picture(job=wished), CancelRequested(mode=CancelMode.GRACEFUL), 2_000, TERMS).empty
    (held,) = advance_job(Picture(job=parent), JobHeld(), 2_000, TERMS).put
    assert isinstance(held, Job)
    assert (held.state, held.hold) == (J.QUEUED, True)
    assert advance_job(Picture(job=held), JobHeld(), 2_000, TERMS).empty

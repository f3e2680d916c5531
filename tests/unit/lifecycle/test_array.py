"""Arrays: born together, the parent's state derived and seldom written."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shoal.base.errors import InvariantViolated
from shoal.lifecycle.array import advance_array, array_state, new_array, worst_end
from shoal.lifecycle.job import Origin, advance_job
from shoal.model.event import CancelRequested, JobHeld
from shoal.model.job import CancelMode, Job, JobEnd, JobState
from shoal.model.snapshot import Picture
from shoal.model.values import ArrayList
from shoal.testing.gangs import TERMS, a_spec

J = JobState
SPEC = a_spec(array=ArrayList.parse("2-8:3%2"))
ORIGIN = Origin(id="parent", number=12, project="default", owner="user/anna", queue="night", now_ms=1_000, default_time_ms=60_000)


def born() -> tuple[Job, ...]:
    return tuple(record for record in new_array(SPEC, ORIGIN, ("a", "b", "c")).put if isinstance(record, Job))


def test_an_array_is_one_parent_and_a_job_per_index() -> None:
    parent, *elements = born()
    assert (parent.is_array, parent.number, parent.address, parent.queue) == (True, 12, "12", "night")
    assert [(e.id, e.number, e.address, e.is_array) for e in elements] == [
        ("a", 13, "12_2", False),
        ("b", 14, "12_5", False),
        ("c", 15, "12_8", False),
    ]
    assert all(e.array is not None and (e.array.array_id, e.array.count) == ("parent", 3) for e in elements)
    assert all(e.time_limit_ms == 60_000 for e in elements)
    assert elements[0].spec is elements[2].spec


def test_an_array_needs_an_id_for_each_index() -> None:
    with pytest.raises(InvariantViolated):
        new_array(SPEC, ORIGIN, ("a", "b"))


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
    assert (worst.exit_code, worst.node) == (137, "b")
    assert worst_end(elements) is None


def test_a_wish_on_the_parent_is_kept_there_and_leaves_its_state_to_the_elements() -> None:
    parent = born()[0]
    changes = advance_job(Picture(job=parent), CancelRequested(mode=CancelMode.GRACEFUL), 2_000, TERMS, "user/anna")
    (wished,) = changes.put
    assert isinstance(wished, Job)
    assert (wished.state, wished.cancel, wished.generation) == (J.QUEUED, CancelMode.GRACEFUL, 2)
    assert advance_job(Picture(job=wished), CancelRequested(mode=CancelMode.GRACEFUL), 2_000, TERMS).empty
    assert advance_job(Picture(job=parent), JobHeld(), 2_000, TERMS).empty

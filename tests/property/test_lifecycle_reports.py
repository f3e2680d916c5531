"""Reports in any order, doubled, dropped: the outcome of a gang does not depend on how its news travelled, and nothing stays held."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.model.event import AllocationFenced, Event
from shoal.model.job import ENDED, JobState
from shoal.testing.gangs import Gang

QUICK = settings(max_examples=150, deadline=None)
exits = st.tuples(st.sampled_from([0, 1, 2, 75, 137]), st.integers(0, 3), st.booleans())
"""(exit code, milliseconds after the start, out of memory)"""


@QUICK
@given(st.lists(exits, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_the_outcome_is_the_first_failure_by_time_then_rank_in_whatever_order_it_is_told(
    news: list[tuple[int, int, bool]], random: object
) -> None:
    gang = Gang.running(nodes=len(news))
    reports = [gang.exited(i, exit_code=c, at_ms=gang.now_ms + at, oom=oom and c != 0) for i, (c, at, oom) in enumerate(news)]
    random.shuffle(reports)  # type: ignore[attr-defined]
    for report in reports:
        gang.tell(report)
    gang.release_all()
    failures = sorted((at, rank, code, oom) for rank, (code, at, oom) in enumerate(news) if code)
    end = gang.job.outcome
    assert end is not None
    if not failures:
        assert (gang.job.state, end.exit_code) == (JobState.SUCCEEDED, 0)
    else:
        _, rank, code, oom = failures[0]
        assert (end.task, end.exit_code) == (rank, code)
        assert gang.job.state is (JobState.OOM if oom else JobState.FAILED)


@QUICK
@given(st.integers(1, 3), st.integers(1, 2), st.data())
def test_whatever_is_lost_on_the_way_a_fence_ends_the_attempt(nodes: int, tasks: int, data: st.DataObject) -> None:
    gang = Gang.placed(nodes=nodes, tasks_per_node=tasks)
    told: list[Event] = []
    for i in range(nodes):
        told += [gang.prepared(i), gang.started(i), gang.released(i), gang.prepare_failed(i)]
        told += [gang.exited(i, exit_code=data.draw(st.sampled_from([0, 3])), rank=i * tasks + t) for t in range(tasks)]
    for report in data.draw(st.lists(st.sampled_from(told), max_size=3 * len(told))):
        gang.tell(report)
        assert gang.tell(report).empty
    for member in list(gang.holding):
        gang.tell(AllocationFenced(allocation=member.id, attempt=1, how="a person confirmed"))
    assert gang.holding == []
    assert gang.job.state in ENDED | {JobState.QUEUED}
    assert [gang.tell(report).empty for report in told] == [True] * len(told)

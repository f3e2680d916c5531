"""Who gives his room away is left time to save: by signal, by the next checkpoint of his own, and never longer than that."""

from __future__ import annotations

from shoal.base import limits
from shoal.lifecycle.job import next_due_ms, time_events
from shoal.model.command import Save, Stop
from shoal.model.event import AllocationLost, CancelRequested, Checkpointed, JobEvicted, RequeueRequested, SaveOver
from shoal.model.job import CancelMode, Checkpoint, JobState
from shoal.model.job import Stop as StopRule
from shoal.model.reason import ReasonCode
from shoal.model.values import Duration
from shoal.testing.gangs import Gang, a_reason

SECOND = 1_000


def evicted(gang: Gang) -> None:
    gang.commands()
    gang.tell(JobEvicted(attempt=gang.job.attempt, reason=a_reason(ReasonCode.PREEMPTED, "for job 20")))


def saved(gang: Gang, node_rank: int = 0, at_ms: int | None = None, answers: bool = True) -> Checkpointed:
    member = gang.members[node_rank]
    return Checkpointed(allocation=member.id, attempt=gang.job.attempt, at_ms=gang.now_ms if at_ms is None else at_ms, answers=answers)


def saves(signal: str | None = "USR1", every: int | None = None, takes: int | None = None, grace: int = 30) -> dict[str, object]:
    rule = Checkpoint(signal=signal, every=Duration(every * SECOND) if every else None, takes=Duration(takes * SECOND) if takes else None)
    return {"checkpoint": rule, "stop": StopRule(grace=Duration(grace * SECOND))}


def test_the_signal_goes_to_every_node_and_nobody_is_stopped_yet() -> None:
    gang = Gang.running(nodes=2, **saves(takes=120))
    evicted(gang)
    assert gang.job.state is JobState.PREEMPTING
    assert [(type(c), c.signal) for c in gang.commands() if isinstance(c, Save | Stop)] == [(Save, "USR1")] * 2
    assert next_due_ms(gang.picture) == gang.now_ms + 120 * SECOND


def test_when_one_says_that_all_is_saved_all_are_stopped() -> None:
    gang = Gang.running(nodes=2, **saves(takes=120))
    evicted(gang)
    gang.commands()
    gang.now_ms += 7 * SECOND
    gang.tell(saved(gang))
    assert gang.job.checkpointed_ms == gang.now_ms
    assert [type(c) for c in gang.commands()] == [Stop, Stop]
    assert next_due_ms(gang.picture) is None
    assert gang.tell(saved(gang)).empty, "said twice it is no news"


def test_who_does_not_save_in_time_is_stopped_all_the_same() -> None:
    gang = Gang.running(**saves(takes=120))
    evicted(gang)
    gang.commands()
    gang.now_ms += 120 * SECOND - 1
    assert not time_events(gang.picture, gang.now_ms)
    gang.now_ms += 1
    (over,) = time_events(gang.picture, gang.now_ms)
    assert isinstance(over, SaveOver)
    gang.tell(over)
    assert [type(c) for c in gang.commands()] == [Stop]
    assert gang.tell(over).empty


def test_without_takes_it_has_its_grace_and_nobody_has_longer_than_the_limit() -> None:
    for rule, want_ms in ((saves(grace=45), 45 * SECOND), (saves(takes=86_400), limits.CHECKPOINT_WAIT_MS_MAX)):
        gang = Gang.running(**rule)
        evicted(gang)
        assert next_due_ms(gang.picture) == gang.now_ms + want_ms


def test_without_a_signal_the_next_checkpoint_is_waited_for_if_it_comes_within_the_grace() -> None:
    def waits(since_s: int) -> bool:
        gang = Gang.running(**saves(signal=None, every=600, takes=10))
        gang.tell(saved(gang))
        gang.now_ms += since_s * SECOND
        evicted(gang)
        commands = gang.commands()
        assert [c.signal for c in commands if isinstance(c, Save)] == [None] * (next_due_ms(gang.picture) is not None)
        assert any(isinstance(c, Stop) for c in commands) is (next_due_ms(gang.picture) is None)
        return next_due_ms(gang.picture) is not None

    assert [waits(s) for s in (100, 579, 580, 609, 610)] == [False, False, True, True, False]


def test_who_says_nothing_of_checkpoints_is_stopped_at_once() -> None:
    gang = Gang.running()
    evicted(gang)
    assert [type(c) for c in gang.commands()] == [Stop]


def test_who_has_not_started_has_nothing_to_save() -> None:
    gang = Gang.placed(**saves())
    evicted(gang)
    assert [type(c) for c in gang.commands()] == [Stop]


def test_a_job_that_saves_and_ends_by_itself_is_queued_again_and_not_done() -> None:
    gang = Gang.running(nodes=2, **saves(takes=120))
    evicted(gang)
    gang.commands()
    gang.tell(gang.exited(0, 0, stopped=False))
    assert [c.allocation for c in gang.commands() if isinstance(c, Stop)] == [gang.members[1].id], "the rest is not left waiting"
    gang.tell(gang.exited(1, 0, stopped=True))
    for rank in (0, 1):
        gang.tell(gang.released(rank))
    assert gang.job.state is JobState.QUEUED
    assert gang.job.attempt == 1


def test_a_cancel_does_not_wait_for_a_checkpoint() -> None:
    gang = Gang.running(**saves(takes=120))
    evicted(gang)
    gang.commands()
    gang.tell(CancelRequested(mode=CancelMode.GRACEFUL), "user/anna")
    assert [type(c) for c in gang.commands()] == [Stop]


def test_checkpoints_of_a_running_job_are_kept_and_never_go_back() -> None:
    gang = Gang.running()
    started_ms = gang.now_ms
    gang.now_ms += 100 * SECOND
    gang.tell(saved(gang))
    assert gang.job.checkpointed_ms == gang.now_ms
    assert gang.tell(saved(gang, at_ms=started_ms)).empty
    gang.now_ms += SECOND
    gang.tell(saved(gang, at_ms=gang.now_ms + 86_400_000))
    assert gang.job.checkpointed_ms == gang.now_ms, "a node's clock may be off"


def test_of_many_checkpoints_the_log_tells_one_a_minute() -> None:
    gang = Gang.running()
    told = 0
    for _ in range(60):
        gang.now_ms += 10 * SECOND
        told += sum(isinstance(row.body, Checkpointed) for row in gang.tell(saved(gang)).events)
    assert 1 <= told <= 10


def test_a_checkpoint_from_before_the_signal_is_no_answer_and_an_answer_by_a_slow_clock_is_one() -> None:
    gang = Gang.running(**saves(takes=120))
    evicted(gang)
    gang.commands()
    gang.now_ms += SECOND
    gang.tell(saved(gang, answers=False))
    assert not gang.commands(), "its node saw that only now, but it was made before"
    gang.tell(saved(gang, at_ms=0))
    assert [type(c) for c in gang.commands()] == [Stop]


def test_its_reason_says_until_when_it_is_left_to_save() -> None:
    gang = Gang.running(**saves(takes=120))
    evicted(gang)
    assert gang.job.reason is not None
    assert gang.job.reason.until_ms == gang.now_ms + 120 * SECOND
    gang.tell(saved(gang))
    assert gang.job.reason.until_ms is None


def test_saving_does_not_go_beyond_the_time_limit() -> None:
    gang = Gang.running(time=Duration(100 * SECOND), **saves(takes=120))
    gang.now_ms += 70 * SECOND
    evicted(gang)
    assert gang.job.started_ms is not None
    assert next_due_ms(gang.picture) == gang.job.started_ms + 100 * SECOND


def test_a_long_grace_withholds_no_room_from_who_preempts_but_serves_a_cancel() -> None:
    rule = StopRule(grace=Duration(86_400 * SECOND))
    for tell, want_ms in (
        (JobEvicted(attempt=1, reason=a_reason(ReasonCode.PREEMPTED, "for job 20")), limits.CHECKPOINT_WAIT_MS_MAX),
        (CancelRequested(mode=CancelMode.GRACEFUL), rule.grace.ms),
    ):
        gang = Gang.running(stop=rule)
        gang.commands()
        gang.tell(tell, "user/anna")
        assert [c.grace_ms for c in gang.commands() if isinstance(c, Stop)] == [want_ms]


def test_who_loses_a_node_while_it_saves_is_not_waited_for() -> None:
    gang = Gang.running(nodes=2, **saves(takes=120))
    evicted(gang)
    gang.commands()
    lost = gang.members[1]
    gang.tell(AllocationLost(allocation=lost.id, attempt=1))
    assert gang.members[0].id in [c.allocation for c in gang.commands() if isinstance(c, Stop)]
    assert next_due_ms(gang.picture) is None


def test_a_job_that_is_only_waited_for_may_end_by_itself_and_has_succeeded() -> None:
    gang = Gang.running(nodes=2, **saves(signal=None, every=600, takes=10))
    gang.now_ms += 590 * SECOND
    evicted(gang)
    gang.commands()
    for rank in (0, 1):
        gang.tell(gang.exited(rank, 0, stopped=False))
        assert not any(isinstance(c, Stop) for c in gang.commands()), "the others are about to end as well"
    for rank in (0, 1):
        gang.tell(gang.released(rank))
    assert gang.job.state is JobState.SUCCEEDED


def test_a_requeue_and_a_second_eviction_in_the_time_to_save_change_nothing() -> None:
    gang = Gang.running(**saves(takes=120))
    evicted(gang)
    gang.commands()
    due_ms = next_due_ms(gang.picture)
    assert gang.tell(RequeueRequested(), "user/anna").empty
    evicted(gang)
    assert not gang.commands()
    assert next_due_ms(gang.picture) == due_ms

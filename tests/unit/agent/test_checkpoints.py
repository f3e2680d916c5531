"""What an agent sees and tells of checkpoints: each that is new, not too often, and the answer to Save at once and only once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from orders import JOB, prepare
from test_course import ALLOCATION, Node, looked

from shoal.agent.checkpoints import LOOK_MS, SOON_MS
from shoal.agent.course import ASK_AGAIN_MS
from shoal.agent.supervisor import wire
from shoal.base import limits
from shoal.model.command import Save
from shoal.model.event import Checkpointed
from shoal.model.job import CancelMode

SAVE = Save(allocation=ALLOCATION, job=JOB, attempt=1, signal="USR1")


class Saver:
    """A node with one running task, and its checkpoint file in our hands."""

    def __init__(self, directory: Path, tasks: int = 1) -> None:
        self.node = Node(directory)
        self.node.course.prepare(prepare(tasks=tasks))
        (spawn, *_) = [order for order in self.node.give() if isinstance(order, wire.Spawn)]
        self.file = Path(spawn.env["SHOAL_CHECKPOINT"])
        self.touches = 0

    def touch(self) -> int:
        """As the job does at this instant; its time in milliseconds."""
        self.touches += 1
        at_ms = self.node.clock.now_ms()
        self.file.touch()
        os.utime(self.file, ns=(at_ms * 1_000_000 + self.touches,) * 2)
        return at_ms

    def after(self, passed_ms: int) -> list[Checkpointed]:
        """What is told once so much time has passed and the course has had its round."""
        before = len(self.told())
        self.node.clock.advance(passed_ms)
        self.node.course.tick()
        return self.told()[before:]

    def told(self) -> list[Checkpointed]:
        return [report for report in self.node.reports() if isinstance(report, Checkpointed)]


@pytest.fixture
def saver(tmp_path: Path) -> Saver:
    return Saver(tmp_path)


def test_a_touch_is_told_with_its_time_and_no_touch_is_not(saver: Saver) -> None:
    assert not saver.after(LOOK_MS)
    at_ms = saver.touch()
    assert saver.after(LOOK_MS) == [Checkpointed(allocation=ALLOCATION, attempt=1, at_ms=at_ms)]
    assert not saver.after(limits.CHECKPOINT_REPORT_MS)


def test_a_job_that_touches_all_the_time_is_told_of_no_more_often_than_the_limit(saver: Saver) -> None:
    told = 0
    for _ in range(60):
        saver.touch()
        told += len(saver.after(1_000))
    assert told == 60_000 // limits.CHECKPOINT_REPORT_MS


def test_the_answer_to_save_is_told_at_once_however_short_after_another(saver: Saver) -> None:
    saver.touch()
    assert [c.answers for c in saver.after(LOOK_MS)] == [False]
    saver.node.course.save(SAVE)
    assert saver.node.give() == [wire.Signal(ALLOCATION, 10, 0)]
    assert not saver.after(SOON_MS)
    at_ms = saver.touch()
    assert [(c.at_ms, c.answers) for c in saver.after(SOON_MS)] == [(at_ms, True)]
    assert not saver.after(SOON_MS)


def test_what_was_saved_before_it_was_asked_is_no_answer(saver: Saver) -> None:
    saver.touch()
    saver.node.course.save(SAVE)
    assert not any(c.answers for c in saver.after(SOON_MS))
    saver.touch()
    assert [c.answers for c in saver.after(SOON_MS)] == [True]


def test_asked_twice_it_gets_one_signal(saver: Saver) -> None:
    saver.node.course.save(SAVE)
    saver.node.course.save(SAVE)
    assert len(saver.node.give()) == 1


def test_who_is_not_ready_for_the_signal_is_given_it_again_until_it_is_and_then_no_more(tmp_path: Path) -> None:
    saver = Saver(tmp_path, tasks=2)
    deaf = {0, 1}

    def answer(order: wire.Order) -> wire.Result:
        return wire.Failed("deaf", "") if isinstance(order, wire.Signal) and order.rank in deaf else wire.Done()

    def given(passed_ms: int) -> list[int | None]:
        saver.after(passed_ms)
        return [order.rank for order in saver.node.give(answer) if isinstance(order, wire.Signal)]

    saver.node.course.save(SAVE)
    assert given(0) == [0, 1]
    assert given(ASK_AGAIN_MS - 1) == []
    assert given(1) == [0, 1]
    deaf.remove(0)
    assert given(ASK_AGAIN_MS) == [0, 1]
    assert given(ASK_AGAIN_MS) == [1]
    deaf.remove(1)
    assert [given(ASK_AGAIN_MS) for _ in range(2)] == [[1], []]


def test_without_a_signal_it_is_only_looked_at_more_often(saver: Saver) -> None:
    saver.node.course.save(Save(allocation=ALLOCATION, job=JOB, attempt=1))
    assert saver.node.give() == []
    saver.touch()
    assert [c.answers for c in saver.after(SOON_MS)] == [True]


def test_what_a_task_saved_at_its_last_moment_is_told_before_its_end(saver: Saver) -> None:
    saver.touch()
    saver.after(LOOK_MS)
    saver.node.stop(CancelMode.GRACEFUL)
    saver.node.clock.advance(10)
    at_ms = saver.touch()
    saver.node.exit(0, 0, stopped=True)
    assert saver.node.kinds()[-3:] == ["Checkpointed", "TaskExited", "AllocationReleased"]
    assert saver.told()[-1].at_ms == at_ms


def test_a_stop_is_not_followed_by_a_signal_to_save(saver: Saver) -> None:
    saver.node.stop(CancelMode.GRACEFUL)
    saver.node.give()
    saver.node.course.save(SAVE)
    assert saver.node.give() == []


@pytest.mark.parametrize("given", [True, False], ids=["after the signal", "before the signal"])
def test_an_agent_that_dies_while_the_job_saves_leaves_the_question_to_the_next(tmp_path: Path, given: bool) -> None:
    saver = Saver(tmp_path)
    saver.touch()
    saver.node.course.save(SAVE)
    if given:
        saver.node.give()
    saver.node = saver.node.again(looked(wire.TaskLook(0, 100), alive=True))
    signals = [order for order in saver.node.give() if isinstance(order, wire.Signal)]
    assert signals == ([] if given else [wire.Signal(ALLOCATION, 10, 0)]), "once, whatever happens"
    assert not any(c.answers for c in saver.after(SOON_MS))
    saver.touch()
    assert [c.answers for c in saver.after(SOON_MS)] == [True]


def test_a_link_in_place_of_the_file_is_not_followed(saver: Saver, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.touch()
    os.utime(target, ns=(1_000_000_000, 1_000_000_000))
    saver.file.symlink_to(target)
    assert all(c.at_ms != 1_000 for c in saver.after(LOOK_MS))


def test_a_file_from_the_future_is_of_now(saver: Saver) -> None:
    saver.file.touch()
    os.utime(saver.file, (4_000_000_000, 4_000_000_000))
    assert [c.at_ms for c in saver.after(LOOK_MS)] == [saver.node.clock.now_ms()]
    at_ms = saver.touch()
    assert [c.at_ms for c in saver.after(limits.CHECKPOINT_REPORT_MS + LOOK_MS)] == [at_ms], "and what comes after it is seen"


def test_what_does_not_run_is_not_looked_at(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.course.prepare(prepare(nodes=2))
    assert node.course.tick() is None

"""Several events judged in one turn come out as one after the other: the same records, the same log, the same commands."""

from __future__ import annotations

import pytest

from shoal.base.rng import Rng
from shoal.lifecycle.job import advance_all, advance_job
from shoal.lifecycle.picture import merged, moved
from shoal.lifecycle.turn import Turn
from shoal.model.change import ChangeSet
from shoal.model.event import (
    AllocationFenced,
    AllocationLost,
    AllocationPrepared,
    AllocationReleased,
    AllocationStarted,
    CancelRequested,
    Event,
    PrepareFailed,
    TaskExited,
    TimeLimitReached,
)
from shoal.model.job import CancelMode, Job
from shoal.testing.gangs import TERMS, Gang, a_reason


def an_event(rng: Rng, gang: Gang) -> Event:
    """Any report of any member, often doubled or out of order; now and then a cancel."""
    member = rng.choice([allocation.id for allocation in gang.picture.allocations])
    ids = {"allocation": member, "attempt": 1 if rng.below(20) else 2}
    rank = int(member.rpartition(".")[2])
    return rng.choice(
        [
            AllocationPrepared(**ids, address=member, port=1),  # type: ignore[arg-type]
            AllocationPrepared(**ids, address=member, port=1),  # type: ignore[arg-type]
            AllocationStarted(**ids, at_ms=gang.now_ms),  # type: ignore[arg-type]
            AllocationStarted(**ids, at_ms=gang.now_ms),  # type: ignore[arg-type]
            TaskExited(**ids, rank=rank, exit_code=rng.below(3) // 2, at_ms=gang.now_ms - rng.below(5)),  # type: ignore[arg-type]
            AllocationReleased(**ids, at_ms=gang.now_ms),  # type: ignore[arg-type]
            PrepareFailed(**ids, reason=a_reason()) if not rng.below(4) else AllocationLost(**ids),  # type: ignore[arg-type]
            AllocationFenced(**ids, how="by hand") if not rng.below(3) else TimeLimitReached(attempt=1),  # type: ignore[arg-type]
            CancelRequested(mode=rng.choice([CancelMode.GRACEFUL, CancelMode.FORCE])),
        ]
    )


@pytest.mark.parametrize("seed", range(60))
def test_several_events_in_one_turn_are_as_one_after_the_other(seed: int) -> None:
    rng = Rng(seed)
    gang = Gang.placed(nodes=3) if seed % 2 else Gang.running(nodes=3)
    events = [an_event(rng, gang) for _ in range(1 + rng.below(14))]
    picture, one_by_one = gang.picture, ChangeSet()
    for event in events:
        step = advance_job(picture, event, gang.now_ms, TERMS)
        picture, one_by_one = moved(picture, step), merged(one_by_one, step)
    together = advance_all(gang.picture, events, gang.now_ms, TERMS)
    assert moved(gang.picture, together) == picture
    assert together.events == one_by_one.events
    assert together.commands == one_by_one.commands
    assert {record.id for record in together.put} <= {record.id for record in one_by_one.put}


def test_what_an_event_says_without_changing_anything_does_not_go_out_with_the_others() -> None:
    gang = Gang.running(nodes=2)
    turn = Turn(gang.picture, gang.now_ms, "anna")
    turn.begin_event()
    turn.set_job(priority=7)
    turn.say(CancelRequested(mode=CancelMode.GRACEFUL, reason="news"))
    turn.settle_event()
    turn.begin_event()
    turn.set_job(priority=7)
    turn.set_member(next(iter(turn.members.values())), port=turn.members[next(iter(turn.members))].port)
    turn.say(CancelRequested(mode=CancelMode.GRACEFUL, reason="no news"))
    turn.settle_event()
    changes = turn.changes()
    assert [row.body.reason for row in changes.events if isinstance(row.body, CancelRequested)] == ["news"]
    assert [type(record) for record in changes.put] == [Job]

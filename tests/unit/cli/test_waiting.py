"""When a follower is told why its job waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from shoal.cli.waiting import WaitNote
from shoal.client.api import Api
from shoal.model.job import Job, JobSpec, JobState
from shoal.model.reason import Reason, ReasonCode
from shoal.model.wire import Explanation

BACKOFF = Explanation(
    job="7", state="QUEUED", headline="waits 2s before it is tried again", reasons=(Reason(code=ReasonCode.BACKOFF, message=""),)
)


def a_job(state: JobState) -> Job:
    reason = Reason(code=ReasonCode.PREPARE_FAILED, message="mount target /data is no directory")
    return Job(
        id="id",
        number=7,
        project="p",
        owner="user/o",
        queue="q",
        state=state,
        spec=JobSpec(run="true"),
        created_ms=1,
        queued_ms=1,
        reason=reason,
    )


def test_a_job_that_is_tried_again_and_again_is_told_once_with_its_cause() -> None:
    clock = [100.0]
    told: list[str] = []
    note = WaitNote(cast("Api", SimpleNamespace(jobs=SimpleNamespace(why=lambda _: BACKOFF))), told.append, lambda: clock[0])
    for state in [JobState.QUEUED, JobState.STARTING] * 20:
        note.see(a_job(state))
        clock[0] += 0.5
        assert not told or clock[0] > 101.5
    assert told == ["job 7 is QUEUED: waits 2s before it is tried again; mount target /data is no directory"]


def test_a_job_that_starts_soon_is_not_asked_about() -> None:
    def never(_: Any) -> Explanation:
        raise AssertionError

    clock = [100.0]
    note = WaitNote(cast("Api", SimpleNamespace(jobs=SimpleNamespace(why=never))), print, lambda: clock[0])
    for state in (JobState.QUEUED, JobState.QUEUED, JobState.STARTING, *[JobState.RUNNING] * 9):
        note.see(a_job(state))
        clock[0] += 0.5

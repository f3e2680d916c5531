"""Why a job that somebody follows does not start yet: told on standard error, so that a silent terminal is never a riddle."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from shoal.base.errors import ShoalError
from shoal.model.job import WAITING, Job

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.client.api import Api
    from shoal.model.reason import ReasonCode

TELL_AFTER_S = 1.5
"""Most jobs that can start have started by then, and nothing need be said."""
ASK_EVERY_S = 5.0


class WaitNote:
    """Shown each new picture of one job, it tells through `note` what a waiting one waits for; again when that is something else."""

    def __init__(self, api: Api, note: Callable[[str], object], now_s: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._note = note
        self._now_s = now_s
        self._ask_at: float | None = None
        self._told: tuple[ReasonCode, ...] | None = None

    def see(self, job: Job) -> None:
        now = self._now_s()
        if self._ask_at is None:
            self._ask_at = now + TELL_AFTER_S
        elif job.state in WAITING and now >= self._ask_at:
            self._ask_at = now + ASK_EVERY_S
            with suppress(ShoalError):  # A courtesy: what the follower itself needs, it asks for itself.
                self._tell(job)

    def _tell(self, job: Job) -> None:
        why = self._api.jobs.why(job.id)
        codes = tuple(reason.code for reason in why.reasons)
        if why.state not in WAITING or codes == self._told:
            return
        self._told = codes
        # The headline of a job that is tried again says until when; the job's own reason says why it has to be.
        cause = job.reason.message if job.reason is not None and job.reason.message not in why.headline else ""
        self._note(f"job {job.address} is {why.state}: {why.headline}" + (f"; {cause}" if cause else ""))

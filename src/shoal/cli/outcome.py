"""How a job's end becomes an exit code: the job's own, so that a script sees `shoal run` as it would see the command itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.cli.exits import FAILED, TIMED_OUT
from shoal.model.job import Job, JobState

if TYPE_CHECKING:
    from shoal.client.api import Api

_WITHOUT_CODE = {JobState.SUCCEEDED: 0, JobState.CANCELLED: 143, JobState.TIMEOUT: TIMED_OUT, JobState.OOM: 137}
"""For ends that no task decided: cancelled before it ran counts as told to end (128 + TERM), a time limit as timeout(1) has it."""


def exit_code_of(job: Job) -> int:
    """0 for a success only; else the code of the first failing task (128 + signal), or one that stands for the state."""
    if job.state is JobState.SUCCEEDED:
        return 0
    code = job.outcome.exit_code if job.outcome is not None else 0
    return min(code, 255) if code > 0 else _WITHOUT_CODE.get(job.state, FAILED)


def exit_code_of_array(api: Api, job: Job) -> int:
    """The highest of its elements', for an array; else the job's own."""
    if not job.is_array:
        return exit_code_of(job)
    return max((exit_code_of(element) for element in api.jobs.list_all(array=job.number)), default=exit_code_of(job))


def end_line(job: Job) -> str:
    """One line on how a job ended."""
    from shoal.render.jobs import end_text

    why = end_text(job)
    return f"job {job.address} ended {job.state}" + (f" ({why})" if why else "")

"""`shoal wait`: until jobs have ended, with their exit code."""

from __future__ import annotations

import time

import click

from shoal.cli.exits import TIMED_OUT
from shoal.cli.options import command, jobs_argument, json_option
from shoal.cli.session import leave, open_session


@command("wait", "shoal wait 12", "shoal wait 12 13 14 --timeout 2h", "shoal submit train.yaml -q | xargs shoal wait")
@jobs_argument
@click.option("--timeout", metavar="LENGTH", help="Wait at most so long, for example 30m; then end with 124.")
@json_option("a Job per line")
def wait(jobs: tuple[str, ...], timeout: str | None, as_json: bool) -> None:
    """
    Wait until jobs have ended, and end with the job's own exit code.

    That is the one of the first failing task (by time, then rank), 128 + signal for a killed one; for an array or several jobs the highest.
    """
    from shoal.cli.outcome import end_line, exit_code_of_array
    from shoal.cli.parse import duration_s
    from shoal.model.job import ENDED

    session = open_session(as_json)
    until = None if timeout is None else time.monotonic() + duration_s("--timeout", timeout)
    code = 0
    for ref in jobs:
        left_s = None if until is None else max(0.0, until - time.monotonic())
        job = session.api.jobs.wait(ref, timeout_s=left_s)
        if job.state not in ENDED:
            session.row(job, f"job {job.address} is still {job.state} after {timeout}")
            leave(TIMED_OUT)
        session.row(job, end_line(job))
        code = max(code, exit_code_of_array(session.api, job))
    leave(code)

"""`shoal hold`, `release`, `requeue`, `resize`, `update`: changing jobs that exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from shoal.cli.options import command, complete_job, complete_queue, jobs_argument, json_option, reason_option
from shoal.cli.session import Session, open_session

if TYPE_CHECKING:
    from shoal.model.job import Job


def for_each(session: Session, jobs: tuple[str, ...], change: Callable[[str], Job], done: Callable[[Job], str]) -> None:
    """Changes one job after the other and prints each. The first error ends it; what was changed before stays changed."""
    for ref in jobs:
        job = change(ref)
        session.row(job, done(job))


@command("hold", "shoal hold 12 13 -r 'until the data is there'")
@jobs_argument
@reason_option
@json_option("a Job per line")
def hold(jobs: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Keep waiting jobs from starting, until `shoal release`."""
    session = open_session(as_json)
    for_each(session, jobs, lambda ref: session.api.jobs.hold(ref, reason), lambda job: f"job {job.address} is {job.state}")


@command("release", "shoal release 12 13")
@jobs_argument
@reason_option
@json_option("a Job per line")
def release(jobs: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Let held jobs start."""
    session = open_session(as_json)
    for_each(session, jobs, lambda ref: session.api.jobs.release(ref, reason), lambda job: f"job {job.address} is {job.state}")


@command("requeue", "shoal requeue 12 -r 'new driver on its nodes'")
@jobs_argument
@reason_option
@json_option("a Job per line")
def requeue(jobs: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Stop jobs and queue them again, under the same number. Counts against no retry limit."""
    session = open_session(as_json)
    for_each(
        session, jobs, lambda ref: session.api.jobs.requeue(ref, reason), lambda job: f"job {job.address} goes back to queue {job.queue}"
    )


@command("resize", "shoal resize 12 4", "shoal resize 12 auto")
@click.argument("job", shell_complete=complete_job)
@click.argument("size", metavar="NODES|auto")
@json_option("a Job")
def resize(job: str, size: str, as_json: bool) -> None:
    """
    Say how many nodes of its range (`nodes: 2..8`) a job shall have; `auto` for as many as there is room for.

    One that waits starts with no more. One that runs must be elastic: it grows when there is room that nobody waits for, and shrinks at
    once. Others may still take what it has above its least.
    """
    from shoal.base.errors import Invalid

    if size != "auto" and not (size.isascii() and size.isdigit()):
        raise Invalid(f"{size!r} is no number of nodes; give one, or auto")
    session = open_session(as_json)
    for_each(session, (job,), lambda ref: session.api.jobs.resize(ref, None if size == "auto" else int(size)), _resized)


def _resized(job: Job) -> str:
    wanted = "as many nodes as there is room for" if job.size is None else f"{job.size} node{'' if job.size == 1 else 's'}"
    return f"job {job.address} shall have {wanted}"


@command("update", "shoal update 12 --priority 10", "shoal update 12 13 --time 4h --queue research")
@jobs_argument
@click.option("--priority", type=int, metavar="NUMBER", help="Higher goes first in its queue.")
@click.option("--time", metavar="LENGTH", help="Time limit, for example 2h30m.")
@click.option("--queue", "-q", metavar="NAME", shell_complete=complete_queue, help="Queue, while the job waits.")
@json_option("a Job per line")
def update(jobs: tuple[str, ...], priority: int | None, time: str | None, queue: str | None, as_json: bool) -> None:
    """Change priority, time limit or queue of jobs."""
    from shoal.base.errors import Invalid
    from shoal.model.wire import JobPatch

    if priority is None and time is None and queue is None:
        raise Invalid("nothing to change: give --priority, --time or --queue")
    session = open_session(as_json)
    patch = JobPatch(priority=priority, time=time, queue=queue)
    for_each(session, jobs, lambda ref: session.api.jobs.update(ref, patch), _told)


def _told(job: Job) -> str:
    from shoal.render.look import span

    limit = span(job.time_limit_ms) if job.time_limit_ms is not None else "none"
    return f"job {job.address}: priority {job.priority}, time limit {limit}, queue {job.queue}"

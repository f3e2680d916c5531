"""`shoal cancel`: by name or by selector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shoal.cli.options import command, complete_job, json_option, queue_option, reason_option, yes_option
from shoal.cli.session import Session, open_session

if TYPE_CHECKING:
    from shoal.model.job import Job

SHOWN_MAX = 5


@command(
    "cancel",
    "shoal cancel 12",
    "shoal cancel 12_3 13 --force",
    "shoal cancel --queue research --state queued --yes",
    "shoal cancel --all --mine",
)
@click.argument("jobs", metavar="[JOB...]", nargs=-1, shell_complete=complete_job)
@click.option("--force", is_flag=True, help="Kill at once, without signal and grace.")
@click.option("--grace", metavar="LENGTH", help="Time between the signal and the kill; the job's own by default.")
@click.option("--all", "-a", "every", is_flag=True, help="All jobs that have not ended.")
@queue_option
@click.option("--state", "-s", "states", multiple=True, metavar="STATE,...", help="Jobs in these states.")
@click.option("--mine", is_flag=True, help="Only my own.")
@reason_option
@yes_option
@json_option("a Job per line")
def cancel(jobs: tuple[str, ...], force: bool, grace: str | None, reason: str, yes: bool, as_json: bool, **selector: Any) -> None:
    """
    Cancel jobs: tell them to end, and after the grace time kill what is left.

    Cancelling again is no error, and --force may follow at any time. By selector it asks first.
    """
    from shoal.cli.change import for_each
    from shoal.model.job import CancelMode

    session = open_session(as_json)
    refs = jobs if jobs else _select(session, yes=yes, **selector)
    mode = CancelMode.FORCE if force else CancelMode.GRACEFUL
    for_each(session, refs, lambda ref: session.api.jobs.cancel(ref, mode=mode, grace=grace, reason=reason), _told)


def _told(job: Job) -> str:
    from shoal.model.job import ENDED, JobState

    if job.state is JobState.CANCELLED:
        return f"job {job.address} is cancelled"
    return f"job {job.address} had ended {job.state}" if job.state in ENDED else f"job {job.address} is being cancelled"


def _select(session: Session, *, yes: bool, every: bool, queue: str | None, states: tuple[str, ...], mine: bool) -> tuple[str, ...]:
    """The ids of the jobs that the selector means, once the user agrees. Raises Invalid where nothing is selected by."""
    from shoal.base.errors import Invalid
    from shoal.cli.jobs import wanted_states

    if not (every or queue or states or mine):
        raise Invalid("which jobs? Name them, or select them with --all, --queue, --state or --mine")
    filters: dict[str, Any] = {
        "states": wanted_states(states, every=False),
        "queue": queue,
        "owner": "me" if mine else None,
        "top_level": True,
    }
    found = list(session.api.jobs.list_all(**filters))
    if not found:
        session.note("no such jobs")
        return ()
    names = ", ".join(job.address for job in found[:SHOWN_MAX]) + (", ..." if len(found) > SHOWN_MAX else "")
    session.confirm(f"Cancel {len(found)} job{'s' if len(found) > 1 else ''} ({names})?", yes)
    return tuple(job.id for job in found)

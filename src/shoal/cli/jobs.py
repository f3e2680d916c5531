"""`shoal jobs` (alias `queue`), `status`, `why`: looking at jobs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from shoal.cli.options import command, complete_job, job_argument, json_option, queue_option
from shoal.cli.session import Session, open_session

if TYPE_CHECKING:
    from shoal.model.wire import JobPage
    from shoal.render.look import Look

WATCH_EVERY_S = 2.0
ROWS_DEFAULT = 50
Filters = dict[str, Any]


@command("jobs", "shoal jobs", "shoal queue --mine", "shoal jobs -a --state failed,timeout -n 20", "shoal jobs --watch")
@click.option("--all", "-a", "every", is_flag=True, help="Also jobs that have ended.")
@click.option("--state", "-s", "states", multiple=True, metavar="STATE,...", help="Only these states, for example queued,running.")
@queue_option
@click.option("--mine", is_flag=True, help="Only my own.")
@click.option("--owner", metavar="NAME", help="Only this owner's, for example user/anna.")
@click.option("--array", metavar="JOB", shell_complete=complete_job, help="The elements of this array.")
@click.option("--limit", "-n", type=click.IntRange(1, 100_000), default=ROWS_DEFAULT, show_default=True, help="At most so many.")
@click.option("--watch", "-w", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
@json_option("a JobPage")
def list_jobs(limit: int, watch: bool, as_json: bool, **filters: Any) -> None:
    """List jobs, newest first: those that wait and run, or all with --all."""
    session = open_session(as_json)
    query = _query(**filters)
    if watch:
        _watch(session, query, limit)
        return
    page = _page(session, query, limit)
    session.show(page, partial(_lines, page))
    _say_more(session, page, filters, limit)


def _query(*, every: bool, states: tuple[str, ...], queue: str | None, mine: bool, owner: str | None, array: str | None) -> Filters:
    return {
        "states": wanted_states(states, every=every or array is not None),
        "queue": queue,
        "owner": "me" if mine else owner,
        "array": array,
        "top_level": array is None,
    }


def wanted_states(given: tuple[str, ...], *, every: bool) -> tuple[str, ...]:
    """The states to ask for, empty for all: those given, else those of jobs that have not ended. Raises Invalid for an unknown one."""
    from shoal.base.errors import Invalid
    from shoal.base.words import did_you_mean
    from shoal.model.job import ENDED, JobState

    words = [word.strip().upper() for part in given for word in part.split(",") if word.strip()]
    known = tuple(str(state) for state in JobState)
    for word in words:
        if word not in known:
            lower = [state.lower() for state in known]
            raise Invalid(f"{word.lower()!r} is no state of a job{did_you_mean(word, lower)}; states are {', '.join(lower)}")
    if words or every:
        return tuple(words)
    return tuple(str(state) for state in JobState if state not in ENDED)


def _page(session: Session, query: Filters, limit: int) -> JobPage:
    """The first `limit` jobs as one page, read in as many pages as the server needs."""
    from msgspec.structs import replace

    from shoal.base.limits import PAGE_ROWS_MAX

    page = session.api.jobs.list(**query, limit=min(limit, PAGE_ROWS_MAX))
    items = list(page.items)
    while page.next is not None and len(items) < limit:
        page = session.api.jobs.list(**query, limit=min(limit - len(items), PAGE_ROWS_MAX), cursor=page.next)
        items.extend(page.items)
    return replace(page, items=tuple(items))


def _lines(page: JobPage, look: Look) -> list[str]:
    from shoal.render.jobs import job_table

    return job_table(page.items, look) if page.items else []


def _say_more(session: Session, page: JobPage, filters: dict[str, Any], limit: int) -> None:
    if session.as_json:
        return
    if not page.items and (filters["every"] or filters["states"] or filters["array"] is not None):
        session.note("no such jobs")
    elif not page.items:
        such = "such job" if filters["queue"] or filters["mine"] or filters["owner"] else "job"
        session.note(f"no {such} waits or runs; `shoal jobs -a` shows those that have ended")
    elif page.next is not None:
        session.note(f"there are more; `-n {limit * 2}` shows more of them")


def _watch(session: Session, query: Filters, limit: int) -> None:
    """Prints the list again and again. On a terminal it is redrawn in place; --json prints a page per look."""
    import time

    try:
        while True:
            page = _page(session, query, limit)
            if session.look.width and not session.as_json:
                session.out("\x1b[H\x1b[2J" + session.look.clock(session.now_ms))
            session.show(page, lambda look, page=page: _lines(page, look) or ["no such jobs"])  # type: ignore[misc]
            time.sleep(WATCH_EVERY_S)
    except KeyboardInterrupt:
        return


@command("status", "shoal status 12", "shoal status 12_3 --json")
@job_argument
@json_option("the JobView")
def status(job: str, as_json: bool) -> None:
    """Show all that is known of a job: where it is, what it uses, why it waits, how it ended."""
    session = open_session(as_json)
    view = session.api.jobs.get(job)
    from shoal.render.jobs import job_screen

    session.show(view, lambda look: job_screen(view, look))


@command("why", "shoal why 12")
@job_argument
@json_option("the Explanation")
def why(job: str, as_json: bool) -> None:
    """Say why a job is where it is: every reason with its numbers, its place in line, and what would start it."""
    session = open_session(as_json)
    explanation = session.api.jobs.why(job)
    from shoal.render.why import explanation_screen

    session.show(explanation, lambda look: explanation_screen(explanation, look))

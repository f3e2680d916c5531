"""`shoal events`: what happened and happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shoal.base.limits import EVENTS_PER_READ_MAX
from shoal.cli.options import command, complete_job, json_option
from shoal.cli.session import Session, open_session

if TYPE_CHECKING:
    from shoal.client.api import Api
    from shoal.model.event import EventRow

KINDS = ("job", "node", "queue", "access")
ROWS_DEFAULT = 50


@command("events", "shoal events", "shoal events -f", "shoal events --job 12", "shoal events --kind node -n 200")
@click.option("--follow", "-f", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option("--kind", "-k", "kinds", multiple=True, type=click.Choice(KINDS), help="Only events of these things.")
@click.option("--job", metavar="JOB", shell_complete=complete_job, help="Only events of this job.")
@click.option("--limit", "-n", type=click.IntRange(0), default=ROWS_DEFAULT, show_default=True, metavar="COUNT", help="The last so many.")
@click.option("--after", type=click.IntRange(0), metavar="VERSION", help="All after this version, as told by --json.")
@json_option("an EventRow per line")
def events(follow: bool, kinds: tuple[str, ...], job: str | None, limit: int, after: int | None, as_json: bool) -> None:
    """Print the last events, oldest first, or follow them. --json prints a record per line."""
    session = open_session(as_json)
    subject = session.api.jobs.get(job).job.id if job is not None else None
    printer = _Printer(session)
    version, rows = _since(session.api, after, kinds, subject) if after is not None else _last(session.api, limit, kinds, subject)
    for row in rows:
        printer.print(row)
    if follow:
        for row in session.api.events.watch(after=version, kinds=kinds, subject=subject):
            printer.print(row)


def _since(api: Api, after: int, kinds: tuple[str, ...], subject: str | None) -> tuple[int, list[EventRow]]:
    """(version reached, every event after a version)."""
    rows: list[EventRow] = []
    while True:
        page = api.events.read(after=after, kinds=kinds, subject=subject, limit=EVENTS_PER_READ_MAX)
        rows.extend(page.items)
        if not page.items:
            return max(after, page.resource_version), rows
        after = page.items[-1].version


def _last(api: Api, limit: int, kinds: tuple[str, ...], subject: str | None) -> tuple[int, list[EventRow]]:
    """(version reached, the last `limit` events). Looks back over twice as many versions until there are enough."""
    newest = api.jobs.list(limit=1).resource_version
    reach = max(limit, 1)
    while True:
        start = max(0, newest - reach) if limit else newest
        version, rows = _since(api, start, kinds, subject)
        if len(rows) >= limit or start == 0:
            return version, rows[-limit:] if limit else []
        reach *= 4


class _Printer:
    """Prints rows, with jobs called by their numbers."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._names: dict[str, str | None] = {}

    def print(self, row: EventRow) -> None:
        from shoal.render.events import event_line

        session = self._session
        session.row(row, "" if session.as_json else event_line(row, session.look, self._name(row)))

    def _name(self, row: EventRow) -> str | None:
        from shoal.base.errors import NotFound
        from shoal.model.event import JobSubmitted

        if row.kind != "job":
            return None
        if isinstance(row.body, JobSubmitted):
            self._names.setdefault(row.subject, str(row.body.number))
        if row.subject not in self._names:
            try:
                self._names[row.subject] = self._session.api.jobs.get(row.subject).job.address
            except NotFound:
                self._names[row.subject] = None
        return self._names[row.subject]

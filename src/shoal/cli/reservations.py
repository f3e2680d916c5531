"""`shoal reservations`: nodes that are kept for maintenance, or for somebody, during a window."""

from __future__ import annotations

from copy import copy
from typing import Any

import click

from shoal.cli.options import complete_node, epilog, json_option, yes_option
from shoal.cli.session import open_session


@click.group(
    "reservations",
    invoke_without_command=True,
    epilog=epilog(
        "shoal reservations", "shoal reservations create firmware --nodes n1,n2 --start 2026-12-01T22:00Z --duration 4h -r 'new firmware'"
    ),
)
@json_option("a list of ReservationView")
@click.pass_context
def reservations(ctx: click.Context, as_json: bool) -> None:
    """List reservations of nodes with their next windows; or create, show and delete one."""
    if ctx.invoked_subcommand is None:
        _list(as_json)


@reservations.command("list", epilog=epilog("shoal reservations list"))
@json_option("a list of ReservationView")
def list_reservations(as_json: bool) -> None:
    """List reservations of nodes with their next windows."""
    _list(as_json)


def _list(as_json: bool) -> None:
    session = open_session(as_json)
    views = session.api.reservations.list()
    from shoal.render.reservations import reservation_table

    session.show(views, lambda look: reservation_table(views, look))
    if not views and not as_json:
        session.note("no reservations; `shoal reservations create --help` says how to make one")


@reservations.command(
    "create",
    epilog=epilog(
        "shoal reservations create firmware --nodes n1,n2 --start 2026-12-01T22:00Z --duration 4h -r 'new firmware'",
        "shoal reservations create nightly --pool default --start 2026-12-01T02:00Z --duration 1h --repeat daily",
        "shoal reservations create course --domain rack=a3 --start +2h --duration 3h --queue course --user eve",
    ),
)
@click.argument("name", metavar="NAME")
@click.option("--nodes", metavar="NODE[,NODE...]", shell_complete=complete_node, help="These nodes.")
@click.option("--pool", metavar="NAME", help="All nodes of a pool.")
@click.option("--domain", metavar="LEVEL=NAME", help="All nodes of a topology domain, for example rack=a3.")
@click.option("--start", required=True, metavar="WHEN", help="2026-12-01T22:00Z, 2026-12-01T23:00+01:00, +2h from now, or now.")
@click.option("--end", metavar="WHEN", help="As --start.")
@click.option("--duration", metavar="LENGTH", help="In place of --end: 4h.")
@click.option("--repeat", type=click.Choice(["daily", "weekly"]), help="Again every 24 hours or 7 days, in UTC.")
@click.option("--user", "users", multiple=True, metavar="NAME", help="May use the nodes inside the window.")
@click.option("--for-project", "projects", multiple=True, metavar="NAME", help="The same for all of a project.")
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="The same for all jobs of a queue.")
@click.option("--reason", "-r", default="", metavar="TEXT", help="Why; shown to everybody who asks.")
@json_option("the ReservationView")
def create(name: str, as_json: bool, **given: Any) -> None:
    """Reserve nodes for a window. Nothing that runs is stopped; nothing starts that would still run when the window begins."""
    session = open_session(as_json)
    from shoal.model.reservation import ReservationSpec

    start_ms, end_ms = _window(given, session.now_ms)
    spec = ReservationSpec(
        nodes=tuple(part for part in (given["nodes"] or "").split(",") if part),
        pool=given["pool"],
        domain=given["domain"],
        start_ms=start_ms,
        end_ms=end_ms,
        repeat=given["repeat"],
        users=given["users"],
        projects=given["projects"],
        queues=given["queues"],
        reason=given["reason"],
    )
    view = session.api.reservations.set(name, spec, version=0)
    count = f"{len(view.nodes)} node{'' if len(view.nodes) == 1 else 's'}"
    busy = f"; {', '.join(view.busy[:8])} still at work, which is waited for" if view.busy else ""
    when = f"{session.look.clock(start_ms)} to {session.look.clock(end_ms)}{f', {spec.repeat}' if spec.repeat else ''}"
    session.row(view, f"reservation {name} has {count} from {when}{busy}")


def _window(given: dict[str, Any], now_ms: int) -> tuple[int, int]:
    from shoal.base.errors import Invalid
    from shoal.cli.parse import duration_s, moment_ms

    if (given["end"] is None) == (given["duration"] is None):
        raise Invalid("give --end or --duration, for example --start 2026-12-01T22:00Z --duration 4h")
    start_ms = moment_ms("--start", given["start"], now_ms)
    if given["end"] is not None:
        return start_ms, moment_ms("--end", given["end"], now_ms)
    return start_ms, start_ms + round(duration_s("--duration", given["duration"]) * 1_000)


@reservations.command("show", epilog=epilog("shoal reservations show firmware"))
@click.argument("name", metavar="NAME")
@json_option("the ReservationView")
def show(name: str, as_json: bool) -> None:
    """Show all that is known of a reservation, and who still works on its nodes."""
    session = open_session(as_json)
    view = session.api.reservations.get(name)
    from shoal.render.reservations import reservation_screen

    session.show(view, lambda look: reservation_screen(view, look))


@reservations.command("delete", epilog=epilog("shoal reservations delete firmware --yes"))
@click.argument("name", metavar="NAME")
@yes_option
@json_option("{reservation, deleted}")
def delete(name: str, yes: bool, as_json: bool) -> None:
    """Delete a reservation: its nodes are everybody's again."""
    session = open_session(as_json)
    session.confirm(f"Delete reservation {name}?", yes)
    session.api.reservations.delete(name)
    session.row({"reservation": name, "deleted": True}, f"reservation {name} is deleted")


_cancel = copy(delete)  # The word that comes to mind, since jobs are ended so.
_cancel.name, _cancel.help = "cancel", "The same as delete."
_cancel.epilog = epilog("shoal reservations cancel firmware --yes")
reservations.add_command(_cancel)

"""`shoal schedules`: jobs that are submitted again and again."""

from __future__ import annotations

import click

from shoal.cli.options import epilog, json_option, yes_option
from shoal.cli.session import open_session


@click.group(
    "schedules",
    invoke_without_command=True,
    epilog=epilog("shoal schedules", "shoal submit nightly.yaml --cron '30 2 * * *'", "shoal schedules pause nightly"),
)
@json_option("a list of Schedule")
@click.pass_context
def schedules(ctx: click.Context, as_json: bool) -> None:
    """List schedules, which `shoal submit --cron` makes; or show, pause, resume and delete one."""
    if ctx.invoked_subcommand is not None:
        return
    session = open_session(as_json)
    found = session.api.schedules.list()
    from shoal.render.schedules import schedule_table

    session.show(found, lambda look: schedule_table(found, look))
    if not found and not as_json:
        session.note("no schedules; `shoal submit FILE --cron '30 2 * * *'` makes one")


@schedules.command("show", epilog=epilog("shoal schedules show nightly"))
@click.argument("name", metavar="NAME")
@json_option("the Schedule")
def show(name: str, as_json: bool) -> None:
    """Show a schedule with its last runs, and why there was none where there was none."""
    session = open_session(as_json)
    found = session.api.schedules.get(name)
    from shoal.render.schedules import schedule_screen

    session.show(found, lambda look: schedule_screen(found, look))


@schedules.command("pause", epilog=epilog("shoal schedules pause nightly"))
@click.argument("name", metavar="NAME")
@json_option("the Schedule")
def pause(name: str, as_json: bool) -> None:
    """No more runs until it is resumed; jobs that it has submitted go on."""
    _set_paused(name, as_json, paused=True)


@schedules.command("resume", epilog=epilog("shoal schedules resume nightly"))
@click.argument("name", metavar="NAME")
@json_option("the Schedule")
def resume(name: str, as_json: bool) -> None:
    """Runs again, from its next time on; what came due in between is not made up for."""
    _set_paused(name, as_json, paused=False)


def _set_paused(name: str, as_json: bool, *, paused: bool) -> None:
    from msgspec.structs import replace

    session = open_session(as_json)
    found = session.api.schedules.get(name)
    made = session.api.schedules.set(name, replace(found.spec, paused=paused), version=found.version)
    from shoal.render.schedules import next_text

    session.row(made, f"schedule {name}: {'paused' if paused else f'next {next_text(made, session.look)}'}")


@schedules.command("delete", epilog=epilog("shoal schedules delete nightly --yes"))
@click.argument("name", metavar="NAME")
@yes_option
@json_option("{schedule, deleted}")
def delete(name: str, yes: bool, as_json: bool) -> None:
    """Delete a schedule; its jobs stay."""
    session = open_session(as_json)
    session.confirm(f"Delete schedule {name}?", yes)
    session.api.schedules.delete(name)
    session.row({"schedule": name, "deleted": True}, f"schedule {name} is deleted")

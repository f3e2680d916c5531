"""`shoal db`: the database that a state directory belongs to. On this machine, without a server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.cli.options import epilog, json_option
from shoal.cli.session import Session, open_session

if TYPE_CHECKING:
    from collections.abc import Callable


@click.group("db", epilog=epilog("shoal db backup monday.db", "shoal db move postgresql://shoal@db.example/shoal", "shoal db migrate"))
def database() -> None:
    """Migrate, move and copy the database of a state directory."""


@database.command("migrate", epilog=epilog("shoal db migrate", "shoal db migrate postgresql://shoal@db.example/shoal"))
@click.argument("url", metavar="[URL|FILE]", required=False)
@json_option("{database, before, now}")
def migrate(url: str | None, as_json: bool) -> None:
    """Bring a database to the schema of this Shoal. A server does so by itself when it starts; this is for doing it before."""
    from shoal.run.database import kept_database
    from shoal.run.database import migrate as bring_to_head

    session = open_session(as_json)
    done = bring_to_head(url or kept_database(_state_dir(session)))
    said = f"{done.database} is at schema {done.now}" + ("" if done.before == done.now else f", it was at {done.before or 'none'}")
    session.show(done, lambda _: [said])


@database.command("move", epilog=epilog("shoal db move postgresql://shoal@db.example/shoal"))
@click.argument("url", metavar="URL")
@json_option("{database, rows, version}")
def move(url: str, as_json: bool) -> None:
    """Move the state of this directory to another database, all of it or nothing. Its server must be down."""
    from shoal.run.database import move as move_to

    session = open_session(as_json)
    moved = move_to(_state_dir(session), url, _teller(session))
    lines = [f"{sum(moved.rows.values()):,} rows are in {moved.database}, at version {moved.version}; the next `shoal up` uses it"]
    session.show(moved, lambda _: lines)


@database.command("backup", epilog=epilog("shoal db backup monday.db"))
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@json_option("{file, bytes}")
def backup(file: Path, as_json: bool) -> None:
    """
    Copy the state to a file, as of one moment, also while the server runs.

    To go back: `shoal down`, put the file in place of shoal.db, `shoal up`.
    """
    from shoal.run.database import backup as copy_to

    session = open_session(as_json)
    copied = copy_to(_state_dir(session), file.absolute())
    session.show(copied, lambda _: [f"{copied.file}: {copied.bytes:,} bytes"])


def _state_dir(session: Session) -> Path:
    from shoal.client.settings import state_dir_of

    given = session.given.state_dir
    return Path(given) if given else state_dir_of(os.environ)


def _teller(session: Session) -> Callable[[str, int], None]:
    last: dict[str, int] = {}

    def tell(table: str, rows: int) -> None:
        if rows - last.get(table, 0) >= 50_000:
            last[table] = rows
            session.note(f"{table}: {rows:,} rows")

    return tell

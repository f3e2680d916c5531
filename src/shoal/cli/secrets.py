"""`shoal secret`: values that jobs get as files and nobody can read back."""

from __future__ import annotations

import sys
from typing import IO

import click

from shoal.cli.options import epilog, json_option, yes_option
from shoal.cli.session import open_session


@click.group("secret", epilog=epilog("shoal secret set HF_TOKEN", "shoal secret list", "shoal secret rm HF_TOKEN"))
def secret() -> None:
    """Set, list and remove secrets of the project. A job names them under `secrets:` and finds each as a file in $SHOAL_SECRETS."""


@secret.command(
    "set", epilog=epilog("shoal secret set HF_TOKEN", "pass show hf | shoal secret set HF_TOKEN", "shoal secret set KEY --file id_ed25519")
)
@click.argument("name", metavar="NAME")
@click.option("--file", "-f", type=click.File("rb"), metavar="FILE", help="Take the bytes of a file as they are.")
@json_option("the SecretView")
def set_secret(name: str, file: IO[bytes] | None, as_json: bool) -> None:
    """
    Set a secret, or a new value for it. Asked for on a terminal, else read from standard input.

    A line break at the end of standard input is left out; a file is taken as it is. The value is never an argument: those are seen by all.
    """
    session = open_session(as_json)
    view = session.api.secrets.set(name, _value(name, file))
    session.row(view, f"secret {name} is set in project {view.project}")


def _value(name: str, file: IO[bytes] | None) -> bytes:
    from shoal.base.errors import Invalid

    if file is not None:
        value = file.read()
    elif sys.stdin.isatty():
        value = str(click.prompt(f"Value of {name}", hide_input=True, err=True)).encode()
    else:
        value = sys.stdin.buffer.read().removesuffix(b"\n").removesuffix(b"\r")
    if not value:
        raise Invalid(f"secret {name}: the value is empty; nothing was set")
    return value


@secret.command("list", epilog=epilog("shoal secret list"))
@json_option("a list of SecretView")
def list_secrets(as_json: bool) -> None:
    """List the names of the project's secrets."""
    from shoal.render.table import Column, table

    session = open_session(as_json)
    views = session.api.secrets.list()
    rows = [(view.name, view.project, session.look.ago(view.created_ms)) for view in views]
    session.show(views, lambda look: table([Column("NAME"), Column("PROJECT"), Column("SET")], rows, look))


@secret.command("rm", epilog=epilog("shoal secret rm HF_TOKEN --yes"))
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@yes_option
@json_option("a {secret, removed} per line")
def remove(names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Remove secrets. Jobs that run keep what they have; those that start later fail to."""
    session = open_session(as_json)
    session.confirm(f"Remove {', '.join(names)}?", yes)
    for name in names:
        session.api.secrets.delete(name)
        session.row({"secret": name, "removed": True}, f"secret {name} is removed")

"""docs/reference/cli.md: every command with its options, from the commands themselves."""

from __future__ import annotations

import click
from docs_source import cell

from shoal.cli.catalogue import CATALOGUE
from shoal.cli.exits import MEANINGS
from shoal.cli.main import load, shoal

INTRO = """\
# Commands

Printed from the commands by `tools/docs_cli.py` (`make docs`); change the code, not this page. `shoal COMMAND --help` says the same.

Every command that answers takes `--json` and then prints the API's own records for programs: one JSON value, or one on each line
where its help says so.
"""


def cli_page() -> str:
    """The page's text."""
    codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in MEANINGS.items())
    parts = [INTRO, f"## Exit codes\n\n| | |\n|---|---|\n{codes}\n\n`wait`, `run` and `exec` end with the job's own code instead.\n"]
    parts.append("## Before any command\n\n" + _options(shoal))
    panels: dict[str, list[str]] = {}
    for name, entry in CATALOGUE.items():
        if not entry.alias:
            panels.setdefault(entry.panel, []).append(name)
    for panel, names in panels.items():
        parts.append(f"## {panel}\n")
        parts += [_command(load(name), name) for name in names]
    return "\n".join(parts)


def _command(command: click.Command, name: str) -> str:
    """One command, and those under it."""
    context = click.Context(command, info_name=name, max_content_width=200)
    usage = " ".join(["shoal", name, *command.collect_usage_pieces(context)])
    text = f"### `shoal {name}`\n\n```\n{usage}\n```\n\n{_words(command)}\n{_options(command)}"
    if isinstance(command, click.Group):
        below = [command.get_command(context, each) for each in command.list_commands(context)]
        text += "".join(f"\n{_command(one, f'{name} {one.name}')}" for one in below if one is not None)
    return text


def _words(command: click.Command) -> str:
    return "\n\n".join(" ".join(part.replace("\b", "").split()) for part in (command.help or "").split("\n\n")) + "\n"


def _options(command: click.Command) -> str:
    rows = []
    for one in command.params:
        if isinstance(one, click.Option) and not one.hidden:
            names = ", ".join(f"`{name}`" for name in [*one.opts, *one.secondary_opts])
            takes = "" if one.is_flag or one.count else f" `{one.metavar or one.type.name.upper()}`"
            rows.append(f"| {names}{cell(takes)} | {cell(one.help or '')} |")
    return "| | |\n|---|---|\n" + "\n".join(rows) + "\n" if rows else ""

"""
The entry point `shoal`: options that all commands share, loading of commands by name, errors told in one way.

Commands are loaded from `catalogue` one by one; help lists them without loading any. A command raises errors of `base.errors`, and
`exits.code_of` says with which code the program ends.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from shoal import __version__
from shoal.base.errors import ShoalError
from shoal.base.words import did_you_mean
from shoal.cli.catalogue import CATALOGUE
from shoal.cli.exits import INTERRUPTED
from shoal.cli.session import BadFile, Given, give, tell

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Commands(click.Group):
    """The commands of the catalogue, each loaded when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  the parent's signature
        return list(CATALOGUE)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        return load(cmd_name) if cmd_name in CATALOGUE else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in CATALOGUE and not ctx.resilient_parsing:
            ctx.fail(f"there is no command {args[0]!r}{did_you_mean(args[0], CATALOGUE)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, entry in CATALOGUE.items():
            if not entry.alias:
                panels.setdefault(entry.panel, []).append((name, entry.summary))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=entry.summary) for name, entry in CATALOGUE.items() if name.startswith(incomplete)]
        return found or click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ShoalError, BadFile) as error:
            ctx.exit(tell(error))
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


def load(name: str) -> click.Command:
    """The command of a catalogue entry, from its module."""
    entry = CATALOGUE[name]
    command = getattr(import_module(f"shoal.cli.{entry.module}"), entry.attribute)
    assert isinstance(command, click.Command)
    return command


def _install_completion(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:  # noqa: ARG001  click's signature
    if wanted and not ctx.resilient_parsing:
        from shoal.cli.completion import install

        click.echo(install())
        ctx.exit()


@click.command(
    "shoal",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Every command has --help with examples, and --json. Exit codes: docs/reference/cli.md.",
)
@click.option("--url", metavar="URL", help="Server to ask; else $SHOAL_URL, else the local one.")
@click.option("--project", metavar="NAME", help="Project to work in; else $SHOAL_PROJECT, else default.")
@click.option("--state-dir", metavar="DIR", help="Where a local Shoal keeps its state; else $SHOAL_STATE_DIR.")
@click.option("--utc", is_flag=True, help="Tell times in UTC.")
@click.option(
    "--install-completion", is_flag=True, is_eager=True, expose_value=False, callback=_install_completion, help="Install completion."
)
@click.version_option(__version__, message="shoal %(version)s", help="Print the version and end.")
def shoal(url: str | None, project: str | None, state_dir: str | None, utc: bool) -> None:
    """Shoal: one control plane for GPUs. Who runs where, when, and why not."""
    give(Given(url=url, project=project, state_dir=state_dir, utc=utc))


def main() -> None:
    """Runs the command line of this process and ends it with the command's exit code."""
    shoal(prog_name="shoal")


if __name__ == "__main__":
    main()

"""Every command of the catalogue is there, helps as the list says, has an example and --json, and costs nothing until it is called."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from shoal.base import errors
from shoal.base.errors import ShoalError
from shoal.cli.catalogue import CATALOGUE
from shoal.cli.exits import MEANINGS, code_of
from shoal.cli.main import load, shoal


def commands() -> list[tuple[str, click.Command]]:
    """All commands with their full names, those under a group too; without aliases."""
    found: list[tuple[str, click.Command]] = []
    for name, entry in CATALOGUE.items():
        if not entry.alias:
            command = load(name)
            found.append((name, command))
            if isinstance(command, click.Group):
                found += [(f"{name} {sub}", below) for sub, below in command.commands.items()]
    return found


@pytest.mark.parametrize(("name", "command"), commands(), ids=[name for name, _ in commands()])
def test_a_command_has_help_an_example_of_itself_and_json(name: str, command: click.Command) -> None:
    assert command.name == name.rpartition(" ")[2]
    text = CliRunner().invoke(shoal, [*name.split(), "--help"], prog_name="shoal").output
    assert command.help is not None
    assert command.help.strip().split("\n")[0][:40] in text
    assert f"  shoal {name}" in text.partition("Examples:")[2] or "| shoal " in text
    is_group = isinstance(command, click.Group) and not command.invoke_without_command
    assert is_group or "--json" in text
    assert all(option.help for option in command.params if isinstance(option, click.Option))


def test_help_lists_every_command_under_its_heading() -> None:
    text = CliRunner().invoke(shoal, ["--help"], prog_name="shoal").output
    for name, entry in CATALOGUE.items():
        assert (f"  {name} " in text) is not entry.alias, name
        assert entry.alias or entry.summary[:30] in text
        assert entry.panel in text


def test_help_imports_no_command_and_no_library_that_only_commands_need() -> None:
    code = (
        "import sys\n"
        "from shoal.cli.main import shoal\n"
        "try:\n    shoal(['--help'], prog_name='shoal')\nexcept SystemExit:\n    pass\n"
        "print(','.join(sorted(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.strip().split(","))
    assert "shoal.cli.catalogue" in loaded
    assert not loaded & {"shoal.cli.jobs", "shoal.cli.run", "shoal.client", "msgspec", "yaml", "http.client", "numpy", "ssl", "subprocess"}


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["jobz"], "there is no command 'jobz'; did you mean 'jobs'?"),
        (["frobnicate"], "there is no command 'frobnicate'"),
        (["jobs", "--nope"], "No such option"),
        (["status"], "Missing argument 'JOB'"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_is_wrong(words: list[str], wanted: str) -> None:
    result = CliRunner().invoke(shoal, words, prog_name="shoal")
    assert result.exit_code == 2
    assert wanted in result.stderr


def all_errors(kind: type[ShoalError] = ShoalError) -> list[type[ShoalError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in all_errors(child))]


@pytest.mark.parametrize("kind", all_errors())
def test_every_error_has_an_exit_code_that_is_documented(kind: type[ShoalError]) -> None:
    code = code_of(kind("words"))
    assert code in MEANINGS
    assert code != 0


@pytest.mark.parametrize(
    ("error", "want"),
    [
        (errors.Invalid("x"), 2),
        (errors.Malformed("x"), 2),
        (errors.TooLarge("x"), 2),
        (errors.KeyReused("x"), 2),
        (errors.NotFound("x"), 3),
        (errors.Unauthenticated("x"), 4),
        (errors.Forbidden("x"), 4),
        (errors.Unavailable("x"), 5),
        (errors.RateLimited("x"), 5),
        (errors.Conflict("x"), 1),
        (errors.Refused("x"), 1),
        (errors.InvariantViolated("x"), 1),
    ],
)
def test_exit_codes_tell_who_can_do_something(error: ShoalError, want: int) -> None:
    assert code_of(error) == want

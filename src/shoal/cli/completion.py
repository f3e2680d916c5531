"""`shoal completion` and `shoal --install-completion`: what completes commands, jobs and nodes in a shell."""

from __future__ import annotations

import os
from pathlib import Path

import click

from shoal.base.errors import Invalid
from shoal.cli.options import command, json_option
from shoal.cli.session import open_session

SHELLS = ("bash", "zsh", "fish")
_LINES = {
    "bash": ("~/.bashrc", 'eval "$(shoal completion bash)"'),
    "zsh": ("~/.zshrc", 'eval "$(shoal completion zsh)"'),
    "fish": ("~/.config/fish/completions/shoal.fish", "shoal completion fish | source"),
}


@command("completion", "shoal completion bash", 'eval "$(shoal completion zsh)"', "shoal completion --install")
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.option("--install", "wanted", is_flag=True, help="Write it into the shell's start file.")
@json_option("{shell, script}")
def completion(shell: str | None, wanted: bool, as_json: bool) -> None:
    """Print the script that completes commands, jobs, nodes and queues in a shell; by default this one."""
    session = open_session(as_json)
    name = shell or this_shell()
    if wanted:
        session.row({"shell": name, "installed": True}, install(name))
    else:
        script = script_of(name)
        session.row({"shell": name, "script": script}, script.rstrip("\n"))


def this_shell() -> str:
    """The user's shell by $SHELL. Raises Invalid where it is none that can be completed."""
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise Invalid(f"no completion for the shell {name or '(unknown)'!r}; name one: shoal completion {'|'.join(SHELLS)}")
    return name


def script_of(shell: str) -> str:
    """The script for a shell."""
    from click.shell_completion import get_completion_class

    from shoal.cli.main import shoal

    kind = get_completion_class(shell)
    assert kind is not None, f"the completion of {shell} is gone from click"
    if shell == "bash":
        # Its source() asks bash for its version, in a process that takes 20 ms; every bash since 4.4 (2016) will do.
        return kind.source_template % kind(shoal, {}, "shoal", "_SHOAL_COMPLETE").source_vars()
    return kind(shoal, {}, "shoal", "_SHOAL_COMPLETE").source()


def install(shell: str | None = None) -> str:
    """Makes the shell complete `shoal` from its next start on; one line on what was done. Doing it twice changes nothing."""
    shell = shell or this_shell()
    name, line = _LINES[shell]
    path = Path(name).expanduser()
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    if line in before:
        return f"{name} completes shoal already"
    path.parent.mkdir(parents=True, exist_ok=True)
    gap = "" if not before or before.endswith("\n") else "\n"
    path.write_text(f"{before}{gap}{line}\n", encoding="utf-8")
    return f"completion for {shell} is in {name}; it works in shells that start from now on"

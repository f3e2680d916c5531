"""
The command line for tests: `shoal` runs it in this process (quick), `start` as a process of its own (real exit codes, signals).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from shoal.cli.main import shoal as program

WIDTH = "140"


def variables(state: Path, **more: str) -> dict[str, str]:
    """The environment of a user whose Shoal keeps its state in `state`, and of nobody else's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_") and name not in ("NO_COLOR", "COLUMNS")}
    return {**kept, "SHOAL_STATE_DIR": str(state), "HOME": str(state), **more}


def shoal(state: Path, *arguments: str, stdin: str | bytes | None = None) -> Result:
    """One run of the command line in this process. An exception that it does not tell itself fails the test."""
    cleared: dict[str, str | None] = {name: None for name in os.environ if name.startswith("SHOAL_")}
    environment = {**cleared, "SHOAL_STATE_DIR": str(state), "HOME": str(state)}
    result = CliRunner(env=environment).invoke(program, arguments, input=stdin, prog_name="shoal")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def answer(state: Path, *arguments: str) -> Any:
    """What a command prints with --json; it must succeed."""
    result = shoal(state, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def start(state: Path, *arguments: str, **more: Any) -> subprocess.Popen[str]:
    """The command line as a process of its own."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
    return subprocess.Popen([sys.executable, "-m", "shoal.cli.main", *arguments], env=variables(state), **pipes)

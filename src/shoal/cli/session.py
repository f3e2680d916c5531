"""
One run of the program: its server, its way of printing. Commands make a `Session` first and print through it alone.

Answers go to standard output, as lines for people or as the API's records with --json; notes and errors go to standard error, so that
a pipe gets answers only. Colours, widths and box characters are for terminals; NO_COLOR is obeyed.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from shoal.base.errors import Fault, Invalid, ShoalError, Unauthenticated, Unavailable
from shoal.cli.exits import code_of
from shoal.render.look import Look

if TYPE_CHECKING:
    from shoal.client.api import Api
    from shoal.client.settings import Settings

WIDTH_LEAST = 40
"""Narrower terminals wrap by themselves; nothing readable fits."""


NOTHING_CREATED = "nothing was created"


class BadFile(Exception):
    """Faults of a file, which `source` names. Outside the error tree: it exists between a command and `tell` alone."""

    def __init__(self, source: str, faults: tuple[Fault, ...], so: str = NOTHING_CREATED) -> None:
        """`so`: what therefore did not happen."""
        super().__init__(source)
        self.source = source
        self.so = so
        self.error = Invalid(f"{source} has faults", faults)


@dataclass(frozen=True, slots=True)
class Given:
    """The options before the command."""

    url: str | None = None
    project: str | None = None
    state_dir: str | None = None
    utc: bool = False


@dataclass(slots=True)
class _Run:
    given: Given
    session: Session | None = None


_run = _Run(Given())
"""This process's run. The one piece of state of the CLI: options before the command must reach it, and errors must know about --json."""


def give(given: Given) -> None:
    """Notes the options before the command, for the session that the command opens."""
    _run.given = given
    _run.session = None


def look_at(stream: IO[str], *, utc: bool = False) -> Look:
    """How text should look on `stream`: plain and unbounded where it is no terminal."""
    now_ms = time.time_ns() // 1_000_000
    offset = 0 if utc else (time.localtime().tm_gmtoff or 0) // 60
    encoding = (getattr(stream, "encoding", "") or "").lower().replace("-", "")
    unicode = encoding == "utf8"
    if not stream.isatty():
        return Look(unicode=unicode, now_ms=now_ms, utc_offset_minutes=offset)
    colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = max(WIDTH_LEAST, shutil.get_terminal_size().columns)
    return Look(width=width, colour=colour, unicode=unicode, now_ms=now_ms, utc_offset_minutes=offset)


class Session:
    """See module. Made by `open_session`."""

    def __init__(self, as_json: bool, given: Given) -> None:
        self.as_json = as_json
        self.given = given

    @property
    def look(self) -> Look:
        """How answers should look now: a command that goes on printing sees the time pass and the window change."""
        return look_at(sys.stdout, utc=self.given.utc)

    # --- the server -------------------------------------------------------------------------------------------------------
    @cached_property
    def settings(self) -> Settings:
        from shoal.client.settings import find_settings

        given = self.given
        state_dir = Path(given.state_dir) if given.state_dir else None
        return find_settings(os.environ, url=given.url, project=given.project, state_dir=state_dir)

    @cached_property
    def api(self) -> Api:
        """The server. Raises Unavailable where none was ever started, Unauthenticated where there is no token for it."""
        settings = self.settings
        if not settings.token and settings.source == "the default":
            raise Unavailable(f"no Shoal answers at {settings.url}; start one with `shoal up`")
        if not settings.token:
            raise Unauthenticated(
                f"no token for {settings.url} (from {settings.source}): set $SHOAL_TOKEN; an admin makes one with `shoal token create`"
            )
        return settings.api()

    # --- printing ---------------------------------------------------------------------------------------------------------
    def show(self, value: Any, lines: Callable[[Look], Iterable[str]]) -> None:
        """Prints an answer: the record as JSON, or its lines."""
        if self.as_json:
            self.out(json_text(value))
        else:
            self.out(*lines(self.look))

    def row(self, value: Any, line: str) -> None:
        """Prints one of several answers: a JSON record on a line of its own, or a line for people."""
        self.out(json_text(value, indent=-1) if self.as_json else line)

    def out(self, *lines: str) -> None:
        """Prints lines to standard output."""
        if lines:
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()

    def note(self, line: str) -> None:
        """Prints a line that is no answer: progress, hints, warnings."""
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    @property
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def confirm(self, question: str, yes: bool) -> None:
        """Goes on if the user agrees. Raises Invalid where nobody can be asked, click.Abort on a no."""
        if yes:
            return
        if not sys.stdin.isatty():
            raise Invalid(f"{question} Nobody can be asked here: add --yes to agree")
        import click

        click.confirm(question, abort=True, err=True)


def open_session(as_json: bool = False) -> Session:
    """The session of this run."""
    _run.session = Session(as_json, _run.given)
    return _run.session


def json_text(value: Any, indent: int = 2) -> str:
    """A record as JSON, as the API gives it."""
    import msgspec

    from shoal.model.codec import encode_json

    return msgspec.json.format(encode_json(value), indent=indent).decode()


def leave(code: int) -> NoReturn:
    """Ends the command with an exit code."""
    from click.exceptions import Exit

    raise Exit(code)


def leave_unread() -> NoReturn:
    """Ends the command because nobody reads its output any more (`| head`): no error, and nothing more is flushed into the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    leave(0)


def tell(told: ShoalError | BadFile) -> int:
    """Prints an error as this run prints errors, and gives the exit code for it."""
    session = _run.session
    source, error = (told.source, told.error) if isinstance(told, BadFile) else ("", told)
    if session is not None and session.as_json:
        faults = [{"message": f.message, "pointer": f.pointer, "line": f.line, "column": f.column} for f in getattr(error, "faults", ())]
        record = {"error": {"code": error.code, "message": error.message, "source": source, "faults": faults, "exit_code": code_of(error)}}
        sys.stderr.write(json_text(record) + "\n")
    else:
        from shoal.render.faults import error_lines

        look = look_at(sys.stderr)
        sys.stderr.write("\n".join(error_lines(error, source, look, told.so if isinstance(told, BadFile) else "")) + "\n")
    return code_of(error)

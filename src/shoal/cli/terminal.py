"""
This terminal connected to one on a node: `shoal exec`, and `shoal run --pty`.

On a terminal, keys go through raw, sizes follow the window, and the far side's line discipline decides what Ctrl-C means. Elsewhere
standard input is sent as it is and output comes back on the stream that it was written to.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import click

from shoal.base.errors import Conflict, Invalid, ShoalError
from shoal.cli.options import command, job_argument, json_option
from shoal.cli.session import Session, leave, open_session
from shoal.model.wire import ExecRequest, ExecStream

if TYPE_CHECKING:
    from shoal.client.terminal import Terminal
    from shoal.model.job import Job

READ_BYTES = 32 << 10
START_LOOK_EVERY_S = 0.5
NO_EXIT_HEARD = 255
"""As ssh says it: the connection ended before the command did."""


@command("exec", "shoal exec 12 -- nvidia-smi", "shoal exec 12 --rank 3 -- bash", "tar c data | shoal exec 12 -T -- tar x", "shoal exec 12")
@job_argument
@click.argument("words", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--rank", type=click.IntRange(0), default=0, show_default=True, metavar="NUMBER", help="Beside which task.")
@click.option("--tty/--no-tty", "-t/-T", default=None, help="With or without a terminal; by default with one if this is one.")
@click.option("--env", "-e", multiple=True, metavar="NAME=VALUE", help="Environment variable.")
@json_option("{exit_code}, after the output")
def exec_command(job: str, words: tuple[str, ...], rank: int, tty: bool | None, env: tuple[str, ...], as_json: bool) -> None:
    """
    Run a command beside a task of a running job, within its resources, and end with its exit code.

    Without a command, connects to the terminal of a job made with `shoal run --pty`. --json prints the exit code as a record at the end.
    """
    session = open_session(as_json)
    variables = dict(_variable(text) for text in env)
    on_terminal = (sys.stdin.isatty() and sys.stdout.isatty()) if tty is None else tty
    size = shutil.get_terminal_size()
    request = ExecRequest(command=words, tty=on_terminal, rows=size.lines, columns=size.columns, rank=rank, env=variables)
    talk = connect(session, job, request)
    if as_json:
        session.row({"exit_code": talk.exit_code}, "")
    leave(talk.exit_code)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise Invalid(f"--env {text}: write NAME=VALUE")
    return name, value


def attach(session: Session, job: Job) -> int:
    """Connects to the terminal of an interactive job once it runs; its exit code. Ctrl-C before that cancels it."""
    from shoal.cli.outcome import end_line, exit_code_of
    from shoal.cli.run import follow_to_end
    from shoal.cli.waiting import WaitNote
    from shoal.model.job import ENDED, WAITING, JobState

    waits = WaitNote(session.api, session.note)
    now = job
    try:
        while now.state in WAITING or now.state is JobState.STARTING:
            waits.see(now)
            now = session.api.jobs.wait(job.id, timeout_s=START_LOOK_EVERY_S)
    except KeyboardInterrupt:
        session.note(f"\ncancelling job {job.address}")
        now = session.api.jobs.cancel(job.id, reason="Ctrl-C")
    if now.state in ENDED or now.state is JobState.CANCELLING or not _talk_to(session, job):
        return follow_to_end(session, job)  # Over before this terminal was there: its log has what it wrote.
    ended = session.api.jobs.wait(job.id)
    if ended.state is not JobState.SUCCEEDED:
        session.note(end_line(ended))
    return exit_code_of(ended)


def _talk_to(session: Session, job: Job) -> bool:
    """Connects to the job's own terminal until it ends. False if the job was over too soon for a word of it to come through."""
    size = shutil.get_terminal_size()
    try:
        return connect(session, job.id, ExecRequest(tty=True, rows=size.lines, columns=size.columns)).heard
    except Conflict:
        return False


class Talk(NamedTuple):
    """How a connection went. `heard`: there was output."""

    exit_code: int
    heard: bool


def connect(session: Session, ref: str, request: ExecRequest) -> Talk:
    """Runs the request with this process's streams."""
    with session.api.terminals.open(ref, request) as terminal, _raw(request.tty), _resizing(terminal, request.tty):
        sender = threading.Thread(target=_send_stdin, args=(terminal,), name="stdin", daemon=True)
        sender.start()
        return _receive(session, terminal)


def _receive(session: Session, terminal: Terminal) -> Talk:
    from shoal.client.terminal import read_exit

    outputs = {ExecStream.STDOUT: sys.stdout.buffer, ExecStream.STDERR: sys.stderr.buffer}
    heard = False
    for stream, data in terminal.messages():
        if stream is ExecStream.EXIT:
            end = read_exit(data)
            if end.message:
                session.note(end.message)
            return Talk(end.exit_code, heard)
        if stream in outputs:
            heard = heard or bool(data)
            outputs[stream].write(data)
            outputs[stream].flush()
    return Talk(NO_EXIT_HEARD, heard)


def _send_stdin(terminal: Terminal) -> None:
    """Sends standard input until its end. Ends quietly with the terminal: the reader of the far side tells what happened."""
    with suppress(ShoalError, OSError):
        while data := os.read(sys.stdin.fileno(), READ_BYTES):
            terminal.send(ExecStream.STDIN, data)
        terminal.end_stdin()


@contextmanager
def _raw(wanted: bool) -> Iterator[None]:
    """The local terminal passes every key on, and is as before afterwards."""
    if not (wanted and sys.stdin.isatty()):
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@contextmanager
def _resizing(terminal: Terminal, wanted: bool) -> Iterator[None]:
    """The far terminal has the size of this one, also after it changes."""
    if not (wanted and sys.stdout.isatty()):
        yield
        return

    def tell(*_: object) -> None:
        size = shutil.get_terminal_size()
        # From a thread: a signal may come while the main thread sends, and a terminal has one sender at a time.
        threading.Thread(target=_resize, args=(terminal, size.lines, size.columns), daemon=True).start()

    before = signal.signal(signal.SIGWINCH, tell)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def _resize(terminal: Terminal, rows: int, columns: int) -> None:
    with suppress(ShoalError, OSError):
        terminal.resize(rows, columns)

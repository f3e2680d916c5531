"""The agent's way to a running supervisor: the one that is there, or a new one."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import msgspec

import shoal
from shoal.base.errors import Unavailable

START_SECONDS_MAX = 30
"""A new supervisor first kills what an earlier one left, for up to guardian.GIVE_UP_MS."""
LOG_BYTES_MAX = 1 << 20
_BOOT = """
import sys
sys.path[:0] = sys.argv.pop(1).split(":")
from shoal.agent.supervisor.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def start_supervisor(directory: str, name: str, isolation: str = "auto") -> None:
    """
    A supervisor listens in `directory`, detached from us. One that is there already is left in charge.

    Without `site` and with two import paths alone it is up in half the time. Raises Unavailable with its own words.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _BOOT, _paths(), directory, name, isolation, str(writer)],
            env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=_log(directory),
            pass_fds=(writer,),
            start_new_session=True,
            cwd="/",
        ).returncode = 0  # it is nobody's child: it outlives us, and init or we reap it
        os.close(writer)
        writer = -1
        _await_ready(reader)
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)


def _await_ready(reader: int) -> None:
    ready, _, _ = select.select([reader], [], [], START_SECONDS_MAX)
    told = os.read(reader, 4096) if ready else b"!it did not answer in time"
    if told.startswith(b"!"):
        message = told[1:].decode(errors="replace")
        if "in charge" not in message:
            raise Unavailable(f"the supervisor cannot start: {message}")
    elif not told:
        raise Unavailable("the supervisor ended while it started; see supervisor.log in the node's state directory")


def _paths() -> str:
    ours = os.path.dirname(os.path.dirname(os.path.abspath(shoal.__file__)))
    theirs = os.path.dirname(os.path.dirname(os.path.abspath(msgspec.__file__)))
    return ":".join(dict.fromkeys((ours, theirs)))


def _log(directory: str) -> int:
    """The file that a dying supervisor writes its last words to; begun anew when it has grown."""
    path = os.path.join(directory, "supervisor.log")
    try:
        full = os.path.getsize(path) > LOG_BYTES_MAX
    except FileNotFoundError:
        full = False
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_TRUNC if full else 0), 0o600)

"""
Commands with a deadline and a bound on what they print. A command that hangs, as nvidia-smi does on a sick GPU, is evidence, not a wait.

A process in uninterruptible sleep does not die: it is killed, left behind and reaped later by Python; nothing waits for it here.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

OUTPUT_BYTES_MAX: Final = 8 << 20
"""Of a command's output; a kernel log of a machine that has been up for a year is smaller."""
_CHUNK: Final = 64 << 10


class Ran(NamedTuple):
    """What a command gave: its text with the error stream in it, exit status (None: no such command), and if it ran out of time."""

    text: str
    status: int | None
    timed_out: bool = False


def run_bounded(command: Sequence[str], seconds: float) -> Ran:
    """Runs `command` for at most `seconds`. Raises nothing: what goes wrong is in the answer."""
    environment = {**os.environ, "LC_ALL": "C", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"}
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except OSError:
        return Ran("", None)
    output, timed_out = _read(process, time.monotonic() + seconds)
    status = _end(process, timed_out)
    return Ran(output.decode("utf-8", "replace"), status, timed_out)


def _read(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bool]:
    assert process.stdout is not None
    kept = bytearray()
    with selectors.DefaultSelector() as selector, process.stdout as stream:
        os.set_blocking(stream.fileno(), False)
        selector.register(stream, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if not selector.select(left):
                continue
            chunk = os.read(stream.fileno(), _CHUNK)
            if not chunk:
                return bytes(kept), False
            kept += chunk
            if len(kept) >= OUTPUT_BYTES_MAX:
                return bytes(kept[:OUTPUT_BYTES_MAX]), False
    return bytes(kept), True


def _end(process: subprocess.Popen[bytes], timed_out: bool) -> int | None:
    """The exit status, after a short grace for one that has closed its output; a process that will not die is left."""
    try:
        return process.wait(0.05 if timed_out else 1.0)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait(0.5)
    except (OSError, subprocess.TimeoutExpired):
        return -signal.SIGKILL

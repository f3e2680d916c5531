"""
Processes that outlive who started them, found again by a record each: server and agents of `shoal up`.

A record names the process by id, start time and boot, so that a number that has gone to another process is never signalled: the
signal goes through a descriptor of the process (pidfd) that was checked after it was opened. Linux only, as the agent is.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

LOG_BYTES_MAX = 8 << 20
"""A log larger than this begins anew at the next start."""
LAST_WORDS_BYTES = 4 << 10


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A record. `started_ticks` is the kernel's start time of the process, in clock ticks since boot."""

    name: str
    pid: int
    started_ticks: int
    boot_id: str
    command: tuple[str, ...]
    log: str


def start_detached(folder: Path, name: str, command: Sequence[str], environ: Mapping[str, str] | None = None) -> Process:
    """Starts `command` in a session of its own, its output in `<folder>/<name>.log`, and records it as `<folder>/<name>.json`."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = folder / f"{name}.log"
    mode = "ab" if not log.exists() or log.stat().st_size < LOG_BYTES_MAX else "wb"
    with log.open(mode) as output:
        started = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
            env=None if environ is None else dict(environ),
        )
    started.returncode = 0  # Nobody's child: it outlives us, and init or `is_alive` reaps it.
    process = Process(
        name=name,
        pid=started.pid,
        started_ticks=_started_ticks(started.pid) or 0,
        boot_id=_boot_id(),
        command=tuple(command),
        log=str(log),
    )
    part = folder / f".{name}.json"
    part.write_bytes(msgspec.json.encode(process))
    part.replace(folder / f"{name}.json")
    return process


def find_process(folder: Path, name: str) -> Process | None:
    """The process recorded as `name`, if it lives."""
    with suppress(OSError, msgspec.MsgspecError):
        process = msgspec.json.decode((folder / f"{name}.json").read_bytes(), type=Process)
        return process if is_alive(process) else None
    return None


def find_processes(folder: Path) -> tuple[Process, ...]:
    """All recorded processes that live, by name."""
    found = (find_process(folder, path.stem) for path in sorted(folder.glob("*.json")))
    return tuple(process for process in found if process is not None)


def is_alive(process: Process) -> bool:
    """True while exactly this process runs; a zombie does not."""
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    return process.boot_id == _boot_id() and process.started_ticks == _started_ticks(process.pid)


def stop_process(folder: Path, process: Process, grace_s: float) -> bool:
    """True once the process is gone and its record with it: TERM, after `grace_s` KILL. False if even that takes over five seconds."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(process.pid)
        try:
            # Opened first and looked at then: what the descriptor names cannot be replaced any more.
            if is_alive(process):
                signal.pidfd_send_signal(handle, signal.SIGTERM)
                if not _ends(handle, grace_s):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    _ends(handle, 5.0)
        finally:
            os.close(handle)
    if is_alive(process):
        return False
    (folder / f"{process.name}.json").unlink(missing_ok=True)
    return True


def last_words(process: Process) -> str:
    """The end of its log: what a process that died had to say."""
    with suppress(OSError), open(process.log, "rb") as log:
        log.seek(0, os.SEEK_END)
        log.seek(max(0, log.tell() - LAST_WORDS_BYTES))
        lines = [line for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return lines[-1] if lines else ""
    return ""


class _Record(msgspec.Struct, frozen=True):
    """A line of a log, as far as it is read here."""

    level: str = ""
    message: str = ""


def complaint(process: Process) -> str:
    """What a process that runs has just warned of in its log; empty where its last record is no warning."""
    with suppress(msgspec.MsgspecError):
        record = msgspec.json.decode(last_words(process), type=_Record)
        return record.message if record.level in ("warning", "error") else ""
    return ""


def _ends(handle: int, within_s: float) -> bool:
    ready, _, _ = select.select([handle], [], [], within_s)
    return bool(ready)


def _started_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; None for no process or a zombie. The name before it may hold blanks and brackets."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])
    return None


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()

"""
One server per state file: an advisory lock beside it that the kernel drops when its holder dies, however it dies.

A lock file of its own, since closing any handle of the database file would drop SQLite's own POSIX locks.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from shoal.base.errors import Refused


class StateLock:
    """Held from construction to `release`. Refused, with the holder's pid, where somebody else holds it, be it in this process."""

    def __init__(self, state_file: Path) -> None:
        self._path = state_file.with_name(state_file.name + ".lock")
        try:
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Refused(
                f"the state file {state_file} cannot be opened: {error}. Does its directory exist, and may you write there?"
            ) from error
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._handle, 32, 0).decode("ascii", "replace").strip()
            os.close(self._handle)
            who = f"process {holder}" if holder else "another process"
            raise Refused(
                f"the state file {state_file} is in use by {who}: stop that server first, or use another state directory"
            ) from error
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Idempotent. The file stays: removing it would let two holders lock two files of one name."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

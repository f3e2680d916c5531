"""
`python -m shoal.agent.supervisor DIRECTORY NAME [ISOLATION [READY]]`: the supervisor of the groups called NAME, at home in DIRECTORY.

Started by `launch.start_supervisor`. The descriptor READY gets a dot when the socket listens, or the reason why it never will.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import socket
import sys
import time

from shoal.agent.supervisor.groups.choose import choose_groups, remove_base
from shoal.agent.supervisor.groups.protocol import Groups
from shoal.agent.supervisor.guardian import GIVE_UP_MS, guard, kill_everything
from shoal.agent.supervisor.journal import Journal
from shoal.agent.supervisor.loop import Supervisor
from shoal.agent.supervisor.starting import become_subreaper

SOCKET_NAME = "socket"


class _RealClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def boottime_ms(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def main(arguments: list[str]) -> int:
    """0 when it has ended in order, 1 when it could not start; 3 when another one is in charge of the directory."""
    directory, name = arguments[:2]
    isolation = arguments[2] if len(arguments) > 2 else "auto"
    ready = int(arguments[3]) if len(arguments) > 3 else -1
    os.chdir(directory)
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _tell(ready, f"another supervisor is in charge of {directory}")
        return 3
    try:
        return _supervise(name, isolation, ready)
    except OSError as error:
        _tell(ready, str(error))
        return 1


def _supervise(name: str, isolation: str, ready: int) -> int:
    groups = choose_groups(name, isolation)
    kill_everything(groups, GIVE_UP_MS)
    if guard(groups, ready):
        _tidy(groups, name)
        return 0
    become_subreaper()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(SOCKET_NAME)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(SOCKET_NAME)
    os.chmod(SOCKET_NAME, 0o600)
    listener.listen(64)
    supervisor = Supervisor(groups, Journal("journal"), _RealClock(), listener)
    gc.collect()
    gc.freeze()
    gc.disable()  # one short loop without cycles; a collection would only touch pages and cost time
    _tell(ready, "")
    supervisor.run()
    os.unlink(SOCKET_NAME)
    return 0


def _tidy(groups: Groups, name: str) -> None:
    """Empty groups go, in every hierarchy; by the guardian, so that it happens whatever became of the supervisor."""
    for allocation in groups.found():
        groups.remove(allocation)
    remove_base(name)


def _tell(ready: int, problem: str) -> None:
    with contextlib.suppress(OSError):
        os.write(ready, b"!" + problem.encode() if problem else b".")
        os.close(ready)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""
The supervisor's parent: does nothing but wait for it, and kills the node's work if it dies without saying goodbye.

Without it, a supervisor that is killed would leave work running that nobody stops at the end of its lease. A forked copy that sleeps
in `waitpid` costs a few megabytes of shared memory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from shoal.agent.supervisor.groups.protocol import Groups
from shoal.agent.supervisor.starting import become_subreaper

GIVE_UP_MS = 10_000
"""Then the next supervisor goes on; it reports what does not die."""


def guard(groups: Groups, ready: int) -> bool:
    """
    Forks. False in the child, which is the supervisor to be; in the parent, returns True when the child has ended.

    `ready` is the child's to write to and is closed in the parent.

    After an end that was no clean exit every process of every group is killed first.
    """
    become_subreaper()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        return False
    with contextlib.suppress(OSError):
        os.close(ready)
    if _wait_for(child) != 0:
        kill_everything(groups, GIVE_UP_MS)
    return True


def kill_everything(groups: Groups, most_ms: int) -> bool:
    """True if no process of any group is left."""
    until = time.monotonic() + most_ms / 1000
    while True:
        living = [name for name in groups.found() if groups.alive(name)]
        if not living:
            return True
        if time.monotonic() > until:
            return False
        for name in living:
            groups.kill(name)
        _reap_all()
        time.sleep(0.02)


def _wait_for(child: int) -> int:
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return status


def _reap_all() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass

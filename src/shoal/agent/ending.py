"""Ends all work of a node and its supervisor: for `shoal down`, and for a machine that leaves the fleet. Needs no agent."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from shoal.agent.supervisor import wire
from shoal.agent.supervisor.link import Link, SupervisorGone

LOOK_S = 0.05


def end_work(state_dir: Path, within_s: float = 10.0, *, force: bool = False) -> tuple[str, ...]:
    """
    Tells the node's supervisor to stop everything and leave: by each job's ladder, killed after half of `within_s`; `force` kills at once.

    Gives the allocations that are left: empty when nothing of the node runs any more. Nothing is reported from here: the agent, when it
    is started again, finds in the supervisor's journal how the tasks ended, and that the node was shut down.
    """
    alive: tuple[str, ...] = ()
    try:
        link = Link(str(state_dir / "supervisor"))
        os.kill(link.greet().pid, signal.SIGTERM)
        began = time.monotonic()
        while time.monotonic() - began < within_s:
            alive = tuple(look.allocation for look in link.list().allocations if look.alive)
            if force or time.monotonic() - began > within_s / 2:
                link.give(*(wire.Stop(allocation, force=True) for allocation in alive))
            time.sleep(LOOK_S)
    except (SupervisorGone, ProcessLookupError):
        return ()
    return alive

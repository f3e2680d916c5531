"""Schedules whose time has come: each is judged once, and its job is submitted. A step between any two of which the plane may be killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.base import limits
from shoal.control.schedules import cancel_replaced, run_due
from shoal.control.steps.base import Progress

if TYPE_CHECKING:
    from shoal.control.plane import Plane


class CronStep:
    """See module. Cost: a look at every schedule per round, and what is due."""

    name = "cron"

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def step(self, now_ms: int) -> Progress:
        """The first CRON_RUNS_PER_STEP_MAX that are due, by their time."""
        plane = self._plane
        plane.world.catch_up()
        schedules = tuple(plane.world.schedules.values())
        if not schedules:
            return Progress()
        waiting = sorted((s.next_ms, s.id, s) for s in schedules if s.next_ms is not None)
        due = [schedule for at_ms, _, schedule in waiting if at_ms <= now_ms][: limits.CRON_RUNS_PER_STEP_MAX]
        plane.await_all(run_due(plane, schedule, now_ms) for schedule in due)
        plane.world.catch_up()
        # From the records and not from what was just due: who was killed before this has it done by the next round.
        replaced = [wish for schedule in tuple(plane.world.schedules.values()) for wish in cancel_replaced(plane, schedule, now_ms)]
        plane.await_all(replaced)
        next_ms = min((s.next_ms for s in tuple(plane.world.schedules.values()) if s.next_ms is not None), default=None)
        return Progress(len(due) + len(replaced), next_ms)

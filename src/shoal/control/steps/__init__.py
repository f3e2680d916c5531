"""
What the control plane does by itself: steps, not tasks. Each has `step(now_ms) -> Progress`: synchronous, bounded, safe to repeat.

    dispatch    commands from the outbox into the backends' hands
    lease       silence of nodes: UNREACHABLE, LOST, FENCED
    reconcile   what time brings: late preparations, time limits, arrays, what was asked of many jobs at once
    schedule    the cycle: board, plan, check, enact
"""

from shoal.control.steps.base import Progress, Step, step_through
from shoal.control.steps.cron import CronStep
from shoal.control.steps.dispatch import DispatchStep
from shoal.control.steps.lease import LeaseStep
from shoal.control.steps.reconcile import ReconcileStep
from shoal.control.steps.schedule import ScheduleStep

__all__ = ["CronStep", "DispatchStep", "LeaseStep", "Progress", "ReconcileStep", "ScheduleStep", "Step", "step_through"]

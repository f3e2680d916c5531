"""
Step 1 of the cycle: may this job be looked at at all? Everything about a job that room, order and quota do not answer.

Called by the board whenever a job, one of its dependencies or its old allocations moved, so that a cycle meets only jobs it may start.
Times (begin, back-off) are no gate: `pending` keeps those jobs among its timers.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from shoal.model.job import ENDED, WAITING, CancelMode, Dependency, Job, JobState


class Gate(StrEnum):
    """What keeps a waiting job from being looked at; OPEN if nothing does."""

    OPEN = "open"
    NOT_WAITING = "not-waiting"
    """It runs, is an array's parent (never placed itself), or is on its way out."""
    HELD = "held"
    DEPENDENCY = "dependency"
    DEPENDENCY_NEVER = "dependency.never"
    FREEING = "freeing"
    """An earlier attempt still holds something somewhere."""


class Gated(Protocol):
    """The part of a board that gates look at."""

    jobs: dict[str, Job]
    ended: dict[str, JobState]
    held_by: dict[str, dict[str, None]]


def gate_of(job: Job, board: Gated) -> Gate:
    """The first gate that keeps a job, in the order in which people would want to hear of them."""
    if job.state not in WAITING or job.is_array or job.cancel is not CancelMode.NONE:
        return Gate.NOT_WAITING
    if job.state is JobState.HELD:
        return Gate.HELD
    met = [dependency_met(dependency, board.jobs, board.ended) for dependency in job.spec.depends_on]
    if any(answer is None for answer in met):
        return Gate.DEPENDENCY_NEVER
    if not all(met):
        return Gate.DEPENDENCY
    return Gate.FREEING if job.id in board.held_by else Gate.OPEN


def dependency_met(dependency: Dependency, jobs: Mapping[str, Job], ended: Mapping[str, JobState]) -> bool | None:
    """True: met. False: may still be. None: cannot be any more. A job nobody has heard of is not told from one not looked up yet."""
    other = jobs.get(dependency.job)
    state = other.state if other is not None else ended.get(dependency.job)
    if state is None:
        return False
    if dependency.condition == "after":
        return state in ENDED or state not in WAITING or (other is not None and other.started_ms is not None)
    if state not in ENDED:
        return False
    if dependency.condition == "afterany":
        return True
    return True if (state is JobState.SUCCEEDED) is (dependency.condition == "afterok") else None

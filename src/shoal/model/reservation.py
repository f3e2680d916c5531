"""
A reservation: nodes that some people, or nobody, may use during a window; for maintenance, a course, a deadline.

Not to be mixed up with the room that a cycle keeps for a blocked gang (`plan.Reserve`): that is judged anew each time and never stored.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shoal.model.job import Spec

DAY_MS = 86_400_000
PERIODS_MS = {"daily": DAY_MS, "weekly": 7 * DAY_MS}


class ReservationSpec(Spec, frozen=True, kw_only=True):
    """
    What a person sets. Exactly one of `nodes`, `pool` and `domain` says which nodes; `users`, `projects` and `queues` who may run jobs
    there inside the window: one match is enough, and with none given nobody may.
    """

    nodes: tuple[str, ...] = ()
    pool: str | None = None
    domain: str | None = None
    """A topology domain as `level=name`, for example `rack=a3`; nodes that join it later belong to it."""
    start_ms: int
    end_ms: int
    repeat: Literal["daily", "weekly"] | None = None
    """Again every 24 hours, or every 7 days, from `start_ms` on: in UTC, so that a change to summer time does not move it."""
    users: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    reason: str = ""


class Reservation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A reservation as stored; `id` is its name, unique in the installation."""

    id: str
    spec: ReservationSpec
    version: int = 0

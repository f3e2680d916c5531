"""
Claims: room that is kept for a job which preempted for it, from the decision until it starts there.

They are written before the first victim is told and survive a crash: then the room that is being freed still goes to the one for whom it
is freed. A claim goes when its job has started, waits no more, or after its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.model.job import Job, JobState
from shoal.model.plan import Reserve
from shoal.model.queue import Claim


def claims_for(reserve: Reserve, expires_ms: int, term: int) -> tuple[Claim, ...]:
    """The claims that keep this room, one per member."""
    return tuple(
        Claim(
            id=f"{reserve.job}.claim.{rank}",
            job=reserve.job,
            node=member.node,
            devices=member.devices,
            cpu_milli=member.cpu_milli,
            memory_bytes=member.memory_bytes,
            term=term,
            expires_ms=expires_ms,
        )
        for rank, member in enumerate(reserve.members)
    )


def stale_claims(claims: Iterable[Claim], jobs: Mapping[str, Job], now_ms: int) -> tuple[Claim, ...]:
    """Claims whose time is over, or whose job does not wait for its room any more."""
    waiting = (JobState.QUEUED, JobState.HELD)
    return tuple(c for c in claims if c.expires_ms <= now_ms or c.job not in jobs or jobs[c.job].state not in waiting)

"""
Claims: room that is kept for a job until it starts there: for one which preempted for it, and for a gang that holds on after a failure.

Those of a preemption are written before the first victim is told and survive a crash: then the room that is being freed still goes to
the one for whom it is freed. Those of a gang with `hold_on_failure` are written as its last member has given back: the slot of a broken
node among them, so that it is the gang's again once the node is mended. A claim goes when its job has started, waits no more, or after
its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.model.attempt import Allocation
from shoal.model.job import Job, JobState
from shoal.model.plan import Reserve
from shoal.model.queue import Claim


def claims_for(reserve: Reserve, project: str, expires_ms: int, term: int) -> tuple[Claim, ...]:
    """The claims that keep this room for a job of this project, one per member."""
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
            parts=member.parts,
            project=project,
        )
        for rank, member in enumerate(reserve.members)
    )


def claims_on_failure(job: Job, members: Iterable[Allocation], now_ms: int) -> tuple[Claim, ...]:
    """The claims that keep a gang's room after a failure for `hold_on_failure`, one per member; none for a job that does not hold."""
    hold = job.spec.hold_on_failure
    if hold is None:
        return ()
    return tuple(
        Claim(
            id=f"{job.id}.claim.{rank}",
            job=job.id,
            node=member.node,
            devices=member.devices,
            cpu_milli=member.cpu_milli,
            memory_bytes=member.memory_bytes,
            term=0,
            expires_ms=now_ms + hold.ms,
        )
        for rank, member in enumerate(members)
    )


def stale_claims(claims: Iterable[Claim], jobs: Mapping[str, Job], now_ms: int) -> tuple[Claim, ...]:
    """Claims whose time is over, or whose job does not wait for its room any more."""
    waiting = (JobState.QUEUED, JobState.HELD)
    return tuple(c for c in claims if c.expires_ms <= now_ms or c.job not in jobs or jobs[c.job].state not in waiting)

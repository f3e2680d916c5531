"""
Claims: room that is kept for a job until it starts there: for one which preempted for it, and for a gang that holds on after a failure.

Those of a preemption are written before the first victim is told and survive a crash: then the room that is being freed still goes to
the one for whom it is freed. Those of a gang with `hold_on_failure` are written as its last member has given back: the slot of a broken
node among them, so that it is the gang's again once the node is mended. A claim goes when its job has started, waits no more, or after
its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from shoal.model.attempt import Allocation
from shoal.model.job import Job, JobState
from shoal.model.plan import Evict, Move, Plan, Reserve, Resize
from shoal.model.queue import Claim
from shoal.model.reason import ReasonCode


def claims_of_plan(plan: Plan, job_of: Callable[[str], Job | None], expires_ms: int, term: int) -> tuple[Claim, ...]:
    """
    The claims that must be written before a plan is carried out: for whoever others are stopped, moved or shrink for; for who is
    moved; and for elastic jobs that start again with another size, which keep what they have and get the rest.
    """
    gainers = {d.beneficiary for d in plan.decisions if isinstance(d, Evict | Move | Resize)}
    claims: list[Claim] = []
    for decision in plan.decisions:
        job = job_of(decision.job) if isinstance(decision, Reserve | Move | Resize) else None
        if job is None or not isinstance(decision, Reserve | Move | Resize):
            continue
        made_for = isinstance(decision, Reserve) and decision.job in gainers
        if made_for or isinstance(decision, Move) or (isinstance(decision, Resize) and not job.in_place):
            claims.extend(claims_for(decision, job.project, expires_ms, term))
    return tuple(claims)


def claims_for(room: Reserve | Move | Resize, project: str, expires_ms: int, term: int) -> tuple[Claim, ...]:
    """The claims that keep this room for a job of this project, one per member."""
    return tuple(
        Claim(
            id=f"{room.job}.claim.{rank}",
            job=room.job,
            node=member.node,
            devices=member.devices,
            cpu_milli=member.cpu_milli,
            memory_bytes=member.memory_bytes,
            term=term,
            expires_ms=expires_ms,
            parts=member.parts,
            project=project,
        )
        for rank, member in enumerate(room.members)
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
            parts=member.parts,
            project=job.project,
        )
        for rank, member in enumerate(members)
    )


def stale_claims(claims: Iterable[Claim], jobs: Mapping[str, Job], now_ms: int) -> tuple[Claim, ...]:
    """Claims whose time is over, or whose job does not wait for its room any more."""
    return tuple(c for c in claims if c.expires_ms <= now_ms or c.job not in jobs or not _waits(jobs[c.job]))


def _waits(job: Job) -> bool:
    """Whether it may still start on what is kept for it; who is moved or resized by restart will wait soon."""
    coming = job.state is JobState.PREEMPTING and job.reason is not None and job.reason.code in (ReasonCode.RESIZE, ReasonCode.MOVED)
    return job.state in (JobState.QUEUED, JobState.HELD) or coming

"""
What-if: the cycle as it would run now, and the cycle as it would run with a change, job by job beside each other. Pure, and on boards
of its own: the live one is not touched.

Cost: two boards built anew and two cycles, plus a forecast for at most limits.WHAT_IF_FORECASTS_MAX waiting jobs in each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from shoal.base import limits
from shoal.model.job import LIVE, Job
from shoal.model.node import Node, NodeState
from shoal.model.plan import Evict, Move, Place, Plan, Reserve, Resize
from shoal.model.queue import Queue, Quota
from shoal.model.snapshot import Snapshot
from shoal.model.what_if import Fate, FateChange, WhatIf
from shoal.scheduling.board import Board
from shoal.scheduling.brief import brief_reasons
from shoal.scheduling.cycle import Ahead, look_ahead
from shoal.scheduling.explain import explain_job
from shoal.scheduling.scene import Scene, board_of

_GONE = Fate(what="gone")


class Supposed(NamedTuple):
    """The change, in records: jobs to add, ids of jobs to take out, quotas by queue and resource, nodes that take work or do not."""

    submit: tuple[Job, ...] = ()
    cancel: frozenset[str] = frozenset()
    quotas: dict[str, dict[str, int]] = {}
    drain: frozenset[str] = frozenset()
    back: frozenset[str] = frozenset()


class _Side(NamedTuple):
    """One of the two cycles."""

    board: Board
    jobs: dict[str, Job]
    """Those of the board, and elements without records that the cycle looked at."""
    fates: dict[str, Fate]
    bounded: bool


def what_if(scene: Scene, supposed: Supposed, sees: Callable[[Job], bool]) -> WhatIf:
    """What would go otherwise for whom. Jobs that the caller does not see (`sees`) are counted, not told."""
    then_scene = replace(scene, snapshot=suppose(scene.snapshot, supposed))
    now, then = _side(scene, sees), _side(then_scene, sees)
    changes, others = [], 0
    jobs = {**now.jobs, **then.jobs}
    new = {job.id for job in supposed.submit}
    for job in sorted(jobs.values(), key=lambda job: (not _is_new(job, new), job.number, job.id)):
        before, after = _fate(now, job), _fate(then, job) or _GONE
        if job.is_array or (before is None and not _is_new(job, new)) or _same(before, after):
            continue
        if not sees(job):
            others += 1
            continue
        changes.append(FateChange(job=job.address, project=job.project, queue=job.queue, new=_is_new(job, new), now=before, then=after))
    waiting = [job.id for job in supposed.submit if job.id in then.board.jobs and not job.is_array]
    why = tuple(explain_job(then.board, scene.policy, job_id, scene.now_ms) for job_id in waiting if then.fates[job_id].what != "starts")
    return WhatIf(
        as_of_ms=scene.now_ms,
        version=scene.snapshot.version,
        changes=tuple(changes[: limits.WHAT_IF_CHANGES_MAX]),
        more=max(0, len(changes) - limits.WHAT_IF_CHANGES_MAX),
        others=others,
        why=why,
        bounded=now.bounded or then.bounded,
    )


def _fate(side: _Side, job: Job) -> Fate | None:
    """What becomes of a job; an element that its array has not come to waits."""
    behind = job.array is not None and job.array.array_id in side.jobs
    return side.fates.get(job.id) or (Fate(what="waits") if behind else None)


def _is_new(job: Job, new: set[str]) -> bool:
    return job.id in new or (job.array is not None and job.array.array_id in new)


def _same(before: Fate | None, after: Fate) -> bool:
    """Other nodes alone are no difference, since it starts as soon."""
    return before is not None and (before.what, before.start_ms) == (after.what, after.start_ms)


# --- the change -----------------------------------------------------------------------------------------------------------------
def suppose(snapshot: Snapshot, supposed: Supposed) -> Snapshot:
    """The records as they would be."""
    whole = supposed.cancel
    gone = {job.id for job in snapshot.jobs if job.id in whole or (job.array is not None and job.array.array_id in whole)}
    jobs = [*(job for job in snapshot.jobs if job.id not in gone), *supposed.submit]
    return replace(
        snapshot,
        jobs=tuple(sorted(jobs, key=lambda job: job.id)),
        allocations=tuple(held for held in snapshot.allocations if held.job not in gone),
        claims=tuple(claim for claim in snapshot.claims if claim.job not in gone),
        nodes=tuple(_node(node, supposed) for node in snapshot.nodes),
        queues=tuple(_queue(queue, supposed.quotas.get(queue.id, {})) for queue in snapshot.queues),
    )


def _node(node: Node, supposed: Supposed) -> Node:
    if node.id in supposed.drain:
        return replace(node, state=NodeState.DRAINING)
    return replace(node, state=NodeState.READY) if node.id in supposed.back else node


def _queue(queue: Queue, nominal: dict[str, int]) -> Queue:
    quotas = dict(queue.spec.quotas)
    for resource, amount in nominal.items():
        quotas[resource] = replace(quotas.get(resource, Quota()), nominal=amount)
    return replace(queue, spec=replace(queue.spec, quotas=quotas)) if nominal else queue


# --- a cycle ---------------------------------------------------------------------------------------------------------------------
def _side(scene: Scene, sees: Callable[[Job], bool]) -> _Side:
    board = board_of(scene)
    board.begin_cycle(scene.now_ms)
    with look_ahead(board, scene.policy, scene.now_ms) as ahead:
        plan = ahead.plan()
        fates = _decided(plan, scene.now_ms)
        jobs = dict(board.jobs)
        waiting = sorted((job for job_id, job in jobs.items() if job_id not in fates and job.state not in LIVE), key=_turn)
        starts = _starts(ahead, [job.id for job in waiting if sees(job) and job.id in board.pending and not _has_time(board, job)])
        starts |= {job.id: job.not_before_ms for job in waiting if _has_time(board, job)}
    reasons = brief_reasons(board, scene.policy, (job.id for job in waiting if sees(job)), scene.now_ms)
    for job in waiting:
        reason = reasons.get(job.id) or job.reason
        fates[job.id] = Fate(what="waits", start_ms=starts.get(job.id), reason=reason.message if reason is not None else "")
    for job_id, job in jobs.items():
        if job.state in LIVE:
            fates.setdefault(job_id, Fate(what="runs"))
    return _Side(board, jobs, fates, bool(plan.counters.get("bound")))


def _has_time(board: Board, job: Job) -> bool:
    """It may not start before some time, whatever there is."""
    return board.pending.waits_for_time(job.id)


def _turn(job: Job) -> tuple[str, int, int, int, str]:
    return (job.queue, -job.priority, job.queued_ms, job.number, job.id)


def _starts(ahead: Ahead, job_ids: Iterable[str]) -> dict[str, int]:
    """Earliest starts that are known, of the first of these jobs."""
    found = {}
    for job_id in list(job_ids)[: limits.WHAT_IF_FORECASTS_MAX]:
        told = ahead.forecast(job_id)
        if told.reserved is not None:
            found[job_id] = told.reserved.start_ms
    return found


def _decided(plan: Plan, now_ms: int) -> dict[str, Fate]:
    """Fates of those that the cycle decides about."""
    fates = {}
    for decision in plan.decisions:
        if isinstance(decision, Place):
            fates[decision.job] = Fate(what="starts", start_ms=now_ms, nodes=tuple(member.node for member in decision.members))
        elif isinstance(decision, Reserve) and decision.start_ms <= now_ms:
            fates[decision.job] = Fate(what="clears", start_ms=now_ms, nodes=tuple(member.node for member in decision.members))
        elif isinstance(decision, Evict):
            fates[decision.job] = Fate(what="stopped", reason=decision.reason.message)
        elif isinstance(decision, Move):
            fates[decision.job] = Fate(what="moved", nodes=tuple(m.node for m in decision.members), reason=decision.reason.message)
        elif isinstance(decision, Resize):
            fates[decision.job] = Fate(what="resized", nodes=tuple(m.node for m in decision.members), reason=decision.reason.message)
    return fates

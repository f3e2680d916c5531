"""Why a job waits at a limit of its queue: the limit by its name, what counts against it, and who holds it. For `explain`."""

from __future__ import annotations

from shoal.base import limits
from shoal.model.job import Job
from shoal.model.queue import NON_PREEMPTIBLE_STEPS
from shoal.model.reason import Holder, Reason, ReasonCode
from shoal.scheduling.asks import shape_of
from shoal.scheduling.blockers import addresses
from shoal.scheduling.board import Board
from shoal.scheduling.crowd import Excess, excess_of, gpus_of, limits_of, steps_of
from shoal.scheduling.options import options_for

_WHAT = {
    ReasonCode.QUEUE_JOBS_LIMIT: "running jobs",
    ReasonCode.USER_JOBS_LIMIT: "running jobs of {owner}",
    ReasonCode.USER_GPUS_LIMIT: "GPUs of {owner}",
    ReasonCode.QUEUE_BUDGET: "urgency",
    ReasonCode.USER_BUDGET: "urgency of {owner}",
}
_BUDGETS = (ReasonCode.QUEUE_BUDGET, ReasonCode.USER_BUDGET)
_BY_QUEUE = (ReasonCode.QUEUE_JOBS_LIMIT, ReasonCode.QUEUE_BUDGET)


def limit_reasons(board: Board, job: Job) -> tuple[Reason, ...]:
    """The running limit that keeps a job, with those who hold it; none where it keeps nobody."""
    bounds = limits_of(board.queues, job.queue)
    if not bounds.of_running:
        return ()
    options = options_for(shape_of(job), board.columns)
    asked_milli = min((dict(option.charge_least).get("gpu", 0) for option in options), default=0)
    excess = excess_of(bounds, board.crowd.of(job.queue), board.crowd.of(job.queue, job.owner), asked_milli, steps_of(job))
    return () if excess is None else (_reason(board, job, excess),)


def _reason(board: Board, job: Job, excess: Excess) -> Reason:
    by_user = excess.code not in _BY_QUEUE
    known = (board.jobs[other] for other in board.horizon.running.get(job.queue, ()) if other in board.jobs)
    running = sorted(known, key=lambda other: other.number)
    budget = excess.code in _BUDGETS
    holding = [other for other in running if (not by_user or other.owner == job.owner) and (not budget or steps_of(other))]
    gpus = -(-sum(gpus_of(board, other) for other in holding) // 1_000)
    what = _WHAT[excess.code].format(owner=job.owner)
    asks = f", and it asks for {excess.asked}" if excess.code is ReasonCode.USER_GPUS_LIMIT else ""
    if budget:
        asks = f" GPU-steps in use, and it asks for {excess.asked}: {-(-excess.asked // steps_of(job))} GPUs x {_steps(job)}"
    whose = f"of {job.owner} " if by_user else ""
    urgent = "urgent " if budget else ""
    return Reason(
        code=excess.code,
        message=f"queue {job.queue} limits {what} to {excess.limit} ({excess.name}); there are {excess.used}{asks}",
        queue=job.queue,
        asked=excess.asked,
        free=max(0, excess.limit - excess.used),
        capacity=excess.limit,
        holders=(Holder(project=job.project, queue=job.queue, jobs=len(holding), gpus=gpus),),
        blockers=addresses(board, [other.id for other in holding])[: limits.HOLDERS_SHOWN_MAX],
        hints=(
            *((_cheaper(job),) if budget else ()),
            f"starts when {'an' if budget else 'a'} {urgent}job {whose}in queue {job.queue} ends",
            f"an administrator raises it: shoal queues set {job.queue} --limit {excess.name}=N",
        ),
    )


def _steps(job: Job) -> str:
    """Where a job's steps come from."""
    parts = [f"priority {job.priority}"] if job.priority > 0 else []
    parts += [f"{NON_PREEMPTIBLE_STEPS} since it cannot be stopped"] if not job.spec.preemptible else []
    return " + ".join(parts)


def _cheaper(job: Job) -> str:
    if not job.spec.preemptible:
        return "costs less if it may be stopped (preemptible: true)"
    return f"costs nothing at priority 0: shoal update {job.address} --priority 0"

"""
Why jobs wait, a line each, for lists of them: the first cause that `explain` would name, without holders, changes or an earliest start.

Jobs of one queue, shape and owner have one answer, so a page of a thousand costs its distinct asks.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from shoal.base import limits
from shoal.base.units import format_duration_ms
from shoal.model.job import Job
from shoal.model.reason import Reason, ReasonCode
from shoal.scheduling.board import Board
from shoal.scheduling.limited import limit_reasons
from shoal.scheduling.options import options_of
from shoal.scheduling.pending import Filed
from shoal.scheduling.policy import Policy
from shoal.scheduling.shortfall import never_reason, quota_reason, room_reason, unknown_queue_reason
from shoal.scheduling.standing import is_closed

_MAY_BE_NEVER = frozenset({ReasonCode.QUOTA, ReasonCode.RESOURCES, ReasonCode.FRAGMENTATION, ReasonCode.TOPOLOGY})


def brief_reasons(board: Board, policy: Policy, job_ids: Iterable[str], now_ms: int) -> dict[str, Reason]:
    """
    By job id, why those wait that only quota, room or their turn keep waiting; the others' reasons stand in their records.

    At most limits.BRIEF_REASONS_MAX distinct asks are judged; who comes after has none.
    """
    board.begin_cycle(now_ms)
    empty: Board | None = None
    known: dict[object, Reason] = {}
    found: dict[str, Reason] = {}
    for job_id in job_ids:
        filed = board.pending.filed(job_id)
        if filed is None or job_id in board.claims_by:
            continue
        if board.pending.waits_for_time(job_id):
            found[job_id] = time_reasons(board.jobs[job_id], now_ms)[0]
            continue
        key = filed.queue, filed.lane.state, filed.lane.bound
        if key not in known:
            if len(known) >= limits.BRIEF_REASONS_MAX:
                continue
            known[key] = _reason(board, policy, filed, board.jobs[job_id])
            if known[key].code in _MAY_BE_NEVER:
                empty = empty or board.emptied()
                never = never_reason(empty, filed.queue, filed.lane.state.shape, policy)
                known[key] = known[key] if never is None else replace(never, hints=())
        found[job_id] = known[key]
    return found


def time_reasons(job: Job, now_ms: int) -> tuple[Reason, ...]:
    """Why a job waits that may not start before some time: as asked, or after a failure, which is told too."""
    left = format_duration_ms(-(-(job.not_before_ms - now_ms) // 1_000) * 1_000)
    if job.attempt == 0 and job.spec.begin is not None:
        return (Reason(code=ReasonCode.BEGIN, message=f"begins in {left}, as asked", until_ms=job.not_before_ms),)
    message = f"waits {left} before it is tried again"
    backoff = Reason(code=ReasonCode.BACKOFF, message=message, until_ms=job.not_before_ms)
    return (backoff, job.reason) if job.reason is not None and job.reason.code is not ReasonCode.BACKOFF else (backoff,)


def _reason(board: Board, policy: Policy, filed: Filed, job: Job) -> Reason:
    vertex = board.quota.vertices.get(filed.queue)
    if vertex is None:
        return unknown_queue_reason(filed.queue)
    if is_closed(vertex):
        return Reason(code=ReasonCode.QUEUE_CLOSED, message=f"queue {filed.queue} takes jobs but starts none", queue=filed.queue)
    limited = limit_reasons(board, job)
    if limited:
        return replace(limited[0], holders=(), hints=())
    options = options_of(filed.lane.state, board.columns)
    short = quota_reason(board.quota, filed.queue, options) or room_reason(board, filed.lane.state.shape, options, policy)
    message = "there is room for it, which is kept for others or goes to those before it"
    return short or Reason(code=ReasonCode.BEHIND, message=message, queue=filed.queue)

"""
Why jobs wait, a line each, for lists of them: the first cause that `explain` would name, without holders, changes or an earliest start.

Jobs of one queue, shape and owner have one answer, so a page of a thousand costs its distinct asks.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from shoal.base import limits
from shoal.model.job import Job
from shoal.model.reason import Reason, ReasonCode
from shoal.scheduling.board import Board
from shoal.scheduling.limited import limit_reasons
from shoal.scheduling.options import options_of
from shoal.scheduling.pending import Filed
from shoal.scheduling.policy import Policy
from shoal.scheduling.shortfall import quota_reason, room_reason, unknown_queue_reason
from shoal.scheduling.standing import is_closed


def brief_reasons(board: Board, policy: Policy, job_ids: Iterable[str], now_ms: int) -> dict[str, Reason]:
    """
    By job id, why those wait that only quota, room or their turn keep waiting; the others' reasons stand in their records.

    At most limits.BRIEF_REASONS_MAX distinct asks are judged; who comes after has none.
    """
    board.begin_cycle(now_ms)
    known: dict[object, Reason] = {}
    found: dict[str, Reason] = {}
    for job_id in job_ids:
        filed = board.pending.filed(job_id)
        if filed is None or board.pending.waits_for_time(job_id) or job_id in board.claims_by:
            continue
        key = filed.queue, filed.lane.state, filed.lane.bound
        if key not in known:
            if len(known) >= limits.BRIEF_REASONS_MAX:
                continue
            known[key] = _reason(board, policy, filed, board.jobs[job_id])
        found[job_id] = known[key]
    return found


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

"""An earliest start in words: when, and by whose time limits; or why none is known. For `explain`."""

from __future__ import annotations

from shoal.base import limits
from shoal.base.units import format_duration_ms
from shoal.model.reason import Reason, ReasonCode
from shoal.scheduling.asks import Shape
from shoal.scheduling.blockers import addresses, listed
from shoal.scheduling.board import Board
from shoal.scheduling.horizon import NEVER
from shoal.scheduling.options import options_for
from shoal.scheduling.policy import Policy
from shoal.scheduling.reserve import Reserved
from shoal.scheduling.shortfall import fits_somewhere


def expected_reason(board: Board, reserved: Reserved, now_ms: int) -> Reason:
    """Why a job is expected to start when it is."""
    ending = _ending_before(board, reserved)
    names = addresses(board, ending)
    who = f"{'job' if len(names) == 1 else 'jobs'} {listed(names)}"
    if reserved.start_ms <= now_ms:
        message = f"starts as soon as {who} has given back what it holds" if names else "starts as soon as it is its turn"
    else:
        wait_ms = -(-(reserved.start_ms - now_ms) // 1_000) * 1_000
        by = f", when {who} will have ended by time limit" if names else ", when what is placed before it will have ended"
        message = f"starts in {format_duration_ms(wait_ms)} at the earliest that is known{by}"
    shown = names[: limits.HOLDERS_SHOWN_MAX]
    return Reason(code=ReasonCode.EXPECTED, message=message, until_ms=max(reserved.start_ms, now_ms), blockers=shown)


def _ending_before(board: Board, reserved: Reserved) -> list[str]:
    """Jobs on the nodes that it will get whose end comes before; where there are none, those whose end gives it quota. By end."""
    rows = dict.fromkeys(part.row for part in reserved.parts)
    on_nodes = {
        (end, held.job)
        for row in rows
        for end, _, held in board.horizon.ending_on(row)
        if end <= reserved.start_ms and _gives(board, row, held.gpus_touched, reserved)
    }
    if not on_nodes:
        ends = board.horizon.job_ends_in(board.quota.tree_of(reserved.queue))
        on_nodes = {(end, job_id) for end, job_id in ends if end <= reserved.start_ms}
    return [job_id for _, job_id in sorted(on_nodes)]


def _gives(board: Board, row: int, devices: tuple[str, ...], reserved: Reserved) -> bool:
    """Whether a holder on a node has something that the reservation needs there: one of its GPUs, or cores and memory."""
    needed = 0
    for part in reserved.parts:
        if part.row == row:
            needed |= part.mask | sum({1 << piece.at for piece in part.pieces})
    return not needed or not devices or bool(needed & board.columns.mask_of(row, devices))


def unknown_hint(board: Board, policy: Policy, shape: Shape) -> str:
    """Why no earliest start is known, and what would change that. Cost: an empty board, and the running jobs."""
    if not _open_nodes_could(board, policy, shape):
        return "no earliest start is known: the nodes that take work now could not hold it, were they empty"
    endless = sorted(job_id for job_id, end in board.horizon.end_of.items() if end >= NEVER and _counts(board, job_id, shape))
    if endless:
        names = addresses(board, endless)
        who = f"job {names[0]} has" if len(names) == 1 else f"jobs {listed(names)} have"
        return f"no earliest start is known, since {who} no time limit: give one (`time`), or the queue a default"
    return "no earliest start is known: no end of a running job that is known would give it room"


def _open_nodes_could(board: Board, policy: Policy, shape: Shape) -> bool:
    """Whether the nodes that take work now could hold it with nothing on them."""
    empty = board.emptied()
    empty.columns.open &= board.columns.open
    return fits_somewhere(empty, shape, options_for(shape, empty.columns), policy)


def _counts(board: Board, job_id: str, shape: Shape) -> bool:
    """Whether what a job holds could be of use: GPUs where GPUs are asked for, anything else else."""
    wants_gpus = any(group.member.gpus or group.member.pieces for way in shape.alternatives for group in way.groups)
    held = [board.allocations[held_id] for held_id in board.held_by.get(job_id, ())]
    return job_id in board.jobs and (not wants_gpus or any(one.devices or one.parts for one in held))

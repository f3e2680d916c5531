"""Why a job that could stop others does not: in words, for `explain`."""

from __future__ import annotations

from shoal.base import limits
from shoal.model.job import Job
from shoal.scheduling.blockers import addresses, listed
from shoal.scheduling.board import Board
from shoal.scheduling.cycle import Ahead, Forecast
from shoal.scheduling.options import Option
from shoal.scheduling.order import Candidate
from shoal.scheduling.pending import Filed
from shoal.scheduling.shortfall import Counts, nearest, plain_text


def patience_hints(ahead: Ahead, filed: Filed, told: Forecast, now_ms: int) -> tuple[str, ...]:
    """Whom it has the right to displace and why it waits for a start that is known instead; empty where that is not why."""
    board, reserved = ahead.board, told.reserved
    if told.placed or reserved is None or reserved.start_ms <= now_ms:
        return ()
    candidate = Candidate(filed.queue, filed.key, filed.lane)
    spared = ahead.spared(candidate)
    if not spared:
        return ()
    names, tolerance = addresses(board, spared), board.jobs[candidate.job_id].spec.tolerance
    whom = f"{'job' if len(names) == 1 else 'jobs'} {listed(names)}"
    if tolerance is not None and reserved.start_ms - now_ms <= tolerance.ms:
        return (f"it could have the room of {whom}, and waits since its start is within the wait it tolerates ({tolerance.plain()})",)
    return (f"it could have the room of {whom}, and waits since they would lose more than its wait costs",)


def unstoppable_hints(board: Board, job: Job, options: tuple[Option, ...]) -> tuple[str, ...]:
    """
    Who of its own queue is in its way and may not be stopped, and the most that a node could offer without those.

    Empty for a job below whom nobody runs: it has no right that could fail.
    """
    running = [board.jobs[other] for other in board.horizon.running.get(job.queue, ()) if other in board.jobs]
    below = [other for other in running if other.priority < job.priority]
    if not below or not options:
        return ()
    fixed = [other.id for other in below if not other.spec.preemptible]
    hints = []
    if fixed:
        names = addresses(board, sorted(fixed))
        hints.append(f"{'job' if len(names) == 1 else 'jobs'} {listed(names)} cannot be stopped for it: not preemptible")
    _, shortfall = nearest(board, options)
    if shortfall.missing and shortfall.resource.startswith("gpu/"):
        offered = _offered(board, [other.id for other in below if other.spec.preemptible], shortfall.free_by_row)
        best = int(offered.argmax())
        asked = shortfall.part.need.member.gpus
        if offered[best] < asked:
            most = plain_text(shortfall.resource, int(offered[best]))
            hints.append(
                f"no node can offer {plain_text(shortfall.resource, asked)} below priority {job.priority} "
                f"(best: {most} on {board.columns.nodes[best].id})"
            )
    return tuple(hints)


def _offered(board: Board, job_ids: list[str], free: Counts) -> Counts:
    """Per row, GPUs that are free or held by these jobs."""
    offered = free.copy()
    for job_id in job_ids[: limits.ENDS_WALKED_MAX]:
        for allocation_id in board.held_by[job_id]:
            held = board.allocations[allocation_id]
            row = board.columns.row.get(held.node)
            if row is not None:
                offered[row] += len(held.devices)  # Parts of GPUs do not make a whole one.
    return offered

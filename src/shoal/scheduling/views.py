"""A board's queues as people see them: what each holds, may still start, borrows, and how much waits in it."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.model.job import Job
from shoal.model.queue import QueueSpec
from shoal.model.wire import QueueView
from shoal.scheduling.asks import shape_of
from shoal.scheduling.board import Board
from shoal.scheduling.quota import Vertex


def queue_views(board: Board, now_ms: int | None = None) -> tuple[QueueView, ...]:
    """
    Every queue, the implicit `default` included, by name. `used` counts what lies below a queue too; jobs are its own.

    `now_ms` None: as of the board's last cycle.
    """
    waiting: dict[str, tuple[int, int]] = {}
    for name, line in board.pending.lines.items():
        for lane in line.lanes.values():
            _count(waiting, name, lane.jobs, lane.state.gpus_least)
    for job_id in board.gates:
        job = board.jobs[job_id]
        _count(waiting, job.queue, 1, shape_of(job).gpus_least)
    for array_id in board.fronts:
        front = board.jobs[board.fronts[array_id]]
        _count(waiting, front.queue, board.unborn_behind(array_id), shape_of(front).gpus_least)
    running: dict[str, int] = {}
    for job_id in board.held_by:
        holder: Job | None = board.jobs.get(job_id)
        if holder is not None:
            running[holder.queue] = running.get(holder.queue, 0) + 1
    lately = board.usage.shares(board.quota, board.columns.capacity, board.pending.now_ms if now_ms is None else now_ms)
    views = (_view(board, vertex, waiting, running) for vertex in board.quota.vertices.values())
    return tuple(replace(view, used_lately=_rounded(lately[view.name].by_resource)) for view in views)


def _rounded(shares: dict[str, float]) -> dict[str, float]:
    return {resource: rounded for resource, share in shares.items() if (rounded := round(share, 6))}


def _count(waiting: dict[str, tuple[int, int]], queue: str, jobs: int, gpus_each: int) -> None:
    before = waiting.get(queue, (0, 0))
    waiting[queue] = (before[0] + jobs, before[1] + jobs * gpus_each)


def _view(board: Board, vertex: Vertex, waiting: dict[str, tuple[int, int]], running: dict[str, int]) -> QueueView:
    stored = board.queues.get(vertex.name)
    beyond = {r: vertex.usage.get(r, 0) - vertex.subtree.get(r, 0) for r in vertex.named}
    pending = waiting.get(vertex.name, (0, 0))
    return QueueView(
        name=vertex.name,
        parent=vertex.parent.name if vertex.parent else None,
        spec=stored.spec if stored else QueueSpec(),
        used={r: a for r, a in sorted(vertex.held.items()) if a},
        available=board.quota.left(vertex.name),
        borrowed={r: a for r, a in beyond.items() if a > 0},
        pending_jobs=pending[0],
        running_jobs=running.get(vertex.name, 0),
        pending_gpus=pending[1],
        version=stored.version if stored else 0,
    )

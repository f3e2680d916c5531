"""Could a job ever run on this fleet under these quotas? The question behind `--must-fit` and behind reasons that end in `.never`."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.model.job import Job
from shoal.model.node import Node
from shoal.model.queue import Queue
from shoal.model.reason import Reason
from shoal.model.snapshot import Snapshot
from shoal.scheduling.asks import shape_of
from shoal.scheduling.board import Board
from shoal.scheduling.policy import Policy
from shoal.scheduling.shortfall import never_reason, unknown_queue_reason


def could_ever_fit(nodes: Iterable[Node], queues: Iterable[Queue], job: Job, policy: Policy | None = None) -> Reason | None:
    """
    None if the job would start with nothing else running and every node that has not been given up taking work; else why not.

    Cost: the nodes. Somebody who has a board asks `shortfall.never_reason` with its `emptied()`.
    """
    board = Board.of(Snapshot(version=0, nodes=tuple(nodes), queues=tuple(queues))).emptied()
    if job.queue not in board.quota.vertices:
        return unknown_queue_reason(job.queue)
    return never_reason(board, job.queue, shape_of(job), policy or Policy())

"""Notes that a board takes while it moves forward by a change."""

from __future__ import annotations

from shoal.model.attempt import HOLDING, Allocation


class Moved:
    """What one change has touched and must be worked out again when all of it is in."""

    __slots__ = ("jobs", "limits", "nodes", "passes", "queues")

    def __init__(self) -> None:
        self.nodes: dict[str, None] = {}
        self.jobs: dict[str, None] = {}
        self.queues = self.passes = False
        self.limits: dict[str, None] = {}
        """Queues whose limits are others now."""


def holds_the_same(before: Allocation, after: Allocation) -> bool:
    """True if an allocation that held room holds just that on: who started has moved nothing on his node."""
    return (
        after.state in HOLDING
        and before.leaving == after.leaving
        and before.node == after.node
        and before.devices == after.devices
        and before.parts == after.parts
        and before.gpu_model == after.gpu_model
        and before.cpu_milli == after.cpu_milli
        and before.memory_bytes == after.memory_bytes
        and (before.job, before.queue, before.project) == (after.job, after.queue, after.project)
    )

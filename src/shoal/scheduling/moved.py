"""Notes that a board takes while it moves forward by a change."""

from __future__ import annotations


class Moved:
    """What one change has touched and must be worked out again when all of it is in."""

    __slots__ = ("jobs", "limits", "nodes", "passes", "queues")

    def __init__(self) -> None:
        self.nodes: dict[str, None] = {}
        self.jobs: dict[str, None] = {}
        self.queues = self.passes = False
        self.limits: dict[str, None] = {}
        """Queues whose limits are others now."""

"""
What a replay leaves behind: a row per job that ended, and how many GPUs were held while time passed. `metrics` makes figures from it.

Rows are kept as columns of numbers: a million of them then fit into 100 MB.
"""

from __future__ import annotations

from array import array

from shoal.model.job import Job
from shoal.sim.world import World


class Record:
    """See module. Times are milliseconds as the lifecycle has them; -1 where there is none."""

    def __init__(self, world: World) -> None:
        self._world = world
        world.on_end = self._note
        self.number = array("q")
        self.submit = array("q")
        self.start = array("q")
        """Of the last attempt."""
        self.end = array("q")
        self.gpus = array("q")
        """Held by the last attempt; 0 for a job that never started."""
        self.nodes = array("q")
        self.attempts = array("q")
        self.state: list[str] = []
        self.queue: list[str] = []
        self.owner: list[str] = []
        self.passed_ms = 0
        """Up to when time has passed, from the start of the trace."""
        self.held_gpu_ms = 0
        """Integral of the GPUs held."""
        self.owned_gpu_ms = 0
        """Integral of the GPUs of all nodes."""
        self.held_most = 0
        self.waiting_most = 0

    def __len__(self) -> int:
        return len(self.number)

    def pass_time(self, at_ms: int) -> None:
        """Time passes to `at_ms` with things as they are."""
        world, passed = self._world, at_ms - self.passed_ms
        if passed > 0:
            self.held_gpu_ms += world.gpus_held * passed
            self.owned_gpu_ms += world.gpus * passed
            self.passed_ms = at_ms
            self.held_most = max(self.held_most, world.gpus_held)
            self.waiting_most = max(self.waiting_most, len(world.board.pending))

    def _note(self, job: Job) -> None:
        """A job has ended. An array's parent is no work of its own."""
        if job.is_array:
            return
        members = self._world.members.get(job.id, {}).values() if job.attempt else ()
        mine = [member for member in members if member.attempt == job.attempt]
        self.number.append(job.number)
        self.submit.append(job.created_ms)
        self.start.append(-1 if job.started_ms is None else job.started_ms)
        self.end.append(-1 if job.ended_ms is None else job.ended_ms)
        self.gpus.append(sum(len(member.devices) for member in mine))
        self.nodes.append(len(mine))
        self.attempts.append(job.attempt)
        self.state.append(str(job.state))
        self.queue.append(job.queue)
        self.owner.append(job.owner)

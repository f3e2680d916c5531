"""
What a replay leaves behind: a row per job that ended, and how many GPUs were held while time passed. `metrics` makes figures from it.

Rows are kept as columns of numbers: a million of them then fit into 100 MB.
"""

from __future__ import annotations

from array import array

from shoal.model.job import Job
from shoal.model.snapshot import Picture
from shoal.sim.series import SeriesRecord
from shoal.sim.world import World


class Record:
    """See module. Times are milliseconds as the lifecycle has them; -1 where there is none."""

    def __init__(self, world: World) -> None:
        self._world = world
        world.on_end = self.note
        self.number = array("q")
        self.submit = array("q")
        self.start = array("q")
        """Of the last attempt."""
        self.end = array("q")
        self.gpu_milli = array("q")
        """Thousandths of GPUs that the last attempt held; 0 for a job that never started."""
        self.nodes = array("q")
        self.attempts = array("q")
        self.state: list[str] = []
        self.queue: list[str] = []
        self.owner: list[str] = []
        self.passed_ms = 0
        """Up to when time has passed, from the start of the trace."""
        self.held_gpu_us = 0
        """Integral of what is held of GPUs: thousandths of a GPU for a millisecond are GPU-microseconds."""
        self.owned_gpu_us = 0
        """Integral of the GPUs of all nodes."""
        self.stranded_gpu_us = 0
        """Integral of what is free on nodes of which others are held."""
        self.broken_gpu_us = 0
        """Integral of what is free of GPUs of which others are held."""
        self._about_to_lose: dict[str, int] = {}
        """What was lost of each gang at its last eviction, unless it has saved since."""
        self.lost_gpu_us = 0
        """Work of attempts that others displaced, since their last checkpoint: it is done again."""
        self.forecast_error = array("q")
        """How long after its first forecast each job started that had one; below 0 before it."""
        self.held_milli_most = 0
        self.waiting_most = 0
        self.over_time = SeriesRecord()
        self.where: list[tuple[str, ...]] | None = None
        """With a list in place of None: the nodes of each row's last attempt."""

    def __len__(self) -> int:
        return len(self.number)

    def pass_time(self, at_ms: int) -> None:
        """Time passes to `at_ms` with things as they are."""
        world, passed = self._world, at_ms - self.passed_ms
        if passed > 0:
            held, owned, stranded = world.gpu_milli_held, 1_000 * world.gpus, world.stranded_milli
            self.held_gpu_us += held * passed
            self.owned_gpu_us += owned * passed
            self.stranded_gpu_us += stranded * passed
            self.broken_gpu_us += world.broken_milli * passed
            self.over_time.add(self.passed_ms, at_ms, (held, owned, stranded, len(world.board.pending)))
            self.passed_ms = at_ms
            self.held_milli_most = max(self.held_milli_most, held)
            self.waiting_most = max(self.waiting_most, len(world.board.pending))

    def note_eviction(self, picture: Picture, at_ms: int) -> None:
        """A running gang is stopped in favour of another: what it has done since its last checkpoint is lost."""
        job = picture.job
        if job.started_ms is not None:
            saved_ms = max(job.started_ms, job.checkpointed_ms or 0)
            lost = max(0, at_ms - saved_ms) * sum(member.gpu_milli for member in picture.allocations)
            self.lost_gpu_us += lost
            self._about_to_lose[job.id] = lost

    def note_saved(self, job_id: str) -> None:
        """A gang that gives its room away has saved first: it loses nothing after all."""
        self.lost_gpu_us -= self._about_to_lose.pop(job_id, 0)

    def note(self, job: Job) -> None:
        """A job has ended. An array's parent is no work of its own."""
        if job.is_array:
            return
        members = self._world.members.get(job.id, {}).values() if job.attempt else ()
        mine = [member for member in members if member.attempt == job.attempt]
        self.number.append(job.number)
        self.submit.append(job.created_ms)
        self.start.append(-1 if job.started_ms is None else job.started_ms)
        self.end.append(-1 if job.ended_ms is None else job.ended_ms)
        self.gpu_milli.append(sum([member.gpu_milli for member in mine]))
        self.nodes.append(len(mine))
        self.attempts.append(job.attempt)
        self.state.append(str(job.state))
        self.queue.append(job.queue)
        self.owner.append(job.owner)
        if self.where is not None:
            self.where.append(tuple(sorted(member.node for member in mine)))

"""
Jobs that could start if there were room: per queue in order, grouped so that equal questions are asked once.

    Pending            by queue
    `-- Line               one queue's jobs
        `-- Lane               its jobs of one shape and time limit (and, where its number is limited, of one array or user),
                               that may use the same reservations

A line knows the first job of each lane, in order. A cycle walks these heads and skips a lane whose shape has failed without looking
at the jobs behind the first. Adding and removing costs the logarithm of the line's length. Jobs whose time has not come wait in
`timers`; `advance` moves them over (and back, should the clock go back, so that a board depends on the time asked for alone).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.model.job import Job
from shoal.scheduling.asks import Shape, shape_of
from shoal.scheduling.sortedkeys import SortedKeys

if TYPE_CHECKING:
    from shoal.scheduling.options import Option

JobKey = tuple[int, int, int, str]
"""(urgency, queued since, number, id): ascending is the order inside a queue. Urgency is -priority; where age counts, see `key_of`."""
HeadKey = tuple[int, int, int, str, "Lane"]
TimerKey = tuple[int, str]
NO_LIMIT: Final = 1 << 62
"""The time limit of a job that has none: longer than any."""


def key_of(job: Job, age_unit_ms: int = 0) -> JobKey:
    """
    A job's place in its queue. With `age_unit_ms`, waiting for so long is worth one step of priority.

    priority + (now - queued) / unit orders as queued - priority x unit does, whatever the time is: no key moves while time passes.
    """
    urgency = job.queued_ms - job.priority * age_unit_ms if age_unit_ms else -job.priority
    return (urgency, job.queued_ms, job.number, job.id)


class Bound(NamedTuple):
    """Whose limits hold for a job: an array's (its id) and a user's, each empty where there is none; and what its urgency costs."""

    array: str = ""
    owner: str = ""
    steps: int = 0
    """What each of its GPUs costs of the queue's priority budget; 0 where it has none."""


class ShapeState:
    """One shape that some pending job has, with the reservations that it may use (`passes`), and what is known of it."""

    __slots__ = (
        "failed_cycle",
        "failed_growth",
        "failed_limit_ms",
        "failed_run_ms",
        "gpus_least",
        "jobs",
        "options",
        "options_epoch",
        "passes",
        "shape",
    )

    def __init__(self, shape: Shape, passes: tuple[str, ...] = ()) -> None:
        self.shape = shape
        self.passes = passes
        self.gpus_least = shape.gpus_least
        self.jobs = 0
        self.failed_growth = -1
        """`Columns.growth` at which it was seen to fit nowhere; while that stands it need not be tried."""
        self.failed_cycle = -1
        """As above, but only for one cycle: it failed on room that this cycle itself had taken, or keeps for others."""
        self.failed_limit_ms = self.failed_run_ms = 0
        """In that cycle jobs that may run, and are expected to run, so long or longer need not be tried; others may end in time."""
        self.options: tuple[Option, ...] | None = None
        """Kept by `options`: what the shape means for the models of this fleet."""
        self.options_epoch = -1


class Lane:
    """
    See module. `bound` says whose limits hold for these jobs. `limit_ms` is when they are stopped, `run_ms` what is planned with: the
    limit, or less where past runs say so. NO_LIMIT where there is none.
    """

    __slots__ = (
        *("array", "bound", "hopeless_until_ms", "hopeless_version", "jobs", "keys", "limit_ms", "owner", "patient", "run_ms", "state"),
    )

    def __init__(self, state: ShapeState, bound: Bound, limit_ms: int, run_ms: int) -> None:
        self.state = state
        self.bound = bound
        self.array, self.owner = bound.array, bound.owner
        self.limit_ms, self.run_ms = limit_ms, run_ms
        self.hopeless_version = -1
        """The board's version at which nobody was found to go for its first job; while that stands it need not be searched for again."""
        self.hopeless_until_ms = NO_LIMIT
        """Before that time, that is: when the first may be stopped who has not run long enough."""
        self.patient = False
        """At that version it was found to wait for a known start instead: room is kept for it, in each cycle anew."""
        self.jobs = 0
        """All that are filed here, those among the timers included."""
        self.keys: SortedKeys[JobKey] = SortedKeys()

    def fails_with(self, cycle: int) -> bool:
        """True if a job of its shape that would hold room no longer has failed in this cycle."""
        state = self.state
        return state.failed_cycle == cycle and self.run_ms >= state.failed_run_ms and self.limit_ms >= state.failed_limit_ms

    def searched(self, version: int, until_ms: int | None = None, patient: bool = False) -> None:
        """Nobody goes for its first job as things stand."""
        self.hopeless_version, self.patient = version, patient
        self.hopeless_until_ms = NO_LIMIT if until_ms is None else until_ms

    def is_hopeless(self, version: int, now_ms: int) -> bool:
        """True if a search would find again that nobody goes."""
        return self.hopeless_version == version and now_ms < self.hopeless_until_ms

    def is_silent(self, version: int) -> bool:
        """True if, on top of that, it has nothing else to ask: no room to be kept, no time to be woken at."""
        return self.hopeless_version == version and not self.patient and self.hopeless_until_ms >= NO_LIMIT


class Line:
    """One queue's pending jobs. `heads` has each lane's first job, in order."""

    __slots__ = ("heads", "jobs", "lanes", "sizes")

    def __init__(self) -> None:
        self.lanes: dict[tuple[ShapeState, Bound, int, int], Lane] = {}
        self.heads: SortedKeys[HeadKey] = SortedKeys()
        self.jobs = 0
        self.sizes: dict[int, int] = {}
        """Lanes by the GPUs of their smallest gang: the least of them tells when a quota leaves nothing to try."""

    def lane(self, state: ShapeState, bound: Bound, limit_ms: int, run_ms: int) -> Lane:
        """The lane for a shape, made where there is none."""
        lane = self.lanes.get((state, bound, limit_ms, run_ms))
        if lane is None:
            lane = self.lanes[state, bound, limit_ms, run_ms] = Lane(state, bound, limit_ms, run_ms)
            self.sizes[state.gpus_least] = self.sizes.get(state.gpus_least, 0) + 1
        return lane

    def drop(self, lane: Lane) -> None:
        """Nobody is in the lane any more."""
        del self.lanes[lane.state, lane.bound, lane.limit_ms, lane.run_ms]
        size = lane.state.gpus_least
        self.sizes[size] -= 1
        if not self.sizes[size]:
            del self.sizes[size]

    def add(self, lane: Lane, key: JobKey) -> None:
        first = lane.keys.first()
        lane.keys.add(key)
        self.jobs += 1
        if first is None or key < first:
            if first is not None:
                self.heads.remove((*first, lane))
            self.heads.add((*key, lane))

    def remove(self, lane: Lane, key: JobKey) -> None:
        was_first = lane.keys.first() == key
        lane.keys.remove(key)
        self.jobs -= 1
        if was_first:
            self.heads.remove((*key, lane))
            first = lane.keys.first()
            if first is not None:
                self.heads.add((*first, lane))

    def rank(self, key: JobKey) -> int:
        """Jobs of the queue before `key`."""
        return sum(lane.keys.rank(key) for lane in self.lanes.values())


class Filed(NamedTuple):
    """Where a pending job is kept: in a lane, or, while `lane` is None, among the timers."""

    queue: str
    lane: Lane
    key: JobKey
    not_before_ms: int


class Pending:
    """See module. Iteration orders here never decide anything: whoever orders queues ends in their names."""

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self.now_ms = 0
        self.age_unit_ms = 0
        """How long a job waits for one more step of priority; 0: age does not count. Set by the board before jobs are filed anew."""
        self.by_history = False
        """Whether to plan with what jobs are expected to run in place of their limits. Set as `age_unit_ms`."""
        self.timers: SortedKeys[TimerKey] = SortedKeys()
        """Jobs whose time has not come."""
        self._ripe: SortedKeys[TimerKey] = SortedKeys()
        """Jobs in lanes that once had to wait for a time."""
        self._filed: dict[str, Filed] = {}
        self._states: dict[tuple[Shape, tuple[str, ...]], ShapeState] = {}

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._filed

    def __len__(self) -> int:
        return len(self._filed)

    def passes(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Each job with the reservations that it was filed as free to use."""
        return ((job_id, filed.lane.state.passes) for job_id, filed in self._filed.items())

    def filed(self, job_id: str) -> Filed | None:
        return self._filed.get(job_id)

    def waits_for_time(self, job_id: str) -> bool:
        filed = self._filed.get(job_id)
        return filed is not None and filed.not_before_ms > self.now_ms

    def add(self, job: Job, bound: Bound, passes: tuple[str, ...] = ()) -> None:
        """Files a job that only room, order, quota or time keep waiting. `bound`: see Lane; `passes`: reservations that it may use."""
        shape = shape_of(job)
        state = self._states.get((shape, passes))
        if state is None:
            state = self._states[shape, passes] = ShapeState(shape, passes)
        state.jobs += 1
        line = self.lines.setdefault(job.queue, Line())
        limit_ms = NO_LIMIT if job.time_limit_ms is None else job.time_limit_ms
        expected_ms = job.expected_ms if self.by_history and job.expected_ms is not None else NO_LIMIT
        lane = line.lane(state, bound, limit_ms, min(limit_ms, expected_ms))
        lane.jobs += 1
        filed = self._filed[job.id] = Filed(job.queue, lane, key_of(job, self.age_unit_ms), job.not_before_ms)
        if filed.not_before_ms <= self.now_ms:
            line.add(lane, filed.key)
            if filed.not_before_ms > 0:
                self._ripe.add((filed.not_before_ms, job.id))
        else:
            self.timers.add((filed.not_before_ms, job.id))

    def discard(self, job_id: str) -> None:
        """Takes a job out, if it is in."""
        filed = self._filed.pop(job_id, None)
        if filed is None:
            return
        line = self.lines[filed.queue]
        if filed.not_before_ms <= self.now_ms:
            line.remove(filed.lane, filed.key)
            if filed.not_before_ms > 0:
                self._ripe.remove((filed.not_before_ms, job_id))
        else:
            self.timers.remove((filed.not_before_ms, job_id))
        self._sweep(filed.queue, filed.lane)

    def _sweep(self, queue: str, lane: Lane) -> None:
        """One job less in this lane: drops what nobody is in any more."""
        lane.jobs -= 1
        lane.state.jobs -= 1
        if lane.state.jobs == 0:
            del self._states[lane.state.shape, lane.state.passes]
        if lane.jobs == 0:
            line = self.lines[queue]
            line.drop(lane)
            if not line.lanes:
                del self.lines[queue]

    def advance(self, now_ms: int) -> None:
        """Jobs whose time lies at or before `now_ms` join their lanes, and only those."""
        before, self.now_ms = self.now_ms, now_ms
        if now_ms >= before:
            for key in self.timers.below((now_ms + 1,)):
                self.timers.remove(key)
                self._ripe.add(key)
                filed = self._filed[key[1]]
                self.lines[filed.queue].add(filed.lane, filed.key)
            return
        for key in [key for key in self._ripe if key[0] > now_ms]:
            self._ripe.remove(key)
            self.timers.add(key)
            filed = self._filed[key[1]]
            self.lines[filed.queue].remove(filed.lane, filed.key)

    def next_time_ms(self) -> int | None:
        """When the next job's time comes, if one waits for it."""
        first = self.timers.first()
        return None if first is None else first[0]

    def contents(self) -> dict[str, object]:
        """By job: its queue, place in the order, shape and array limit, and time; plus what the lanes must say of it."""
        filed = {
            job_id: (f.queue, f.key, f.lane.state.shape, f.lane.state.passes, f.lane.bound, f.lane.limit_ms, f.lane.run_ms, f.not_before_ms)
            for job_id, f in sorted(self._filed.items())
        }
        lanes = {
            queue: sorted(
                (tuple(lane.keys), lane.bound, lane.limit_ms, lane.run_ms, lane.state.shape) for lane in line.lanes.values() if lane.keys
            )
            for queue, line in sorted(self.lines.items())
            if line.jobs
        }
        heads = {queue: [head[:4] for head in line.heads] for queue, line in sorted(self.lines.items()) if line.jobs}
        return {"filed": filed, "lanes": lanes, "heads": heads, "jobs": {q: x.jobs for q, x in sorted(self.lines.items()) if x.jobs}}

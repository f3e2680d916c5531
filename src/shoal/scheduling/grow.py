"""
Elastic gangs take room that nobody waits for, and come down to the size that a person wants. The last step that moves anything.

    who grows      a gang that runs, is elastic and whole (nobody is joining or leaving), up to the top of its range or the size wanted
    into what      free room of its GPU model and pool, beside every reservation, if no gang waits for room there (such a one comes before
                   anybody's surplus); as much as its queue may still be charged, exactly, and only if no waiting gang would then be
                   kept from its quota for longer
    at what price  in place: none. By restart: the work since its last checkpoint, so it grows only when one has just been reported, or
                   when a person asked for the size

That surplus goes back to whoever needs it is the business of `preempt`: members above the least are the first to go.
Rejected: to weigh a growth against its price by the time that is left, since nobody knows how long a job without a limit will run.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator

import numpy as np

from shoal.base import limits
from shoal.model.attempt import Allocation, AllocationState
from shoal.model.job import Job, JobState
from shoal.model.plan import PlacedMember, Resize
from shoal.model.reason import Reason, ReasonCode
from shoal.scheduling.asks import shape_of
from shoal.scheduling.board import Board
from shoal.scheduling.crowd import limits_of
from shoal.scheduling.domains import Rows
from shoal.scheduling.ledger import Ledger
from shoal.scheduling.options import GroupOption, fits_when_empty, inside_host, options_apart, options_of
from shoal.scheduling.pending import Lane
from shoal.scheduling.place import affordable, devices_for
from shoal.scheduling.policy import Policy
from shoal.scheduling.quota import Charge
from shoal.scheduling.reserve import Part, Reservations
from shoal.scheduling.standing import is_closed
from shoal.scheduling.windows import Flags, ends_by, leaves_within_ms, passes_of

ALL_POOLS = ""


class Grower:
    """See module. One per cycle, over the cycle's ledger; `go` is the whole step."""

    def __init__(self, board: Board, ledger: Ledger, reservations: Reservations, policy: Policy, now_ms: int) -> None:
        self._board = board
        self._ledger = ledger
        self._reservations = reservations
        self._policy = policy
        self._now_ms = now_ms
        self._waiters: _Waiters | None = None
        self._started: Collection[str] = ()
        self._grown_milli: dict[tuple[str, str], int] = {}
        """Thousandths of GPUs that this cycle has given to running jobs, by queue and user."""
        self.made: list[Resize] = []
        self.wake_ms: int | None = None
        """When a window ends that kept room from somebody who would grow."""

    def go(self, started: Collection[str], settled: Container[str], moved: Container[str]) -> None:
        """
        Resizes whom it can.

        `started` are jobs that this cycle has placed, `settled` those that wait and have room coming, `moved` those that are stopped or
        lose members.
        """
        elastic = self._board.horizon.elastic
        if not elastic:
            return
        self._waiters, self._started = _Waiters(self._board, started, settled), started
        jobs = (self._board.jobs[job_id] for job_id in elastic if job_id not in moved)
        wanting = [job for job in jobs if len(self._staying(job)) != job.nodes_most]
        for job in sorted(wanting, key=self._order)[: limits.RESIZES_PER_CYCLE_MAX]:
            self._resize(job)

    def _order(self, job: Job) -> tuple[int, int, int, str]:
        """Higher priorities first; among equals who has fewest above its least."""
        least = job.spec.nodes.low if job.spec.nodes is not None else 1
        return -job.priority, len(self._staying(job)) - least, job.number, job.id

    def _staying(self, job: Job) -> list[Allocation]:
        return staying(self._board, job.id)

    def _resize(self, job: Job) -> None:
        held = self._staying(job)
        extra = len(held) - job.nodes_most
        if extra > 0:
            message = f"from {len(held)} to {job.nodes_most} nodes, as was asked"
            self._decide(job, held[: job.nodes_most], (), message)
        elif held and not any(a.state is not AllocationState.STARTED for a in held) and self._is_cheap(job):
            self._grow(job, held)

    def _is_cheap(self, job: Job) -> bool:
        """Whether no work is lost by it, or little, or a person wants it."""
        if job.in_place or job.size is not None:
            return True
        saved_ms = job.checkpointed_ms
        return saved_ms is not None and saved_ms >= (job.started_ms or 0) and self._now_ms - saved_ms <= self._policy.grow_after_save_ms

    # --- growing ---------------------------------------------------------------------------------------------------------------
    def _grow(self, job: Job, held: list[Allocation]) -> None:
        part = self._part(job, held)
        if part is None or self._waiters is None or self._waiters.want_room(part, self._pool_of(held)):
            return
        wanted = self._within_limits(job, part, job.nodes_most - len(held))
        most = affordable(self._board.quota, job.queue, part.charge, wanted)
        rows = self._rows(job, held, part)[:most].tolist()
        count = self._allowed(job, part, len(rows))
        if not count or (not job.in_place and job.size is not None and count < job.nodes_most - len(held)):
            return
        asked, columns = part.need.member, self._reservations.left.columns
        joining, parts = [], []
        for row in rows[:count]:
            mask = devices_for(columns, row, part.need)
            parts.append(Part(row, mask, asked.cpu_milli, asked.memory_bytes))
            node, devices = columns.nodes[row].id, columns.uuids(row, mask)
            joining.append(PlacedMember(node=node, devices=devices, cpu_milli=asked.cpu_milli, memory_bytes=asked.memory_bytes))
        for seat in parts:
            self._ledger.seat(*seat)
        self._reservations.grown(tuple(parts))
        self._ledger.charge(job.queue, _times(part.charge, count))
        owner = (job.queue, job.owner)
        self._grown_milli[owner] = self._grown_milli.get(owner, 0) + count * dict(part.charge).get("gpu", 0)
        self._decide(job, held, tuple(joining), f"from {len(held)} to {len(held) + count} nodes: there is room that nobody waits for")

    def _within_limits(self, job: Job, part: GroupOption, most: int) -> int:
        """How many members, `most` at most, its queue lets its user have. Not in a cycle in which another job of his was placed."""
        limit, each = limits_of(self._board.queues, job.queue).gpus_per_user, dict(part.charge).get("gpu", 0)
        if limit is None or not each:
            return most
        if any(self._board.jobs[other].owner == job.owner for other in self._started):
            return 0
        held_milli = self._board.crowd.of(job.queue, job.owner).gpus_milli + self._grown_milli.get((job.queue, job.owner), 0)
        return max(0, min(most, (limit * 1_000 - held_milli) // each))

    def _part(self, job: Job, held: list[Allocation]) -> GroupOption | None:
        """What one more member asks for: of the same model as the others."""
        if job.queue not in self._board.quota.vertices or is_closed(self._board.quota.vertices[job.queue]):
            return None
        shape = shape_of(job)._replace(avoid=())
        if shape.required and inside_host(shape, self._board.columns):
            return None
        options = options_apart(shape, self._board.columns)
        return next((option.groups[0] for option in options if (option.model or "") == held[0].gpu_model), None)

    def _pool_of(self, held: list[Allocation]) -> str:
        row = self._board.columns.row.get(held[0].node)
        return ALL_POOLS if row is None else self._board.columns.nodes[row].pool

    def _rows(self, job: Job, held: list[Allocation], part: GroupOption) -> Rows:
        """Nodes that take a member more, the nearest to the first member first, the fullest of these first, then by id."""
        board, left = self._board, self._reservations.left
        columns = left.columns
        first = columns.row.get(held[0].node)
        if first is None:
            return np.zeros(0, np.int64)
        fits = left.rooms.fitting(part.need).copy()
        closed = self._closed_to(job)
        if closed is not None:
            if (fits & closed).any():
                self.wake_ms = board.windows.ends_after(self._now_ms)
            if not job.in_place and any(closed[columns.row[one.node]] for one in held if one.node in columns.row):
                return np.zeros(0, np.int64)  # It would not start again where it runs.
            fits &= ~closed
        taken = {board.allocations[one].node for one in board.held_by[job.id]} | set(job.avoid)
        fits[[columns.row[node] for node in taken if node in columns.row]] = False
        rows = np.flatnonzero(fits)
        shape, near = shape_of(job), np.zeros(len(rows), np.int64)
        for at, scope in enumerate(columns.scopes):
            same = (scope.codes[rows] == scope.codes[first]) & (scope.codes[first] >= 0)
            near += same
            if at == 0 or (shape.required and scope.name == shape.level):
                rows, near = rows[same], near[same]
        ordered: Rows = rows[np.lexsort((rows, columns.free_gpus[rows], -near))]
        return ordered

    def _closed_to(self, job: Job) -> Flags | None:
        """Nodes that somebody else has before it would end: by the limit of this run, or of the one that begins with the new size."""
        windows = self._board.windows
        again_ms = self._now_ms + leaves_within_ms(job)
        starts_ms = job.started_ms if job.in_place and job.started_ms is not None else again_ms
        return windows.closed(self._now_ms, ends_by(job, starts_ms), passes_of(job, windows.reservations))

    def _allowed(self, job: Job, part: GroupOption, most: int) -> int:
        """How many members, `most` at most, delay nobody's quota."""
        assert self._waiters is not None
        for count in range(most, 0, -1):
            charge = _times(part.charge, count)
            if not self._waiters.want_quota(job.queue, charge) and self._reservations.may_grow(job.queue, charge):
                return count
        return 0

    def _decide(self, job: Job, kept: list[Allocation], joining: tuple[PlacedMember, ...], message: str) -> None:
        reason = Reason(code=ReasonCode.RESIZE, message=message, since_ms=self._now_ms, queue=job.queue)
        members = (*(member_of(allocation) for allocation in kept), *joining)
        self.made.append(Resize(job=job.id, members=members, gpu_model=kept[0].gpu_model, reason=reason))


class _Waiters:
    """Gangs that wait for room or quota and have none coming: what they want is not for anybody's surplus. Looked up once per cycle."""

    def __init__(self, board: Board, started: Container[str], settled: Container[str]) -> None:
        self._board = board
        self._room: set[tuple[str, str | None]] = set()
        """(pool, model) of those who wait for room."""
        self._quota: list[tuple[str, Charge]] = []
        """(queue, least charge) of those who wait for quota."""
        self._too_many = False
        for looked, (queue, lane) in enumerate(self._lanes()):
            if looked >= limits.WAITERS_LOOKED_AT_MAX:
                self._too_many = True
                return
            if any(key[3] not in started and key[3] not in settled for key in lane.keys):
                self._note(queue, lane)

    def _lanes(self) -> Iterator[tuple[str, Lane]]:
        board = self._board
        for queue, line in board.pending.lines.items():
            vertex = board.quota.vertices.get(queue)
            if vertex is None or is_closed(vertex):
                continue
            for lane in line.lanes.values():
                if not lane.array or board.array_live.get(lane.array, 0) < (board.at_once(lane.array) or 0):
                    yield queue, lane

    def _note(self, queue: str, lane: Lane) -> None:
        board = self._board
        for option in options_of(lane.state, board.columns):
            if not fits_when_empty(option, board.columns):
                continue  # Whoever grows or not, there is no room for it.
            short = board.quota.short_of(queue, option.charge_least)
            if short is None:
                self._room.add((option.alternative.pool, option.model))
            elif short[1] + (board.quota.available(queue, short[0]) or 0) <= (board.quota.potential(queue, short[0]) or 0):
                self._quota.append((queue, option.charge_least))

    def want_room(self, part: GroupOption, pool: str) -> bool:
        """True if somebody waits for room that a member of this kind would take."""
        if self._too_many:
            return True
        for theirs, model in self._room:
            if theirs in (ALL_POOLS, pool) and (model == part.need.model or (model is None and part.need.member.cpu_milli)):
                return True
        return False

    def want_quota(self, queue: str, charge: Charge) -> bool:
        """True if with this charge somebody who waits for quota would be shorter of it."""
        quota = self._board.quota
        tree = quota.tree_of(queue)
        for waiting, least in self._quota:
            if waiting in tree:
                before = quota.short_of(waiting, least)
                quota.add(queue, charge)
                after = quota.short_of(waiting, least)
                quota.remove(queue, charge)
                if before != after:
                    return True
        return False


def staying(board: Board, job_id: str) -> list[Allocation]:
    """A job's members that have not been told to leave, in the order of node ranks."""
    held = (board.allocations[one] for one in board.held_by.get(job_id, ()))
    job = board.jobs.get(job_id)
    running = job is not None and job.state is JobState.RUNNING
    return sorted((a for a in held if running and not a.leaving), key=lambda a: a.node_rank)


def member_of(held: Allocation) -> PlacedMember:
    """A member as a plan names it."""
    return PlacedMember(node=held.node, group=held.group, devices=held.devices, cpu_milli=held.cpu_milli, memory_bytes=held.memory_bytes)


def _times(charge: Charge, count: int) -> Charge:
    return tuple((resource, amount * count) for resource, amount in charge)

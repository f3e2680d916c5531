"""
Step 2 of the cycle: whose turn it is. Queues by fair share over the tree; inside a queue by priority, age, number.

A contest is a tree of heaps shaped like the quota tree. At each vertex the child that goes first is the one that, in this order,
    1. does not borrow with its next job (guarantees come before everything else),
    2. holds least beyond its guarantee, of the resource it holds most of (dominant share), divided by its weight,
    3. holds least at all, in the same measure,
    4. has the lower name.
Filling by this rule is water filling, whole jobs for drops: first min(guarantee, demand), the rest by weight among those still short; a
property holds it against `planning.fairshare.water_fill`. It depends on what queues hold, never on the order in which they are listed (a
published loop did: its shares moved with the order of queues).

After each job only the way from its queue to the root is worked out again: a cycle costs (queues + jobs tried) x log, not the length
of the queues. Inside a queue a walk over the first job of each lane; lanes whose shape has failed are stepped over.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from shoal.base import limits
from shoal.model.queue import QueueSpec
from shoal.scheduling.board import Board
from shoal.scheduling.crowd import Count, excess_of, limits_of
from shoal.scheduling.options import Option, options_of
from shoal.scheduling.pending import HeadKey, JobKey, Lane, Line, key_of
from shoal.scheduling.place import Refusal
from shoal.scheduling.policy import Policy
from shoal.scheduling.quota import Vertex
from shoal.scheduling.standing import dominant_share, excess_share, is_closed, own_share

Rank = tuple[int, bool, bool, float, float, str]
"""(-priority or 0, takes only what nobody else wants, borrows, excess share, share, name)."""
_NONE_REFUSED = 1 << 40
CPU_ONLY = ""
"""Stands for "no model" among the models that a strict queue's head keeps closed."""


class Candidate(NamedTuple):
    """The job whose turn it is. `blocked`: it cannot start in this cycle, that is known, but it may get a reservation."""

    queue: str
    key: JobKey
    lane: Lane
    blocked: bool = False

    @property
    def job_id(self) -> str:
        return self.key[3]


class _Shared:
    """What the turns of one contest share."""

    __slots__ = ("every", "left_out", "preempting", "reserving", "started")

    def __init__(self, every: bool) -> None:
        self.started: dict[str, int] = {}
        """Elements placed in this cycle by array; an array's elements may lie in several queues."""
        self.reserving = False
        """Blocked gangs are wanted too, for a reservation."""
        self.preempting = False
        """Blocked gangs are wanted, because they may have a right to stop others."""
        self.left_out = False
        """A queue has had as many looked at for that as it may in a cycle."""
        self.every = every
        """All of them; otherwise the first of each queue."""


class _Turn:
    """One queue's walk over its lanes. Nothing in the line is moved."""

    def __init__(self, board: Board, queue: str, line: Line, shared: _Shared) -> None:
        self.queue = queue
        self._shared = shared
        self._reserved = False
        self._surfaced = 0
        """Blocked lanes that are looked at for their right to stop others."""
        self._stepped_over = 0
        """Blocked lanes of which that is known."""
        self._later: tuple[int, int] | None = None
        """(time limit, GPUs) of what was refused for a reservation's quota: who asks no less of both is not tried."""
        self._board = board
        self._heads: Iterator[HeadKey] = iter(line.heads)
        self._again: list[tuple[JobKey, int, Lane]] = []
        """Lanes of which a job was placed, at the job behind it; the number keeps lanes from being compared."""
        self._strict = board.quota.vertices[queue].spec.order == "strict"
        self._line = line
        self._gpus_refused = _NONE_REFUSED
        """The fewest GPUs that its quota for GPUs of any model refused in this cycle: who asks as many is not tried."""
        self._short: dict[str, int] = {}
        """The same for every resource, in its own unit: room under a quota only shrinks within a cycle."""
        self._closed: set[str] = set()
        """Models that a strict queue's blocked jobs keep for themselves."""
        self._limits = limits_of(board.queues, queue)
        self._limited = self._limits.of_running
        self._started: dict[str, Count] = {}
        """By user, what this cycle has started; the whole under the empty name. Only where something is limited."""
        self.candidate: Candidate | None = None
        self._next = self._next_head()

    def find(self) -> Candidate | None:
        """The first job that may be tried, kept as `candidate`."""
        while True:
            entry = self._take_first()
            if entry is None:
                self.candidate = None
                return None
            key, lane = entry
            blocked = self._is_blocked(lane)
            if blocked and not self.wants_blocked and not self._count_head(lane):
                continue
            if blocked is not None:
                self.candidate = Candidate(self.queue, key, lane, blocked)
                return self.candidate

    def stands(self) -> bool:
        """False if what was placed or has failed since the candidate was found rules it out."""
        if self.candidate is None:
            return False
        blocked = self._is_blocked(self.candidate.lane, counted=True)
        if blocked is not None and blocked is not self.candidate.blocked:
            self.candidate = self.candidate._replace(blocked=blocked)
        return blocked is not None

    def placed(self, gpus_milli: int | None = None) -> None:
        """The candidate was placed, charged so much: its lane goes on with the job behind it."""
        assert self.candidate is not None
        lane = self.candidate.lane
        if lane.array:
            self._shared.started[lane.array] = self._shared.started.get(lane.array, 0) + 1
        if self._limited:
            self._count_started(lane, self._asked_milli(lane) if gpus_milli is None else gpus_milli)
        self._go_behind(self.candidate)

    def refused(self, refusal: Refusal) -> None:
        """The candidate does not fit: its lane is out for this cycle, and by quota whatever asks no less."""
        assert self.candidate is not None
        lane = self.candidate.lane
        if refusal is Refusal.QUOTA:
            self._note_short(lane)
        elif refusal is Refusal.LATER:
            size = lane.state.gpus_least
            before = self._later or (lane.run_ms, size)
            self._later = (min(before[0], lane.run_ms), min(before[1], size))
        self._close(lane)

    def reserved(self) -> None:
        """The refused candidate got a reservation."""
        assert self.candidate is not None
        self._reserved = True
        if self._shared.every:
            self._go_behind(self.candidate)

    def cleared(self) -> None:
        """Others are stopped for the refused candidate: the one behind it may have the same right."""
        assert self.candidate is not None
        self._surfaced = 0
        self._go_behind(self.candidate)

    def _go_behind(self, candidate: Candidate) -> None:
        """
        On to the job behind the candidate in its lane; and where that is an array's first unborn element, to the next of these, which
        stand in no lane.
        """
        lane, board = candidate.lane, self._board
        unborn = board.next_of_array(candidate.job_id)
        if unborn is not None:
            heapq.heappush(self._again, (key_of(unborn, board.pending.age_unit_ms), id(lane), lane))
        if not board.is_ahead(candidate.job_id):
            behind = lane.keys.after(candidate.key)
            if behind is not None:
                heapq.heappush(self._again, (behind, id(lane), lane))

    @property
    def wants_blocked(self) -> bool:
        """True while the next blocked gang of the queue may get a reservation."""
        return self._shared.reserving and (self._shared.every or not self._reserved)

    def _take_first(self) -> tuple[JobKey, Lane] | None:
        head = self._next
        if self._again and (head is None or self._again[0][0] < head[:4]):
            key, _, lane = heapq.heappop(self._again)
            return key, lane
        if head is None:
            return None
        self._next = self._next_head()
        return head[:4], head[4]

    def _next_head(self) -> HeadKey | None:
        """The next lane's first job. Lanes that are out are stepped over here, where most of a long walk is spent."""
        if self._strict:
            return next(self._heads, None)
        if self.wants_blocked or self._wants_heads:
            return next(self._heads, None)
        growth, cycle, refused = self._board.columns.growth, self._board.cycle, self._gpus_refused
        if refused <= min(self._line.sizes):
            return None
        for head in self._heads:
            lane = head[4]
            state = lane.state
            if state.failed_growth == growth or state.gpus_least >= refused:
                continue
            if state.failed_cycle != cycle or not lane.fails_with(cycle):
                return head
        return None

    def _is_blocked(self, lane: Lane, counted: bool = False) -> bool | None:
        """
        Whether it is known that a lane's job cannot start; None if it is and nobody wants it.

        A blocked lane of a strict queue closes what it could use for those behind it; who is at a limit holds up nobody.
        """
        if self._is_full(lane):
            return None
        if self._strict and self._is_closed(lane):
            self._close(lane)
            return None
        if self._failed(lane) or (self._short and self._is_short(lane)) or (self._later and self._comes_too_late(lane)):
            self._close(lane)
            return True if self.wants_blocked or self._wants_heads or (counted and self._shared.preempting) else None
        return False

    def _count_head(self, lane: Lane) -> bool:
        """Whether a blocked lane is looked at for its right to stop others; those of which it is known that nobody goes cost no search."""
        if lane.is_hopeless(self._board.version, self._board.pending.now_ms):
            self._stepped_over += 1
            return not lane.is_silent(self._board.version)
        self._surfaced += 1
        self._shared.left_out = self._shared.left_out or not self._wants_heads
        return True

    @property
    def _wants_heads(self) -> bool:
        few = self._surfaced < limits.PREEMPT_HEADS_MAX and self._stepped_over < limits.PREEMPT_WALK_MAX
        return self._shared.preempting and few

    def _comes_too_late(self, lane: Lane) -> bool:
        assert self._later is not None
        return lane.run_ms >= self._later[0] and lane.state.gpus_least >= self._later[1]

    def _note_short(self, lane: Lane) -> None:
        for option in options_of(lane.state, self._board.columns):
            short = self._board.quota.short_of(self.queue, option.charge_least)
            if short is not None:
                asked = dict(option.charge_least)[short[0]]
                self._short[short[0]] = min(asked, self._short.get(short[0], asked))
        self._gpus_refused = -(-self._short.get("gpu", _NONE_REFUSED * 1_000) // 1_000)

    def _is_short(self, lane: Lane) -> bool:
        """True if every option asks at least as much of something as was refused before."""
        short = self._short
        for option in options_of(lane.state, self._board.columns):
            for resource, amount in option.charge_least:
                if resource in short and amount >= short[resource]:
                    break
            else:
                return False
        return True

    def _failed(self, lane: Lane) -> bool:
        return lane.state.failed_growth == self._board.columns.growth or lane.fails_with(self._board.cycle)

    def _count_started(self, lane: Lane, gpus_milli: int) -> None:
        one = Count(1, gpus_milli, gpus_milli * lane.bound.steps)
        for owner in {"", lane.owner}:
            self._started[owner] = self._started.get(owner, Count()).plus(one)

    def _asked_milli(self, lane: Lane) -> int:
        """The least of its ways to run: of `any_of`, a small one may start where the limit rules out a large one."""
        options = options_of(lane.state, self._board.columns)
        return min((dict(option.charge_least).get("gpu", 0) for option in options), default=0)

    def _is_limited(self, lane: Lane) -> bool:
        """True if one more job of this lane would break a running limit of the queue."""
        crowd, started = self._board.crowd, self._started
        whole = crowd.of(self.queue).plus(started.get("", Count()))
        mine = crowd.of(self.queue, lane.owner).plus(started.get(lane.owner, Count()))
        return excess_of(self._limits, whole, mine, self._asked_milli(lane), lane.bound.steps) is not None

    def _is_full(self, lane: Lane) -> bool:
        """True if an array or a limit of the queue lets no more jobs of this lane start. Such a lane holds up nobody."""
        if self._limited and self._is_limited(lane):
            return True
        if not lane.array:
            return False
        at_once = self._board.at_once(lane.array)
        running = self._board.array_live.get(lane.array, 0) + self._shared.started.get(lane.array, 0)
        return at_once is not None and running >= at_once

    def _models(self, lane: Lane) -> set[str]:
        return {option.model or CPU_ONLY for option in options_of(lane.state, self._board.columns)}

    def _is_closed(self, lane: Lane) -> bool:
        """A job without GPUs uses the cores of every model's nodes, so it passes nobody and nobody passes it."""
        models = self._models(lane)
        return bool(self._closed) and (CPU_ONLY in models or CPU_ONLY in self._closed or not models.isdisjoint(self._closed))

    def _close(self, lane: Lane) -> None:
        """What does not fit keeps its models, where this queue could ever have as much: else it would keep them for ever."""
        if self._strict:
            self._closed |= {o.model or CPU_ONLY for o in options_of(lane.state, self._board.columns) if self._could_ever(o)}

    def _could_ever(self, option: Option) -> bool:
        potentials = ((self._board.quota.potential(self.queue, resource), amount) for resource, amount in option.charge_least)
        return all(most is None or amount <= most for most, amount in potentials)


class _Seatholder:
    """A vertex with candidates below it (`turn` None), or a queue's own jobs."""

    __slots__ = ("heap", "name", "parent", "turn", "vertex")

    def __init__(self, vertex: Vertex, parent: _Seatholder | None, turn: _Turn | None) -> None:
        self.vertex = vertex
        self.name = vertex.name
        self.parent = parent
        self.turn = turn
        self.heap: list[tuple[Rank, int, _Seatholder]] = []

    def candidate(self) -> Candidate | None:
        if self.turn is not None:
            return self.turn.candidate
        return self.heap[0][2].candidate() if self.heap else None


class Contest:
    """All queues with something to try, in turn. See module."""

    def __init__(self, board: Board, policy: Policy, reserving: bool = False, preempting: bool = False) -> None:
        """`reserving`, `preempting`: see `want_blocked`."""
        self._board = board
        self._policy = policy
        self._holders: dict[str, _Seatholder] = {}
        self._top = _Seatholder(_ROOT, None, None)
        self._current: _Seatholder | None = None
        self._shared = _Shared(policy.reserve == "conservative")
        self._shared.reserving, self._shared.preempting = reserving, preempting
        self._lately: dict[str, float] = {}
        """What each queue has used of late, where the policy looks back; with what it holds now beside it."""
        self._held_first: dict[str, float] = {}
        if policy.fair_share != "dominant":
            capacity = board.columns.capacity
            used = board.usage.shares(board.quota, capacity, board.pending.now_ms)
            self._lately = with_credit(board.quota.vertices.values(), {name: one.share for name, one in used.items()}, policy.credit_max)
            self._held_first = {name: dominant_share(vertex.held, capacity) for name, vertex in board.quota.vertices.items()}
        leaves = [leaf for name in sorted(board.pending.lines) if (leaf := self._enter(name)) is not None]
        self._fill(leaves)

    def next(self) -> Candidate | None:
        """The job whose turn it is; then `placed` or `refused` must be said."""
        while self._top.heap:
            at = self._top
            while at.turn is None:
                at = at.heap[0][2]
            self._current = at
            if at.turn.stands():
                return at.turn.candidate
            self._go_on()
        return None

    def placed(self, gpus_milli: int | None = None) -> None:
        """The current candidate was placed, and the ledger charged, so many thousandths of GPUs; None: the least that it asks."""
        assert self._current is not None
        assert self._current.turn is not None
        self._current.turn.placed(gpus_milli)
        self._go_on()

    def refused(self, refusal: Refusal, reserved: bool = False, cleared: bool = False) -> None:
        """The current candidate does not fit; it may have got a reservation, or others are stopped for it."""
        assert self._current is not None
        assert self._current.turn is not None
        if not (self._current.turn.candidate and self._current.turn.candidate.blocked):
            self._current.turn.refused(refusal)
        if reserved:
            self._current.turn.reserved()
        if cleared:
            self._current.turn.cleared()
        self._go_on()

    @property
    def wants_reservation(self) -> bool:
        """True if the current candidate, should it be blocked, is one that gets a reservation."""
        assert self._current is not None
        assert self._current.turn is not None
        return self._current.turn.wants_blocked

    def want_blocked(self, reserving: bool, preempting: bool = False) -> None:
        """Whether gangs that are known not to start are candidates too: for a reservation, or for their right to stop others."""
        self._shared.reserving = reserving
        self._shared.preempting = preempting

    @property
    def left_out(self) -> bool:
        """True if a queue may have more gangs with a right to stop others than were looked at."""
        return self._shared.left_out

    def close(self) -> None:
        """Unties the heaps, which refer to each other both ways: cycles many times a second must not leave work to the collector."""
        self._top.heap.clear()
        for holder in self._holders.values():
            holder.heap.clear()

    def _go_on(self) -> None:
        """Finds the queue's next candidate and ranks the way to the root anew; everything on it stands first in its heap."""
        at = self._current
        assert at is not None
        assert at.turn is not None
        at.turn.find()
        while at.parent is not None:
            heap = at.parent.heap
            if at.candidate() is None:
                heapq.heappop(heap)
            elif len(heap) > 1:  # Nobody joins once all are in: who is alone stays first, whatever his rank.
                heapq.heapreplace(heap, (self._rank(at), id(at), at))
            at = at.parent

    # --- the field ---------------------------------------------------------------------------------------------------------
    def _enter(self, name: str) -> _Seatholder | None:
        """A queue's own place in the contest, if it has a job to try and is open."""
        vertex = self._board.quota.vertices.get(name)
        if vertex is None or is_closed(vertex):
            return None
        turn = _Turn(self._board, name, self._board.pending.lines[name], self._shared)
        if turn.find() is None:
            return None
        parent = self._holder(vertex) if vertex.children else self._holder_above(vertex)
        return _Seatholder(vertex, parent, turn)

    def _holder(self, vertex: Vertex) -> _Seatholder:
        holder = self._holders.get(vertex.name)
        if holder is None:
            holder = self._holders[vertex.name] = _Seatholder(vertex, self._holder_above(vertex), None)
        return holder

    def _holder_above(self, vertex: Vertex) -> _Seatholder:
        return self._top if vertex.parent is None else self._holder(vertex.parent)

    def _fill(self, leaves: list[_Seatholder]) -> None:
        """Heaps from the deepest vertex up, since a vertex is ranked by its first candidate."""
        for leaf in leaves:
            assert leaf.parent is not None
            leaf.parent.heap.append((self._rank(leaf), id(leaf), leaf))
        for holder in sorted(self._holders.values(), key=lambda holder: -holder.vertex.depth):
            heapq.heapify(holder.heap)
            assert holder.parent is not None
            holder.parent.heap.append((self._rank(holder), id(holder), holder))
        heapq.heapify(self._top.heap)

    def _rank(self, holder: _Seatholder) -> Rank:
        candidate = holder.candidate()
        assert candidate is not None
        options = options_of(candidate.lane.state, self._board.columns)
        charge = options[0].charge_least if options else ()
        vertex = holder.vertex
        own = holder.turn is not None and bool(vertex.children)
        weight = 1_000 if own else vertex.spec.weight
        capacity = self._board.columns.capacity
        borrows, excess = excess_share(vertex, charge, capacity)
        share = dominant_share(own_share(vertex) if own else vertex.held, capacity)
        if own:  # Its guarantee is there for all below it, so a vertex's own jobs compete with its children by what they hold.
            excess = share
        last = weight == 0 and borrows
        urgency = candidate.key[0] if self._policy.priority_across_queues else 0
        if self._lately:
            lately = self._lately[vertex.name]
            if self._policy.fair_share == "fair-tree":
                level = (lately + self._held_first[vertex.name]) * 1_000 / (weight or 1_000)
                return (urgency, last, False, level, 0.0, holder.name)
            return (urgency, last, borrows, (lately + share) * 1_000 / (weight or 1_000), 0.0, holder.name)
        return (urgency, last, borrows, excess * 1_000 / (weight or 1_000), share * 1_000 / (weight or 1_000), holder.name)


def with_credit(vertices: Iterable[Vertex], lately: dict[str, float], credit: float) -> dict[str, float]:
    """What queues count as having used of late: none, by weight, less than `credit` below the most that a neighbour has."""
    most: dict[str, float] = {}
    for vertex in vertices:
        above = vertex.parent.name if vertex.parent is not None else ""
        most[above] = max(most.get(above, 0.0), lately[vertex.name] * 1_000 / (vertex.spec.weight or 1_000))
    found = dict(lately)
    for vertex in vertices:
        floor = most[vertex.parent.name if vertex.parent is not None else ""] - credit
        found[vertex.name] = max(found[vertex.name], floor * (vertex.spec.weight or 1_000) / 1_000)
    return found


_ROOT = Vertex("", QueueSpec())

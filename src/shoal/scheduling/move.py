"""
Step 5b of the cycle: room for a gang that has the right to it, by moving others to where they fit as well, before anybody is stopped.

    who has the right     a gang whose queue is within its guarantee with it, all the way up; or one that could stop the same jobs
    who is moved          jobs that may be stopped and would start again; each of them is placed again in the same plan, at its size
    how many              never more GPUs than the gang gets

Only where GPUs are free but scattered does this help, so nothing is tried unless as many are free as the gang asks for. The nodes that
miss least are cleared one after another until the gang fits; then everybody who need not go is spared. A move costs a job what a stop
costs it (its work since it saved, and the way back), so patience weighs the two alike. It settles: each move lets one gang more run, and
stops none.

Prior art: KAI-Scheduler's consolidation, which asks for no right (its PR 1565 is the case that asks for one).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shoal.base import limits
from shoal.model.job import Job
from shoal.scheduling.asks import shape_of
from shoal.scheduling.clearing import Clearing, Trials
from shoal.scheduling.options import GroupOption, Option, options_for, options_of
from shoal.scheduling.order import Candidate
from shoal.scheduling.place import Placement, place_options
from shoal.scheduling.quota import Charge, add_charges
from shoal.scheduling.reserve import parts_of
from shoal.scheduling.rooms import Need
from shoal.scheduling.standing import claim_of, is_closed
from shoal.scheduling.victims import Victim, Victims, side_of, way_up
from shoal.scheduling.windows import ends_by, leaves_within_ms, passes_of


class Mover:
    """See module. One per cycle, over the cycle's trials."""

    def __init__(self, trials: Trials, now_ms: int) -> None:
        self._now_ms = now_ms
        self._trials = trials
        self._board = trials.board
        self._ledger = trials.ledger
        self._victims: Victims = trials.victims
        self._tries = 0

    def find(self, candidate: Candidate) -> Clearing | None:
        """Who would go where, and the room that the gang would have; None where that does not help or it has no right."""
        options = options_of(candidate.lane.state, self._board.columns)
        free = int(self._board.columns.free_gpus.sum())
        if self._tries >= limits.MOVE_TRIES_MAX or not options or free < candidate.lane.state.gpus_least:
            return None
        asking = next((part for option in options for part in option.groups if part.need.model is not None), None)
        if asking is None:
            return None
        self._tries += 1
        with self._ledger.trial():
            return self._search(candidate, options[0].charge_least, asking.need)

    def _search(self, candidate: Candidate, charge: Charge, need: Need) -> Clearing | None:
        """Leaves the ledger moved: the caller rewinds."""
        self._trials.give_what_ends()
        if self._trials.place(candidate) is not None:
            return None
        gone: list[Victim] = []
        found: Placement | None = None
        owed = self._is_owed(candidate.queue, charge)
        for row in self._rows(need):
            clears = [victim for victim in self._on(row, candidate, charge, owed) if victim not in gone]
            for victim in clears:
                self._victims.stop(self._ledger, victim)
            gone += clears
            found = self._trials.place(candidate) if clears else None
            if found is not None:
                break
        if found is None:
            return None
        kept, found = self._trials.spare(candidate, gone, found)
        made = Clearing(candidate, tuple(sorted(kept, key=lambda v: (-v.gpus, v.cost, v.job_id))), found)
        if sum(victim.gpus for victim in made.victims) > made.gpus:
            return None
        return self._placed_again(made)

    # --- who has the right ---------------------------------------------------------------------------------------------------------
    def _is_owed(self, queue: str, charge: Charge) -> bool:
        """True if the queue, and all above it that have a quota of their own, are within their guarantee with the gang."""
        quota, capacity = self._board.quota, self._board.columns.capacity
        promised = [vertex for vertex in way_up(quota.vertices[queue]) if vertex.named]
        if not promised:
            return False
        with quota.counting(promised[0], queue, charge):
            return all(claim_of(vertex, capacity) <= 0 for vertex in promised)

    def _may_move(self, candidate: Candidate, charge: Charge, job: Job, owed: bool) -> bool:
        """Within its queue a gang moves no higher priority, and an equal one only for what its queue is owed."""
        gainer = self._board.jobs[candidate.job_id]
        vertices = self._board.quota.vertices
        if job.spec.interactive or job.spec.elastic is not None or job.queue not in vertices or is_closed(vertices[job.queue]):
            return False  # It would not start again, or not at its size.
        if job.queue == gainer.queue:
            return job.priority < gainer.priority or (owed and job.priority == gainer.priority)
        return owed or self._is_further_over(candidate.queue, charge, job.queue)

    def _is_further_over(self, mine: str, charge: Charge, theirs: str) -> bool:
        """True if the others' side is still further over its guarantee than the gang's side is with the gang."""
        quota, capacity = self._board.quota, self._board.columns.capacity
        above = way_up(quota.vertices[mine])
        apart = [vertex for vertex in way_up(quota.vertices[theirs]) if vertex not in above]
        if not apart or quota.vertices[mine] in way_up(quota.vertices[theirs]):
            return False
        if any(claim_of(vertex, capacity) <= 0 for vertex in apart):
            return False
        side = side_of(quota.vertices[mine], apart[-1])
        with quota.counting(side, mine, charge):
            gained = claim_of(side, capacity)
        return gained < claim_of(apart[-1], capacity)

    # --- where from ----------------------------------------------------------------------------------------------------------------
    def _rows(self, need: Need) -> list[int]:
        """Nodes that have no room for a member and might have it with some GPUs more, those that miss least first."""
        board = self._board
        columns = board.columns
        misses = columns.open & columns.in_pool(need.member.pool) & ~board.rooms.fitting_all(need)
        if board.rooms.closed is not None:
            misses &= ~board.rooms.closed
        rows = np.flatnonzero(misses)
        ordered: list[int] = rows[(-columns.free_gpus[rows]).argsort(kind="stable")].tolist()
        return ordered[: limits.MOVE_NODES_MAX]

    def _on(self, row: int, candidate: Candidate, charge: Charge, owed: bool) -> Iterator[Victim]:
        """Who may be moved off a node, by id."""
        board = self._board
        held = (board.allocations[held] for held in board.held_on.get(board.columns.nodes[row].id, ()))
        for job_id in sorted({allocation.job for allocation in held}):
            job = board.jobs.get(job_id)
            if job is not None and self._may_move(candidate, charge, job, owed):
                victim = self._victims.look_at(job_id, None)
                if victim is not None:
                    yield victim

    # --- where to ------------------------------------------------------------------------------------------------------------------
    def _placed_again(self, made: Clearing) -> Clearing | None:
        """With a new place for everybody who is moved; None if one has none."""
        self._seat(made.candidate.queue, made.placement)
        moved_to: list[Placement] = []
        starts_ms = self._now_ms + max(leaves_within_ms(self._board.jobs[victim.job_id]) for victim in made.victims)
        for victim in made.victims:
            job = self._board.jobs[victim.job_id]
            options, windows = self._as_it_runs(job), self._board.windows
            closed = windows.closed(self._now_ms, ends_by(job, starts_ms), passes_of(job, windows.reservations))
            with self._board.rooms.closing(closed):
                found = place_options(self._ledger, victim.queue, shape_of(job), options, self._trials.policy) if options else None
            if not isinstance(found, Placement):
                return None
            self._seat(victim.queue, found)
            moved_to.append(found)
        return made._replace(moved_to=tuple(moved_to))

    def _seat(self, queue: str, placement: Placement) -> None:
        for part in parts_of(placement):
            self._ledger.seat(*part)
        self._ledger.charge(queue, placement.charge)

    def _as_it_runs(self, job: Job) -> tuple[Option, ...]:
        """Its options at the size and on the GPU model that it has now."""
        board = self._board
        held = [board.allocations[allocation_id] for allocation_id in board.held_by[job.id]]
        model = held[0].gpu_model
        counts = {group: sum(1 for a in held if a.group == group) for group in sorted({a.group for a in held})}
        found = []
        for option in options_for(shape_of(job), board.columns):
            if (option.model or "") != model or {part.group.name for part in option.groups} != counts.keys():
                continue
            if all(part.group.low <= counts[part.group.name] <= part.group.high for part in option.groups):
                found.append(_sized(option, counts))
        return tuple(found)


def _sized(option: Option, counts: dict[str, int]) -> Option:
    """The option with exactly so many members in each group."""
    parts = tuple(_of_size(part, counts[part.group.name]) for part in option.groups)
    charges = [part.charge for part in parts for _ in range(part.group.low)]
    return option._replace(groups=parts, charge_least=add_charges(*charges))


def _of_size(part: GroupOption, count: int) -> GroupOption:
    return part._replace(group=part.group._replace(low=count, high=count))

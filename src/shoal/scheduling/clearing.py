"""
Room made for a gang by others who give theirs: what steps 5b (`move`) and 6 (`preempt`) of the cycle have in common.

A clearing is found on the ledger, with everybody gone who would go, and everything is taken back; only when it is decided (`take`) does
the ledger keep what it changes for those who come after.
"""

from __future__ import annotations

from typing import NamedTuple

from shoal.base import limits
from shoal.scheduling.allowance import Allowance
from shoal.scheduling.board import Board
from shoal.scheduling.ledger import Ledger
from shoal.scheduling.order import Candidate
from shoal.scheduling.place import Placement, place_options
from shoal.scheduling.policy import Policy
from shoal.scheduling.quota import charge_of_allocation
from shoal.scheduling.reserve import parts_of
from shoal.scheduling.victims import Victim, Victims


class Clearing(NamedTuple):
    """These jobs go, and this is the room that the gang will have. `moved_to` has where each goes on, or is empty: they are stopped."""

    candidate: Candidate
    victims: tuple[Victim, ...]
    placement: Placement
    moved_to: tuple[Placement, ...] = ()

    @property
    def cost(self) -> int:
        """GPU-milliseconds of work that is lost, the ways back included."""
        return sum(victim.cost for victim in self.victims)

    @property
    def gpus(self) -> int:
        """GPUs that the gang gets."""
        return sum(seat.mask.bit_count() + len(seat.pieces) for seat in self.placement.seats)


class Trials:
    """See module. One per cycle, over the cycle's ledger."""

    def __init__(self, board: Board, ledger: Ledger, policy: Policy, victims: Victims) -> None:
        self.board = board
        self.ledger = ledger
        self.policy = policy
        self.victims = victims

    def place(self, candidate: Candidate) -> Placement | None:
        """Where the gang fits as things stand on the ledger, at its smallest size."""
        options = Allowance(self.board).options(candidate)
        found = place_options(self.ledger, candidate.queue, candidate.lane.state.shape, options, self.policy)
        return found if isinstance(found, Placement) else None

    def give_what_ends(self) -> None:
        """Room that is being freed is free for this question, but for what is claimed of it; so are the charges of who was decided on."""
        for stopped in (*self.victims.taken.values(), *self.victims.shed.values()):
            self.ledger.uncharge(stopped.queue, stopped.charge)
        board, columns = self.board, self.board.columns
        ending = [allocation_id for _, job_id in board.horizon.ends.below((1,)) for allocation_id in board.held_by[job_id]]
        leaving = [allocation_id for ids in board.horizon.leaving.values() for allocation_id in ids]
        for allocation_id in (*ending, *leaving):
            held = board.allocations[allocation_id]
            row = columns.row.get(held.node)
            if row is not None:
                mask = columns.mask_of(row, held.devices) & ~board.claimed_on(row) & int(columns.healthy[row])
                pieces = columns.pieces_of(row, held.parts, held.project)
                self.ledger.unseat(row, mask, held.cpu_milli, held.memory_bytes, pieces)
            if held.queue in board.quota.vertices and held.job not in board.claims_by:  # Who is moved keeps his charge.
                self.ledger.uncharge(held.queue, charge_of_allocation(held))

    def spare(self, candidate: Candidate, gone: list[Victim], found: Placement) -> tuple[list[Victim], Placement]:
        """Gives back whoever is not needed: first all on other nodes at once, then one by one, the dearest first."""
        rows = {seat.row for seat in found.seats}
        elsewhere = [victim for victim in gone if rows.isdisjoint(part.row for part in victim.parts)]
        kept = gone
        groups = ([elsewhere] if elsewhere else []) + [[victim] for victim in reversed(gone)]
        for group in groups[: limits.REPRIEVES_MAX]:
            whole = {victim.job_id for victim in kept if not victim.member and victim not in group}  # It has lost its surplus too.
            spared = [victim for victim in group if victim in kept and victim.job_id not in whole]
            if not spared:
                continue
            for victim in spared:
                self.victims.put_back(self.ledger, victim)
            again = self.place(candidate)
            if again is None:
                for victim in spared:
                    self.victims.stop(self.ledger, victim)
            else:
                found, kept = again, [victim for victim in kept if victim not in spared]
        return kept, found

    def keep(self, made: Clearing) -> None:
        """Nobody else in this cycle gets what is free of the gang's room, nor its quota; nor of the room that others move to."""
        self._seat(made.placement, made.victims)
        self.ledger.charge(made.candidate.queue, made.placement.charge)
        for victim, placement in zip(made.victims, made.moved_to, strict=False):
            self._seat(placement, made.victims)
            self.ledger.charge(victim.queue, placement.charge)

    def _seat(self, placement: Placement, going: tuple[Victim, ...]) -> None:
        columns = self.board.columns
        given: dict[int, tuple[int, int]] = {}
        for mine in (mine for victim in going for mine in victim.parts):
            cpu, memory = given.get(mine.row, (0, 0))
            given[mine.row] = (cpu + mine.cpu_milli, memory + mine.memory_bytes)
        for part in parts_of(placement):
            cpu, memory = given.get(part.row, (0, 0))
            cpu, memory = max(0, part.cpu_milli - cpu), max(0, part.memory_bytes - memory)
            mask = part.mask & int(columns.free_mask[part.row] | columns.shared_mask[part.row])
            self.ledger.seat(part.row, mask, cpu, memory, part.pieces)

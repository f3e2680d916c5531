"""
Which ways to run a gang the limits on GPUs and on urgency leave: of `any_of` and `ordered`, and of models that are charged differently.

For `reserve` and `clearing`, in one cycle. What the cycle itself has started counts.
"""

from __future__ import annotations

from shoal.scheduling.board import Board
from shoal.scheduling.crowd import Count, excess_of, limits_of
from shoal.scheduling.options import Option, least, options_of
from shoal.scheduling.order import Candidate
from shoal.scheduling.quota import Charge


def gpus_milli(charge: Charge) -> int:
    """Thousandths of GPUs of a charge."""
    return dict(charge).get("gpu", 0)


class Allowance:
    """See module."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._started: dict[tuple[str, str], Count] = {}
        """By queue and user, what this cycle has started; a queue's whole under the empty name."""
        self.left_out = False
        """True if ways were left out since somebody has set it back: for other users the shape may fit."""

    def limits(self, candidate: Candidate) -> bool:
        """True if the GPUs of the candidate's user, or what their urgency costs, are limited."""
        return candidate.lane.bound.steps > 0 or limits_of(self._board.queues, candidate.queue).gpus_per_user is not None

    def options(self, candidate: Candidate) -> tuple[Option, ...]:
        """The ways at their least that may still start."""
        options = tuple(least(option) for option in options_of(candidate.lane.state, self._board.columns))
        if not self.limits(candidate):
            return options
        limits, steps = limits_of(self._board.queues, candidate.queue), candidate.lane.bound.steps
        whole, mine = (self._count(candidate.queue, owner) for owner in ("", candidate.lane.owner))
        left = tuple(o for o in options if excess_of(limits, whole, mine, gpus_milli(o.charge_least), steps) is None)
        self.left_out = self.left_out or len(left) < len(options)
        return left

    def _count(self, queue: str, owner: str) -> Count:
        return self._board.crowd.of(queue, owner).plus(self._started.get((queue, owner), Count()))

    def note(self, candidate: Candidate, charge: Charge) -> None:
        """The candidate was placed and is charged so much."""
        if not limits_of(self._board.queues, candidate.queue).of_running:
            return
        milli = gpus_milli(charge)
        one = Count(1, milli, milli * candidate.lane.bound.steps)
        for owner in {"", candidate.lane.owner}:
            user = (candidate.queue, owner)
            self._started[user] = self._started.get(user, Count()).plus(one)

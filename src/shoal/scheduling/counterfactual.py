"""
What change would start a job that waits: each is made on the board, judged, and taken back before it is told. For `explain`.

    a smaller gang        the largest that would start now
    fewer GPUs per node   the most that would start now
    a shorter time limit  the longest that lets it start beside what is kept for others
    nodes that come back  one that is enough, else as many as are missing
    more quota            what its queue is short of
    jobs that end         the smallest set (`smallest`); with more quota where both are short

Where none of these would do alone, jobs that end are looked for again: were no room kept for others; then with nodes back as well. What
would not be enough is not told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np

from shoal.base import limits
from shoal.base.units import format_duration_ms
from shoal.scheduling.asks import GroupAsk, Shape
from shoal.scheduling.blockers import addresses, closed_nodes_that_fit, jobs_in_the_way, listed
from shoal.scheduling.board import Board
from shoal.scheduling.cycle import Ahead, look_ahead
from shoal.scheduling.ledger import Ledger
from shoal.scheduling.options import options_for
from shoal.scheduling.order import Candidate
from shoal.scheduling.pending import NO_LIMIT, Lane, ShapeState
from shoal.scheduling.policy import Policy
from shoal.scheduling.reserve import Reserved
from shoal.scheduling.shortfall import amount_text, nearest, nodes_text
from shoal.scheduling.smallest import InTheWay, in_the_way, jobs_gone

_MINUTE_MS = 60_000


Made = Callable[[Board, Ledger], AbstractContextManager[None]]
"""While inside, the change is made on the board; what is done through the ledger its owner takes back."""


class Change(NamedTuple):
    """`text` goes on after "if". `made` None: a change of the job's own ask, which takes nobody's turn."""

    text: str
    made: Made | None = None
    kept: tuple[str, ...] = ()
    """Jobs by id whose kept room would have to be nobody's for it."""


class Changes(NamedTuple):
    """Changes that would make room for a job, and the jobs whose end is one of them."""

    changes: tuple[Change, ...]
    in_the_way: InTheWay | None = None


def hints_of(board: Board, policy: Policy, now_ms: int, job_id: str, found: Changes) -> tuple[str, ...]:
    """
    The changes in words. Each that gives room to anybody is put through a whole cycle: it starts the job, or those before it come first.

    Asked with no other question open. Cost: a cycle per change.
    """
    hints = []
    for change in found.changes:
        if change.made is None or _starts(board, policy, now_ms, job_id, change.made):
            hints.append(f"starts if {change.text}")
        elif change.kept:
            names = addresses(board, change.kept)
            hints.append(f"has room if {change.text} and none were kept for job{'' if len(names) == 1 else 's'} {listed(names)}, before it")
        else:
            hints.append(f"has room if {change.text}, once those before it have started")
    return tuple(hints)


def _starts(board: Board, policy: Policy, now_ms: int, job_id: str, made: Made) -> bool:
    with Ledger(board).trial() as ledger, made(board, ledger):
        board.begin_cycle(now_ms)
        board.columns.growth += 1  # What failed before is to be tried again; what fails even now fails without the change too.
        with look_ahead(board, policy, now_ms) as ahead:
            return ahead.places(job_id)


def changes_for(ahead: Ahead, candidate: Candidate, others: tuple[Reserved, ...], now_ms: int) -> Changes:
    """
    Every change that would start the candidate now. `others` are those that room is kept for.

    Cost: some tens of judgements, and those of `smallest.in_the_way`: four times these where no end alone would do.
    """
    starts_ms = tuple(other.start_ms for other in others)
    shape = candidate.lane.state.shape
    options = options_for(shape, ahead.board.columns)
    if not options or ahead.found(candidate) is not None:
        return Changes(())
    made = [*_nodes_back(ahead, candidate), *_smaller_gang(ahead, candidate), *_fewer_gpus(ahead, candidate)]
    made += _shorter(ahead, candidate, starts_ms, now_ms)
    made += _more_quota(ahead, candidate)
    shortfall = nearest(ahead.board, options)[1]
    found = in_the_way(ahead, candidate, jobs_in_the_way(ahead.board, shortfall)[1])
    if found is not None:
        made.append(Change(_ended(ahead, found), partial(jobs_gone, jobs=found.jobs)))
    elif not made:
        last = _were_none_kept(ahead, candidate, others, now_ms) or _nodes_and_ends(ahead, candidate, others, now_ms)
        return Changes(()) if last is None else Changes(*last)
    return Changes(tuple(made), found)


# --- where none of these alone would do -------------------------------------------------------------------------------------
Last = tuple[tuple[Change, ...], InTheWay]


def over_before(candidate: Candidate, others: tuple[Reserved, ...], now_ms: int) -> Candidate | None:
    """The same job, were it over before any of these starts: what is kept for them is not in its way. None if one starts now."""
    first_ms = min((other.start_ms for other in others), default=now_ms)
    return _as(candidate, limit_ms=first_ms - now_ms) if first_ms > now_ms else None


def _were_none_kept(ahead: Ahead, candidate: Candidate, others: tuple[Reserved, ...], now_ms: int) -> Last | None:
    """Jobs whose end would make room, if none were kept for others."""
    soon = over_before(candidate, others, now_ms)
    found = in_the_way(ahead, soon) if soon is not None else None
    if found is None:
        return None
    kept = tuple(sorted(other.job_id for other in others))
    return (Change(_ended(ahead, found), partial(jobs_gone, jobs=found.jobs), kept),), found


def _nodes_and_ends(ahead: Ahead, candidate: Candidate, others: tuple[Reserved, ...], now_ms: int) -> Last | None:
    """The same with nodes back: those that would be needed once these jobs are gone."""
    board = ahead.board
    no_one: tuple[str, ...] = ()
    options = options_for(candidate.lane.state.shape, board.columns)
    rows = list(closed_nodes_that_fit(board, nearest(board, options)[1]))[: limits.NODES_BACK_TRIED_MAX]
    if not rows:
        return None
    with _opened(board, ahead.ledger, rows=tuple(rows)):
        found, kept = in_the_way(ahead, candidate), no_one
        if found is None:
            last = _were_none_kept(ahead, candidate, others, now_ms)
            if last is None:
                return None
            (change,), found = last
            kept, candidate = change.kept, over_before(candidate, others, now_ms) or candidate
    for row in list(rows):
        fewer = tuple(other for other in rows if other != row)
        with _back_and_gone(board, ahead.ledger, rows=fewer, jobs=found.jobs):
            if ahead.found(candidate) is not None:
                rows.remove(row)
    text = f"{_back(board, rows)} and {_ended(ahead, found)}"
    return (Change(text, partial(_back_and_gone, rows=tuple(rows), jobs=found.jobs), kept),), found


def _back(board: Board, rows: Sequence[int]) -> str:
    nodes = [board.columns.nodes[row] for row in rows]
    named = listed([f"{node.id} ({node.state})" for node in nodes])
    return f"{'node' if len(nodes) == 1 else 'nodes'} {named} came back"


@contextmanager
def _back_and_gone(board: Board, ledger: Ledger, rows: tuple[int, ...], jobs: tuple[str, ...]) -> Iterator[None]:
    """While inside, these nodes take work and these jobs hold nothing."""
    with _opened(board, ledger, rows=rows), jobs_gone(board, ledger, jobs):
        yield


def _ended(ahead: Ahead, found: InTheWay) -> str:
    names = addresses(ahead.board, found.jobs)
    where = f" on {listed(found.nodes)}" if found.nodes else ""
    proof = "" if len(names) == 1 else " (no fewer would do)" if found.smallest else " (enough; perhaps fewer would do)"
    return f"{'job' if len(names) == 1 else 'jobs'} {listed(names)}{where} ended{proof}"


# --- a different ask --------------------------------------------------------------------------------------------------------
def _as(candidate: Candidate, shape: Shape | None = None, limit_ms: int | None = None) -> Candidate:
    """The same job, asking for something else."""
    lane = candidate.lane
    state = lane.state if shape is None else ShapeState(shape)
    return candidate._replace(
        lane=Lane(
            state,
            lane.bound,
            lane.limit_ms if limit_ms is None else limit_ms,
            lane.run_ms if limit_ms is None else min(lane.run_ms, limit_ms),
        )
    )


def _largest(low: int, high: int, starts: Callable[[int], bool]) -> int:
    """The largest of low..high that starts, going by halves; 0 if none does. What is told has been tried itself."""
    best = 0
    while low <= high:
        middle = (low + high) // 2
        if starts(middle):
            best, low = middle, middle + 1
        else:
            high = middle - 1
    return best


def _only_group(shape: Shape) -> GroupAsk | None:
    """The group of a gang that may be made smaller: one way, one group, no mesh (its size is the model's)."""
    plain = len(shape.alternatives) == 1 and len(shape.alternatives[0].groups) == 1 and shape.mesh is None
    return shape.alternatives[0].groups[0] if plain else None


def _with_group(shape: Shape, group: GroupAsk) -> Shape:
    return shape._replace(alternatives=(shape.alternatives[0]._replace(groups=(group,)),))


def _smaller_gang(ahead: Ahead, candidate: Candidate) -> list[Change]:
    shape = candidate.lane.state.shape
    group = _only_group(shape)
    if group is None or group.low < 2:
        return []
    step = shape.slice[0] if shape.slice is not None else 1

    def starts(count: int) -> bool:
        smaller = group._replace(low=count * step, high=count * step)
        return ahead.found(_as(candidate, _with_group(shape, smaller))) is not None

    best = _largest(1, group.low // step - 1, starts) * step
    return [Change(f"the gang were {nodes_text(best)} or fewer")] if best else []


def _fewer_gpus(ahead: Ahead, candidate: Candidate) -> list[Change]:
    shape = candidate.lane.state.shape
    group = _only_group(shape)
    if group is None or group.member.gpus < 2:
        return []

    def starts(count: int) -> bool:
        fewer = group._replace(member=group.member._replace(gpus=count))
        return ahead.found(_as(candidate, _with_group(shape, fewer))) is not None

    best = _largest(1, group.member.gpus - 1, starts)
    return [Change(f"it asked for {best} GPU{'' if best == 1 else 's'} or fewer on each node")] if best else []


def _shorter(ahead: Ahead, candidate: Candidate, starts_ms: tuple[int, ...], now_ms: int) -> list[Change]:
    """Ending before a reservation begins lets it through; the longest limit that does, in whole minutes."""
    before = sorted({(start - now_ms) // _MINUTE_MS * _MINUTE_MS for start in starts_ms}, reverse=True)
    limits_ms = [limit for limit in before if 0 < limit < candidate.lane.run_ms]
    for limit_ms in limits_ms[: limits.LIMITS_TRIED_MAX]:
        if ahead.found(_as(candidate, limit_ms=limit_ms)) is not None:
            now = "it has none" if candidate.lane.limit_ms >= NO_LIMIT else f"it has {format_duration_ms(candidate.lane.limit_ms)}"
            return [Change(f"its time limit were {format_duration_ms(limit_ms)} or less ({now})")]
    return []


# --- a different fleet ------------------------------------------------------------------------------------------------------
def _nodes_back(ahead: Ahead, candidate: Candidate) -> list[Change]:
    """One node that would be enough, or the fewest of them in their order that are."""
    board = ahead.board
    options = options_for(candidate.lane.state.shape, board.columns)
    rows = list(closed_nodes_that_fit(board, nearest(board, options)[1]))[: limits.NODES_BACK_TRIED_MAX]
    singles = [(row,) for row in rows]
    for back in [*singles, *(tuple(rows[:count]) for count in range(2, len(rows) + 1))]:
        with _opened(board, ahead.ledger, rows=back):
            enough = ahead.found(candidate) is not None
        if enough:
            return [Change(_back(board, back), partial(_opened, rows=back))]
    return []


@contextmanager
def _opened(board: Board, _: Ledger, rows: tuple[int, ...]) -> Iterator[None]:
    """While inside, these nodes take work."""
    columns = board.columns
    before = columns.open[list(rows)].copy()
    columns.open[list(rows)] = True
    for row in rows:
        columns.give(row, 0, 0, 0)
    try:
        yield
    finally:
        columns.open[np.array(rows, np.int64)] = before
        for row in rows:
            columns.touch(row)


# --- a different quota ------------------------------------------------------------------------------------------------------
def _more_quota(ahead: Ahead, candidate: Candidate) -> list[Change]:
    """What its queue misses; with the jobs whose end it would take besides, where room is short too."""
    quota = _quota_short(ahead, candidate)
    if quota is None:
        return []
    with _raised(ahead.board, ahead.ledger, quota=quota):
        more = f"queue {quota[0]} had {amount_text(quota[1], quota[2])} more"
        if ahead.found(candidate) is not None:
            return [Change(more, partial(_raised, quota=quota))]
        both = in_the_way(ahead, candidate, for_room=True)
    return [] if both is None else [Change(f"{more} and {_ended(ahead, both)}", partial(_raised, quota=quota, jobs=both.jobs))]


def _quota_short(ahead: Ahead, candidate: Candidate) -> tuple[str, str, int] | None:
    """Queue, resource and amount of what the way that is least short misses; None if some way may be charged."""
    board = ahead.board
    short = [board.quota.short_of(candidate.queue, o.charge_least) for o in options_for(candidate.lane.state.shape, board.columns)]
    missing = [entry for entry in short if entry is not None]
    if not missing or len(missing) < len(short):
        return None
    resource, amount = min(missing, key=lambda entry: (entry[1], entry[0]))
    return candidate.queue, resource, amount


@contextmanager
def _raised(board: Board, ledger: Ledger, quota: tuple[str, str, int], jobs: tuple[str, ...] = ()) -> Iterator[None]:
    """While inside, a queue has so much more of a resource; and, where some are named, jobs are gone."""
    with jobs_gone(board, ledger, jobs):
        lowered, board.quota = board.quota, board.quota.with_more(*quota)
        try:
            yield
        finally:
            board.quota = lowered

"""
Step 3 of the cycle for one shape: every member of a gang seated, or none.

    place            the best of a shape's options (the first alternative that fits, where they are ordered)
    `-- one group        counting answers it: domains, then nodes, then devices
    `-- several groups   tried out on the ledger: all groups share one domain, and may share nodes with each other

Room is looked at before devices and quota before both where it is cheap, so that a "no" costs little. Nothing is left on the ledger:
the caller seats what it accepts.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import numpy as np

from shoal.base import limits
from shoal.model.plan import PlacedMember
from shoal.scheduling.asks import Shape
from shoal.scheduling.columns import Columns
from shoal.scheduling.devices import Layout
from shoal.scheduling.domains import Rows, Wish, choose_rows, domains_with_room, gather, label_of, wish_of
from shoal.scheduling.ledger import Ledger
from shoal.scheduling.options import GroupOption, Option, charge_for, inside_host, options_of
from shoal.scheduling.pending import ShapeState
from shoal.scheduling.policy import Policy
from shoal.scheduling.quota import Charge, QuotaTree
from shoal.scheduling.rooms import Need, accepted_devices
from shoal.scheduling.runs import choose_runs, tiers_of
from shoal.scheduling.score import score_rows
from shoal.scheduling.shares import Pieces, choose_pieces
from shoal.scheduling.slowdown import Prediction, predict


class Refusal(Enum):
    """ROOM: no nodes for it, whoever asks. QUOTA: nodes perhaps, but this queue may not. LATER: it would delay a reservation."""

    ROOM = "room"
    QUOTA = "quota"
    LATER = "later"


class Seat(NamedTuple):
    """One member: its group, its node's row, its devices, and its parts of others."""

    group: int
    row: int
    mask: int
    pieces: Pieces = ()


class Placement(NamedTuple):
    """
    Seats by group and node rank. `left_over` is what options are compared by, the least is best: how many GPUs stay free on the nodes used,
    or by another packing than best fit how badly the nodes score for it.
    """

    option: Option
    seats: tuple[Seat, ...]
    charge: Charge
    domain: str | None
    left_over: float
    prediction: Prediction | None = None
    """Of a mesh: what its place costs it."""


_Sizes = tuple[int, ...]
"""Members by group."""
_Found = tuple[_Sizes, tuple[int, int], tuple[Seat, ...]]
"""Sizes, the (scope, domain) they were seated in, and the seats."""


class _Search(NamedTuple):
    """What one search keeps constant."""

    ledger: Ledger
    queue: str | None
    shape: Shape
    wish: Wish

    def may_charge(self, charge: Charge) -> bool:
        return self.queue is None or self.ledger.board.quota.short_of(self.queue, charge) is None


def place(ledger: Ledger, queue: str, state: ShapeState, policy: Policy) -> Placement | Refusal:
    """Seats for the best option of a shape, or why there are none. The ledger is left as found."""
    return place_options(ledger, queue, state.shape, options_of(state, ledger.board.columns), policy)


def place_options(ledger: Ledger, queue: str | None, shape: Shape, options: tuple[Option, ...], policy: Policy) -> Placement | Refusal:
    """As `place`, out of the options given; without a queue nobody's quota is asked."""
    search = _Search(ledger, queue, shape, wish_of(shape, ledger.board.columns, policy))
    best: Placement | None = None
    refusal = Refusal.ROOM
    for option in options:
        if best is not None and shape.ordered and option.alternative is not best.option.alternative:
            break
        found = _place_option(search, option)
        if isinstance(found, Refusal):
            refusal = found if found is Refusal.QUOTA else refusal
        elif best is None or _cost(found) < _cost(best):
            best = found
    return best or refusal


def _cost(placement: Placement) -> tuple[float, float, int]:
    slow = 1 - placement.prediction.speed if placement.prediction is not None else 0.0
    return slow, placement.left_over, sum(seat.mask.bit_count() for seat in placement.seats)


def _place_option(search: _Search, option: Option) -> Placement | Refusal:
    board = search.ledger.board
    if any(board.rooms.at_most(part.need) < part.group.low for part in option.groups):
        return Refusal.ROOM
    if not search.may_charge(option.charge_least):
        return Refusal.QUOTA
    if inside_host(search.shape, board.columns) and search.shape.required and option.members_least > 1:
        return Refusal.ROOM
    return _place_group(search, option) if len(option.groups) == 1 else _place_groups(search, option)


def seated(columns: Columns, found: Placement) -> tuple[PlacedMember, ...]:
    """The members of a placement as a plan names them."""
    members = []
    for seat in found.seats:
        part = found.option.groups[seat.group]
        asked = part.need.member
        members.append(
            PlacedMember(
                node=columns.nodes[seat.row].id,
                group=part.group.name,
                devices=columns.uuids(seat.row, seat.mask),
                cpu_milli=asked.cpu_milli,
                memory_bytes=asked.memory_bytes,
                parts=columns.parts_of(seat.row, seat.pieces) if seat.pieces else (),
            )
        )
    return tuple(members)


# --- one group: counting ----------------------------------------------------------------------------------------------------
def _place_group(search: _Search, option: Option) -> Placement | Refusal:
    board, part = search.ledger.board, option.groups[0]
    low, high = part.group.low, part.group.high
    if high > 1:
        if search.queue is not None:
            high = affordable(board.quota, search.queue, part.charge, high)
        if search.shape.required and inside_host(search.shape, board.columns):
            high = 1
    rows = np.flatnonzero(board.rooms.fitting(part.need))
    if len(rows) < low:
        return Refusal.ROOM
    tiers = tiers_of(search.shape, option, board.columns, board.rooms) if high > 1 else ()
    if tiers is None:
        return Refusal.ROOM
    if tiers:
        chosen = choose_runs(board.columns, rows, high, part.need, search.wish, tiers)
    else:
        chosen = choose_rows(board.columns, rows, low, high, part.need, search.wish)
    if chosen is None or len(chosen.rows) < low:
        return Refusal.ROOM
    seats = _seats_on(board.columns, chosen.rows, part.need)
    return _placement(search, option, seats, chosen.domain)


def _seats_on(columns: Columns, rows: Rows, need: Need) -> tuple[Seat, ...]:
    """A seat on each row. What a member takes depends on the build and on what is free: for most nodes of a gang that is the same."""
    if need.member.piece is not None:
        return tuple(seat_on(columns, 0, row, need) for row in rows.tolist())
    known: dict[tuple[Layout, int], int] = {}
    seats = []
    for row, free in zip(rows.tolist(), columns.free_mask[rows].tolist(), strict=True):
        alike = columns.layouts[row], free
        mask = known.get(alike)
        if mask is None:
            mask = known[alike] = devices_for(columns, row, need)
        seats.append(Seat(0, row, mask))
    return tuple(seats)


def affordable(quota: QuotaTree, queue: str, charge: Charge, most: int) -> int:
    """How many members, `most` at most, the queue may still start."""
    for resource, amount in charge:
        available = quota.available(queue, resource)
        if available is not None:
            most = min(most, max(0, available) // amount)
    return most


def seat_on(columns: Columns, group: int, row: int, need: Need) -> Seat:
    """What a member takes on a node that has room for it."""
    member = need.member
    if member.piece is None:
        return Seat(group, row, devices_for(columns, row, need))
    if columns.packing is not None:
        return Seat(group, row, 0, columns.packing.choose_pieces(columns, row, need))
    layout = columns.layouts[row]
    usable = accepted_devices(layout, need) & int(columns.free_mask[row] | columns.shared_mask[row])
    return Seat(group, row, 0, choose_pieces(layout.devices, columns.parts_at(row), usable, member.piece, member.pieces))


def devices_for(columns: Columns, row: int, need: Need) -> int:
    """The whole devices a member takes on a node that has room for it."""
    if need.model is None:
        return 0
    layout, member = columns.layouts[row], need.member
    free = int(columns.free_mask[row]) & accepted_devices(layout, need)
    if need.together:
        return layout.choose_together(free, member.gpus, need.together)
    return layout.choose(free, member.gpus)


# --- several groups: trying -------------------------------------------------------------------------------------------------
def _place_groups(search: _Search, option: Option) -> Placement | Refusal:
    found = _largest(search, option)
    if found is None:
        return Refusal.ROOM
    sizes, where, seats = found
    seats = _grown(search, option, sizes, where, seats)
    rows = np.array(sorted({seat.row for seat in seats}))
    return _placement(search, option, seats, label_of(search.ledger.board.columns, rows, search.wish))


def _largest(search: _Search, option: Option) -> _Found | None:
    """
    The largest gang that some domain holds and the queue may start, all groups cut down from their most by the same number of members.

    Halves the cut between "everybody at least" and "everybody at most", since a gang that fits also fits when it is smaller.
    """
    cut_max = max(part.group.high - part.group.low for part in option.groups)
    best = _first_domain(search, option, _cut(option, cut_max))
    fits, fails = cut_max, -1
    while best is not None and fits - fails > 1:
        middle = (fits + fails) // 2
        sizes = _cut(option, middle)
        found = _first_domain(search, option, sizes) if search.may_charge(charge_for(option, sizes)) else None
        if found is None:
            fails = middle
        else:
            fits, best = middle, found
    return best


def _cut(option: Option, members: int) -> _Sizes:
    return tuple(max(part.group.low, part.group.high - members) for part in option.groups)


def _first_domain(search: _Search, option: Option, sizes: _Sizes) -> _Found | None:
    """The tightest domain in which all groups can be seated together, and how."""
    board = search.ledger.board
    widest = max(range(len(sizes)), key=lambda at: (sizes[at], -at))
    rows = np.flatnonzero(board.rooms.fitting(option.groups[widest].need))
    for scope, domain in domains_with_room(board.columns, rows, sizes[widest], search.wish)[: limits.DOMAINS_TRIED_MAX]:
        seats = _seat_all(search, option, sizes, (scope, domain))
        if seats is not None:
            return sizes, (scope, domain), seats
    return None


def _seat_all(search: _Search, option: Option, sizes: _Sizes, where: tuple[int, int]) -> tuple[Seat, ...] | None:
    """Seats for every group inside one domain, the hardest to seat first; None if some group does not fit. Ledger as found."""
    seats: list[Seat] = []
    with search.ledger.trial() as ledger:
        for at in sorted(range(len(sizes)), key=lambda at: _hardness(option.groups[at], at)):
            part = option.groups[at]
            rows = _rows_in(ledger, part.need, where)
            if len(rows) < sizes[at]:
                return None
            columns = ledger.board.columns
            for row in gather(columns, rows, sizes[at], where[0], part.need).tolist():
                seat = seat_on(columns, at, row, part.need)
                ledger.seat(row, seat.mask, part.need.member.cpu_milli, part.need.member.memory_bytes, seat.pieces)
                seats.append(seat)
    return tuple(sorted(seats, key=lambda seat: seat.group))


def _hardness(part: GroupOption, at: int) -> tuple[int, int, int, int]:
    member = part.need.member
    return -(member.gpus or min(member.pieces, 1)), -member.cpu_milli, -member.memory_bytes, at


def _rows_in(ledger: Ledger, need: Need, where: tuple[int, int]) -> Rows:
    scope, domain = where
    rows = np.flatnonzero(ledger.board.rooms.fitting(need))
    inside: Rows = rows[ledger.board.columns.scopes[scope].codes[rows] == domain]
    return inside


def _grown(search: _Search, option: Option, sizes: _Sizes, where: tuple[int, int], seats: tuple[Seat, ...]) -> tuple[Seat, ...]:
    """The groups raised one after another to the largest size that still fits and may be charged."""
    best, at_size = seats, list(sizes)
    for at, part in enumerate(option.groups):
        low, high = at_size[at], part.group.high
        while low < high:
            middle = (low + high + 1) // 2
            tried = (*at_size[:at], middle, *at_size[at + 1 :])
            found = _seat_all(search, option, tried, where) if search.may_charge(charge_for(option, tried)) else None
            if found is None:
                high = middle - 1
            else:
                low, best = middle, found
        at_size[at] = low
    return best


def _placement(search: _Search, option: Option, seats: tuple[Seat, ...], domain: str | None) -> Placement:
    columns = search.ledger.board.columns
    sizes = [0] * len(option.groups)
    left: dict[int, int] = {}
    for seat in seats:
        sizes[seat.group] += 1
        left[seat.row] = left.get(seat.row, int(columns.free_gpus[seat.row])) - seat.mask.bit_count()
    charge = option.charge_least if sizes == [p.group.low for p in option.groups] else charge_for(option, tuple(sizes))
    cost = sum(left.values()) if columns.packing is None else _scored(columns, option, seats)
    return Placement(option, seats, charge, domain, cost, _predicted(search.shape, columns, option, seats))


def _scored(columns: Columns, option: Option, seats: tuple[Seat, ...]) -> float:
    """How badly the nodes of a placement score, each member by itself."""
    needs = [part.need for part in option.groups]
    return sum(float(score_rows(columns, np.array([seat.row]), needs[seat.group])[0]) for seat in seats)


def _predicted(shape: Shape, columns: Columns, option: Option, seats: tuple[Seat, ...]) -> Prediction | None:
    if shape.mesh is None or option.model is None:
        return None
    members = [(seat.row, columns.layouts[seat.row].in_order(seat.mask)) for seat in seats]
    return predict(columns, shape.mesh[0], option.model, members)

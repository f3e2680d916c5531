"""
Inputs of a question from the market's own record: spot prices over time, and the lives of spot nodes with how each ended.

A rate needs its exposure: losses over the node-hours in which they could happen, nodes that nobody lost included. Nodes of a zone go
together, so the rate of a gang is measured too: each event with the nodes that it took, put to a gang drawn from the nodes then up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, NamedTuple

from shoal.base.errors import Invalid

LOSSES_LEAST: Final = 5
"""Fewer losses give a rate that may be off by a factor of two and more."""
EVENT_S: Final = 60.0
"""Losses within a minute of the one before are one event: clouds take nodes in waves."""
PRICES_LEAST: Final = 2


class Prices(NamedTuple):
    """Prices at rising times, each until the next; `on_demand` is 0 where the record does not tell it."""

    times_s: tuple[float, ...]
    spot: tuple[float, ...]
    on_demand: float

    @property
    def mean(self) -> float:
        """Mean over time, not over rows: a price counts for as long as it held."""
        spans = [after - before for before, after in pairwise(self.times_s)]
        return math.fsum(price * span for price, span in zip(self.spot, spans, strict=False)) / math.fsum(spans)


class Life(NamedTuple):
    """One node from start to end; `lost` where the provider took it."""

    start_s: float
    end_s: float
    lost: bool


def prices_of(times_s: list[float], spot: list[float], on_demand: list[float], source: str) -> Prices:
    """A record of prices. Raises Invalid for one that is short, not in order of time, or without a price."""
    if len(times_s) < PRICES_LEAST or times_s[-1] <= times_s[0]:
        raise Invalid(f"{source}: {len(times_s)} prices; at least {PRICES_LEAST} at different times are needed")
    for at, (before, after) in enumerate(pairwise(times_s), 3):
        if after < before:
            raise Invalid(f"{source}: row {at} is before the row above it; sort by time")
    if not all(math.isfinite(price) and price > 0 for price in (*spot, *on_demand)):
        raise Invalid(f"{source}: a price is zero, negative or no number")
    return Prices(tuple(times_s), tuple(spot), on_demand[-1] if on_demand else 0.0)


def lives_of(lives: list[Life], source: str) -> tuple[Life, ...]:
    """The lives of spot nodes. Raises Invalid where one ends before it starts, and where too few were lost to tell a rate."""
    for at, life in enumerate(lives, 2):
        if not life.end_s > life.start_s:
            raise Invalid(f"{source}: row {at} ends at {life.end_s:g} s and starts at {life.start_s:g} s")
    lost = sum(life.lost for life in lives)
    if lost < LOSSES_LEAST:
        raise Invalid(f"{source}: {lost} of {len(lives)} nodes were lost; at least {LOSSES_LEAST} losses are needed to tell a rate")
    return tuple(lives)


def rate_of(lives: tuple[Life, ...]) -> float:
    """Losses per second of a node's life."""
    return sum(life.lost for life in lives) / math.fsum(life.end_s - life.start_s for life in lives)


def gang_rate_of(lives: tuple[Life, ...], nodes: int) -> float | None:
    """
    Events per second that stop a gang of so many nodes, each drawn at every moment from those up; None where so many never were.

    An event that takes k of m nodes spares a gang of n with chance C(m-k, n) / C(m, n). Time counts while at least n nodes were up.
    """
    steps = sorted([(life.start_s, 1) for life in lives] + [(life.end_s, -1) for life in lives])
    up, exposed, since, levels = 0, 0.0, steps[0][0], list[tuple[float, int]]()
    for at, change in steps:
        exposed += (at - since) if up >= nodes else 0.0
        levels.append((at, up))
        since, up = at, up + change
    if exposed <= 0:
        return None
    at_time = dict(reversed(levels))
    hit = math.fsum(_hit(at_time[event[0]], len(event), nodes) for event in _events(lives))
    return hit / exposed


def _events(lives: tuple[Life, ...]) -> list[list[float]]:
    """Times of losses, those of one event together."""
    events: list[list[float]] = []
    for at in sorted(life.end_s for life in lives if life.lost):
        if events and at - events[-1][-1] <= EVENT_S:
            events[-1].append(at)
        else:
            events.append([at])
    return events


def _hit(up: int, taken: int, nodes: int) -> float:
    """The chance that an event which takes so many of those up stops a gang of so many; 0 where no such gang was up."""
    if up < nodes:
        return 0.0
    return 1.0 - math.comb(max(0, up - taken), nodes) / math.comb(up, nodes)


def _discount(prices: Prices, on_demand: float) -> dict[str, Any]:
    return {"discount": 1 - prices.mean / on_demand}


def _ratio(prices: Prices, on_demand: float) -> dict[str, Any]:
    return {"price_ratio": on_demand / prices.mean}


FROM_PRICES: Final[dict[str, Callable[[Prices, float], dict[str, Any]]]] = {
    "spot_breakeven": _discount,
    "spot_gang": _discount,
    "spot_deadline": _ratio,
}
"""What each question takes from a record of prices."""
FROM_LIVES: Final = {"spot_breakeven": "rate", "spot_gang": "node_rate", "checkpoint_interval": "mtbf"}
"""The input that each question takes from the lives of nodes."""


def inputs_from_prices(word: str, prices: Prices, on_demand: float | None, source: str) -> dict[str, Any]:
    """Inputs of the question `word`; `on_demand` is the user's own price, which goes before the record's. Raises Invalid without either."""
    known = on_demand or prices.on_demand
    if not known:
        raise Invalid(f"{source} has no column on_demand, so that there is no discount; add one, or give --on-demand-price")
    return FROM_PRICES[word](prices, known)


def inputs_from_lives(word: str, lives: tuple[Life, ...], nodes: int | None) -> dict[str, Any]:
    """Inputs of the question `word`, measured; `nodes` is the size of its gang, where it has one and it is known."""
    rate = rate_of(lives)
    if word == "checkpoint_interval":
        return {"mtbf": {"value": 1 / rate, "unit": "s"}}
    found: dict[str, Any] = {FROM_LIVES[word]: {"value": rate, "unit": "1/s"}}
    together = gang_rate_of(lives, nodes) if word == "spot_gang" and nodes else None
    return found | ({"event_rate": {"value": together, "unit": "1/s"}} if together else {})

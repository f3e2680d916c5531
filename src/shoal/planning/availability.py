"""
What a trace of spot nodes says of a gang: how often all are up together, and how often one stops it, against what independence promises.

Nodes of one zone go together, so p^N and N x rate are both far off; `spot_gang` takes the measured rate as `event_rate`.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask
from shoal.planning.topic import Topic

TICKS_LEAST: Final = 100


class SpotTrace(msgspec.Struct, frozen=True, kw_only=True):
    """How many of a group of nodes were up, tick by tick."""

    nodes: Annotated[int, Ask("nodes", "nodes of the group", least=1)]
    up: Annotated[tuple[int, ...], Ask("nodes", "nodes up at each tick")]
    tick: Annotated[float, Ask("s", "time of a tick", above=True)]


def spot_trace(x: SpotTrace) -> Answer:
    """Shares of time, rates of loss, and how far both are from independence."""
    work = Work()
    count = len(x.up)
    drops = [before - after for before, after in zip(x.up, x.up[1:], strict=False) if after < before]
    whole = sum(level == x.nodes for level in x.up)
    stops = sum(before == x.nodes and after < before for before, after in zip(x.up, x.up[1:], strict=False))
    share = work.find("availability", sum(x.up) / (count * x.nodes), "1", "mean over ticks of nodes up / nodes", "of one node")
    together = work.find("all_up", whole / count, "1", "share of ticks with every node up")
    work.find("none_up", sum(level == 0 for level in x.up) / count, "1", "share of ticks without a node")
    alone = work.put("all_up_if_independent", share**x.nodes, "1", "availability ** nodes", "what independence promises")
    rate = work.find("node_rate", sum(drops) / (sum(x.up) * x.tick), "1/h", "nodes lost / node-time up", "of one node")
    work.put("gang_rate_if_independent", x.nodes * rate, "1/h", "nodes * node_rate")
    if whole:
        work.find("event_rate", stops / (whole * x.tick), "1/h", "losses out of all-up / time all up", "stops a gang of all nodes")
    work.find("lost_per_event", sum(drops) / len(drops) if drops else 0.0, "nodes", "nodes lost / ticks in which any was lost")
    work.note("give event_rate to spot_gang in place of nodes x node_rate", whole > 0)
    if alone > 0 and together > 2 * alone:
        work.note(f"all nodes were up {together / alone:,.3g} times as often as independence says")
    return work.done(
        "measured on the trace; beside it p^N and N x rate, which hold for independent nodes",
        "one trace of one zone is one sample; losses within a tick count as one event",
        "nodes go together" if together > 2 * alone else "nodes go about independently",
        lead="all_up",
    )


def validate_spot_trace(x: SpotTrace) -> tuple[Refusal, ...]:
    """A trace that says something, of no more nodes than there are."""
    most = max(x.up, default=0)
    return (
        unless(len(x.up) >= TICKS_LEAST, "trace_too_short", f"{len(x.up)} ticks: at least {TICKS_LEAST} are needed", "up")
        + unless(most <= x.nodes, "more_up_than_nodes", f"{most} nodes up of {x.nodes}", "up")
        + unless(most > 0, "never_up", "no node was ever up", "up")
    )


SPOT_TRACE: Final = Topic(SpotTrace, spot_trace, "", validate_spot_trace)

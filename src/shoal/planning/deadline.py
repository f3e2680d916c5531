"""
A job with a deadline on a market where spot comes and goes: run along an availability trace by each policy.

Policies: on-demand alone; greedy (spot or wait); uniform progress (on spot stay; idle and behind the straight line to the deadline:
on-demand; back to spot only when ahead). All have a safety net: on-demand from the moment when only it can still meet the deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, NamedTuple

import msgspec

from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask, assumed
from shoal.planning.topic import Topic

TICKS_MAX: Final = 100_000
"""Ticks of one run: a month at half a minute; three runs take 0.3 s."""


class SpotDeadline(msgspec.Struct, frozen=True, kw_only=True):
    """A job, its deadline, and when spot was there."""

    work: Annotated[float, Ask("h", "work of the job", above=True)]
    deadline: Annotated[float, Ask("h", "until when it must be done, from now", above=True)]
    changeover: Annotated[float, Ask("h", "lost at every start and switch")] = assumed("0.2 h")
    price_ratio: Annotated[float, Ask("1", "on-demand over spot price", least=1, above=True)] = assumed("3")
    available: Annotated[tuple[int, ...], Ask("1", "1 where spot was there, tick by tick", most=1)]
    tick: Annotated[float, Ask("s", "time of a tick", above=True)]


class Run(NamedTuple):
    """`cost` is in hours of on-demand, relative to the job's work."""

    cost: float
    finished: float
    switches: int
    on_time: bool


class Moment(NamedTuple):
    """What a policy sees: seconds passed, work done, whether spot is there, what the job is on (`spot`, `on_demand`, `idle`)."""

    now: float
    done: float
    spot: bool
    on: str


Policy = Callable[[SpotDeadline, Moment], str]


def greedy(_: SpotDeadline, moment: Moment) -> str:
    """Spot where there is any, else wait."""
    return "spot" if moment.spot else "idle"


def uniform_progress(x: SpotDeadline, moment: Moment) -> str:
    """As greedy while ahead of the straight line to the deadline; on-demand when idle and behind."""
    expected = moment.now * x.work / x.deadline
    if moment.on == "on_demand":
        return "spot" if moment.spot and moment.done >= expected + 2 * x.changeover else "on_demand"
    if moment.spot:
        return "spot"
    return "on_demand" if moment.done < expected else "idle"


def on_demand(_: SpotDeadline, __: Moment) -> str:
    """On-demand from the first to the last moment."""
    return "on_demand"


def follow(x: SpotDeadline, policy: Policy) -> Run:
    """The job run along the trace, tick by tick. Past the trace's end spot is gone."""
    done, now, cost, overhead, switches = 0.0, 0.0, 0.0, 0.0, 0
    on = "idle"
    for at in range(len(x.available) + int((x.work + x.deadline) / x.tick) + 2):
        if done >= x.work - 1e-9:
            break
        there = at < len(x.available) and x.available[at] == 1
        moment = Moment(now, done, there, on if on != "spot" or there else "idle")
        tight = x.deadline - now <= x.work - done + 2 * x.changeover + x.tick
        wish = "on_demand" if tight and moment.on != "spot" else policy(x, moment)
        if wish != moment.on:
            switches += wish != "idle"
            overhead = x.changeover if wish != "idle" else 0.0
        on = wish
        if on != "idle":
            lost = min(overhead, x.tick)
            overhead -= lost
            step = min(x.tick - lost, x.work - done)
            done += step
            cost += (lost + step) * (1.0 if on == "on_demand" else 1 / x.price_ratio)
            now += lost + step if done >= x.work - 1e-9 else x.tick
        else:
            now += x.tick
    return Run(cost / x.work, now, switches, now <= x.deadline + 1e-6)


def lower_bound(x: SpotDeadline) -> float:
    """Relative cost if all spot before the deadline were used without changeovers."""
    ticks = min(len(x.available), int(x.deadline / x.tick))
    on_spot = min(x.work, sum(x.available[:ticks]) * x.tick)
    return (on_spot / x.price_ratio + (x.work - on_spot)) / x.work


def spot_deadline(x: SpotDeadline) -> Answer:
    """What each policy costs on this trace, relative to on-demand work."""
    work = Work()
    runs = {"uniform_progress": follow(x, uniform_progress), "greedy": follow(x, greedy), "on_demand": follow(x, on_demand)}
    for name, run in runs.items():
        work.find(name, run.cost, "1", "run along the trace", "of on-demand work")
    work.find("lower_bound", lower_bound(x), "1", "all spot before the deadline, without changeovers")
    work.find("availability", sum(x.available) / len(x.available), "1", "share of ticks with spot")
    work.table("runs", ("policy", "cost of on-demand", "finished [h]", "starts", "on time"),
               [(name, run.cost, run.finished / 3600, run.switches, run.on_time) for name, run in runs.items()])  # fmt: skip
    best = min(runs, key=lambda name: (round(runs[name].cost, 9), name))
    work.find("cheapest", best, "1", "least cost on this trace; one trace is one sample")
    return work.done(
        "tick by tick along the trace, a changeover lost at each start; on-demand when time left <= work left + 2 changeovers + a tick",
        "one trace is one sample: compare over disjoint windows of several zones",
        "the deadline" if x.deadline < 1.2 * x.work else "availability of spot",
    )


def validate_spot_deadline(x: SpotDeadline) -> tuple[Refusal, ...]:
    """The deadline must leave room for one start."""
    words = (
        f"{x.work / 3600:g} h of work and a changeover of {x.changeover / 3600:g} h do not fit {x.deadline / 3600:g} h: not even on-demand"
    )
    ticks = (x.work + x.deadline) / x.tick
    fine = f"{ticks:,.0f} ticks of {x.tick:g} s until the deadline: at most {TICKS_MAX:,} are walked, take a longer tick"
    return (
        unless(bool(x.available), "no_trace", "no trace: availability tick by tick is needed", "available")
        + unless(x.work + x.changeover + x.tick <= x.deadline, "deadline_without_slack", words, "deadline")
        + unless(ticks <= TICKS_MAX, "too_many_ticks", fine, "tick")
    )


SPOT_DEADLINE: Final = Topic(SpotDeadline, spot_deadline, "deadline", validate_spot_deadline)

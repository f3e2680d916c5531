"""
Does this job belong on spot, at which checkpoint interval, at which size of gang.

Everything uses the exact renewal model; the first-order formula, which most tables use, is shown beside it with its error: at hourly
checkpoints and 60 % discount it promises a break-even 1.8 times too high.
"""

from __future__ import annotations

import math
from typing import Annotated, Final

import msgspec

from shoal.planning import special
from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask, assumed
from shoal.planning.topic import Topic

FIRST_ORDER_GOOD: Final = 0.2
"""rate x (interval + checkpoint + restart) below which the first-order factor is good to one percent."""
GANG_NODES_MAX: Final = 1_000_000
RATE_MAX: Final = 0.1
"""Preemptions a second beyond which no break-even is searched."""
_EXPONENT_MAX: Final = 500.0


def factor_exact(interval: float, checkpoint: float, restart: float, rate: float) -> float:
    """
    Wall time over useful work when every preemption loses what came since the last checkpoint, preemptions being exponential at `rate`.

    Preemptions hit during checkpoint and restart too. 1 + checkpoint / interval at rate 0; infinite where no float can say it.
    """
    if rate <= 0:
        return 1 + checkpoint / interval
    if rate * (interval + checkpoint + restart) > _EXPONENT_MAX:
        return math.inf
    return math.exp(restart * rate) * math.expm1((interval + checkpoint) * rate) / (rate * interval)


def factor_first_order(interval: float, checkpoint: float, restart: float, rate: float) -> float:
    """The same to first order in `rate`: half an interval and a restart lost per preemption."""
    return 1 + checkpoint / interval + rate * (interval / 2 + restart)


def best_interval(checkpoint: float, mtbf: float) -> float:
    """
    The interval of useful work with the least exact factor: M (1 + W(-exp(-d/M - 1))).

    Daly's series where the checkpoint is less than a millionth of M: there the exact form loses its digits, and the two agree to 1e-9.
    """
    if checkpoint < 1e-6 * mtbf:
        return daly_interval(checkpoint, mtbf)
    return mtbf * (1 + special.lambert_w(-math.exp(-checkpoint / mtbf - 1)))


def young_interval(checkpoint: float, mtbf: float) -> float:
    """Young's interval sqrt(2 d M), the checkpoint included."""
    return math.sqrt(2 * checkpoint * mtbf)


def daly_interval(checkpoint: float, mtbf: float) -> float:
    """Daly's higher-order interval of useful work, for d < 2M."""
    s = math.sqrt(checkpoint / (2 * mtbf))
    return young_interval(checkpoint, mtbf) * (1 + s / 3 + s * s / 9) - checkpoint


class SpotBreakeven(msgspec.Struct, frozen=True, kw_only=True):
    """One job that checkpoints at a fixed interval."""

    discount: Annotated[float, Ask("1", "spot's discount on on-demand", least=-10, most=1)]
    interval: Annotated[float, Ask("min", "useful work between checkpoints", above=True)]
    checkpoint: Annotated[float, Ask("min", "time of a checkpoint")]
    restart: Annotated[float, Ask("min", "from preemption to work again")]
    rate: Annotated[float, Ask("1/h", "preemptions while running")]
    notice: Annotated[float, Ask("min", "warning before a preemption")] = 0.0
    on_demand_price: Annotated[float, Ask("USD/GPU/h", "on-demand price")] = assumed("3 USD/GPU/h")


def break_even_rate(interval: float, checkpoint: float, restart: float, limit: float) -> float:
    """The rate at which the exact factor is `limit`; 0 where checkpoints alone cost more."""
    if factor_exact(interval, checkpoint, restart, 0.0) >= limit:
        return 0.0
    return special.root(lambda rate: factor_exact(interval, checkpoint, restart, rate) - limit, 0.0, RATE_MAX)


def spot_breakeven(x: SpotBreakeven) -> Answer:
    """What the job costs on spot relative to on-demand, and up to which rate of preemptions it pays."""
    work = Work()
    saves = x.notice > x.checkpoint > 0
    loss = x.restart + (x.checkpoint if saves else x.interval / 2)
    formula = "restart + checkpoint" if saves else "interval / 2 + restart"
    work.put("waste_per_preemption", loss, "min", formula, "saved within the notice" if saves else "")
    first = work.put(
        "factor_first_order", 1 + x.checkpoint / x.interval + x.rate * loss, "1", "1 + checkpoint / interval + rate * waste_per_preemption"
    )
    exact = _factor(x)
    limit = work.put("factor_limit", 1 / (1 - x.discount), "1", "1 / (1 - discount)", "spot pays below this")
    if x.rate > 0 and not saves:
        formula = "exp(restart * rate) * (exp((interval + checkpoint) * rate) - 1) / (rate * interval)"
        work.put("factor_exact", exact, "1", formula, "wall time over useful work")
    else:
        how = (
            "saved within the notice: (1 + checkpoint / interval) x renewal of the restart"
            if saves
            else "no preemptions: checkpoints alone"
        )
        work.find("factor_exact", exact, "1", how, "wall time over useful work")
    work.put("relative_cost", (1 - x.discount) * exact, "1", "(1 - discount) * factor_exact", "of on-demand")
    ahead = (limit - 1 - x.checkpoint / x.interval) / loss if loss > 0 else math.inf
    if math.isfinite(ahead):
        work.put(
            "break_even_first_order", max(0.0, ahead), "1/h", "max(0, factor_limit - 1 - checkpoint / interval) / waste_per_preemption"
        )
    if not saves:
        even = break_even_rate(x.interval, x.checkpoint, x.restart, limit)
        work.find("break_even_exact", even, "1/h", "rate at which the exact factor is factor_limit, by bisection")
    work.put("pays", exact < limit, "1", "factor_exact < factor_limit")
    work.put(
        "price_per_work",
        x.on_demand_price * (1 - x.discount) * exact,
        "USD/GPU/h",
        "on_demand_price * relative_cost",
        "per hour of useful work",
    )
    work.put("first_order_error", first / exact - 1, "1", "factor_first_order / factor_exact - 1")
    load = x.rate * (x.interval + x.checkpoint + x.restart)
    work.note(
        f"rate x (interval + checkpoint + restart) = {load:.2f}: the first-order factor is off by {abs(first / exact - 1):.1%}",
        load >= FIRST_ORDER_GOOD,
    )
    work.note("waiting for capacity is not in these figures: add it where spot is often unavailable")
    return work.done(
        "exponential, also in restarts; renewal e^(R/M) M (e^((tau+d)/M) - 1)/tau with M = 1/rate; pays below 1/(1 - discount)",
        "a steady rate from a trace of this instance type and zone; first order only below rate x (interval + checkpoint + restart) = 0.2",
        "preemptions" if exact - 1 > 2 * x.checkpoint / x.interval else "checkpoints",
        lead="relative_cost",
    )


def _factor(x: SpotBreakeven) -> float:
    if not x.notice > x.checkpoint > 0:
        return factor_exact(x.interval, x.checkpoint, x.restart, x.rate)
    # With a notice that holds a checkpoint no work is lost: each preemption costs one more checkpoint and a restart, itself repeated.
    restarts = math.expm1(min(_EXPONENT_MAX, x.rate * x.restart)) if x.rate > 0 else 0.0
    return (1 + x.checkpoint / x.interval) * (1 + restarts + x.rate * x.checkpoint)


def validate_spot(x: SpotBreakeven) -> tuple[Refusal, ...]:
    """A discount must be one, and a checkpoint must be shorter than what it saves."""
    long = (
        f"a checkpoint of {x.checkpoint / 60:g} min every {x.interval / 60:g} min: it would write more than it works; lengthen the interval"
    )
    return (
        unless(
            0 < x.discount < 1, "no_discount", f"discount {x.discount:.0%}: spot must be cheaper than on-demand, and not free", "discount"
        )
        + unless(x.checkpoint < x.interval, "checkpoint_exceeds_interval", long, "checkpoint")
        + unless(
            math.isfinite(_factor(x)), "never_finishes", "at this rate the job practically never passes a checkpoint: not on spot", "rate"
        )
    )


class CheckpointInterval(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is stopped by failures or preemptions."""

    checkpoint: Annotated[float, Ask("min", "time of a checkpoint", above=True)]
    mtbf: Annotated[float, Ask("min", "mean time between failures of the whole job", above=True)]
    restart: Annotated[float, Ask("min", "from failure to work again")] = 0.0


def checkpoint_interval(x: CheckpointInterval) -> Answer:
    """Useful work between checkpoints by Young, by Daly, and exactly."""
    work = Work()
    work.put("young", young_interval(x.checkpoint, x.mtbf), "min", "sqrt(2 * checkpoint * mtbf)", "checkpoint included")
    s = "sqrt(checkpoint / (2 * mtbf))"
    daly = f"sqrt(2 * checkpoint * mtbf) * (1 + {s} / 3 + checkpoint / (2 * mtbf) / 9) - checkpoint"
    work.put("daly", daly_interval(x.checkpoint, x.mtbf), "min", daly)
    exact = work.put("exact", best_interval(x.checkpoint, x.mtbf), "min", "mtbf * (1 + lambert_w(-exp(-checkpoint / mtbf - 1)))")
    factor = factor_exact(exact, x.checkpoint, x.restart, 1 / x.mtbf)
    work.put(
        "factor", factor, "1", "exp(restart / mtbf) * mtbf * (exp((exact + checkpoint) / mtbf) - 1) / exact", "wall time over useful work"
    )
    rows = [
        (f"{times:g} x", exact * times / 60, factor_exact(exact * times, x.checkpoint, x.restart, 1 / x.mtbf))
        for times in (0.25, 0.5, 1, 2, 4)
    ]
    work.table("around", ("interval", "[min]", "factor"), rows)
    return work.done(
        "exponential failures; Young sqrt(2dM), Daly's higher order minus d, exact M (1 + W(-exp(-d/M - 1)))",
        "a checkpoint shorter than twice the mean time between failures; Young is good to 5 % while d < M/50",
        lead="exact",
    )


def validate_checkpoint(x: CheckpointInterval) -> tuple[Refusal, ...]:
    """At d >= 2M no interval is useful."""
    words = f"a checkpoint of {x.checkpoint / 60:g} min against a mean time between failures of {x.mtbf / 60:g} min: no interval is useful"
    return unless(x.checkpoint < 2 * x.mtbf, "no_useful_interval", words, "checkpoint")


class SpotGang(msgspec.Struct, frozen=True, kw_only=True):
    """A gang that stops when any node goes."""

    node_rate: Annotated[float, Ask("1/h", "preemptions of one node", above=True)]
    nodes: Annotated[int, Ask("1", "nodes of the gang", least=1, most=1e6)]
    horizon: Annotated[float, Ask("h", "time to survive")] = assumed("1 h")
    checkpoint: Annotated[float, Ask("min", "time of a checkpoint", above=True)]
    restart: Annotated[float, Ask("min", "from preemption to work again")]
    discount: Annotated[float, Ask("1", "spot's discount on on-demand", least=-10, most=1)]
    shock_rate: Annotated[float, Ask("1/h", "common shocks that stop the gang whatever its size, from a trace")] = 0.0
    event_rate: Annotated[
        float | None, Ask("1/h", "measured rate of events that stop a gang of this size; replaces the model's", above=True)
    ] = None
    slack: Annotated[float | None, Ask("min", "deadline less work left, to keep room for one restart")] = None


def gang_rate(x: SpotGang, nodes: int) -> float:
    """Events that stop a gang of so many nodes."""
    if x.event_rate is not None and nodes == x.nodes:
        return x.event_rate
    return nodes * x.node_rate + x.shock_rate


def _best_factor(x: SpotGang, nodes: int) -> float:
    rate = gang_rate(msgspec.structs.replace(x, event_rate=None), nodes)
    if x.checkpoint * rate >= 2:
        return math.inf
    return factor_exact(best_interval(x.checkpoint, 1 / rate), x.checkpoint, x.restart, rate)


def largest_gang(x: SpotGang) -> int:
    """The most nodes whose exact factor, at their own best interval, still pays; 0 if none does."""
    limit = 1 / (1 - x.discount)
    low, high = 0, 1
    while high <= GANG_NODES_MAX and _best_factor(x, high) <= limit:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _best_factor(x, middle) <= limit else (low, middle)
    return min(low, GANG_NODES_MAX)


def spot_gang(x: SpotGang) -> Answer:
    """Survival, best interval and cost of the gang, and the largest gang that still pays."""
    work = Work()
    rate = gang_rate(x, x.nodes)
    if x.event_rate is None:
        work.put("gang_rate", rate, "1/h", "nodes * node_rate + shock_rate", "events that stop the gang")
    else:
        work.find("gang_rate", rate, "1/h", "measured", "events that stop the gang")
    work.put("p_survive", math.exp(-rate * x.horizon), "1", "exp(-gang_rate * horizon)", "no event within the horizon")
    mtbf = work.put("gang_mtbf", 1 / rate, "h", "1 / gang_rate")
    interval = work.put(
        "interval", best_interval(x.checkpoint, mtbf), "min", "gang_mtbf * (1 + lambert_w(-exp(-checkpoint / gang_mtbf - 1)))"
    )
    formula = "exp(restart / gang_mtbf) * gang_mtbf * (exp((interval + checkpoint) / gang_mtbf) - 1) / interval"
    factor = work.put("factor", factor_exact(interval, x.checkpoint, x.restart, rate), "1", formula, "wall time over useful work")
    work.put("relative_cost", (1 - x.discount) * factor, "1", "(1 - discount) * factor", "of on-demand")
    work.find("max_gang", largest_gang(x), "nodes", "largest gang whose exact factor is at most 1 / (1 - discount), by bisection")
    reasons = never_on_spot(x, factor)
    work.find("on_spot", not reasons, "1", "no rule against it" if not reasons else "; ".join(reasons))
    for reason in reasons:
        work.note(f"not on spot: {reason}")
    words = (
        "nodes of one zone go together: on public traces gangs stop less often than nodes x node rate, and all-up far more often than p^N"
    )
    work.note(f"{words}; measure event_rate", x.event_rate is None and x.nodes > 1)
    return work.done(
        "preemptions independent per node plus common shocks, exponential; the gang stops with any node; best interval for its own rate",
        "independence fails within a zone: give event_rate or shock_rate from a trace",
        "common shocks" if x.shock_rate > x.nodes * x.node_rate else "the number of nodes",
        lead="relative_cost",
    )


def never_on_spot(x: SpotGang, factor: float) -> list[str]:
    """Rules against spot for this gang, in words with numbers; none means it belongs there."""
    mtbf = 1 / gang_rate(x, x.nodes)
    reasons = []
    if factor > 1 / (1 - x.discount):
        reasons.append(f"it would cost {(1 - x.discount) * factor:.2f} times on-demand; at most {largest_gang(x)} nodes pay")
    if x.checkpoint > mtbf / 2:
        reasons.append(f"a checkpoint of {x.checkpoint / 60:.1f} min is more than half the {mtbf / 60:.1f} min between events")
    if x.slack is not None and x.slack < x.restart + x.checkpoint:
        reasons.append(f"the deadline leaves {x.slack / 60:.1f} min, one restart takes {(x.restart + x.checkpoint) / 60:.1f} min")
    return reasons


def validate_spot_gang(x: SpotGang) -> tuple[Refusal, ...]:
    """A discount must be one; with a checkpoint of two lifetimes nothing is useful."""
    long = x.checkpoint * gang_rate(x, x.nodes) >= 2
    words = (
        f"a checkpoint of {x.checkpoint / 60:g} min against {1 / gang_rate(x, x.nodes) / 60:g} min between events: no interval is useful"
    )
    far = x.restart * gang_rate(x, x.nodes) > _EXPONENT_MAX / 2
    return (
        unless(
            0 < x.discount < 1, "no_discount", f"discount {x.discount:.0%}: spot must be cheaper than on-demand, and not free", "discount"
        )
        + unless(not long, "no_useful_interval", words, "checkpoint")
        + unless(not far, "never_finishes", "events come faster than a restart ends: not on spot", "restart")
    )


SPOT_BREAKEVEN: Final = Topic(SpotBreakeven, spot_breakeven, "rate", validate_spot, ("factor_exact", "factor_first_order", "factor_limit"))
CHECKPOINT_INTERVAL: Final = Topic(CheckpointInterval, checkpoint_interval, "mtbf", validate_checkpoint)
SPOT_GANG: Final = Topic(SpotGang, spot_gang, "nodes", validate_spot_gang, ("factor", "p_survive"))

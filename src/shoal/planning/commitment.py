"""How much capacity to commit: the newsvendor quantity for normal and for daily demand, three supplies by use, and falling prices."""

from __future__ import annotations

import math
from typing import Annotated, Final

import msgspec

from shoal.planning import special
from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask
from shoal.planning.quantity import YEAR_S
from shoal.planning.reclaim import excess_of_sine
from shoal.planning.topic import Topic


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """Normal demand, a committed price and an on-demand price; spot may take a part of the overflow."""

    mean: Annotated[float, Ask("GPU", "mean demand that cannot wait", above=True)]
    sd: Annotated[float, Ask("GPU", "standard deviation of it")]
    committed_price: Annotated[float, Ask("USD/GPU/h", "committed price, paid whether used or not")]
    on_demand_price: Annotated[float, Ask("USD/GPU/h", "on-demand price", above=True)]
    spot_share: Annotated[float, Ask("1", "share of the overflow that spot takes", most=1)] = 0.0
    spot_price: Annotated[float | None, Ask("USD/GPU/h", "spot price")] = None
    spot_factor: Annotated[float, Ask("1", "wall time over useful work on spot", least=1)] = 1.0
    history: Annotated[float | None, Ask("week", "how much data the demand is from")] = None


def alternative_price(x: Committed) -> float:
    """What an hour of overflow costs: on-demand, with the part that spot takes at its price and waste."""
    if x.spot_price is None:
        return x.on_demand_price
    return (1 - x.spot_share) * x.on_demand_price + x.spot_share * x.spot_price * x.spot_factor


def normal_cost(mean: float, sd: float, reserve: float, committed: float, alternative: float) -> float:
    """Cost per second of `reserve` committed GPUs with normal demand, overflow at the alternative price."""
    if sd <= 0:
        return committed * reserve + alternative * max(0.0, mean - reserve)
    z = (reserve - mean) / sd
    return committed * reserve + alternative * sd * (special.normal_pdf(z) - z * (1 - special.normal_cdf(z)))


def committed(x: Committed) -> Answer:
    """GPUs to commit, what that costs, and what it saves."""
    work = Work()
    alternative = alternative_price(x)
    mixed = "(1 - spot_share) * on_demand_price + spot_share * spot_price * spot_factor"
    work.put("alternative_price", alternative, "USD/GPU/h", "on_demand_price" if x.spot_price is None else mixed, "an hour of overflow")
    work.put("break_even_utilisation", x.committed_price / x.on_demand_price, "1", "committed_price / on_demand_price")
    target = work.put(
        "quantile", 1 - x.committed_price / alternative, "1", "1 - committed_price / alternative_price", "of demand, to be reserved"
    )
    z = special.normal_quantile(target)
    reserve = work.put("reserve", max(0.0, x.mean + x.sd * z), "GPU", "max(0, mean + sd * normal_quantile(quantile))")
    cost = work.find("cost", normal_cost(x.mean, x.sd, reserve, x.committed_price, alternative), "USD/h", words="with that reserve",
                     how="committed_price x Q + alternative_price x sd x (phi(z) - z (1 - Phi(z)))")  # fmt: skip
    whole = work.put("all_on_demand", alternative * x.mean, "USD/h", "alternative_price * mean")
    work.put("saving", 1 - cost / whole, "1", "1 - cost / all_on_demand")
    rows = []
    for percent in (10, 25, 50, 75, 90, 99):
        q = max(0.0, x.mean + x.sd * special.normal_quantile(percent / 100))
        rows.append((f"p{percent}", q, normal_cost(x.mean, x.sd, q, x.committed_price, alternative) * 3_600))
    work.table("around", ("reserve", "[GPU]", "cost [USD/h]"), rows)
    short = x.history is not None and x.history < 4 * 7 * 86_400
    work.note(f"{(x.history or 0) / 604_800:.1f} weeks of data: less than 4 say little about the coming year", short)
    work.note("demand is often near zero or below in this normal model: take the load curve", x.sd > x.mean / 3)
    work.note("count only demand that cannot wait: deferrable jobs fill the valleys of what is committed anyway")
    return work.done(
        "normal demand; Q at the committed price whether used or not, overflow at the alternative price: Q* = F^-1(1 - p_c / p_alt)",
        "spread at most a third of the mean; prices stay as they are (else committed_decline)",
        "the price ratio" if abs(target - 0.5) > 0.2 else "mean demand",
        lead="reserve",
    )


def validate_committed(x: Committed) -> tuple[Refusal, ...]:
    """A commitment must be cheaper than what it replaces, and not free; spot's part needs its price."""
    alternative = alternative_price(x)
    words = f"committed {x.committed_price * 3600:g} USD/GPU/h is not below the alternative {alternative * 3600:g}: commit nothing"
    return (
        unless(x.spot_share == 0 or x.spot_price is not None, "missing_input", "spot_share without spot_price", "spot_price")
        + unless(x.committed_price < alternative, "no_discount", words, "committed_price")
        + unless(x.committed_price > 0, "free", "a committed price of 0: commit all that there is", "committed_price")
    )


class CommittedDiurnal(msgspec.Struct, frozen=True, kw_only=True):
    """Demand that swings with the day."""

    mean: Annotated[float, Ask("GPU", "mean demand", above=True)]
    amplitude: Annotated[float, Ask("GPU", "amplitude of the swing")]
    committed_price: Annotated[float, Ask("USD/GPU/h", "committed price", above=True)]
    on_demand_price: Annotated[float, Ask("USD/GPU/h", "on-demand price", above=True)]


def committed_diurnal(x: CommittedDiurnal) -> Answer:
    """GPUs to commit under a swing, and what that costs."""
    work = Work()
    ratio = x.committed_price / x.on_demand_price
    reserve = work.put(
        "reserve", x.mean + x.amplitude * math.cos(math.pi * ratio), "GPU", "mean + amplitude * cos(pi * committed_price / on_demand_price)"
    )
    over = work.find(
        "overflow_mean", excess_of_sine(x.mean, x.amplitude, reserve), "GPU", "mean of demand above the reserve, in closed form"
    )
    work.put(
        "cost",
        x.committed_price * reserve + x.on_demand_price * over,
        "USD/h",
        "committed_price * reserve + on_demand_price * overflow_mean",
    )
    work.put("all_on_demand", x.on_demand_price * x.mean, "USD/h", "on_demand_price * mean")
    work.put("all_peak_reserved", x.committed_price * (x.mean + x.amplitude), "USD/h", "committed_price * (mean + amplitude)")
    return work.done(
        "sinusoidal demand: P(D > Q) = acos((Q - m) / a) / pi, so Q* = m + a cos(pi p_c / p_od)",
        "a smooth daily swing; take the load curve where there are weekends and steps",
        "the price ratio",
    )


def validate_diurnal(x: CommittedDiurnal) -> tuple[Refusal, ...]:
    """A commitment must be cheaper, and demand not negative."""
    words = f"committed {x.committed_price * 3600:g} USD/GPU/h is not below on-demand {x.on_demand_price * 3600:g}: commit nothing"
    return unless(x.committed_price < x.on_demand_price, "no_discount", words, "committed_price") + unless(
        x.amplitude <= x.mean, "negative_demand", f"amplitude {x.amplitude:g} GPU is above the mean {x.mean:g} GPU", "amplitude"
    )


class CapacityScreening(msgspec.Struct, frozen=True, kw_only=True):
    """Three supplies for one GPU that is needed a part of the time."""

    committed: Annotated[float, Ask("USD/h", "committed, per hour whether used or not", above=True)]
    block_fixed: Annotated[float, Ask("USD/h", "capacity block, per hour whether used or not")]
    block_used: Annotated[float, Ask("USD/h", "capacity block, per hour used more")]
    on_demand: Annotated[float, Ask("USD/h", "on-demand, per hour used", above=True)]
    use: Annotated[float | None, Ask("1", "share of time that the GPU is needed", most=1)] = None


def capacity_screening(x: CapacityScreening) -> Answer:
    """From which share of use each supply is the cheapest."""
    work = Work()
    never = math.inf
    block_on = x.block_fixed / (x.on_demand - x.block_used) if x.on_demand > x.block_used else never
    if math.isfinite(block_on):
        work.put("block_vs_on_demand", block_on, "1", "block_fixed / (on_demand - block_used)", "block is cheaper above")
    block_off = (x.committed - x.block_fixed) / x.block_used if x.block_used > 0 else never
    if math.isfinite(block_off):
        work.put("committed_vs_block", block_off, "1", "(committed - block_fixed) / block_used", "committed is cheaper above")
    direct = work.put("committed_vs_on_demand", x.committed / x.on_demand, "1", "committed / on_demand", "committed is cheaper above")
    ever = work.find("block_ever_best", block_on < min(1.0, block_off), "1", "block_vs_on_demand < committed_vs_block")
    if x.use is not None:
        costs = {"committed": x.committed, "block": x.block_fixed + x.block_used * x.use, "on_demand": x.on_demand * x.use}
        best = min(costs, key=lambda name: (costs[name], name))
        work.find("best", best, "1", f"least cost at a use of {x.use:.0%}")
        work.find("cost", costs[best], "USD/h", f"{best} at a use of {x.use:.0%}")
    return work.done(
        "committed c per hour; block fixed + variable per used hour; on-demand per used hour: lines over the share of use",
        "one GPU of one kind; a capacity block's whole window is paid",
        f"block between {block_on:.0%} and {min(1.0, block_off):.0%}" if ever else f"committed above {direct:.0%}, on-demand below",
        lead="committed_vs_on_demand",
    )


class CommittedDecline(msgspec.Struct, frozen=True, kw_only=True):
    """A fixed price while on-demand prices fall."""

    discount: Annotated[float, Ask("1", "discount of the commitment", most=1)]
    years: Annotated[float, Ask("yr", "its term", above=True)]
    decline: Annotated[float, Ask("1/yr", "part that on-demand prices lose in a year")]


def committed_decline(x: CommittedDecline) -> Answer:
    """The use from which a commitment pays over its term."""
    work = Work()
    yearly = x.decline * YEAR_S
    speed = -math.log1p(-yearly) * x.years / YEAR_S
    average = -math.expm1(-speed) / speed if speed > 0 else 1.0
    how = "mean over the term of (1 - decline)^t = (1 - e^(-g)) / g with g = -ln(1 - decline) x years"
    work.find("average_relative_price", average, "1", how, "on-demand over the term, of today's")
    work.put("naive", 1 - x.discount, "1", "1 - discount", "if prices stayed")
    need = work.put("break_even_utilisation", (1 - x.discount) / average, "1", "(1 - discount) / average_relative_price")
    work.put("pays_ever", need <= 1, "1", "break_even_utilisation <= 1")
    return work.done(
        "committed price fixed, on-demand falls continuously by `decline` a year: break-even use = (1 - discount) / average relative price",
        "a decline that goes on for the term; past years fell in steps",
        "falling prices" if average < 1 - x.discount / 2 else "the discount",
        lead="break_even_utilisation",
    )


def validate_decline(x: CommittedDecline) -> tuple[Refusal, ...]:
    """Prices fall by less than all, and a discount of all is none."""
    return unless(
        x.decline * YEAR_S < 1, "out_of_range", "a decline of 100 % a year or more: prices do not become nothing", "decline"
    ) + unless(0 < x.discount < 1, "no_discount", f"discount {x.discount:.0%}: a commitment needs one between 0 and 100 %", "discount")


class CapacityLadder(msgspec.Struct, frozen=True, kw_only=True):
    """A load curve, to be served by the cheapest supply at each level."""

    demand: Annotated[tuple[float, ...], Ask("GPU", "demand that cannot wait, at equal steps of time")]
    step: Annotated[float, Ask("h", "time of a step", above=True)] = 3_600.0
    committed: Annotated[float, Ask("USD/GPU/h", "committed price", above=True)]
    block: Annotated[float | None, Ask("USD/GPU/h", "capacity block's price; its windows are paid whole", above=True)] = None
    block_overhead: Annotated[float, Ask("1", "paid over used time of a block's windows", least=1)] = 1.25
    spot: Annotated[float | None, Ask("USD/GPU/h", "spot price", above=True)] = None
    spot_factor: Annotated[float, Ask("1", "wall time over useful work on spot", least=1)] = 1.15
    spot_part: Annotated[float, Ask("1", "part of the overflow that may go to spot", most=1)] = 0.5
    on_demand: Annotated[float, Ask("USD/GPU/h", "on-demand price", above=True)]


def capacity_ladder(x: CapacityLadder) -> Answer:
    """GPUs by supply, from the bottom of the load curve up."""
    work = Work()
    curve = sorted(x.demand, reverse=True)
    count = len(curve)
    overflow = x.on_demand if x.spot is None else (1 - x.spot_part) * x.on_demand + x.spot_part * min(x.on_demand, x.spot * x.spot_factor)
    used = min(overflow, x.block * x.block_overhead) if x.block is not None else overflow
    work.find("overflow_price", used, "USD/GPU/h", "cheapest of on-demand with spot's part, and blocks")
    # The level that is needed exactly the share of time at which a committed hour costs as much as the used ones.
    at = min(count - 1, math.floor(count * min(1.0, x.committed / used)))
    reserve = work.find(
        "committed_gpus", curve[at] if x.committed < used else 0.0, "GPU", "level used more than committed / overflow_price of the time"
    )
    over = math.fsum(max(0.0, level - reserve) for level in curve) / count
    work.find("overflow_mean", over, "GPU", "mean of demand above it")
    work.put("cost", x.committed * reserve + used * over, "USD/h", "committed * committed_gpus + overflow_price * overflow_mean")
    mean = math.fsum(curve) / count
    work.find("all_on_demand", x.on_demand * mean, "USD/h", "on-demand price x mean demand")
    work.put(
        "idle_committed", max(0.0, 1 - (mean - over) / reserve) if reserve > 0 else 0.0, "1", words="share of committed hours without use"
    )
    parts = [(f"p{percent}", curve[min(count - 1, int(count * (1 - percent / 100)))]) for percent in (10, 25, 50, 75, 90, 99)]
    work.table("duration", ("quantile of demand", "[GPU]"), parts)
    weeks = count * x.step / 604_800
    work.note(f"{weeks:.1f} weeks of data: less than 4 say little about the coming year", weeks < 4)
    return work.done(
        "load duration curve: commit each level that is used more than p_committed / p_overflow of the time",
        "demand that cannot wait, past as future; prices per GPU of one kind",
        "blocks" if x.block is not None and used < overflow else "on-demand" if x.spot is None else "on-demand and spot",
        lead="committed_gpus",
    )


def validate_ladder(x: CapacityLadder) -> tuple[Refusal, ...]:
    """There is a curve."""
    return unless(bool(x.demand), "no_trace", "no demand: a load curve is needed", "demand")


COMMITTED: Final = Topic(Committed, committed, "committed_price", validate_committed)
COMMITTED_DIURNAL: Final = Topic(CommittedDiurnal, committed_diurnal, "committed_price", validate_diurnal)
CAPACITY_SCREENING: Final = Topic(CapacityScreening, capacity_screening, "on_demand")
COMMITTED_DECLINE: Final = Topic(CommittedDecline, committed_decline, "decline", validate_decline)
CAPACITY_LADDER: Final = Topic(CapacityLadder, capacity_ladder, "committed", validate_ladder)

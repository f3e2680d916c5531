"""
What share each queue gets now, with every step of the division, and what gaming it would gain.

`water_fill` is the one division: order independent, and it answers for every input (after the loss of a node quotas may exceed what is
left); the refusals of a plan on paper are in `validate_fair_share`.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Annotated, Final, NamedTuple

import msgspec

from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask
from shoal.planning.topic import Topic, nothing_refused

QUEUES_MAX: Final = 10_000


class Claim(NamedTuple):
    """What one queue wants and may have."""

    demand: float
    weight: float
    quota: float = 0.0
    priority: float = 0.0


class FillStep(NamedTuple):
    """One level of the water: queues that freeze here, and what was poured."""

    level: float
    frozen: tuple[int, ...]
    poured: float


def fill(capacity: float, wants: list[float], weights: list[float]) -> tuple[list[float], list[FillStep]]:
    """
    `capacity` divided by weight, none over its want, what one leaves going to the others.

    The level is where each queue has min(want, weight x level). Queues are taken by want over weight, so their order in the list does not
    matter. Cost: O(queues log queues).
    """
    order = sorted((at for at in range(len(wants)) if weights[at] > 0 and wants[at] > 0), key=lambda at: (wants[at] / weights[at], at))
    left = capacity
    behind = list(accumulate((weights[at] for at in reversed(order)), initial=0.0))[::-1]
    given, steps = [0.0] * len(wants), list[FillStep]()
    level = 0.0
    for position, at in enumerate(order):
        need, total = wants[at] / weights[at], behind[position]
        if left - (need - level) * total <= 0:
            level += left / total
            for rest in order[position:]:
                given[rest] = weights[rest] * level
            steps.append(FillStep(level, (), left))
            return given, steps
        poured = (need - level) * total
        left -= poured
        level = need
        given[at] = wants[at]
        steps.append(FillStep(level, (at,), poured))
    return given, steps


def water_fill(capacity: float, claims: list[Claim]) -> tuple[list[float], list[FillStep]]:
    """
    Shares: first each its quota (as far as it has demand), then the rest by weight, higher priorities first.

    Quotas that exceed the capacity are themselves filled by quota.
    """
    base = [min(claim.quota, claim.demand) for claim in claims]
    if math.fsum(base) > capacity:
        return fill(capacity, base, [claim.quota for claim in claims])
    shares, steps = list(base), list[FillStep]()
    left = capacity - math.fsum(base)
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        wants = [claim.demand - base[at] if claim.priority == priority else 0.0 for at, claim in enumerate(claims)]
        given, more = fill(left, wants, [claim.weight for claim in claims])
        shares = [share + extra for share, extra in zip(shares, given, strict=True)]
        left = max(0.0, left - math.fsum(given))
        steps += more
    return shares, steps


def whole_shares(shares: list[float]) -> list[int]:
    """Whole GPUs by largest remainder; ties to the earlier queue. The sum is the rounded-down sum of shares."""
    floors = [math.floor(share + 1e-9) for share in shares]
    spare = math.floor(math.fsum(shares) + 1e-9) - sum(floors)
    order = sorted(range(len(shares)), key=lambda at: (-(shares[at] - floors[at]), at))
    return [floors[at] + (1 if at in order[:spare] else 0) for at in range(len(shares))]


class FairShare(msgspec.Struct, frozen=True, kw_only=True):
    """Queues on one capacity."""

    capacity: Annotated[float, Ask("GPU", "GPUs to divide")]
    demand: Annotated[tuple[float, ...], Ask("GPU", "demand of each queue")]
    weight: Annotated[tuple[float, ...], Ask("1", "weight of each queue")]
    quota: Annotated[tuple[float, ...], Ask("GPU", "quota of each queue")] = ()
    priority: Annotated[tuple[float, ...], Ask("1", "priority of each queue; higher ones are filled first")] = ()


def claims_of(x: FairShare) -> list[Claim]:
    """The queues as claims; no quota and one priority where none is given."""
    count = len(x.demand)
    rows = zip(x.demand, x.weight, x.quota or (0.0,) * count, x.priority or (0.0,) * count, strict=True)
    return [Claim(*row) for row in rows]


def fair_share(x: FairShare) -> Answer:
    """The share of each queue, with the levels of the division."""
    work = Work()
    claims = claims_of(x)
    shares, steps = water_fill(x.capacity, claims)
    for at, share in enumerate(shares):
        work.find(f"share_{at}", share, "GPU", "its quota, then by weight to the level at which it is frozen or the water ends")
    work.find("unused", max(0.0, x.capacity - math.fsum(shares)), "GPU", "no queue wants it")
    whole = whole_shares(shares)
    rows = [(at, c.demand, c.quota, c.weight, min(c.quota, c.demand), shares[at], whole[at]) for at, c in enumerate(claims)]
    work.table("queues", ("queue", "demand [GPU]", "quota [GPU]", "weight", "base [GPU]", "share [GPU]", "whole"), rows)
    named = [(s.level, ", ".join(f"queue {at}" for at in s.frozen) or "the water ends", s.poured) for s in steps]
    work.table("levels", ("level [GPU/weight]", "satisfied", "poured [GPU]"), named)
    return work.done(
        "quota first (least of quota and demand), then the rest by weight among queues still short until full: water filling",
        "any order of queues gives the same shares; whole GPUs by largest remainder, ties to the earlier queue",
        "capacity" if math.fsum(shares) >= x.capacity - 1e-9 else "demand",
    )


def validate_fair_share(x: FairShare) -> tuple[Refusal, ...]:
    """One row per queue, quotas within the capacity, a weight for whoever may need more."""
    count = len(x.demand)
    lists = {"weight": x.weight, "quota": x.quota, "priority": x.priority}
    for name, values in lists.items():
        if len(values) != count and (values or name == "weight"):
            return (Refusal("uneven_lists", f"{count} demands and {len(values)} values of {name}: one per queue is due", name),)
    total = math.fsum(x.quota)
    idle = [at for at, claim in enumerate(claims_of(x)) if claim.weight <= 0 and claim.demand > claim.quota]
    return (
        unless(0 < count <= QUEUES_MAX, "too_many_queues", f"{count} queues: 1 to {QUEUES_MAX} are divided among", "demand")
        + unless(total <= x.capacity, "quota_exceeds_capacity", f"quotas sum to {total:g} GPU, there are {x.capacity:g}", "quota")
        + unless(
            not idle,
            "zero_weight",
            f"queue {idle[0] if idle else 0} has demand over its quota and weight 0: it would never get more",
            "weight",
        )
    )


class SlurmFairshare(msgspec.Struct, frozen=True, kw_only=True):
    """An account of Slurm's multifactor priority."""

    normalised_usage: Annotated[float, Ask("1", "its share of all usage", most=1)]
    normalised_shares: Annotated[float, Ask("1", "its share of all shares", most=1, above=True)]
    half_life: Annotated[float, Ask("day", "PriorityDecayHalfLife", above=True)] = 7 * 86_400.0
    usage_before: Annotated[float, Ask("GPU*h", "usage in the past")] = 0.0
    age: Annotated[float, Ask("day", "how long ago")] = 0.0
    steady_use: Annotated[float, Ask("GPU*h/day", "a steady use, for where it settles")] = 0.0


def slurm_fairshare(x: SlurmFairshare) -> Answer:
    """The fair-share factor, and what decay leaves of past usage."""
    work = Work()
    work.put("factor", 2 ** (-x.normalised_usage / x.normalised_shares), "1", "2 ** (-normalised_usage / normalised_shares)")
    work.put("decayed_usage", x.usage_before * 2 ** (-x.age / x.half_life), "GPU*h", "usage_before * 2 ** (-age / half_life)")
    settles = x.steady_use * x.half_life / math.log(2)
    work.put("settled_usage", settles, "GPU*h", "steady_use * half_life / ln(2)", "where a steady use settles")
    work.put("left_after_three_half_lives", 0.125, "1", "2 ** -3", "idle so long, then burst: cap bursts")
    return work.done(
        "F = 2^(-U/S); usage halves each half-life",
        "one level of accounts (classic fair share); the tree form ranks accounts instead",
        lead="factor",
    )


class QueueSplitting(msgspec.Struct, frozen=True, kw_only=True):
    """One of equal owners who opens several queues."""

    owners: Annotated[int, Ask("1", "owners with equal weight", least=1)]
    queues: Annotated[int, Ask("queues", "queues that one of them opens", least=1)]
    asked: Annotated[float, Ask("GPU", "GPUs that a padded request asks", above=True)] = 1.0
    used: Annotated[float, Ask("GPU", "GPUs that it uses", above=True)] = 1.0
    held: Annotated[float, Ask("GPU", "GPUs kept by idle jobs")] = 0.0
    idle_day: Annotated[float, Ask("h/day", "hours a day in which they idle", most=24)] = 0.0
    price: Annotated[float, Ask("USD/GPU/h", "price of a GPU")] = 2.5 / 3600


def queue_splitting(x: QueueSplitting) -> Answer:
    """What gaming gains: more queues, padded requests, jobs that only hold."""
    work = Work()
    work.put("share_honest", 1 / x.owners, "1", "1 / owners")
    got = work.put("share_split", x.queues / (x.owners - 1 + x.queues), "1", "queues / (owners - 1 + queues)", "flat shares by queue")
    work.put("gain", got * x.owners - 1, "1", "share_split / share_honest - 1", "undone by hierarchical shares by owner")
    work.put("padding", x.asked / x.used, "1", "asked / used", "charged for the request, padding costs its owner")
    work.put(
        "idle_cost_year",
        x.held * x.idle_day * x.price * 8_760 * 3_600,
        "USD",
        "held * idle_day * price * 8760 * 3600",
        "reclaim what idles",
    )
    return work.done(
        "equal weights, everybody has demand: each queue gets one part",
        "flat shares; with shares by owner the split gains nothing",
        lead="share_split",
    )


class DrfRow(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant's task."""

    gpu: Annotated[float, Ask("GPU", "GPUs of a task")]
    cpu: Annotated[float, Ask("vCPU", "CPUs of a task")]
    memory: Annotated[float, Ask("GiB", "memory of a task")] = 0.0
    weight: Annotated[float, Ask("1", "weight", above=True)] = 1.0


class DominantShare(msgspec.Struct, frozen=True, kw_only=True):
    """Tenants with tasks of several resources and endless demand."""

    gpu: Annotated[float, Ask("GPU", "GPUs in all", above=True)]
    cpu: Annotated[float, Ask("vCPU", "CPUs in all", above=True)]
    memory: Annotated[float, Ask("GiB", "memory in all", above=True)] = 2.0**60
    tenants: Annotated[tuple[DrfRow, ...], Ask("list", "a task of each tenant")]


def dominant_share(x: DominantShare) -> Answer:
    """Tasks of each tenant when weighted dominant shares are equal and one resource is full."""
    work = Work()
    totals = (x.gpu, x.cpu, x.memory)
    parts = [tuple(ask / total for ask, total in zip((row.gpu, row.cpu, row.memory), totals, strict=True)) for row in x.tenants]
    per_level = [row.weight / max(part) for row, part in zip(x.tenants, parts, strict=True)]
    uses = [math.fsum(rate * part[at] for rate, part in zip(per_level, parts, strict=True)) for at in range(3)]
    level = 1 / max(uses)
    work.find("level", level, "1", "1 / largest sum over tenants of (share of the resource per unit of dominant share)")
    for at, rate in enumerate(per_level):
        work.find(f"tasks_{at}", rate * level, "1", "weight x level / dominant share of one task")
    return work.done(
        "dominant share = largest used / total over resources; weighted dominant shares are equal",
        "endless demand of every tenant, tasks divisible",
        ("GPU", "vCPU", "memory")[max(range(3), key=lambda at: uses[at])],
    )


def validate_dominant_share(x: DominantShare) -> tuple[Refusal, ...]:
    """There are tenants, and each asks something."""
    right = bool(x.tenants) and all(max(row.gpu, row.cpu, row.memory) > 0 for row in x.tenants)
    return unless(right, "empty_ask", "every tenant's task must ask something, and there must be one", "tenants")


FAIR_SHARE: Final = Topic(FairShare, fair_share, "capacity", validate_fair_share)
SLURM_FAIRSHARE: Final = Topic(SlurmFairshare, slurm_fairshare, "normalised_usage", nothing_refused)
QUEUE_SPLITTING: Final = Topic(QueueSplitting, queue_splitting, "queues", nothing_refused)
DOMINANT_SHARE: Final = Topic(DominantShare, dominant_share, "gpu", validate_dominant_share)

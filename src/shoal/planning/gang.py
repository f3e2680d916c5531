"""When gangs that are placed pod by pod lock each other out, how likely that is, and what a stuck round wastes."""

from __future__ import annotations

import math
from typing import Annotated, Final

import msgspec

from shoal.planning import special
from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask, assumed
from shoal.planning.topic import Topic

PODS_MAX: Final = 600
"""Pods of all gangs together for the exact count over several gangs: whole numbers of hundreds of digits, 0.1 s."""


class GangDeadlock(msgspec.Struct, frozen=True, kw_only=True):
    """Gangs of one-GPU pods on one cluster: two by `job_a` and `job_b`, several by `jobs`, or one `gang`."""

    cluster: Annotated[int, Ask("GPU", "GPUs of the cluster", least=1, most=1e7)]
    job_a: Annotated[int | None, Ask("pods", "pods of the first gang", least=1)] = None
    job_b: Annotated[int | None, Ask("pods", "pods of the second gang", least=1)] = None
    jobs: Annotated[tuple[int, ...] | None, Ask("pods", "pods of each gang", least=1)] = None
    gang: Annotated[int | None, Ask("pods", "pods of the only gang", least=1)] = None
    timeout: Annotated[float, Ask("s", "after which a stuck gang gives back what it holds")] = assumed("300 s")


def gangs_of(x: GangDeadlock) -> tuple[int, ...]:
    """Pods of every gang that was named."""
    named = tuple(size for size in (x.job_a, x.job_b, x.gang) if size is not None)
    return named + (x.jobs or ())


def deadlock_possible(cluster: int, gangs: tuple[int, ...]) -> bool:
    """True if all gangs can hold devices with one pod missing each, and nothing be left."""
    return sum(size - 1 for size in gangs) >= cluster


def p_no_deadlock(cluster: int, gangs: tuple[int, ...]) -> float:
    """
    The probability that at least one gang is whole when the cluster is full, pods placed in uniformly random order.

    Exact: the draws that leave every gang incomplete, over all draws of `cluster` pods.
    """
    total = sum(gangs)
    if total <= cluster or not deadlock_possible(cluster, gangs):
        return 1.0
    if len(gangs) == 2:
        a, b = gangs
        # With two gangs and fewer GPUs than pods at most one is whole, so the two events add up.
        return special.binomial_ratio((b, cluster - a), (total, cluster)) + special.binomial_ratio((a, cluster - b), (total, cluster))
    ways = [1]
    for size in gangs:
        grown = [0] * min(cluster + 1, len(ways) + size - 1)
        choices = [math.comb(size, held) for held in range(size)]
        for held, count in enumerate(ways):
            for more in range(min(size, len(grown) - held)):
                grown[held + more] += count * choices[more]
        ways = grown
    stuck = ways[cluster] if cluster < len(ways) else 0
    whole = math.comb(total, cluster)
    return (whole - stuck) / whole


def gang_deadlock(x: GangDeadlock) -> Answer:
    """Whether these gangs can deadlock, how likely, and what each stuck round wastes."""
    work = Work()
    gangs = gangs_of(x)
    work.find("gangs", gangs, "pods", "as given")
    possible = work.find("deadlock_possible", deadlock_possible(x.cluster, gangs), "1", "sum of (pods - 1) over gangs >= cluster")
    safe = p_no_deadlock(x.cluster, gangs)
    how = "C(b, C-a) / C(a+b, C) + C(a, C-b) / C(a+b, C)" if len(gangs) == 2 else "1 - draws that leave all incomplete / all draws"
    work.find("p_no_deadlock", safe, "1", how, "one gang at least is whole")
    work.put("p_deadlock", 1 - safe, "1", "1 - p_no_deadlock")
    held = x.cluster if possible else 0
    work.put(
        "wasted_per_timeout",
        held * x.timeout,
        "GPU*h",
        "cluster * timeout" if possible else "0",
        "held by incomplete gangs in a stuck round",
    )
    orders = sum(math.lgamma(size + 1) for size in gangs)
    work.find("schedules_log10", (math.lgamma(sum(gangs) + 1) - orders) / math.log(10), "1", "log10 of the orders in which pods can come")
    work.find("least_size", -(-x.cluster // len(gangs)) + 1, "pods", f"smallest size at which {len(gangs)} equal gangs can deadlock")
    work.note("a gang that fits only an empty cluster waits for all others to end", max(gangs) > x.cluster * 0.9)
    work.note("admission of whole gangs, or strict order of pods by gang, makes this impossible", possible)
    return work.done(
        "one-GPU pods placed one by one in uniformly random order, nobody releases: stuck if no gang is whole when the cluster is full",
        "all pods queued at once on an empty cluster; a strict order per gang is safer, retries only repeat the draw",
        "the sum of (pods - 1) against the cluster",
        lead="p_deadlock",
    )


def validate_gang_deadlock(x: GangDeadlock) -> tuple[Refusal, ...]:
    """A gang must fit the cluster, and there must be one. A live queue takes such a gang and says what is missing."""
    gangs = gangs_of(x)
    largest = max(gangs, default=0)
    return (
        unless(bool(gangs), "missing_input", "no gang is named: give job_a and job_b, or jobs", "jobs")
        + unless(
            largest <= x.cluster,
            "gang_exceeds_cluster",
            f"a gang of {largest} pods can never start on {x.cluster} GPUs: shrink it or add nodes",
        )
        + unless(
            len(gangs) <= 2 or sum(gangs) <= PODS_MAX,
            "too_many_pods",
            f"{sum(gangs)} pods in all, at most {PODS_MAX} are counted exactly",
            "jobs",
        )
    )


GANG_DEADLOCK: Final = Topic(GangDeadlock, gang_deadlock, "job_b", validate_gang_deadlock)

"""How many GPUs teams need apart and together, and what one pool saves; for normal demand, queues, and calls that are lost."""

from __future__ import annotations

import math
from typing import Annotated, Final

import msgspec

from shoal.planning import special
from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask, assumed
from shoal.planning.quantity import YEAR_S
from shoal.planning.topic import Topic


class Pooling(msgspec.Struct, frozen=True, kw_only=True):
    """Teams with equal normal demand."""

    teams: Annotated[int, Ask("1", "teams", least=1)]
    mean: Annotated[float, Ask("GPU", "mean demand of a team", above=True)]
    sd: Annotated[float, Ask("GPU", "standard deviation of it")]
    quantile: Annotated[float, Ask("1", "share of time in which demand must be met", most=1, above=True)] = assumed("0.99")
    correlation: Annotated[float, Ask("1", "correlation between any two teams, from a trace; a launch is near 1", least=-1, most=1)]
    price: Annotated[float, Ask("USD/GPU/h", "price of a GPU")] = assumed("2.5 USD/GPU/h")


def pooling(x: Pooling) -> Answer:
    """GPUs for each team alone and for all in one pool, at the same share of time."""
    work = Work()
    n = x.teams
    z = work.put("z", special.normal_quantile(x.quantile), "1", "normal_quantile(quantile)")
    separate = work.put("separate", n * (x.mean + z * x.sd), "GPU", "teams * (mean + z * sd)", "each team by itself")
    spread = x.sd * math.sqrt(max(0.0, n + n * (n - 1) * x.correlation))
    pooled = work.put("pooled", n * x.mean + z * spread, "GPU", words="one pool",
                      formula="teams * mean + z * sd * sqrt(max(0, teams + teams * (teams - 1) * correlation))")  # fmt: skip
    work.put("saving", 1 - pooled / separate, "1", "1 - pooled / separate")
    work.put("utilisation_separate", n * x.mean / separate, "1", "teams * mean / separate")
    work.put("utilisation_pooled", n * x.mean / pooled, "1", "teams * mean / pooled")
    work.put("saved_year", (separate - pooled) * x.price * YEAR_S, "USD", "(separate - pooled) * price * 8760 * 3600")
    work.note("a normal demand with so large a spread is often negative: take quantiles of the trace", x.sd > x.mean / 2)
    work.note("the gain needs independent peaks: estimate the correlation from the trace, over the hours of peaks", x.correlation < 0.1)
    return work.done(
        "normal demand, equal pairwise correlation; each sized alone at the quantile against the pool at the same",
        "spread at most half the mean; correlation estimated from a trace, at least -1 / (teams - 1)",
        "correlation" if x.correlation > 0.3 else "the spread of demand",
        lead="saving",
    )


def validate_pooling(x: Pooling) -> tuple[Refusal, ...]:
    """A quantile below one; no correlation that equal teams cannot have."""
    least = -1 / (x.teams - 1) if x.teams > 1 else -1.0
    words = f"correlation {x.correlation:g}: {x.teams} teams cannot all be below {least:.3f} to each other"
    return unless(x.quantile < 1, "unreachable", "a normal demand has no 100 % quantile; 0.99 is usual", "quantile") + unless(
        x.correlation >= least - 1e-12, "impossible_correlation", words, "correlation"
    )


class PoolingQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Teams whose jobs wait in a queue."""

    teams: Annotated[int, Ask("1", "teams", least=1)]
    offered: Annotated[float, Ask("GPU", "load of a team: arrivals x mean time x GPUs", above=True)]
    p_wait: Annotated[float, Ask("1", "share of jobs that may wait", most=1, above=True)] = assumed("0.05")


def pooling_queue(x: PoolingQueue) -> Answer:
    """GPUs so that few jobs wait, per team and in one pool."""
    work = Work()
    one = special.servers_for_waiting(x.offered, x.p_wait) or 0
    pool = special.servers_for_waiting(x.teams * x.offered, x.p_wait) or 0
    return _pools(work, x.teams, (one, pool), "erlang_c", "p_wait").done(
        "M/M/c per team against one M/M/c for all; fewest c with Erlang C at most the target",
        "one-GPU jobs with random arrivals and exponential times, in steady state; gangs need more",
        lead="pooled",
    )


class PoolingBlocking(msgspec.Struct, frozen=True, kw_only=True):
    """Teams whose requests are lost when nothing is free."""

    teams: Annotated[int, Ask("1", "teams", least=1)]
    offered: Annotated[float, Ask("GPU", "load of a team", above=True)]
    blocking: Annotated[float, Ask("1", "share of requests that may be lost", most=1, above=True)] = assumed("0.01")


def pooling_blocking(x: PoolingBlocking) -> Answer:
    """GPUs so that few requests are lost, per team and in one pool."""
    work = Work()
    one = special.servers_for_blocking(x.offered, x.blocking) or 0
    pool = special.servers_for_blocking(x.teams * x.offered, x.blocking) or 0
    return _pools(work, x.teams, (one, pool), "erlang_b", "blocking").done(
        "M/G/c/c per team against one for all; fewest c with Erlang B at most the target",
        "one-GPU requests with random arrivals, any distribution of times, in steady state",
        lead="pooled",
    )


def _pools(work: Work, teams: int, sizes: tuple[int, int], function: str, target: str) -> Work:
    one, pool = sizes
    work.find("per_team", one, "GPU", f"fewest c with {function}(offered, c) at most {target}")
    work.put("separate", teams * one, "GPU", "teams * per_team")
    work.find("pooled", pool, "GPU", f"fewest c with {function}(teams * offered, c) at most {target}")
    work.put("saving", 1 - pool / (teams * one) if one else 0.0, "1", "1 - pooled / separate" if one else "")
    return work


LOAD_MAX: Final = 200_000.0


def _bounded(load: float) -> tuple[Refusal, ...]:
    return unless(
        load <= LOAD_MAX, "too_large", f"a load of {load:,.0f} GPU: at most {LOAD_MAX:,.0f} is counted server by server", "offered"
    )


POOLING: Final = Topic(Pooling, pooling, "correlation", validate_pooling)
POOLING_QUEUE: Final = Topic(PoolingQueue, pooling_queue, "offered", lambda x: _bounded(x.teams * x.offered))
POOLING_BLOCKING: Final = Topic(PoolingBlocking, pooling_blocking, "offered", lambda x: _bounded(x.teams * x.offered))

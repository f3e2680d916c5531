"""The scheduler's own queue: how long a scan takes, how long jobs wait, what draining for a gang costs, when ageing takes effect."""

from __future__ import annotations

import math
from typing import Annotated, Final

import msgspec

from shoal.planning import special
from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask, assumed
from shoal.planning.topic import Topic, nothing_refused

SERVERS_MAX: Final = 200_000


class QueueScan(msgspec.Struct, frozen=True, kw_only=True):
    """A queue and a scheduler that looks at its entries."""

    entries: Annotated[int, Ask("1", "entries of the queue", least=1)]
    cost: Annotated[float, Ask("us", "one test of one entry")] = assumed("100 us")
    depth: Annotated[int, Ask("1", "entries that a depth-limited cycle looks at", least=1)] = 500
    shapes: Annotated[int, Ask("1", "distinct shapes in the queue", least=1)]
    start_rate: Annotated[float, Ask("1/min", "jobs started", above=True)]


def queue_scan(x: QueueScan) -> Answer:
    """A cycle's time for three ways to scan, and how long entries wait to be looked at."""
    work = Work()
    full = work.put("full_scan", x.entries * x.cost, "s", "entries * cost")
    work.put("depth_scan", min(x.entries, x.depth) * x.cost, "s", "min(entries, depth) * cost")
    work.put("shape_scan", min(x.entries, x.shapes) * x.cost, "s", "min(entries, shapes) * cost", "one representative per shape")
    work.put("mean_wait", x.entries / x.start_rate, "h", "entries / start_rate", "Little's law")
    work.put(
        "last_seen",
        max(0, x.entries - x.depth) / x.start_rate,
        "h",
        "max(0, entries - depth) / start_rate",
        "the last entry is first looked at",
    )
    work.note("a cycle longer than a second starts jobs late: test one entry per shape, wake on the shape that was freed", full > 1)
    return work.done(
        "full scan Q x cost; depth-limited; one test per shape; wait Q / rate by Little's law",
        "a queue of steady length, first come first served",
        "the start rate, not the scan" if full < x.entries / x.start_rate else "the scan",
        lead="shape_scan",
    )


class QueueWait(msgspec.Struct, frozen=True, kw_only=True):
    """One-GPU jobs of one or two classes on equal servers."""

    high_rate: Annotated[float | None, Ask("1/h", "arrivals of the higher class")] = None
    low_rate: Annotated[float | None, Ask("1/h", "arrivals of the lower class")] = None
    arrival_rate: Annotated[float | None, Ask("1/h", "arrivals of the only class")] = None
    service_rate: Annotated[float, Ask("1/h", "jobs that one server ends while busy", above=True)]
    servers: Annotated[int, Ask("1", "servers", least=1, most=SERVERS_MAX)]
    cv2: Annotated[float, Ask("1", "squared coefficient of variation of service times; 1 for exponential")] = 1.0


def arrivals(x: QueueWait) -> float:
    """All arrivals together."""
    return (x.high_rate or 0.0) + (x.low_rate or 0.0) + (x.arrival_rate or 0.0)


def queue_wait(x: QueueWait) -> Answer:
    """The share of jobs that wait and for how long, by class."""
    work = Work()
    total = arrivals(x)
    load = total / x.service_rate
    work.find("offered", load, "1", "arrivals / service_rate")
    p = work.put("p_wait", special.erlang_c(load, x.servers), "1", "erlang_c(offered, servers)", "jobs that wait")
    spread = (1 + x.cv2) / 2
    freed = x.servers * x.service_rate
    base = work.put("base_wait", p / freed * spread, "min", "p_wait / (servers * service_rate) * (1 + cv2) / 2")
    work.put("wait", base / (1 - load / x.servers), "min", "base_wait / (1 - offered / servers)", "mean, without classes")
    work.put("in_queue", total * base / (1 - load / x.servers), "1", words="jobs waiting on average, by Little's law")
    work.put("utilisation", load / x.servers, "1", "offered / servers")
    if x.high_rate is not None and x.low_rate is not None:
        high = x.high_rate / freed
        work.put("wait_high", base / (1 - high), "min", "base_wait / (1 - high_rate / (servers * service_rate))")
        work.put("wait_low", base / ((1 - high) * (1 - load / x.servers)), "min",
                 "base_wait / ((1 - high_rate / (servers * service_rate)) * (1 - offered / servers))")  # fmt: skip
    work.note(f"service times vary (cv2 {x.cv2:g}): waits of M/M/c times (1 + cv2) / 2, an approximation for many servers", x.cv2 != 1)
    return work.done(
        "M/M/c, Erlang C; classes without preemption W_k = C / (c mu) / ((1 - s_(k-1)) (1 - s_k)); other service times by (1 + cv2) / 2",
        "load below the servers, one-GPU jobs, random arrivals, steady state; gangs wait longer (see drain)",
        "load" if load / x.servers > 0.9 else "chance",
        lead="wait",
    )


def validate_queue_wait(x: QueueWait) -> tuple[Refusal, ...]:
    """Something arrives, and less than the servers can do."""
    given = x.arrival_rate is not None or (x.high_rate is not None and x.low_rate is not None)
    if not given or (x.arrival_rate is not None and x.high_rate is not None):
        return (Refusal("missing_input", "give arrival_rate, or high_rate and low_rate", "arrival_rate"),)
    load = arrivals(x) / x.service_rate
    words = (
        f"an offered load of {load:g} on {x.servers} servers has no steady state, the queue grows for ever: {math.floor(load) + 1} at least"
    )
    return unless(load < x.servers, "unstable", words, "servers")


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """A gang for which GPUs are kept as they become free."""

    cluster: Annotated[int, Ask("GPU", "busy GPUs", least=1)]
    gang: Annotated[int, Ask("GPU", "GPUs of the gang", least=1)]
    mean_remaining: Annotated[float, Ask("h", "mean time that a busy GPU's job has left")]


def drain(x: Drain) -> Answer:
    """How long the gang waits, and what the kept GPUs idle."""
    work = Work()
    c, g = x.cluster, x.gang
    work.put(
        "wait",
        x.mean_remaining * (special.harmonic(c) - special.harmonic(c - g)),
        "h",
        "mean_remaining * (harmonic(cluster) - harmonic(cluster - gang))",
    )
    idle = x.mean_remaining * math.fsum(k / (c - k) for k in range(1, g))
    work.find("idle", idle, "GPU*h", "sum over k < gang of k x mean_remaining / (cluster - k)", "kept and unused")
    work.note("backfill jobs that end before the gang's start use this room")
    return work.done(
        "independent exponential remaining times: m (H_C - H_(C-g)); idle sum of k m / (C - k)",
        "memoryless remaining times; with time limits the reservation gives the start directly",
        "the last GPUs" if g > c / 2 else "the first GPUs",
    )


def validate_drain(x: Drain) -> tuple[Refusal, ...]:
    """The gang must fit."""
    return unless(x.gang <= x.cluster, "gang_exceeds_cluster", f"a gang of {x.gang} GPUs can never start on {x.cluster}", "gang") + unless(
        x.gang <= 1_000_000, "too_large", f"{x.gang} GPUs: at most 1,000,000 are summed", "gang"
    )


class Ageing(msgspec.Struct, frozen=True, kw_only=True):
    """A job behind others of higher priority, which gains with age."""

    gap: Annotated[float, Ask("1", "priority that it lacks")]
    gain: Annotated[float, Ask("1/min", "priority that it gains by waiting", above=True)]
    drain: Annotated[float, Ask("min", "time to free its room once it is first")] = 0.0


def ageing(x: Ageing) -> Answer:
    """When the job is first, and the bound on its wait."""
    work = Work()
    work.put("closes", x.gap / x.gain, "min", "gap / gain", "then it is first")
    work.put("wait_bound", x.gap / x.gain + x.drain, "min", "closes + drain")
    return work.done(
        "gap / gain, plus the drain of its room", "others of higher priority do not gain too: ageing is capped for them", lead="wait_bound"
    )


QUEUE_SCAN: Final = Topic(QueueScan, queue_scan, "entries", nothing_refused)
QUEUE_WAIT: Final = Topic(QueueWait, queue_wait, "servers", validate_queue_wait)
DRAIN: Final = Topic(Drain, drain, "gang", validate_drain)
AGEING: Final = Topic(Ageing, ageing, "gap", nothing_refused)

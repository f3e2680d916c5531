"""
How long until a replica that was scaled to zero answers, which link of the chain to delete first, and how many to keep warm.

`chain_seconds` and `slots_for_loss` compute for every input, so that an autoscaler can size itself by them.
"""

from __future__ import annotations

import math
from typing import Annotated, Final, NamedTuple

import msgspec

from shoal.planning import special
from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask, assumed
from shoal.planning.quantity import HOUR_S, MONTH_S
from shoal.planning.topic import Topic

LAZY_READ_FRACTION: Final = 0.064
"""Share of an image's bytes that a start reads (Slacker, FAST 2016)."""


class ColdStart(msgspec.Struct, frozen=True, kw_only=True):
    """The chain from the decision to start to the first answer."""

    schedule: Annotated[float, Ask("s", "until a node is chosen")] = assumed("1 s")
    image_compressed: Annotated[float, Ask("GB", "compressed size of the image")]
    image_read: Annotated[float, Ask("1", "share of the image that is fetched before the start; 1 without lazy pulling", most=1)] = 1.0
    connection_bandwidth: Annotated[float, Ask("MB/s", "one connection to the registry", above=True)] = assumed("62.5 MB/s")
    container_create: Annotated[float, Ask("s", "creating the container")] = assumed("2 s")
    imports: Annotated[float, Ask("s", "imports and the CUDA context")] = assumed("12 s")
    weights: Annotated[float, Ask("GB", "weights of the model")]
    weights_bandwidth: Annotated[float, Ask("MB/s", "reading the weights from where they lie", above=True)] = assumed("200 MB/s")
    host_to_device: Annotated[float, Ask("GB/s", "copy to the GPU", above=True)] = assumed("25 GB/s")
    engine_init: Annotated[float, Ask("s", "memory profile, graph capture, compilation")] = assumed("35 s")
    warmup: Annotated[float, Ask("s", "first requests of the warm-up")] = assumed("2 s")
    probe_period: Annotated[float, Ask("s", "period of the readiness probe")] = assumed("10 s")
    overlap: Annotated[bool, Ask("bool", "weights are fetched beside image pull and imports")] = False
    gpu_memory: Annotated[float | None, Ask("GiB", "memory of the GPU, to refuse weights that do not fit")] = None


class Link(NamedTuple):
    """One part of the chain and how long it lasts alone."""

    name: str
    seconds: float


def links_of(x: ColdStart) -> tuple[Link, ...]:
    """The parts of a cold start in order; detection takes half a probe period on average."""
    return (
        Link("schedule", x.schedule),
        Link("image", x.image_compressed * x.image_read / x.connection_bandwidth),
        Link("container_create", x.container_create),
        Link("imports", x.imports),
        Link("weights", x.weights / x.weights_bandwidth),
        Link("host_to_device", x.weights / x.host_to_device),
        Link("engine_init", x.engine_init),
        Link("warmup", x.warmup),
        Link("detection", x.probe_period / 2),
    )


_BESIDE_WEIGHTS: Final = ("image", "container_create", "imports")


def chain_seconds(links: tuple[Link, ...], overlap: bool) -> float:
    """How long the chain lasts; with `overlap` the weights are fetched beside image, container and imports."""
    total = sum(link.seconds for link in links)
    if not overlap:
        return total
    weights = sum(link.seconds for link in links if link.name == "weights")
    beside = sum(link.seconds for link in links if link.name in _BESIDE_WEIGHTS)
    return total - min(weights, beside)


def cold_start(x: ColdStart) -> Answer:
    """Seconds from the decision to the first answer, and what each link's deletion would save."""
    work = Work()
    links = links_of(x)
    image, weights = links[1].seconds, links[4].seconds
    total = chain_seconds(links, x.overlap)
    parts = "schedule + image_link + container_create + imports + weights_link + copy_link + engine_init + warmup + probe_period / 2"
    hidden = " - min(weights_link, image_link + container_create + imports)" if x.overlap else ""
    work.put("image_link", image, "s", "image_compressed * image_read / connection_bandwidth", "fetching the image")
    work.put("weights_link", weights, "s", "weights / weights_bandwidth", "fetching the weights")
    work.put("copy_link", links[5].seconds, "s", "weights / host_to_device", "copying them to the GPU")
    work.put("total", total, "s", parts + hidden, "until the first answer")
    work.put("image_share", image / total if total else 0.0, "1", "image_link / total")
    savings = [(link.name, link.seconds, max(0.0, total - chain_seconds(_without(links, link.name), x.overlap))) for link in links]
    work.table("links", ("link", "length [s]", "saved if deleted [s]"), savings)
    work.table("variants", ("variant", "total [s]"), variants(x))
    largest = max(savings, key=lambda row: row[2])[0]
    work.put("speed_up_for_one_second", total / 1.0, "1", "total", "every link so many times faster gives one second")
    if x.overlap:
        beside = sum(link.seconds for link in links if link.name in _BESIDE_WEIGHTS)
        path, other = ("weights", "image and imports") if weights > beside else ("image and imports", "weights")
        work.note(f"critical: {path}, {max(weights, beside):.1f} s; {other} hide behind with {min(weights, beside):.1f} s")
    work.note("lazy reading moves part of the image's time behind the start: time the first token, not the state Running", x.image_read < 1)
    return work.done(
        "sum of serial links" + ("; weights beside image, container and imports" if x.overlap else ""),
        "one image and one set of weights per replica, links of constant bandwidth; no contention between replicas",
        f"{largest} is the link whose deletion saves most",
        lead="total",
    )


def _without(links: tuple[Link, ...], name: str) -> tuple[Link, ...]:
    return tuple(Link(link.name, 0.0 if link.name == name else link.seconds) for link in links)


def variants(x: ColdStart) -> list[tuple[str, float]]:
    """The chain as it is, with the usual deletions one after the other, and as a restore of a snapshot."""
    local = msgspec.structs.replace(x, weights_bandwidth=max(x.weights_bandwidth, 5e9))
    lazy = msgspec.structs.replace(x, image_read=min(x.image_read, LAZY_READ_FRACTION))
    both = msgspec.structs.replace(local, image_read=lazy.image_read)
    rows = [("as given", x), ("lazy image (6.4 % read)", lazy), ("weights from local NVMe (5 GB/s)", local), ("both", both)]
    return [(name, chain_seconds(links_of(one), one.overlap)) for name, one in rows] + [("snapshot restore", snapshot_seconds(x))]


def snapshot_seconds(x: ColdStart) -> float:
    """
    Restore of a process with its GPU memory: schedule, open the snapshot, restore the process and copy memory back, detection.

    0.5 s each to open and restore and a probe of half a second are assumptions.
    """
    return x.schedule + 0.5 + (0.5 + x.weights / x.host_to_device) + 0.25


def validate_cold_start(x: ColdStart) -> tuple[Refusal, ...]:
    """Weights must fit the GPU."""
    fits = x.gpu_memory is None or x.weights <= x.gpu_memory
    return unless(
        fits,
        "weights_exceed_gpu",
        f"weights of {x.weights / 2**30:.1f} GiB do not fit a GPU of {(x.gpu_memory or 0) / 2**30:.1f} GiB; shard them",
    )


class WarmPool(msgspec.Struct, frozen=True, kw_only=True):
    """Starts that take warm slots, each refilled after a cold start."""

    start_rate: Annotated[float, Ask("starts/s", "starts per second, from a trace", above=True)]
    refill_time: Annotated[float, Ask("s", "until a taken slot is warm again", above=True)]
    miss_target: Annotated[float, Ask("1", "share of starts that may find no warm slot", most=1, above=True)] = assumed("0.01")
    dispersion: Annotated[float, Ask("1", "variance over mean of starts per refill time; 1 for Poisson", least=0.2, most=100)] = 1.0
    pool_max: Annotated[int, Ask("slots", "slots that there could be", least=1, most=200_000)] = 10_000
    price: Annotated[float, Ask("USD/GPU/h", "price of an idle slot's GPU")] = assumed("2.5 USD/GPU/h")
    ramp: Annotated[float, Ask("instances/min", "instances a minute that a ramp adds")] = 0.0


def slots_for_loss(offered: float, target: float, dispersion: float, slots_max: int) -> int | None:
    """The fewest slots that lose at most `target`; bursts by Hayward's approximation."""
    if dispersion == 1:
        return special.servers_for_blocking(offered, target, slots_max)
    low, high = 0, 1
    while special.erlang_b(offered / dispersion, high / dispersion) > target:
        low, high = high, 2 * high
        if low >= slots_max:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if special.erlang_b(offered / dispersion, middle / dispersion) <= target else (middle, high)
    return high if high <= slots_max else None


def warm_pool(x: WarmPool) -> Answer:
    """Slots for the target, if a miss starts cold by itself (loss) and if it waits for the next slot (backorder)."""
    work = Work()
    offered = work.put("offered", x.start_rate * x.refill_time, "slots", "start_rate * refill_time", "slots under refill on average")
    loss = slots_for_loss(offered, x.miss_target, x.dispersion, x.pool_max) or 0
    back = special.slots_for_tail(offered, x.miss_target, special.SERVERS_MAX) or 0
    work.find("pool_loss", loss, "slots", "fewest S with erlang_b(offered, S) at most the target", "a miss starts cold by itself")
    load = "offered, pool_loss" if x.dispersion == 1 else "offered / dispersion, pool_loss / dispersion"
    work.put("miss_at_pool_loss", special.erlang_b(offered / x.dispersion, loss / x.dispersion), "1", f"erlang_b({load})")
    work.find(
        "pool_backorder", back, "slots", "fewest S with P(Poisson(offered) >= S) at most the target", "a miss waits for the next slot"
    )
    work.put("miss_at_pool_backorder", special.poisson_tail(offered, back), "1", "poisson_tail(offered, pool_backorder)")
    mean_only = special.erlang_b(offered / x.dispersion, math.ceil(offered) / x.dispersion)
    load = "offered, ceil(offered)" if x.dispersion == 1 else "offered / dispersion, ceil(offered) / dispersion"
    work.put("miss_at_mean_only", mean_only, "1", f"erlang_b({load})", "with only the mean number of slots")
    work.put("cost_month", loss * x.price * MONTH_S, "USD", "pool_loss * price * 730 * 3600", "if a slot holds one GPU")
    ramp = work.put("pool_ramp", x.ramp * x.refill_time, "slots", "ramp * refill_time", "what the ramp alone needs")
    work.note(
        f"starts are bursty (dispersion {x.dispersion:g}): Hayward's approximation; the backorder figure is for Poisson starts",
        x.dispersion != 1,
    )
    work.note("the ramp needs more slots than the steady rate", ramp > loss)
    return work.done(
        "Poisson starts; loss: Erlang B, for any distribution of refill times; backorder: Poisson tail",
        "steady rate over several refill times; for a ramp use pool_ramp",
        "the ramp" if ramp > loss else "the steady rate",
        lead="pool_loss",
    )


def validate_warm_pool(x: WarmPool) -> tuple[Refusal, ...]:
    """The target must be within reach of the largest pool; the message says which target is."""
    offered = x.start_rate * x.refill_time
    if slots_for_loss(offered, x.miss_target, x.dispersion, x.pool_max) is not None:
        return ()
    reachable = special.erlang_b(offered / x.dispersion, x.pool_max / x.dispersion)
    words = f"{x.pool_max} slots for an offered load of {offered:.1f} miss {reachable:.2%} of starts, the target is {x.miss_target:.2%}"
    return (Refusal("pool_too_small", f"{words}; raise pool_max, or accept {reachable:.2%}", "pool_max"),)


class KeepAlive(msgspec.Struct, frozen=True, kw_only=True):
    """Requests to one function whose instance is kept for a while after each."""

    mean_gap: Annotated[float, Ask("s", "mean time between requests", above=True)]
    keep_alive: Annotated[float, Ask("s", "how long an instance is kept after a request")]
    cold_latency: Annotated[float, Ask("s", "what a cold start adds to a request")]
    price: Annotated[float, Ask("USD/GPU/h", "price of the instance's GPU")] = assumed("2.5 USD/GPU/h")


def keep_alive(x: KeepAlive) -> Answer:
    """Share of requests that start cold, and what keeping costs."""
    work = Work()
    cold = work.put("p_cold", math.exp(-x.keep_alive / x.mean_gap), "1", "exp(-keep_alive / mean_gap)", "requests that start cold")
    idle = work.put("idle_per_request", x.mean_gap * (1 - cold), "s", "mean_gap * (1 - p_cold)", "kept idle for each request")
    work.put("mean_added_latency", cold * x.cold_latency, "s", "p_cold * cold_latency")
    work.put("idle_cost_per_request", idle * x.price, "USD", "idle_per_request * price")
    work.put("idle_cost_month", idle / x.mean_gap * x.price * 730 * HOUR_S, "USD", "idle_per_request / mean_gap * price * 730 * 3600")
    return work.done(
        "Poisson requests to one function; the instance is kept for `keep_alive` after each; service time is negligible",
        "service much shorter than the gap; for bursty requests p_cold is lower at the same mean gap",
    )


COLD_START: Final = Topic(ColdStart, cold_start, "image_compressed", validate_cold_start)
WARM_POOL: Final = Topic(WarmPool, warm_pool, "start_rate", validate_warm_pool, ("pool_backorder", "offered"))
KEEP_ALIVE: Final = Topic(KeepAlive, keep_alive, "keep_alive")

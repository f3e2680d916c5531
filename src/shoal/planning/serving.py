"""How many replicas a service needs for its rate and ramp, what a false "ready" costs, and what a prefix router saves."""

from __future__ import annotations

import math
from typing import Annotated, Final

import msgspec

from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask, assumed
from shoal.planning.topic import Topic, nothing_refused

EACH_UP_TO: Final = 500
BIN_RATIO: Final = 1.02
"""Prefixes of a Zipf law are taken one by one so far, then in groups whose popularity differs by a few percent."""


class Replicas(msgspec.Struct, frozen=True, kw_only=True):
    """Traffic of one service and what a replica serves."""

    request_rate: Annotated[float, Ask("requests/s", "requests now")]
    service_rate: Annotated[float, Ask("requests/s", "requests that one replica serves within the latency goal", above=True)]
    utilisation: Annotated[float, Ask("1", "load of a replica to aim at", most=1, above=True)] = assumed("0.75")
    ramp: Annotated[float, Ask("requests/s/s", "growth of the rate")] = 0.0
    cold_start: Annotated[float, Ask("s", "until a new replica serves")] = assumed("75.72 s")
    backlog: Annotated[float, Ask("requests", "requests already waiting")] = 0.0
    drain_time: Annotated[float, Ask("s", "in which the backlog should be gone", above=True)] = assumed("30 s")
    ramp_horizon: Annotated[float | None, Ask("s", "how long the ramp goes on")] = None


def replicas_needed(rate: float, service_rate: float, utilisation: float) -> int:
    """Replicas that serve `rate` at the load aimed at; at least one while anything comes."""
    return math.ceil(rate / (service_rate * utilisation) - 1e-12) if rate > 0 else 0


def replicas(x: Replicas) -> Answer:
    """Replicas to have started now, so that the rate at the time when they serve is met."""
    work = Work()
    work.put("replicas_steady", replicas_needed(x.request_rate, x.service_rate, x.utilisation), "replicas", words="for the rate of now",
             formula="ceil(request_rate / (service_rate * utilisation) - 1e-12)")  # fmt: skip
    ahead = work.put("rate_when_ready", x.request_rate + x.ramp * x.cold_start, "requests/s", "request_rate + ramp * cold_start")
    drain = work.put("drain_rate", x.backlog / x.drain_time, "requests/s", "backlog / drain_time")
    need = replicas_needed(ahead + drain, x.service_rate, x.utilisation)
    work.put("replicas", need, "replicas", "ceil((rate_when_ready + drain_rate) / (service_rate * utilisation) - 1e-12)")
    load = (ahead + drain) / (need * x.service_rate) if need else 0.0
    work.put("load", load, "1", "(rate_when_ready + drain_rate) / max(1, replicas * service_rate)" if need * x.service_rate >= 1 else "")
    work.note("CPU load is flat on GPU-bound replicas: scale by requests in flight or queue length, not by CPU")
    shares = {"the rate of now": x.request_rate, "the ramp during a cold start": ahead - x.request_rate, "the backlog": drain}
    return work.done(
        "replicas = ceil((rate + ramp x cold start + backlog / drain time) / (service rate x utilisation))",
        "utilisation below 1; linear ramp over one cold start; the service rate is measured at the latency goal",
        max(shares, key=lambda name: shares[name]),
        lead="replicas",
    )


def validate_replicas(x: Replicas) -> tuple[Refusal, ...]:
    """A load of 1 has no bounded queue; a cold start past the ramp's end makes scaling by it useless."""
    late = x.ramp_horizon is not None and x.ramp > 0 and x.cold_start > x.ramp_horizon
    words = f"a cold start of {x.cold_start:.0f} s outlasts the ramp of {x.ramp_horizon or 0:.0f} s: keep warm replicas instead"
    full = f"utilisation {x.utilisation:g}: at 1 the queue has no bound; 0.75 is usual"
    return unless(x.utilisation < 1, "unstable", full, "utilisation") + unless(not late, "ramp_too_short", words, "cold_start")


class FalseReady(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas that say ready before they can answer."""

    request_rate: Annotated[float, Ask("requests/s", "requests to the whole service")]
    replicas: Annotated[int, Ask("replicas", "replicas that share the traffic", least=1)]
    imports: Annotated[float, Ask("s", "imports and CUDA context")] = assumed("12 s")
    weights: Annotated[float, Ask("s", "fetching weights")] = assumed("2.8 s")
    copy: Annotated[float, Ask("s", "copy to the GPU")] = assumed("0.56 s")
    engine_init: Annotated[float, Ask("s", "engine initialisation")] = assumed("35 s")
    warmup: Annotated[float, Ask("s", "warm-up")] = assumed("2 s")


def false_ready(x: FalseReady) -> Answer:
    """Requests that fail because traffic comes before the replica can answer."""
    work = Work()
    window = x.imports + x.weights + x.copy + x.engine_init + x.warmup
    work.put("unready_window", window, "s", "imports + weights + copy + engine_init + warmup", "ready is said, nothing answers")
    failed = work.put("failed_per_replica", x.request_rate / x.replicas * window, "requests", "request_rate / replicas * unready_window")
    work.put("failed_per_rollout", failed * x.replicas, "requests", "failed_per_replica * replicas", "each replica replaced once")
    work.put("failed_if_tied_to_warmup", 0.0, "requests", "0", "readiness only after a real answer")
    return work.done(
        "traffic share of a replica x window in which it says ready and cannot answer",
        "an even balancer without retries to other replicas; with retries these requests are late instead of lost",
        "the engine's initialisation" if x.engine_init * 2 > window else "the sum of the steps before it",
        lead="failed_per_rollout",
    )


class PrefixRouter(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts that share prefixes, cached on the replica that saw them."""

    prefixes: Annotated[int, Ask("prefixes", "distinct shared prefixes", least=1)]
    cached: Annotated[int, Ask("prefixes", "prefixes that one replica's cache holds")]
    replicas: Annotated[int, Ask("replicas", "replicas", least=1)]
    shared_tokens: Annotated[float, Ask("1", "share of a prompt that is prefix", most=1)] = assumed("0.5")
    zipf: Annotated[float, Ask("1", "exponent of popularity; 0: all as popular", most=4)] = 0.0


def hit_ratio(prefixes: int, slots: int, zipf: float) -> float:
    """
    Requests that find their prefix in a least-recently-used cache of `slots`.

    Equal popularity exactly; a Zipf law by Che's approximation: a prefix stays for the time T in which `slots` distinct ones are seen.
    """
    if slots >= prefixes:
        return 1.0
    if slots <= 0:
        return 0.0
    if zipf == 0:
        return slots / prefixes
    groups = _zipf_groups(prefixes, zipf)

    def held(t: float) -> float:
        return math.fsum(-count * math.expm1(-share * t) for count, share in groups) - slots

    high = 1.0
    while held(high) < 0:
        high *= 2
    low = high / 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if held(middle) < 0 else (low, middle)
    return math.fsum(-count * share * math.expm1(-share * low) for count, share in groups)


def _zipf_groups(prefixes: int, zipf: float) -> list[tuple[int, float]]:
    """(count, popularity of each) of all prefixes, the most popular first."""
    groups, first = list[tuple[int, float]](), 1
    while first <= prefixes:
        last = first if first < EACH_UP_TO else min(prefixes, int(first * BIN_RATIO))
        groups.append((last - first + 1, math.sqrt(first * last) ** -zipf))
        first = last + 1
    total = math.fsum(count * weight for count, weight in groups)
    return [(count, weight / total) for count, weight in groups]


def prefix_router(x: PrefixRouter) -> Answer:
    """Cache hits when requests go anywhere, and when each prefix has its home; and the prefill work that this saves."""
    work = Work()
    one = hit_ratio(x.prefixes, x.cached, x.zipf)
    homes = hit_ratio(x.prefixes, x.cached * x.replicas, x.zipf)
    if x.zipf == 0:
        work.put("hits_random", one, "1", "min(1, cached / prefixes)", "requests go to any replica")
        work.put("hits_affinity", homes, "1", "min(1, cached * replicas / prefixes)", "each prefix has a home")
    else:
        work.find("hits_random", one, "1", "Che's approximation for one cache", "requests go to any replica")
        work.find("hits_affinity", homes, "1", "Che's approximation for all caches together", "each prefix has a home")
    work.put("prefill_random", 1 - one * x.shared_tokens, "1", "1 - hits_random * shared_tokens", "prefill work left")
    work.put("prefill_affinity", 1 - homes * x.shared_tokens, "1", "1 - hits_affinity * shared_tokens", "prefill work left")
    return work.done(
        "each replica caches its most recent prefixes; equal popularity, or Zipf by Che's approximation",
        "independent requests; an affinity router must still bound the load of a popular prefix's home",
        "the caches hold every prefix" if x.cached * x.replicas >= x.prefixes else "room in the caches",
        lead="hits_affinity",
    )


REPLICAS: Final = Topic(Replicas, replicas, "request_rate", validate_replicas)
FALSE_READY: Final = Topic(FalseReady, false_ready, "engine_init", nothing_refused)
PREFIX_ROUTER: Final = Topic(PrefixRouter, prefix_router, "cached", nothing_refused)

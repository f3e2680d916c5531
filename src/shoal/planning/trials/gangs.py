"""Gangs that are placed pod by pod, gangs for which GPUs are kept, small pods on many GPUs, nodes brought up by hand."""

from __future__ import annotations

from shoal.base.rng import Rng
from shoal.planning.trials.draws import Estimate, chosen, exponential, repeated, share


def no_deadlock(rng: Rng, cluster: int, gangs: tuple[int, ...], times: int) -> Estimate:
    """Share of random orders in which a gang is whole when the cluster is full: pods of all gangs, shuffled, placed one by one."""
    owners = [gang for gang, size in enumerate(gangs) for _ in range(size)]

    def trial(stream: Rng) -> bool:
        held = [0] * len(gangs)
        for at in chosen(stream, len(owners), min(cluster, len(owners))):
            held[owners[at]] += 1
        return any(have == size for have, size in zip(held, gangs, strict=True))

    return share(trial, rng, times)


def gang_start(rng: Rng, pods: int, mean_start: float, times: int) -> Estimate:
    """When the last pod runs."""
    return repeated(lambda stream: max(exponential(stream, mean_start) for _ in range(pods)), rng, times)


def drain(rng: Rng, cluster: int, gang: int, mean: float, times: int) -> tuple[Estimate, Estimate]:
    """(wait, idle GPU time) of a gang for which GPUs are kept as they become free."""

    def trial(stream: Rng) -> tuple[float, float]:
        ends = sorted(exponential(stream, mean) for _ in range(cluster))[:gang]
        return ends[-1], sum(ends[-1] - end for end in ends)

    runs = [trial(rng) for _ in range(times)]
    waits, idles = iter([run[0] for run in runs]), iter([run[1] for run in runs])
    return repeated(lambda _: next(waits), rng, times), repeated(lambda _: next(idles), rng, times)


def whole_free(rng: Rng, gpus: int, slots: int, pods: int, times: int) -> Estimate:
    """GPUs without a pod, pods on uniformly random free slots."""
    return repeated(lambda stream: float(gpus - len({at // slots for at in chosen(stream, gpus * slots, pods)})), rng, times)


def faulty_nodes(rng: Rng, nodes: int, step_success: float, steps: int, times: int) -> Estimate:
    """Nodes of which some step went wrong."""
    return repeated(lambda stream: float(sum(any(stream.unit() >= step_success for _ in range(steps)) for _ in range(nodes))), rng, times)


def time_to_find(rng: Rng, checks: tuple[tuple[float, float], ...], times: int) -> Estimate:
    """Time until the fault is found, checks being (probability, time) in the order in which they are made."""

    def trial(stream: Rng) -> float:
        point, passed = stream.unit(), 0.0
        for chance, time in checks:
            passed += time
            if point < chance:
                break
            point -= chance
        return passed

    return repeated(trial, rng, times)

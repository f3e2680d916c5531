"""
What of the free GPU time no task can use, where to place so that it stays usable, and when moving small pods together pays.

`fragment_of` is the measure of FGD (USENIX ATC 2023), exact and with ties to the lower index.
"""

from __future__ import annotations

import math
from typing import Annotated, Final

import msgspec

from shoal.planning import special
from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask, assumed
from shoal.planning.topic import Topic

EPSILON: Final = 1e-9
"""Shares are thousandths written as decimals: a sum that is off by less is the same."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of task and how often it comes."""

    p: Annotated[float, Ask("1", "its probability", most=1)]
    cpu: Annotated[float, Ask("vCPU", "CPUs")]
    gpus: Annotated[int, Ask("GPU", "GPUs")]
    per_gpu: Annotated[float, Ask("GPU", "share of each", most=1)]


class Fgd(msgspec.Struct, frozen=True, kw_only=True):
    """A node, the shapes that come, and one task to place."""

    node_cpu: Annotated[float, Ask("vCPU", "CPUs left on the node")]
    gpu_left: Annotated[tuple[float, ...], Ask("GPU", "share left of each GPU", most=1)]
    shapes: Annotated[tuple[Shape, ...], Ask("list", "the shapes that come")]
    place_cpu: Annotated[float, Ask("vCPU", "CPUs of the task")]
    place_gpu: Annotated[float, Ask("GPU", "share of one GPU that it takes", most=1, above=True)]


def fragment_for(node_cpu: float, gpu_left: tuple[float, ...], shape: Shape) -> float:
    """Free GPU that `shape` cannot use on a node: all of it if it cannot run there (or wants no GPU), else the parts that are too small."""
    enough = [left for left in gpu_left if left + EPSILON >= shape.per_gpu]
    if shape.gpus == 0 or shape.per_gpu <= 0 or node_cpu + EPSILON < shape.cpu or len(enough) < shape.gpus:
        return sum(gpu_left)
    return sum(left for left in gpu_left if left + EPSILON < shape.per_gpu)


def fragment_of(node_cpu: float, gpu_left: tuple[float, ...], shapes: tuple[Shape, ...]) -> float:
    """Expected unusable free GPU of a node over the shapes that come."""
    return math.fsum(shape.p * fragment_for(node_cpu, gpu_left, shape) for shape in shapes)


def fgd(x: Fgd) -> Answer:
    """The GPU on which the task makes least of the node unusable."""
    work = Work()
    before = work.find(
        "fragment_before", fragment_of(x.node_cpu, x.gpu_left, x.shapes), "GPU", "sum over shapes of p x free GPU it cannot use"
    )
    rows: list[tuple[int, float, float]] = []
    for at, left in enumerate(x.gpu_left):
        if left + EPSILON >= x.place_gpu:
            after = (*x.gpu_left[:at], left - x.place_gpu, *x.gpu_left[at + 1 :])
            rows.append((at, fragment_of(x.node_cpu - x.place_cpu, after, x.shapes) - before, 1 - (left - x.place_gpu)))
    best = min(rows, key=lambda row: (round(row[1], 9), row[0]))
    work.find("best_gpu", best[0], "index", "least rise; ties to the lower index")
    work.find("best_delta", best[1], "GPU", "fragment after placing there - fragment_before")
    tightest = max(rows, key=lambda row: (round(row[2], 9), -row[0]))
    work.find("packing_gpu", tightest[0], "index", "highest packing score 1 - (free - share)")
    work.table("placements", ("GPU", "rise of the fragment [GPU]", "packing score"), rows)
    return work.done(
        "fragment = sum of p x free GPU that the shape cannot use: all if it cannot run there or wants none, else parts below its share",
        "shapes and probabilities as they come; exact scores, ties to the lower index (rounding scores to 0..100 changes results)",
        lead="fragment_before",
    )


def validate_fgd(x: Fgd) -> tuple[Refusal, ...]:
    """Probabilities sum to one, and the task fits somewhere."""
    total = math.fsum(shape.p for shape in x.shapes)
    fits = x.node_cpu + EPSILON >= x.place_cpu and any(left + EPSILON >= x.place_gpu for left in x.gpu_left)
    return unless(abs(total - 1) < 1e-6, "probabilities_off", f"probabilities of the shapes sum to {total:g}, 1 is due", "shapes") + unless(
        fits, "task_does_not_fit", f"no GPU of the node has {x.place_gpu:g} left, or CPUs are short", "place_gpu"
    )


class SpreadFragmentation(msgspec.Struct, frozen=True, kw_only=True):
    """Equal small pods on many GPUs."""

    gpus: Annotated[int, Ask("GPU", "GPUs", least=1)]
    slots: Annotated[int, Ask("1/GPU", "pods that one GPU takes", least=1)]
    pods: Annotated[int, Ask("1", "pods")]


def whole_free_random(gpus: int, slots: int, pods: int) -> float:
    """Expected GPUs without a pod, pods on uniformly random free slots."""
    return gpus * special.binomial_ratio((slots * (gpus - 1), pods), (slots * gpus, pods))


def spread_fragmentation(x: SpreadFragmentation) -> Answer:
    """Whole GPUs that stay free when pods are spread, put anywhere, and packed."""
    work = Work()
    work.put("free_gpus", x.gpus - x.pods / x.slots, "GPU", "gpus - pods / slots", "free in sum")
    work.put("whole_free_spread", max(0, x.gpus - x.pods), "GPU", "max(0, gpus - pods)")
    small = x.gpus * x.slots <= 3_000
    formula = "gpus * comb(slots * (gpus - 1), pods) / comb(slots * gpus, pods)"
    put = work.put if small else work.find
    put("whole_free_random", whole_free_random(x.gpus, x.slots, x.pods), "GPU", formula)
    packed = work.put("whole_free_packed", x.gpus - math.ceil(x.pods / x.slots), "GPU", "gpus - ceil(pods / slots)")
    work.put("lost_by_spreading", packed - max(0, x.gpus - x.pods), "GPU", "whole_free_packed - whole_free_spread")
    return work.done(
        "spread: one pod per GPU while there are GPUs; random: uniform over free slots; packed: fill each GPU",
        "equal pods that never move; uniform over GPUs with room instead of slots leaves more whole GPUs free",
        lead="whole_free_packed",
    )


def validate_spread(x: SpreadFragmentation) -> tuple[Refusal, ...]:
    """Pods must have slots."""
    room = x.gpus * x.slots
    return unless(x.pods <= room, "pods_exceed_slots", f"{x.pods} pods for {room} slots", "pods")


class Defragmentation(msgspec.Struct, frozen=True, kw_only=True):
    """Small pods that would be moved to empty whole GPUs."""

    moves: Annotated[int, Ask("moves", "pods to move", least=1)]
    pod_gpu: Annotated[float, Ask("GPU", "GPU of each pod", most=1, above=True)]
    restart: Annotated[float, Ask("min", "stop and start of a pod")] = assumed("10 min")
    lost: Annotated[float, Ask("min", "work of a pod since its checkpoint")] = 0.0
    gained_gpus: Annotated[float, Ask("GPU", "whole GPUs that become free", above=True)]
    use: Annotated[float, Ask("min", "how long they are used before they would have become free anyway")]
    checkpointable: Annotated[bool, Ask("bool", "the pods can be stopped at a checkpoint or drained")] = True
    same_tenant: Annotated[bool, Ask("bool", "pods that end up on one GPU belong to one tenant")] = True


def defragmentation(x: Defragmentation) -> Answer:
    """What moving costs and gains, in GPU time."""
    work = Work()
    cost = work.put("cost", x.moves * x.pod_gpu * (x.restart + x.lost), "GPU*min", "moves * pod_gpu * (restart + lost)")
    gain = work.put("gain", x.gained_gpus * x.use, "GPU*min", "gained_gpus * use")
    work.put("net", gain - cost, "GPU*min", "gain - cost")
    work.put("worth_it", gain > cost, "1", "gain > cost")
    work.put("least_use", cost / x.gained_gpus, "min", "cost / gained_gpus", "break-even")
    return work.done(
        "worth it if gained GPUs x time of use > sum of share x (restart + lost work)",
        "pods that can be moved; a waiting job that uses the whole GPUs",
        lead="net",
    )


def validate_defragmentation(x: Defragmentation) -> tuple[Refusal, ...]:
    """Never move what cannot be stopped, never mix tenants."""
    stopped = "a pod without checkpoint or drain is never moved"
    mixed = "soft shares of different tenants never share a GPU"
    return unless(x.checkpointable, "no_checkpoint", stopped, "checkpointable") + unless(
        x.same_tenant, "tenants_mixed", mixed, "same_tenant"
    )


FGD: Final = Topic(Fgd, fgd, "", validate_fgd)
SPREAD_FRAGMENTATION: Final = Topic(SpreadFragmentation, spread_fragmentation, "pods", validate_spread)
DEFRAGMENTATION: Final = Topic(Defragmentation, defragmentation, "moves", validate_defragmentation)

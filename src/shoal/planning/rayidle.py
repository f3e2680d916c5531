"""Ray on shared nodes: the idle timeout of a worker, nodes left whole by scattered actors, placement groups that hold in vain."""

from __future__ import annotations

import math
from typing import Annotated, Final

import msgspec

from shoal.planning import special
from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask, assumed
from shoal.planning.topic import Topic, nothing_refused


class RayIdle(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that is used again and again, and released after idling."""

    mean_gap: Annotated[float, Ask("s", "mean time between uses", above=True)]
    idle_timeout: Annotated[float, Ask("s", "idle time after which it is released")] = assumed("60 s")
    scale_up: Annotated[float, Ask("s", "until a released worker is back")] = assumed("180 s")
    gpus: Annotated[float, Ask("GPU", "GPUs of the worker", above=True)] = 8.0


def ray_idle(x: RayIdle) -> Answer:
    """What a timeout costs per gap, and the best one."""
    work = Work()
    release = work.put("p_release", math.exp(-x.idle_timeout / x.mean_gap), "1", "exp(-idle_timeout / mean_gap)")
    idle = work.put("idle_per_gap", x.mean_gap * (1 - release), "s", "mean_gap * (1 - p_release)")
    each = work.put("seconds_per_gap", idle + release * x.scale_up, "s", "idle_per_gap + p_release * scale_up")
    work.put("cost_per_gap", x.gpus * each, "GPU*s", "gpus * seconds_per_gap")
    work.put("cost_never_released", x.gpus * x.mean_gap, "GPU*s", "gpus * mean_gap")
    work.put("cost_released_at_once", x.gpus * x.scale_up, "GPU*s", "gpus * scale_up")
    how = "memoryless gaps: 0 if scale_up is shorter than the mean gap, else never"
    if x.scale_up <= x.mean_gap:
        work.find("best_timeout", 0.0, "s", how)
    else:
        work.find("best_timeout", "never", "1", how)
    work.put("safe_timeout", x.scale_up, "s", "scale_up", "at most twice the optimum whatever the gaps are")
    return work.done(
        "exponential gaps; idle (1 - e^(-tau/gap)) gap, release e^(-tau/gap); held GPU-seconds per gap",
        "memoryless gaps; for regular or bursty ones take the safe timeout",
        "scale-up time against the mean gap",
        lead="cost_per_gap",
    )


class RayEmptyNodes(msgspec.Struct, frozen=True, kw_only=True):
    """One-GPU actors on nodes of several GPUs."""

    nodes: Annotated[int, Ask("1", "nodes", least=1)]
    gpus: Annotated[int, Ask("1", "GPUs of a node", least=1)]
    actors: Annotated[int, Ask("1", "actors")]


def ray_empty_nodes(x: RayEmptyNodes) -> Answer:
    """Nodes without an actor, if actors are anywhere and if they are packed."""
    work = Work()
    share = special.binomial_ratio((x.gpus * (x.nodes - 1), x.actors), (x.gpus * x.nodes, x.actors))
    put = work.put if x.gpus * x.nodes <= 3_000 else work.find
    put("random", x.nodes * share, "nodes", "nodes * comb(gpus * (nodes - 1), actors) / comb(gpus * nodes, actors)")
    work.put("packed", x.nodes - math.ceil(x.actors / x.gpus), "nodes", "nodes - ceil(actors / gpus)")
    return work.done("k one-GPU actors, uniform over slots; or packed", "actors that do not move, equal nodes", lead="packed")


def validate_ray_empty(x: RayEmptyNodes) -> tuple[Refusal, ...]:
    """Actors must have GPUs."""
    room = x.nodes * x.gpus
    return unless(x.actors <= room, "actors_exceed_gpus", f"{x.actors} actors on {room} GPUs", "actors")


class RayPlacementGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A placement group whose workers come one by one."""

    bundles: Annotated[int, Ask("1", "workers of the group", least=1)]
    gpus: Annotated[int, Ask("GPU", "GPUs of each", least=1)]
    ready: Annotated[int, Ask("1", "workers that are up")]
    waited: Annotated[float, Ask("min", "how long the others are waited for")]
    actor_gpus: Annotated[float, Ask("GPU", "GPUs that Ray counts as used")] = 0.0


def ray_placement_group(x: RayPlacementGroup) -> Answer:
    """GPUs held without use, and the waste so far."""
    work = Work()
    held = work.put("held", x.ready * x.gpus, "GPU", "ready * gpus")
    work.put("waste", held * x.waited, "GPU*h", "held * waited")
    work.put(
        "unused",
        1 - x.actor_gpus / held if held else 0.0,
        "1",
        "1 - actor_gpus / held" if held else "",
        "share of pod GPUs that Ray does not use",
    )
    work.note("make the group one admission unit below Ray: its worker pods as a gang", x.ready < x.bundles)
    return work.done("pod GPUs held x time waited", "Kubernetes counts pod requests, Ray counts logical use", lead="waste")


def validate_placement_group(x: RayPlacementGroup) -> tuple[Refusal, ...]:
    """Not more up than there are, not more used than held."""
    return unless(x.ready <= x.bundles, "too_many_ready", f"{x.ready} workers up of {x.bundles}", "ready") + unless(
        x.actor_gpus <= x.ready * x.gpus, "used_exceeds_held", "actors use more GPUs than the workers have", "actor_gpus"
    )


RAY_IDLE: Final = Topic(RayIdle, ray_idle, "idle_timeout", nothing_refused)
RAY_EMPTY_NODES: Final = Topic(RayEmptyNodes, ray_empty_nodes, "actors", validate_ray_empty)
RAY_PLACEMENT_GROUP: Final = Topic(RayPlacementGroup, ray_placement_group, "waited", validate_placement_group)

"""
How a GPU may be given in parts, as people write it: in scenarios, for pretended GPUs and for a node's agent.

    whole                             not in parts
    mps, mps=16                       whole, or in soft shares under MPS, so many at a time
    time-slice, time-slice=4          whole, or in soft shares that take turns
    mig                               in MIG instances, made as they are asked for
    mig=3g.40gb@4/1g.10gb@0           in these MIG instances only: profile and start
"""

from __future__ import annotations

from typing import Final

from shoal.base import limits
from shoal.model.part import DevicePart, MigInstance, Partition

FORMS: Final = "whole, mps, mps=16, time-slice=4, mig, or mig=3g.40gb@4/1g.10gb@0"


def partition_of(text: str) -> Partition:
    """What the text says. Raises ValueError with the forms there are."""
    mode, given, rest = text.strip().partition("=")
    if mode == "whole" and not given:
        return Partition()
    if mode == "mps" or mode == "time-slice":
        most = rest if given else str(limits.SHARES_PER_GPU_MAX)
        if not most.isdecimal() or not 1 <= int(most) <= limits.SHARES_PER_GPU_MAX:
            raise ValueError(f"parts {text!r}: {mode} takes 1 to {limits.SHARES_PER_GPU_MAX} shares of a GPU, for example {mode}=4")
        return Partition(soft="mps" if mode == "mps" else "time-slice", shares_max=int(most))
    if mode == "mig" and not given:
        return Partition(whole=False, mig="reshape")
    if mode == "mig":
        return Partition(whole=False, mig="fixed", instances=tuple(sorted((_instance(one) for one in rest.split("/")), key=_by_start)))
    raise ValueError(f"parts {text!r} are not known; give {FORMS}")


def partition_text(partition: Partition) -> str:
    """The text that `partition_of` reads as this."""
    if partition.mig == "fixed":
        return "mig=" + "/".join(f"{one.profile}@{one.start}" for one in partition.instances)
    if partition.mig != "off":
        return "mig"
    return "whole" if partition.soft == "off" else f"{partition.soft}={partition.shares_max}"


def part_text(part: DevicePart) -> str:
    """A part that somebody has: `1g.10gb@6` an instance and its start, `250/1000 mps` a soft share."""
    return f"{part.profile}@{part.start}" if part.mode == "mig" else f"{part.thousandths}/1000 {part.mode}"


def _by_start(instance: MigInstance) -> tuple[int, str]:
    return instance.start, instance.profile


def _instance(text: str) -> MigInstance:
    profile, _, start = text.partition("@")
    if not profile or not start.isdecimal() or int(start) > limits.GPUS_PER_NODE_MAX:
        raise ValueError(f"MIG instance {text!r} is no profile with its start, for example 1g.10gb@6")
    return MigInstance(profile=profile, start=int(start))

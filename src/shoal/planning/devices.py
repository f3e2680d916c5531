"""What the integer model of GPUs strands: whole GPUs that CPU or memory of the node cannot serve, and fractions that nobody may share."""

from __future__ import annotations

import math
from typing import Annotated, Final

import msgspec

from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask, assumed
from shoal.planning.quantity import YEAR_S
from shoal.planning.topic import Topic, nothing_refused


class Stranded(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet of equal nodes and one shape of pod."""

    nodes: Annotated[int, Ask("1", "nodes", least=1)]
    gpus_per_node: Annotated[int, Ask("GPU", "GPUs of a node", least=1, most=1_024)] = 8
    vcpu: Annotated[float, Ask("vCPU", "CPUs of a node")]
    memory: Annotated[float, Ask("GiB", "memory of a node")]
    reserved_vcpu: Annotated[float, Ask("vCPU", "CPUs kept for the system")] = 0.0
    reserved_memory: Annotated[float, Ask("GiB", "memory kept for the system")] = 0.0
    pod_gpu: Annotated[int, Ask("GPU", "GPUs of a pod", least=1)]
    pod_vcpu: Annotated[float, Ask("vCPU", "CPUs of a pod")]
    pod_memory: Annotated[float, Ask("GiB", "memory of a pod")]
    price: Annotated[float, Ask("USD/GPU/h", "price of a GPU")] = assumed("2.5 USD/GPU/h")
    pod_gpu_memory: Annotated[float | None, Ask("GB", "GPU memory that a pod uses, for the memory it strands")] = None
    gpu_memory: Annotated[float | None, Ask("GB", "memory of a GPU", above=True)] = None


def pods_by_resource(x: Stranded) -> dict[str, int]:
    """Pods of a node that each resource alone would allow; resources that a pod does not ask are left out."""
    rooms = {"GPU": (float(x.gpus_per_node), float(x.pod_gpu)), "vCPU": (x.vcpu - x.reserved_vcpu, x.pod_vcpu)}
    rooms["memory"] = (x.memory - x.reserved_memory, x.pod_memory)
    return {name: max(0, math.floor(room / ask + 1e-9)) for name, (room, ask) in rooms.items() if ask > 0}


def stranded(x: Stranded) -> Answer:
    """GPUs that no pod of this shape can ever use, and what they cost a year."""
    work = Work()
    by = pods_by_resource(x)
    pods = work.find("pods_per_node", min(by.values()), "1", ", ".join(f"{name} allows {count}" for name, count in by.items()))
    gpus = x.nodes * x.gpus_per_node
    lost = work.put(
        "stranded_gpus", x.nodes * (x.gpus_per_node - pods * x.pod_gpu), "GPU", "nodes * (gpus_per_node - pods_per_node * pod_gpu)"
    )
    work.put("stranded_fraction", lost / gpus, "1", "stranded_gpus / (nodes * gpus_per_node)")
    work.put("cost_year", lost * x.price * YEAR_S, "USD", "stranded_gpus * price * 8760 * 3600")
    if x.pod_gpu_memory is not None and x.gpu_memory is not None:
        unused = max(0.0, 1 - x.pod_gpu_memory / (x.gpu_memory * x.pod_gpu))
        work.put(
            "memory_stranded",
            unused,
            "1",
            "max(0, 1 - pod_gpu_memory / (gpu_memory * pod_gpu))",
            "GPU memory that a pod keeps and does not use",
        )
    rows = [(g, x.gpus_per_node % g) for g in range(1, x.gpus_per_node + 1)]
    work.table("remainders", ("GPUs of a pod", "GPUs left on a node"), rows)
    work.note("a count of GPUs says nothing of memory, slice, island or driver; a claim says all four")
    return work.done(
        "pods per node = least of floor(node / pod) over resources; stranded = GPUs - pods x GPUs of a pod",
        "one shape of pod on equal nodes; for mixed shapes see the topic fgd",
        min(by, key=lambda name: by[name]),
        lead="stranded_fraction",
    )


def validate_stranded(x: Stranded) -> tuple[Refusal, ...]:
    """A pod must fit an empty node."""
    by = pods_by_resource(x)
    short = min(by, key=lambda name: by[name])
    return unless(
        by[short] > 0, "pod_exceeds_node", f"a pod asks more {short} than an empty node of this fleet has", f"pod_{short.lower()}"
    )


class StrandedFraction(msgspec.Struct, frozen=True, kw_only=True):
    """Services that each need a fraction of a GPU."""

    services: Annotated[int, Ask("1", "services", least=1)]
    fraction: Annotated[float, Ask("GPU", "GPU that each needs", most=1, above=True)]
    price: Annotated[float, Ask("USD/GPU/h", "price of a GPU")] = assumed("2.5 USD/GPU/h")


def stranded_fraction(x: StrandedFraction) -> Answer:
    """GPUs with one service each, and with as many as fit."""
    work = Work()
    each = math.floor(1 / x.fraction + 1e-9)
    work.put("per_gpu", each, "1", "floor(1 / fraction + 1e-9)", "services on one GPU")
    whole = work.put("integer_gpus", x.services, "GPU", "services")
    packed = work.put("packed_gpus", math.ceil(x.services / each), "GPU", "ceil(services / per_gpu)")
    work.put("util_integer", x.services * x.fraction / whole, "1", "services * fraction / integer_gpus")
    work.put("util_packed", x.services * x.fraction / packed, "1", "services * fraction / packed_gpus")
    work.put("saved_year", (whole - packed) * x.price * YEAR_S, "USD", "(integer_gpus - packed_gpus) * price * 8760 * 3600")
    work.note("soft shares of tenants that do not trust each other never share a GPU: pack per tenant")
    return work.done(
        "integer model: one GPU each; packed: floor(1 / f) on each GPU",
        "equal fractions, steady need; unequal ones pack somewhat worse (first-fit decreasing needs about 6 % more than the sum)",
        lead="packed_gpus",
    )


STRANDED: Final = Topic(Stranded, stranded, "pod_vcpu", validate_stranded)
STRANDED_FRACTION: Final = Topic(StrandedFraction, stranded_fraction, "fraction", nothing_refused)

"""
What of a whole fleet's free GPUs the tasks that come cannot use, node by node; from a table of nodes or from a running Shoal's own picture.

The sum over nodes of the fragment that `fragmentation` defines, with the shares that CPU and GPUs strand told apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from shoal.model.node import DeviceState, NodeState
from shoal.model.wire import NodeView
from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.fragmentation import EPSILON, Shape, fragment_for, fragment_of
from shoal.planning.inputs import Ask, assumed
from shoal.planning.quantity import YEAR_S
from shoal.planning.topic import Topic

ROWS_MAX: Final = 20_000


class FleetNode(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes with the same room."""

    node: Annotated[str, Ask("name", "its name")]
    count: Annotated[int, Ask("nodes", "how many nodes like it", least=1)] = 1
    cpu: Annotated[float, Ask("vCPU", "CPUs free")]
    gpus: Annotated[int, Ask("GPU", "GPUs wholly free")]
    rest: Annotated[float, Ask("GPU", "free share of one more GPU", most=1)] = 0.0


class FleetFragments(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet's free room and the shapes that come."""

    nodes: Annotated[tuple[FleetNode, ...], Ask("list", "nodes, those with the same room together")]
    shapes: Annotated[tuple[Shape, ...], Ask("list", "the shapes that come")]
    price: Annotated[float, Ask("USD/GPU/h", "price of a GPU")] = assumed("2.5 USD/GPU/h")


def room_of(node: FleetNode) -> tuple[float, ...]:
    """The free share of each GPU of a node that has any."""
    return (1.0,) * node.gpus + ((node.rest,) if node.rest > 0 else ())


def fleet_fragments(x: FleetFragments) -> Answer:
    """Free GPUs, what of them the shapes cannot use on average, and what that costs a year while it stays so."""
    work = Work()
    rows = [(n, n.count * sum(room_of(n)), n.count * fragment_of(n.cpu, room_of(n), x.shapes)) for n in x.nodes]
    free = work.find("free", math.fsum(row[1] for row in rows), "GPU", "sum over nodes")
    lost = work.find(
        "fragment", math.fsum(row[2] for row in rows), "GPU", "sum over nodes and shapes of p x free GPU that the shape cannot use"
    )
    work.put("fragment_share", lost / free if free else 0.0, "1", "fragment / free" if free else "", "of what is free")
    work.find("without_cpu", _without_cpu(x), "GPU", "the part of it where GPUs would do and CPUs are short")
    work.put("cost_year", lost * x.price * YEAR_S, "USD", "fragment * price * 8760 * 3600", "while it stays so")
    work.table("nodes", ("node", "nodes", "free [GPU]", "fragment [GPU]"), [(n.node, n.count, some, bad) for n, some, bad in _worst(rows)])
    able = [(s.gpus, s.per_gpu, s.p, _places(x, s)) for s in x.shapes]
    work.table("shapes", ("GPUs", "share of each", "probability", "tasks that fit now"), able)
    return work.done(
        "fragment = sum over nodes and shapes of p x free GPU that the shape cannot use there",
        "shapes as they come; a shape without GPUs counts all free ones as lost to it",
        "CPUs" if lost and _without_cpu(x) > lost / 2 else "the shapes of what is free",
        lead="fragment",
    )


def _worst(rows: list[tuple[FleetNode, float, float]]) -> list[tuple[FleetNode, float, float]]:
    return sorted(rows, key=lambda row: (-row[2], row[0].node))


def _without_cpu(x: FleetFragments) -> float:
    """Fragment that would be usable with enough CPUs."""
    total = 0.0
    for node in x.nodes:
        room = room_of(node)
        total += node.count * math.fsum(s.p * (fragment_for(node.cpu, room, s) - fragment_for(math.inf, room, s)) for s in x.shapes)
    return total


def _places(x: FleetFragments, shape: Shape) -> int:
    """Tasks of a shape alone that fit into what is free."""
    return sum(node.count * _fits(node, shape) for node in x.nodes) if shape.gpus else 0


def _fits(node: FleetNode, shape: Shape) -> int:
    each = [math.floor(left / shape.per_gpu + EPSILON) for left in room_of(node)]
    by_gpu = sum(each) if shape.gpus == 1 else sum(count > 0 for count in each) // shape.gpus
    by_cpu = math.floor(node.cpu / shape.cpu + EPSILON) if shape.cpu > 0 else by_gpu
    return min(by_gpu, by_cpu)


def validate_fleet(x: FleetFragments) -> tuple[Refusal, ...]:
    """Probabilities sum to one; shapes that ask for GPUs say how much of each."""
    total = math.fsum(shape.p for shape in x.shapes)
    vague = any(shape.gpus > 0 and shape.per_gpu <= 0 for shape in x.shapes)
    return (
        unless(abs(total - 1) < 1e-6, "probabilities_off", f"probabilities of the shapes sum to {total:g}, 1 is due", "shapes")
        + unless(not vague, "empty_share", "a shape with GPUs must say which share of each (per_gpu)", "shapes")
        + unless(0 < len(x.nodes) <= ROWS_MAX, "too_many_rows", f"{len(x.nodes)} rows of nodes: 1 to {ROWS_MAX}", "nodes")
    )


def nodes_from(views: Sequence[NodeView]) -> list[dict[str, Any]]:
    """Rows of `nodes` for the nodes of a running Shoal that take work: free CPUs and wholly free GPUs that are not broken."""
    rows = []
    for view in views:
        if view.node.state is NodeState.READY:
            free = sum(device.state == DeviceState.FREE for device in view.devices)
            rows.append({"node": view.node.id, "cpu": view.cpu_milli_free / 1_000, "gpus": free})
    return rows


FLEET_FRAGMENTS: Final = Topic(FleetFragments, fleet_fragments, "", validate_fleet)

"""How a queue stands: what it holds of the fleet, how far it is over its guarantee, whether it starts anything at all."""

from __future__ import annotations

from shoal.scheduling.quota import Charge, Vertex


def dominant_share(held: dict[str, int], capacity: dict[str, int]) -> float:
    """The largest part of any resource of the fleet that is held."""
    worst = 0.0
    for resource, amount in held.items():
        if amount > 0:
            whole = capacity.get(resource, 0)
            if whole and amount > worst * whole:
                worst = amount / whole
    return worst


def is_closed(vertex: Vertex) -> bool:
    """True if the queue, or one above it, takes jobs but starts none."""
    at: Vertex | None = vertex
    while at is not None:
        if at.spec.closed:
            return True
        at = at.parent
    return False


def excess_share(vertex: Vertex, charge: Charge, capacity: dict[str, int]) -> tuple[bool, float]:
    """Would it borrow with this charge, and the dominant share of what it holds beyond its guarantee already.

    A queue under no quota at all has no guarantee: all it holds is excess. Under a quota only limited resources count.
    """
    named, usage, subtree = vertex.named, vertex.usage, vertex.subtree
    if not named:
        return True, dominant_share(vertex.held, capacity)
    beyond = {resource: usage.get(resource, 0) - subtree.get(resource, 0) for resource in named}
    borrows = False
    for resource, amount in charge:
        if resource in beyond and beyond[resource] + amount > 0:
            borrows = True
    return borrows, dominant_share(beyond, capacity)


def claim_of(vertex: Vertex, capacity: dict[str, int]) -> float:
    """How far a queue is over its guarantee, by weight: what the queues' measure is made of. Weight 0 has no claim to any of it."""
    excess = max(0.0, excess_share(vertex, (), capacity)[1])
    if not excess:
        return 0.0
    return excess * 1_000 / vertex.spec.weight if vertex.spec.weight else float("inf")


def own_share(vertex: Vertex) -> dict[str, int]:
    """What a vertex with children holds by itself."""
    own = dict(vertex.held)
    for child in vertex.children:
        for resource, amount in child.held.items():
            own[resource] = own.get(resource, 0) - amount
    return own

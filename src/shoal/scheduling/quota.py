"""
The quota tree: how much each queue may still start, under guarantees, borrowing and lending.

For a vertex v and one resource (Kueue's algebra, `pkg/cache/scheduler/resource_node.go`):

    subtree(v)   = nominal(v) + sum over children c of (subtree(c) - local(c))
    local(v)     = max(0, subtree(v) - lending limit), 0 without one          what the parent never sees
    available(v) = max(0, local(v) - usage(v)) + min(available(parent), borrowing limit + subtree - local - usage seen by the parent)
    available(root) = subtree - usage

A charge to v uses up local room first; what exceeds it bubbles to the parent. `available` is negative after a cut, and then nothing new
starts. A resource that nobody on the way to the root names is unlimited, and not counted there. Amounts are Python integers in the
resource's own unit: they cannot overflow, so "unlimited" is None and never a large number.
One tree serves all resources; nothing else in Shoal knows this algebra.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from msgspec.structs import replace

from shoal.base import limits
from shoal.model.attempt import Allocation
from shoal.model.queue import Queue, QueueSpec, Quota

Charge = tuple[tuple[str, int], ...]
"""Amounts by resource, ascending by name, none of them zero."""
DEFAULT_QUEUE = "default"
_NO_QUOTA = Quota()


class Vertex:
    """One queue in the tree. `held` is what it and all below it hold; `usage` what of that counts here (see module)."""

    __slots__ = ("children", "depth", "held", "local", "name", "named", "parent", "spec", "subtree", "usage")

    def __init__(self, name: str, spec: QueueSpec) -> None:
        self.name = name
        self.spec = spec
        self.parent: Vertex | None = None
        self.children: list[Vertex] = []
        self.depth = 0
        self.named: tuple[str, ...] = ()
        """Resources that this vertex or one above it names: the limited ones."""
        self.subtree: dict[str, int] = {}
        self.local: dict[str, int] = {}
        self.usage: dict[str, int] = {}
        self.held: dict[str, int] = {}

    def quota(self, resource: str) -> Quota:
        return self.spec.quotas.get(resource, _NO_QUOTA)


class QuotaTree:
    """See module. Built again when a queue is set or deleted; charges move it in between."""

    def __init__(self, queues: Iterable[Queue], charged: Mapping[str, Mapping[str, int]]) -> None:
        """`charged` is what each queue itself holds, by resource; queues that do not exist may be in it and are counted nowhere."""
        specs = {queue.id: queue.spec for queue in queues}
        specs.setdefault(DEFAULT_QUEUE, QueueSpec())
        self.vertices = {name: Vertex(name, specs[name]) for name in sorted(specs)}
        self._link()
        self.roots = tuple(v for v in self.vertices.values() if v.parent is None)
        self._trees: dict[str, tuple[str, ...]] = {}
        for root in self.roots:
            self._prepare(root, ())
        for name, amounts in charged.items():
            if name in self.vertices:
                self.add(name, tuple(sorted((r, a) for r, a in amounts.items() if a)))

    # --- questions ----------------------------------------------------------------------------------------------------------
    def available(self, name: str, resource: str) -> int | None:
        """How much more the queue may start; None without any limit."""
        vertex = self.vertices[name]
        return self._available(vertex, resource) if resource in vertex.named else None

    def left(self, name: str) -> dict[str, int]:
        """By resource, what is left of all that the queue's subtree brings and may borrow; also for one that only groups others."""
        vertex = self.vertices[name]
        return {resource: self._available(vertex, resource) for resource in sorted({*vertex.named, *vertex.subtree})}

    def potential(self, name: str, resource: str) -> int | None:
        """What `available` would be with nothing running anywhere."""
        vertex = self.vertices[name]
        return self._potential(vertex, resource) if resource in vertex.named else None

    def short_of(self, name: str, charge: Charge) -> tuple[str, int] | None:
        """The first resource that a charge does not fit into, and by how much; None if it fits."""
        vertex = self.vertices[name]
        for resource, amount in charge:
            if resource in vertex.named:
                room = self._available(vertex, resource)
                if amount > room:
                    return resource, amount - room
        return None

    def slack(self, name: str, charge: Charge) -> dict[str, int]:
        """By limited resource, what the queue could still start beside `charge`."""
        vertex, asked = self.vertices[name], dict(charge)
        return {resource: self._available(vertex, resource) - asked.get(resource, 0) for resource in vertex.named}

    def borrows(self, name: str, charge: Charge) -> bool:
        """True if with this charge the queue holds more of a limited resource than its own subtree brings."""
        vertex = self.vertices[name]
        return any(r in vertex.named and vertex.usage.get(r, 0) + a > vertex.subtree.get(r, 0) for r, a in charge)

    def numbers(self, name: str) -> dict[str, dict[str, int]]:
        """Subtree, local, usage and what is held, by resource, without zeros."""
        vertex = self.vertices[name]
        tables = {"subtree": vertex.subtree, "local": vertex.local, "usage": vertex.usage, "held": vertex.held}
        return {what: {r: a for r, a in sorted(table.items()) if a} for what, table in tables.items()}

    def tree_of(self, name: str) -> tuple[str, ...]:
        """The queues that share a root with this one, itself included: whose ends may give it room."""
        root = self.vertices[name]
        while root.parent is not None:
            root = root.parent
        found = self._trees.get(root.name)
        if found is None:
            below = [root]
            for at in below:
                below.extend(at.children)
            found = self._trees[root.name] = tuple(sorted(at.name for at in below))
        return found

    def with_more(self, name: str, resource: str, amount: int) -> QuotaTree:
        """The same tree, with as much held, in which one queue's nominal quota of a resource is higher."""
        queues = []
        for vertex in self.vertices.values():
            spec = vertex.spec
            if vertex.name == name:
                quota = vertex.quota(resource)
                spec = replace(spec, quotas={**spec.quotas, resource: replace(quota, nominal=quota.nominal + amount)})
            queues.append(Queue(id=vertex.name, spec=spec))
        below = {v.name: [child.held for child in v.children] for v in self.vertices.values()}
        own = {n: {r: a - sum(held.get(r, 0) for held in below[n]) for r, a in v.held.items()} for n, v in self.vertices.items()}
        return QuotaTree(queues, own)

    # --- charges ------------------------------------------------------------------------------------------------------------
    def add(self, name: str, charge: Charge) -> None:
        """The queue holds `charge` more."""
        vertex: Vertex | None = self.vertices[name]
        above = vertex
        while above is not None:
            for resource, amount in charge:
                above.held[resource] = above.held.get(resource, 0) + amount
            above = above.parent
        assert vertex is not None
        for resource, amount in charge:
            if resource in vertex.named:
                self._bubble(vertex, resource, amount)

    def remove(self, name: str, charge: Charge) -> None:
        """The exact inverse of `add`."""
        self.add(name, tuple((resource, -amount) for resource, amount in charge))

    def count(self, name: str, charge: Charge, sign: int = 1) -> None:
        """
        As `add` (`remove` with -1), for limited resources alone: what `short_of` and `available` go by, not shares. For trials.

        Its own inverse with the other sign.
        """
        vertex = self.vertices[name]
        for resource, amount in charge:
            if resource in vertex.named:
                self._bubble(vertex, resource, sign * amount)

    @contextmanager
    def counting(self, measured: Vertex, name: str, charge: Charge, sign: int = 1) -> Iterator[None]:
        """
        While inside, the queue holds `charge` more (less with -1), as far as the claim of `measured` goes by it (`standing.claim_of`).

        Under a quota that is what is limited alone, which costs a fraction of `add`: preemption asks it for every victim.
        """
        move = self.count if measured.named else self._move
        move(name, charge, sign)
        try:
            yield
        finally:
            move(name, charge, -sign)

    def _move(self, name: str, charge: Charge, sign: int) -> None:
        (self.add if sign > 0 else self.remove)(name, charge)

    @staticmethod
    def _bubble(vertex: Vertex, resource: str, amount: int) -> None:
        """
        Counts `amount` at `vertex`, and above it the part that its local room does not hide.

        Works in both directions because it carries the change of what the parent sees, max(0, usage - local), not the amount.
        """
        at: Vertex | None = vertex
        while at is not None and amount:
            before = at.usage.get(resource, 0)
            at.usage[resource] = before + amount
            local = at.local.get(resource, 0)
            amount = max(0, before + amount - local) - max(0, before - local)
            at = at.parent

    # --- the algebra --------------------------------------------------------------------------------------------------------
    def _available(self, vertex: Vertex, resource: str) -> int:
        subtree, usage = vertex.subtree.get(resource, 0), vertex.usage.get(resource, 0)
        if vertex.parent is None:
            return subtree - usage
        local = vertex.local.get(resource, 0)
        from_above = self._available(vertex.parent, resource)
        borrowing = vertex.quota(resource).borrowing_limit
        if borrowing is not None:
            from_above = min(from_above, borrowing + subtree - local - max(0, usage - local))
        return max(0, local - usage) + from_above

    def _potential(self, vertex: Vertex, resource: str) -> int:
        subtree = vertex.subtree.get(resource, 0)
        if vertex.parent is None:
            return subtree
        local = vertex.local.get(resource, 0)
        from_above = self._potential(vertex.parent, resource)
        borrowing = vertex.quota(resource).borrowing_limit
        if borrowing is not None:
            from_above = min(from_above, borrowing + subtree - local)
        return local + from_above

    # --- building -----------------------------------------------------------------------------------------------------------
    def _link(self) -> None:
        """Ties children to parents. A parent that does not exist, or that would close a circle, is as if none were named."""
        for vertex in self.vertices.values():
            parent = self.vertices.get(vertex.spec.parent or "")
            if parent is not None and not _is_above(vertex, parent):
                vertex.parent = parent
                parent.children.append(vertex)

    def _prepare(self, vertex: Vertex, named_above: tuple[str, ...], depth: int = 0) -> None:
        vertex.depth = depth
        vertex.named = tuple(sorted({*named_above, *vertex.spec.quotas}))
        for child in vertex.children:
            self._prepare(child, vertex.named, depth + 1)
        resources = {*vertex.spec.quotas, *(r for child in vertex.children for r in child.subtree)}
        for resource in sorted(resources):
            quota = vertex.quota(resource)
            lent = sum(child.subtree.get(resource, 0) - child.local.get(resource, 0) for child in vertex.children)
            vertex.subtree[resource] = subtree = quota.nominal + lent
            if quota.lending_limit is not None:
                vertex.local[resource] = max(0, subtree - quota.lending_limit)


def _is_above(vertex: Vertex, below: Vertex) -> bool:
    """True if `vertex` is `below` or above it, or `below` lies too deep for one more."""
    at: Vertex | None = below
    for _ in range(limits.QUEUE_DEPTH_MAX - 1):
        if at is None:
            return False
        if at is vertex:
            return True
        at = at.parent
    return True


def charge_of(gpus: int, model: str, cpu_milli: int, memory_bytes: int, parts: int = 0) -> Charge:
    """What so much room costs: GPUs, whole and in `parts` (thousandths), are charged both as `gpu` and as their model."""
    gpu = gpus * 1_000 + parts
    amounts = (("cpu", cpu_milli), ("gpu", gpu), (f"gpu/{model}", gpu), ("memory", memory_bytes))
    return tuple((resource, amount) for resource, amount in amounts if amount)


def charge_of_allocation(held: Allocation) -> Charge:
    """What an allocation is charged to its queue."""
    parts = sum(part.charge for part in held.parts) if held.parts else 0
    return charge_of(len(held.devices), held.gpu_model, held.cpu_milli, held.memory_bytes, parts)


def add_charges(*charges: Iterable[tuple[str, int]]) -> Charge:
    """Several charges as one."""
    total: dict[str, int] = {}
    for charge in charges:
        for resource, amount in charge:
            total[resource] = total.get(resource, 0) + amount
    return tuple(sorted((resource, amount) for resource, amount in total.items() if amount))

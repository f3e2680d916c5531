"""
Nodes as rows of NumPy columns, ascending by node id: free devices as bit masks, free CPU and memory, build, pool, topology domains.

Owned by the board, which feeds it records; read by `rooms` and `place`; `take` and `give` are for the ledger alone. Rows are in the
order of ids, so "first row" is a rule for equal scores that does not depend on who joined when.
Two numbers tell readers what moved: `growth` rises whenever some node may take more than before (a failed shape is worth another
try), and `touched` lists rows whose free columns moved, in order (tables built on them bring those rows up to date).
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.base import limits
from shoal.model.node import Node, NodeState
from shoal.model.part import DevicePart
from shoal.scheduling.devices import DevicePlace, Layout, layout_of
from shoal.scheduling.levels import Level, levels_of
from shoal.scheduling.shares import PartTable, Pieces, part_of, piece_of

if TYPE_CHECKING:
    from shoal.scheduling.packed import Packed

Ints = NDArray[np.int64]
Masks = NDArray[np.uint64]
Flags = NDArray[np.bool_]


class Holding(NamedTuple):
    """What one allocation or claim keeps on a node."""

    devices: tuple[str, ...]
    cpu_milli: int
    memory_bytes: int
    parts: tuple[DevicePart, ...] = ()
    tenant: str = ""


class Columns:
    """See module."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.layouts: list[Layout] = []
        self.row: dict[str, int] = {}
        self.kinds: list[tuple[str, Layout]] = []
        """Distinct (pool, layout); `kind` holds indexes into it. Grows only."""
        self.kind = np.zeros(0, np.int32)
        self.open = np.zeros(0, np.bool_)
        self.free_mask: Masks = np.zeros(0, np.uint64)
        self.shared_mask: Masks = np.zeros(0, np.uint64)
        """Devices of which parts are held and, room given, more may be: never in `free_mask`."""
        self.parts = PartTable()
        self.free_gpus: Ints = np.zeros(0, np.int64)
        self.cpu_free: Ints = np.zeros(0, np.int64)
        self.memory_free: Ints = np.zeros(0, np.int64)
        self.healthy: Masks = np.zeros(0, np.uint64)
        """Devices that are not broken, held or not."""
        self.cpu_total: Ints = np.zeros(0, np.int64)
        self.memory_total: Ints = np.zeros(0, np.int64)
        self.stamp: Ints = np.zeros(0, np.int64)
        """Per row, a new number whenever something of it changes, here or on a copy: equal ones mean equal rows."""
        self._stamps = count(1)
        self.packing: Packed | None = None  # How nodes are scored; None: best fit.
        self.growth = 0
        self.epoch = 0
        """Rises when rows have moved or `touched` was cut: derived tables are void."""
        self.touched: list[int] = []
        self.last_gift = 0
        """Length of `touched` when room last came back anywhere: a table as new as that holds upper bounds."""
        self.capacity: dict[str, int] = {}
        """Per resource, what READY nodes have: what shares are shares of."""
        self._held: dict[tuple[str, str], Holding] = {}
        """By node and holder."""
        self._holdings: dict[str, dict[str, Holding]] = {}
        """By node, those that keep devices or parts of them."""
        self._used: dict[str, tuple[int, int]] = {}
        """CPU and memory that are kept, by node."""
        self._dirty: dict[str, frozenset[str]] = {}
        self._bits: list[dict[str, int]] = []
        self._kind_codes: dict[tuple[str, Layout], int] = {}
        self._layouts_known: dict[tuple[DevicePlace, ...], Layout] = {}
        self._levels: tuple[Level, ...] | None = None
        self._models: dict[str, tuple[str, ...]] = {}
        """By pool; the whole fleet's under the empty name."""
        self._scopes: tuple[Level, ...] | None = None

    def __len__(self) -> int:
        return len(self.nodes)

    # --- facts that rarely change ------------------------------------------------------------------------------------------
    @property
    def levels(self) -> tuple[Level, ...]:
        """From the widest level to the narrowest, as the nodes' own paths order them."""
        if self._levels is None:
            self._levels = levels_of(self.nodes)
        return self._levels

    @property
    def scopes(self) -> tuple[Level, ...]:
        """Where a gang may be together, widest first: its pool (which it never leaves), then `levels`."""
        if self._scopes is None:
            names = sorted({pool for pool, _ in self.kinds})
            by_kind = np.array([names.index(pool) for pool, _ in self.kinds], np.int32)
            pools = Level("pool", by_kind[self.kind], tuple(f"pool={name}" for name in names))
            self._scopes = (pools, *self.levels)
        return self._scopes

    @property
    def models(self) -> tuple[str, ...]:
        """Every GPU model of the fleet, ascending."""
        return self.models_in("")

    def models_in(self, pool: str) -> tuple[str, ...]:
        """Every GPU model of a pool, ascending; of the whole fleet for the empty name."""
        models = self._models.get(pool)
        if models is None:
            kinds = [self.kinds[code] for code in np.unique(self.kind).tolist()]
            models = tuple(sorted({m for name, layout in kinds if pool in ("", name) for m in layout.by_model}))
            self._models[pool] = models
        return models

    @property
    def pools(self) -> tuple[str, ...]:
        """Every pool that a node is in, ascending."""
        return tuple(sorted({self.kinds[code][0] for code in np.unique(self.kind).tolist()}))

    def in_pool(self, pool: str) -> Flags:
        """Per row: is the node in this pool? All are in the empty name."""
        of_kind: Flags = np.array([pool in ("", name) for name, _ in self.kinds], np.bool_)
        return of_kind[self.kind]

    def capacity_in(self, pool: str, resource: str) -> int:
        """What READY nodes of a pool have of a resource; of the whole fleet for the empty name."""
        if not pool:
            return self.capacity.get(resource, 0)
        rows = np.flatnonzero(self.open & self.in_pool(pool)).tolist()
        return sum(_amounts(self.nodes[row], self.layouts[row], int(self.healthy[row])).get(resource, 0) for row in rows)

    def uuids(self, row: int, mask: int) -> tuple[str, ...]:
        """The devices of a mask, island by island and in the node's order."""
        devices = self.nodes[row].facts.devices
        return tuple([devices[at].uuid for at in self.layouts[row].in_order(mask)])

    def parts_of(self, row: int, pieces: Pieces) -> tuple[DevicePart, ...]:
        """Pieces as records name them."""
        devices, places = self.nodes[row].facts.devices, self.layouts[row].devices
        return tuple(part_of(piece, devices[piece.at].uuid, places[piece.at]) for piece in pieces)

    def mask_of(self, row: int, uuids: tuple[str, ...]) -> int:
        """The mask of devices of a node; those that it does not have any more are left out."""
        bits = self._bits[row]
        mask = 0
        for uuid in uuids:
            mask |= bits.get(uuid, 0)
        return mask

    def free_without(self, row: int, holder: str) -> int:
        """The devices of a node that would be free if one holder were not there."""
        node_id = self.nodes[row].id
        free = int(self.healthy[row])
        for name, holding in self._holdings.get(node_id, _NOTHING).items():
            if name != holder:
                free &= ~self.mask_of(row, holding.devices)
                free &= ~self.mask_of(row, tuple(part.device for part in holding.parts))
        return free & ~self.mask_of(row, tuple(self._dirty.get(node_id, ())))

    def with_freed(self, rows: Ints, masks: Masks, cpu_milli: Ints, memory_bytes: Ints) -> Columns:
        """The same fleet with so much more free on these rows, to be tried out; what is taken there is not taken here."""
        later = copy.copy(self)
        later.free_mask, later.free_gpus = self.free_mask.copy(), self.free_gpus.copy()
        later.cpu_free, later.memory_free = self.cpu_free.copy(), self.memory_free.copy()
        later.free_mask[rows] |= masks & self.healthy[rows]
        later.free_gpus[rows] = np.bitwise_count(later.free_mask[rows])
        later.cpu_free[rows] += cpu_milli
        later.memory_free[rows] += memory_bytes
        later.shared_mask, later.parts = self.shared_mask & ~later.free_mask, self.parts.copy()
        later.touched, later.last_gift, later.stamp = [], 0, self.stamp.copy()
        later.stamp[rows] = next(self._stamps)
        return later

    def emptied(self) -> Columns:
        """The same fleet with nothing on it and every node taking work that has not been given up: what could ever fit."""
        empty = copy.copy(self)
        empty.free_mask = self.healthy.copy()
        empty.shared_mask, empty.parts = np.zeros_like(empty.free_mask), PartTable()
        empty.free_gpus = np.bitwise_count(self.healthy).astype(np.int64)
        empty.cpu_free, empty.memory_free = self.cpu_total.copy(), self.memory_total.copy()
        empty.open = np.array([node.state is not NodeState.LOST for node in self.nodes], np.bool_)
        empty.touched, empty.last_gift, empty.stamp = [], 0, np.full(len(self), next(self._stamps))
        return empty

    # --- moving forward ----------------------------------------------------------------------------------------------------
    def load(self, nodes: tuple[Node, ...]) -> None:
        """Takes in many nodes at once, into empty columns."""
        assert not self.nodes
        ordered = sorted(nodes, key=lambda node: node.id)
        self.nodes = ordered
        self.layouts = [layout_of(node.facts, self._layouts_known) for node in ordered]
        self._bits = [_bits_of(node) for node in ordered]
        self.row = {node.id: at for at, node in enumerate(ordered)}
        size = len(ordered)
        self.kind = np.array([self._code(n, x) for n, x in zip(ordered, self.layouts, strict=True)], np.int32)
        self.open = np.zeros(size, np.bool_)
        self.free_mask, self.shared_mask, self.healthy = (np.zeros(size, np.uint64) for _ in range(3))
        self.free_gpus, self.cpu_free, self.memory_free = (np.zeros(size, np.int64) for _ in range(3))
        self.cpu_total, self.memory_total, self.stamp = (np.zeros(size, np.int64) for _ in range(3))
        for row in range(size):
            self._judge(row)

    def put_node(self, node: Node) -> None:
        """A node is new, or changed."""
        row = self.row.get(node.id)
        if row is None:
            row = self._insert(node)
        else:
            before = self.nodes[row]
            self._count(row, -1)
            self.nodes[row] = node
            if before.facts.devices != node.facts.devices or before.pool != node.pool:
                self._rebuild(row, node)
            if before.topology != node.topology or _size_of(before) != _size_of(node):
                self._levels = self._scopes = None
                self.epoch += 1
        self._judge(row)

    def drop_node(self, node_id: str) -> None:
        row = self.row.get(node_id)
        if row is None:
            return
        self._count(row, -1)
        for column in (self.nodes, self.layouts, self._bits):
            del column[row]
        for name in _COLUMNS:
            setattr(self, name, np.delete(getattr(self, name), row))
        self.parts.put(node_id, {})
        self._moved_rows()

    def hold(self, node_id: str, holder: str, holding: Holding | None) -> None:
        """`holder` (an allocation's or a claim's id) now keeps this on the node; None: nothing any more. Then `refresh` the row."""
        before = self._held.pop((node_id, holder), _NOTHING_HELD)
        mine = self._holdings.setdefault(node_id, {})
        mine.pop(holder, None)
        if holding is not None:
            self._held[node_id, holder] = holding
            if holding.devices or holding.parts:
                mine[holder] = holding
        if not mine:
            del self._holdings[node_id]
        cpu, memory = self._used.get(node_id, (0, 0))
        after = holding or _NOTHING_HELD
        self._used[node_id] = (cpu + after.cpu_milli - before.cpu_milli, memory + after.memory_bytes - before.memory_bytes)

    def set_dirty(self, node_id: str, uuids: frozenset[str]) -> None:
        """These devices of the node still have processes of somebody gone."""
        if self._dirty.get(node_id, frozenset()) == uuids:
            return
        if uuids:
            self._dirty[node_id] = uuids
        else:
            self._dirty.pop(node_id, None)
        row = self.row.get(node_id)
        if row is not None:
            self.refresh(row)

    def refresh(self, row: int) -> None:
        """Works out what is free on a row from what is held there. Cost: the holders of devices of that node."""
        node, bits = self.nodes[row], self._bits[row]
        cpu, memory = self._used.get(node.id, (0, 0))
        free, cpu, memory = int(self.healthy[row]), node.facts.cpus * 1_000 - cpu, node.facts.memory_bytes - memory
        pieces: dict[int, Pieces] = {}
        for holding in self._holdings.get(node.id, _NOTHING).values():
            for uuid in holding.devices:
                free &= ~bits.get(uuid, 0)
            for part in holding.parts:
                at = bits.get(part.device, 0).bit_length() - 1
                if at >= 0:
                    pieces[at] = (*pieces.get(at, ()), piece_of(part, at, holding.tenant))
        for uuid in self._dirty.get(node.id, ()):
            free &= ~bits.get(uuid, 0)
        if pieces or node.id in self.parts.by_node:
            self._write_parts(row, free, {at: tuple(sorted(held)) for at, held in sorted(pieces.items())})
        self._write(row, free & ~_mask_of(pieces), cpu, memory)

    def _write_parts(self, row: int, usable: int, pieces: dict[int, Pieces]) -> None:
        before = self.parts.on(self.nodes[row].id)
        if any(pieces.get(at) != held for at, held in before.items()) or usable & ~int(self.free_mask[row] | self.shared_mask[row]):
            self._gave()
        self.parts.put(self.nodes[row].id, pieces)
        self.shared_mask[row] = usable & _mask_of(pieces)

    def _judge(self, row: int) -> None:
        """Works out which devices are healthy and whether the node takes work; then what is free."""
        node = self.nodes[row]
        healthy = self.layouts[row].mask
        for at, device in enumerate(node.facts.devices[: limits.GPUS_PER_NODE_MAX]):
            if device.broken is not None:
                healthy &= ~(1 << at)
        self.healthy[row] = healthy
        self.cpu_total[row] = node.facts.cpus * 1_000
        self.memory_total[row] = node.facts.memory_bytes
        self.open[row] = node.state is NodeState.READY
        self.growth += 1
        self._count(row, 1)
        self.refresh(row)

    def _write(self, row: int, free: int, cpu: int, memory: int) -> None:
        if free & ~int(self.free_mask[row]) or cpu > self.cpu_free[row] or memory > self.memory_free[row]:
            self._gave()
        self.free_mask[row] = free
        self.free_gpus[row] = free.bit_count()
        self.cpu_free[row] = cpu
        self.memory_free[row] = memory
        self.touch(row)

    def _gave(self) -> None:
        """The row that is touched next may take more than before."""
        self.growth += 1
        self.last_gift = len(self.touched) + 1

    def forget_touched(self) -> None:
        """Every reader has taken in all of `touched`."""
        self.touched.clear()
        self.last_gift = 0

    def touch(self, row: int) -> None:
        self.touched.append(row)
        self.stamp[row] = next(self._stamps)
        if len(self.touched) > limits.ROWS_TOUCHED_MAX:
            self._start_afresh()

    # --- for the ledger ----------------------------------------------------------------------------------------------------
    def take(self, row: int, mask: int, cpu_milli: int, memory_bytes: int, pieces: Pieces = ()) -> None:
        """Room on a node is used; the exact inverse of `give`."""
        if pieces:
            self._hold(row, pieces)
        if mask:
            free = int(self.free_mask[row]) & ~mask
            self.free_mask[row] = free
            self.free_gpus[row] = free.bit_count()
            self.shared_mask[row] &= np.uint64(~mask & _ALL)
        self.cpu_free[row] -= cpu_milli
        self.memory_free[row] -= memory_bytes
        self.touch(row)

    def give(self, row: int, mask: int, cpu_milli: int, memory_bytes: int, pieces: Pieces = ()) -> None:
        """Room on a node comes back."""
        if mask:
            held = _mask_of(self.parts.on(self.nodes[row].id)) if self.parts.by_node else 0
            free = int(self.free_mask[row]) | (mask & ~held)
            self.free_mask[row] = free
            self.free_gpus[row] = free.bit_count()
            self.shared_mask[row] |= np.uint64(mask & held)
        if pieces:
            self._let_go(row, pieces)
        self.cpu_free[row] += cpu_milli
        self.memory_free[row] += memory_bytes
        self.last_gift = len(self.touched) + 1
        self.touch(row)

    def _hold(self, row: int, pieces: Pieces) -> None:
        """A device of which a part is held is not free as a whole; whether it takes more was said by `free_mask` before."""
        node_id, free, shared = self.nodes[row].id, int(self.free_mask[row]), int(self.shared_mask[row])
        for piece in pieces:
            self.parts.add(node_id, piece)
            moved = free & 1 << piece.at
            free, shared = free ^ moved, shared | moved
        self._set_masks(row, free, shared)

    def _let_go(self, row: int, pieces: Pieces) -> None:
        node_id, free, shared = self.nodes[row].id, int(self.free_mask[row]), int(self.shared_mask[row])
        for piece in reversed(pieces):
            if self.parts.drop(node_id, piece):
                moved = shared & 1 << piece.at
                free, shared = free | moved, shared ^ moved
        self._set_masks(row, free, shared)

    def _set_masks(self, row: int, free: int, shared: int) -> None:
        self.free_mask[row], self.shared_mask[row] = free, shared
        self.free_gpus[row] = free.bit_count()

    def parts_at(self, row: int) -> dict[int, Pieces]:
        """Held parts by device of a node; not to be written to."""
        return self.parts.on(self.nodes[row].id)

    def parts_recorded(self, row: int) -> tuple[dict[int, int], int]:
        """(parts by device, devices that are healthy, clean and held by nobody as a whole), from records: no trial is seen."""
        bits, node_id, counts = self._bits[row], self.nodes[row].id, dict[int, int]()
        usable = int(self.healthy[row]) & ~self.mask_of(row, tuple(self._dirty.get(node_id, ())))
        for holding in self._holdings.get(node_id, _NOTHING).values():
            usable &= ~self.mask_of(row, holding.devices)
            for part in holding.parts:
                if part.device in bits:
                    at = bits[part.device].bit_length() - 1
                    counts[at] = counts.get(at, 0) + 1
        return counts, usable

    def pieces_of(self, row: int, parts: tuple[DevicePart, ...], tenant: str) -> Pieces:
        """Parts of records as pieces; those of devices that the node does not have any more are left out."""
        bits = self._bits[row] if parts else {}
        return tuple([piece_of(part, bits[part.device].bit_length() - 1, tenant) for part in parts if part.device in bits])

    # --- rows ---------------------------------------------------------------------------------------------------------------
    def _insert(self, node: Node) -> int:
        row = bisect_left(self.nodes, node.id, key=lambda known: known.id)
        layout = layout_of(node.facts, self._layouts_known)
        self.nodes.insert(row, node)
        self.layouts.insert(row, layout)
        self._bits.insert(row, _bits_of(node))
        for name in _COLUMNS:
            setattr(self, name, np.insert(getattr(self, name), row, 0))
        self.kind[row] = self._code(node, layout)
        self._moved_rows()
        return row

    def _rebuild(self, row: int, node: Node) -> None:
        layout = layout_of(node.facts, self._layouts_known)
        self.layouts[row] = layout
        self._bits[row] = _bits_of(node)
        self.kind[row] = self._code(node, layout)
        self._models = {}
        self._scopes = None
        self.epoch += 1

    def _moved_rows(self) -> None:
        self.row = {node.id: at for at, node in enumerate(self.nodes)}
        self._levels = self._scopes = None
        self._models = {}
        self._start_afresh()
        self.growth += 1

    def _start_afresh(self) -> None:
        self.touched.clear()
        self.last_gift = 0
        self.epoch += 1

    def _code(self, node: Node, layout: Layout) -> int:
        key = (node.pool, layout)
        code = self._kind_codes.get(key)
        if code is None:
            code = self._kind_codes[key] = len(self.kinds)
            self.kinds.append(key)
        return code

    def _count(self, row: int, sign: int) -> None:
        """Adds to the capacity what an open row has, or takes it away again: before a row's facts change, and after."""
        if not self.open[row]:
            return
        for resource, amount in _amounts(self.nodes[row], self.layouts[row], int(self.healthy[row])).items():
            self.capacity[resource] = self.capacity.get(resource, 0) + sign * amount


_COLUMNS = (
    "kind",
    "open",
    "free_mask",
    "shared_mask",
    "free_gpus",
    "cpu_free",
    "memory_free",
    "healthy",
    "cpu_total",
    "memory_total",
    "stamp",
)
_NOTHING: dict[str, Holding] = {}
_NOTHING_HELD = Holding((), 0, 0)
_ALL = (1 << limits.GPUS_PER_NODE_MAX) - 1


def _size_of(node: Node) -> tuple[int, int]:
    return node.facts.cpus, node.facts.memory_bytes


def _mask_of(pieces: dict[int, Pieces]) -> int:
    mask = 0
    for at in pieces:
        mask |= 1 << at
    return mask


def _amounts(node: Node, layout: Layout, healthy: int) -> dict[str, int]:
    """What a node has, by resource in the units of quotas."""
    amounts = {"cpu": node.facts.cpus * 1_000, "memory": node.facts.memory_bytes}
    for model, mask in layout.by_model.items():
        count = (mask & healthy).bit_count() * 1_000
        amounts["gpu"] = amounts.get("gpu", 0) + count
        amounts[f"gpu/{model}"] = count
    return amounts


def _bits_of(node: Node) -> dict[str, int]:
    return {device.uuid: 1 << at for at, device in enumerate(node.facts.devices[: limits.GPUS_PER_NODE_MAX])}

"""
The packing policies at work in the cycle: `packing` scorers over the board's columns, with scores remembered by need and node.

A score is worked out again where a row's `stamp` is another one. Stamps are never given twice, also not to copies of the columns (ground to
try things on), so that one memory serves them all. Hung onto the columns by the cycle (`packed_for`); asked by `score` and `place`. Best
fit needs none of this: it is two gathers (`score`).

What a scorer sees: per device the thousandths that nobody holds, 0 where it is broken or held whole; and of a part that is asked for, where
it can be had (`shares` knows of tenants and instances). One part goes to the GPU that the scorer names, several one after another.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import numpy as np

from shoal.base import limits
from shoal.scheduling.columns import Columns
from shoal.scheduling.packing.fragmentation import Fragmentation
from shoal.scheduling.packing.mix import Mix, scarcity
from shoal.scheduling.packing.nodes import ANY_MODEL, WHOLE, Floats, Ints, Nodes, TaskShape
from shoal.scheduling.packing.packer import Scorer
from shoal.scheduling.packing.simple import Spread
from shoal.scheduling.packing.table import MixRow, default_file, table_of
from shoal.scheduling.packing.value import Value
from shoal.scheduling.policy import Policy
from shoal.scheduling.rooms import Need, accepted_devices
from shoal.scheduling.shares import Pieces, charge_of_held, charge_of_piece, piece_on, room_on

MIB = 1 << 20


class _Remembered(NamedTuple):
    score: Floats
    gpu: Ints
    stamp: Ints


def use_packing(columns: Columns, policy: Policy) -> None:
    """The columns are scored as the policy says from now on; what is remembered stays where that is no change."""
    if policy.packing == "best-fit":
        columns.packing = None
    elif columns.packing is None or not columns.packing.is_for(policy):
        columns.packing = Packed(policy)


class Packed:
    """See module."""

    def __init__(self, policy: Policy) -> None:
        self._packing, self._file = policy.packing, policy.packing_table
        self._needs: OrderedDict[Need, _Remembered] = OrderedDict()
        self._fleet: tuple[int, int] | None = None
        self._scorer: Scorer = Spread()
        self._gpus: Ints = np.zeros(0, np.int64)
        self._model: Ints = np.zeros(0, np.int64)
        self._scarcity: Floats = np.zeros(0)

    def is_for(self, policy: Policy) -> bool:
        """True if it scores as the policy says."""
        return (self._packing, self._file) == (policy.packing, policy.packing_table)

    def scores(self, columns: Columns, rows: Ints, need: Need) -> Floats:
        """Per row of `rows`, on all of which a member fits: how good the place is, the highest best."""
        score: Floats = self._up_to_date(columns, rows, need).score[rows]
        return score

    def choose_pieces(self, columns: Columns, row: int, need: Need) -> Pieces:
        """The parts that a member gets on a node with room for it, each where the scorer wants it once those before it are taken."""
        asked = need.member.piece
        assert asked is not None
        self._know_fleet(columns)
        layout, held = columns.layouts[row], dict(columns.parts_at(row))
        shape = shape_of(columns, row, need)
        found: list[Pieces] = []
        for _ in range(need.member.pieces):
            nodes = self._nodes(columns, np.array([row]), need, {row: held})
            _, gpus = self._scorer.score(nodes, shape)
            at = int(gpus[0]) if gpus[0] >= 0 else int(nodes.room[0].argmax())
            piece = piece_on(layout.devices[at], at, held.get(at, ()), asked)
            held[at] = tuple(sorted((*held.get(at, ()), piece)))
            found.append((piece,))
        return tuple(piece for pieces in found for piece in pieces)

    # --- memory -------------------------------------------------------------------------------------------------------------
    def _up_to_date(self, columns: Columns, rows: Ints, need: Need) -> _Remembered:
        self._know_fleet(columns)
        mine = self._needs.get(need)
        if mine is None:
            if len(self._needs) >= limits.SHAPES_SCORED_MAX:
                self._needs.popitem(last=False)
            count = len(columns)
            mine = self._needs[need] = _Remembered(np.zeros(count), np.full(count, -1), np.full(count, -1))
        self._needs.move_to_end(need)
        stale = rows[mine.stamp[rows] != columns.stamp[rows]]
        if len(stale):
            nodes = self._nodes(columns, stale, need, None)
            mine.score[stale], mine.gpu[stale] = self._scorer.score(nodes, shape_of(columns, int(stale[0]), need))
            mine.stamp[stale] = columns.stamp[stale]
        return mine

    # --- what the scorer sees -----------------------------------------------------------------------------------------------
    def _know_fleet(self, columns: Columns) -> None:
        """Nodes joined, left or were rebuilt: rows are others, and so is what is scarce."""
        fleet = (columns.epoch, len(columns))
        if fleet == self._fleet:
            return
        self._fleet = fleet
        self._needs.clear()
        empty = empty_nodes(columns)
        self._gpus, self._model = empty.gpus, empty.model
        self._scarcity = np.zeros(len(columns))
        if self._packing == "spread":
            return
        file = self._file or default_file()
        mix = mix_of(file.mix, codes_of(columns))
        self._scorer = Value(table_of(file), mix) if self._packing == "value" else Fragmentation(mix)
        self._scarcity = scarcity(mix, empty)

    def _nodes(self, columns: Columns, rows: Ints, need: Need, held: dict[int, dict[int, Pieces]] | None) -> Nodes:
        """What is free on the rows; of parts `held` says, where given."""
        width = int(self._gpus.max(initial=0))
        free = columns.free_mask[rows][:, None] >> np.arange(width, dtype=np.uint64) & np.uint64(1)
        gpu_milli: Ints = free.astype(np.int64) * WHOLE
        takeable = np.zeros_like(gpu_milli) if need.member.pieces else None
        if takeable is not None or columns.parts.by_node:
            for at, row in enumerate(rows.tolist()):
                pieces = columns.parts_at(row) if held is None else held[row]
                if pieces or takeable is not None:
                    self._share(columns, row, need, pieces, gpu_milli[at], None if takeable is None else takeable[at])
        cpu, memory = columns.cpu_free[rows], columns.memory_free[rows] // MIB
        return Nodes(cpu, memory, gpu_milli, self._gpus[rows], self._model[rows], self._scarcity[rows], takeable)

    def _share(self, columns: Columns, row: int, need: Need, held: dict[int, Pieces], milli: Ints, takeable: Ints | None) -> None:
        """Fills in what is free of each device of a row, and where the part that is asked for can be had."""
        layout = columns.layouts[row]
        open_mask = int(columns.free_mask[row] | columns.shared_mask[row])
        for at, pieces in held.items():
            milli[at] = max(0, WHOLE - charge_of_held(layout.devices[at], pieces)) if open_mask >> at & 1 else 0
        asked = need.member.piece
        if takeable is None or asked is None:
            return
        usable = open_mask & accepted_devices(layout, need)
        for at, device in enumerate(layout.devices):
            if usable >> at & 1 and room_on(device, held.get(at, ()), asked, 1)[0]:
                charge = charge_of_piece(asked, device.model, device.memory_bytes)
                takeable[at] = milli[at] = min(WHOLE, max(int(milli[at]), charge))


def shape_of(columns: Columns, row: int, need: Need) -> TaskShape:
    """What a member asks, as scorers see it; a part by what it is charged on the devices of its need."""
    member = need.member
    if member.piece is None:
        return TaskShape(member.cpu_milli, member.memory_bytes // MIB, member.gpus, WHOLE if member.gpus else 0)
    layout = columns.layouts[row]
    accepted = accepted_devices(layout, need)
    device = layout.devices[(accepted & -accepted).bit_length() - 1]
    charge = charge_of_piece(member.piece, device.model, device.memory_bytes)
    return TaskShape(member.cpu_milli, member.memory_bytes // MIB, 1, min(WHOLE, max(1, charge)))


def codes_of(columns: Columns) -> dict[str, int]:
    """A code for each GPU model of a fleet, by name; those beyond MODELS_TOLD_APART_MAX have none and count as the first."""
    return {model: code for code, model in enumerate(columns.models[: limits.MODELS_TOLD_APART_MAX])}


def empty_nodes(columns: Columns) -> Nodes:
    """A fleet as it would be with nothing on it, scarcity not filled in. GPUs that are broken count: they come back."""
    layouts = [layout for _, layout in columns.kinds]
    codes = codes_of(columns)
    gpus = np.array([len(layout.devices) for layout in layouts], np.int64)[columns.kind]
    model = np.array([codes.get(layout.devices[0].model, 0) if layout.devices else 0 for layout in layouts], np.int64)[columns.kind]
    whole = np.where(np.arange(int(gpus.max(initial=0))) < gpus[:, None], WHOLE, 0)
    return Nodes(columns.cpu_total, columns.memory_total // MIB, whole, gpus, model, np.zeros(len(columns)))


def mix_of(rows: tuple[MixRow, ...], codes: dict[str, int]) -> Mix:
    """The mix that a table was trained on, in a fleet's own model codes. Models that the fleet does not have are left out."""
    shapes: dict[TaskShape, int] = {}
    for row in rows:
        models = ANY_MODEL
        if row.models:
            models = sum(1 << codes[model] for model in row.models if model in codes)
        shape = TaskShape(row.cpu_milli, row.memory_mib, row.gpus, row.gpu_milli, models)
        shapes[shape] = shapes.get(shape, 0) + row.count
    ordered = tuple(sorted(shapes))
    return Mix(ordered, tuple(shapes[shape] for shape in ordered))

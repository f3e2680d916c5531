"""
Which nodes could take one member of a *need* right now, for every need that somebody asks for: a table kept up to date, not rebuilt.

A need is a member's ask narrowed to one GPU model (a gang's nodes all get the same) with its avoid list. The table has one row of
flags per need and one column per node. When a few nodes move, their columns are worked out again for all needs at once; so a cycle's
cost follows what changed, and "this shape fits nowhere" is one comparison. While nodes only fill up an old count is an upper bound,
so it is not even worked out again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.base import limits
from shoal.scheduling.asks import MemberAsk, PieceAsk
from shoal.scheduling.columns import Columns, Ints
from shoal.scheduling.devices import Layout
from shoal.scheduling.shares import EMPTY_GPU, may_hold, room_for

Flags = NDArray[np.bool_]
Rows = NDArray[np.int64]
_UNBOUNDED: Final = 1 << 62


class Need(NamedTuple):
    """
    What one member wants of a node. `model` None: no GPUs; `together`: its GPUs come in groups of so many, each inside one NVLink
    island (0: anywhere). Who asks for parts of GPUs has a need for each size of GPU, since the part that a share is, and its charge,
    depend on it.
    """

    member: MemberAsk
    model: str | None
    avoid: tuple[str, ...] = ()
    together: int = 0


def accepted_devices(layout: Layout, need: Need) -> int:
    """The devices of a build that will do for a need with GPUs, free or not."""
    member = need.member
    mask = layout.accepted(need.model or "", member.least_bytes, member.most_bytes)
    if member.piece is None:
        return mask & layout.whole
    return mask & sum(1 << at for at, device in enumerate(layout.devices) if may_hold(device, member.piece))


class RoomTable:
    """See module."""

    def __init__(self, columns: Columns, like: RoomTable | None = None, but: Rows | None = None) -> None:
        """`like` is a table of the same fleet from which these columns differ only on the rows `but`: where it knows a need, so do we."""
        self._columns = columns
        self._like, self._but = like, but
        self._closed: Flags | None = None
        self._slots: OrderedDict[Need, int] = OrderedDict()
        self._free_slots: list[int] = []
        self._epoch = -1
        self._seen = 0
        self._behind: list[int] = []
        """Per slot, how much of `touched` it has taken in."""
        self._fits: Flags = np.zeros((0, 0), np.bool_)
        self._counts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._gpus: NDArray[np.int64] = np.zeros(0, np.int64)
        self._cpu: NDArray[np.int64] = np.zeros(0, np.int64)
        self._memory: NDArray[np.int64] = np.zeros(0, np.int64)
        self._accepted: NDArray[np.uint64] = np.zeros((0, 0), np.uint64)
        """[need, kind of node]: the devices that will do."""
        self._first: list[int] = []
        """Per slot, its count when the cycle began; without a bound for needs that came later."""
        self._first_growth = -1
        self._special: dict[int, Need] = {}
        """Slots of needs with an avoid list, `together`, or a pool without GPUs: corrected one by one."""
        self._parted: dict[int, Need] = {}
        """Slots of needs for parts of GPUs."""

    # --- what others ask ----------------------------------------------------------------------------------------------------
    def bring_up(self) -> None:
        """Takes in all nodes that moved, for all needs at once. Once per cycle."""
        columns = self._columns
        self._first_growth = columns.growth
        if self._epoch != columns.epoch or self._accepted.shape[1] < len(columns.kinds):
            self._reset()
            return
        rows = columns.touched[self._seen :]
        self._seen = len(columns.touched)
        if rows and self._slots:
            self._update_all(np.unique(np.array(rows, np.int64)))
        columns.forget_touched()  # Nobody else reads them, and every need has taken them in.
        self._seen = 0
        self._behind = [0] * len(self._behind)
        self._first = self._counts.tolist()

    def at_start(self, need: Need) -> int:
        """
        No more nodes than this could take a member when the cycle began: a bound for all of it, since a cycle gives no room back but to
        who has a claim to it. Costs a look-up; what is not known is not bounded.
        """
        slot = self._slots.get(need)
        if slot is None or self._first_growth != self._columns.growth or slot >= len(self._first):
            return _UNBOUNDED
        return self._first[slot]

    def at_most(self, need: Need) -> int:
        """No more nodes than this, closed ones counted, can take a member now. Costs a look-up for a known need unless room came back."""
        slot = self._slot(need)
        if self._behind[slot] < self._columns.last_gift:
            self.fitting_all(need)
        return int(self._counts[slot])

    @contextmanager
    def closing(self, closed: Flags | None) -> Iterator[None]:
        """While inside, these rows take nobody: they are somebody else's before the job that is looked at would end."""
        before, self._closed = self._closed, closed
        try:
            yield
        finally:
            self._closed = before

    @property
    def closed(self) -> Flags | None:
        """The rows that take nobody while inside `closing`; None: there are none."""
        return self._closed

    def fitting(self, need: Need) -> Flags:
        """Per row: may it take a member now? Not to be kept or written to."""
        fits = self.fitting_all(need)
        return fits if self._closed is None else fits & ~self._closed

    def fitting_all(self, need: Need) -> Flags:
        """As `fitting`, whatever is closed."""
        slot = self._slot(need)
        columns = self._columns
        behind = self._behind[slot]
        if behind < len(columns.touched):
            rows = np.array(sorted(set(columns.touched[behind:])), np.int64)
            before = np.count_nonzero(self._fits[slot, rows])
            now = self._work_out(np.array([slot]), rows)[0]
            self._fits[slot, rows] = now
            self._counts[slot] += np.count_nonzero(now) - before
            self._behind[slot] = len(columns.touched)
        fits: Flags = self._fits[slot]
        return fits

    def tight(self, need: Need) -> Ints:
        """Per row where a part of a GPU fits: how tightly it would sit. As new as the last `fitting`."""
        return self._columns.parts.tight[need]

    def free_gpus(self, need: Need) -> NDArray[np.int64]:
        """Per row: free GPUs that the need accepts, on nodes that take work."""
        columns = self._columns
        free = self.accepted(need) & columns.free_mask
        counts: NDArray[np.int64] = np.where(columns.open, np.bitwise_count(free), 0).astype(np.int64)
        return counts

    def accepted(self, need: Need) -> NDArray[np.uint64]:
        """Per row: the devices that will do, free or not."""
        slot = self._slot(need)
        accepted: NDArray[np.uint64] = self._accepted[slot][self._columns.kind]
        return accepted

    # --- keeping it ---------------------------------------------------------------------------------------------------------
    def _slot(self, need: Need) -> int:
        if self._epoch != self._columns.epoch or self._accepted.shape[1] < len(self._columns.kinds):
            self._reset()
        slot = self._slots.get(need)
        if slot is None:
            return self._add(need)
        self._slots.move_to_end(need)
        return slot

    def _reset(self) -> None:
        self._epoch = self._columns.epoch
        self._seen = len(self._columns.touched)
        self._slots.clear()
        self._special.clear()
        self._parted.clear()
        self._columns.parts.tight.clear()
        self._free_slots = list(range(len(self._counts) - 1, -1, -1))
        count = len(self._counts)
        self._fits = np.zeros((count, len(self._columns)), np.bool_)
        self._accepted = np.zeros((count, len(self._columns.kinds)), np.uint64)
        self._behind = [0] * count
        self._first = [_UNBOUNDED] * count

    def _add(self, need: Need) -> int:
        if len(self._slots) >= limits.NEEDS_TABLED_MAX:
            gone, oldest = self._slots.popitem(last=False)
            self._special.pop(oldest, None)
            self._parted.pop(oldest, None)
            self._columns.parts.tight.pop(gone, None)
            self._free_slots.append(oldest)
        if not self._free_slots:
            self._grow()
        slot = self._free_slots.pop()
        self._slots[need] = slot
        member = need.member
        self._gpus[slot], self._cpu[slot], self._memory[slot] = member.gpus, member.cpu_milli, member.memory_bytes
        for code, (pool, layout) in enumerate(self._columns.kinds):
            counts = need.model is not None and member.pool in ("", pool)
            self._accepted[slot, code] = accepted_devices(layout, need) if counts else 0
        if need.avoid or need.together or (member.pool and need.model is None):
            self._special[slot] = need
        if member.pieces:
            self._parted[slot] = need
        rows = self._but
        if self._like is None or rows is None:
            rows = np.arange(len(self._columns))
        else:
            self._fits[slot] = self._like.fitting_all(need)
            if member.pieces:
                self._columns.parts.tight[need] = self._like.tight(need).copy()
        self._fits[slot, rows] = self._work_out(np.array([slot]), rows)[0]
        self._counts[slot] = np.count_nonzero(self._fits[slot])
        self._behind[slot] = len(self._columns.touched)
        if slot < len(self._first):
            self._first[slot] = _UNBOUNDED
        return slot

    def _grow(self) -> None:
        old = len(self._counts)
        new = max(16, old * 2)
        more = np.zeros(new - old, np.int64)
        self._counts, self._gpus, self._cpu, self._memory = (
            np.concatenate((column, more)) for column in (self._counts, self._gpus, self._cpu, self._memory)
        )
        fits = np.zeros((new, len(self._columns)), np.bool_)
        fits[:old] = self._fits
        accepted = np.zeros((new, len(self._columns.kinds)), np.uint64)
        accepted[:old] = self._accepted
        self._fits, self._accepted = fits, accepted
        self._behind.extend([0] * (new - old))
        self._free_slots.extend(range(new - 1, old - 1, -1))

    def _update_all(self, rows: NDArray[np.int64]) -> None:
        slots = np.fromiter(self._slots.values(), np.int64, len(self._slots))
        now = self._work_out(slots, rows)
        grid = np.ix_(slots, rows)
        self._counts[slots] += now.sum(axis=1) - self._fits[grid].sum(axis=1)
        self._fits[grid] = now

    def _work_out(self, slots: NDArray[np.int64], rows: NDArray[np.int64]) -> Flags:
        """[slots, rows]: would a member fit, from the columns as they are."""
        columns = self._columns
        kinds = columns.kind[rows]
        gpus = self._gpus[slots][:, None]
        accepted = self._accepted[slots[:, None], kinds]
        free = accepted & columns.free_mask[rows]
        fits: Flags = np.bitwise_count(free) >= gpus
        fits &= columns.cpu_free[rows] >= self._cpu[slots][:, None]
        fits &= columns.memory_free[rows] >= self._memory[slots][:, None]
        fits &= columns.open[rows]
        if self._parted:
            self._fit_parts(slots.tolist(), rows, accepted, fits)
        if self._special:
            for at, slot in enumerate(slots.tolist()):
                if slot in self._special:
                    self._correct(self._special[slot], rows, free[at], fits[at])
        return fits

    def _fit_parts(self, slots: list[int], rows: NDArray[np.int64], accepted: NDArray[np.uint64], fits: Flags) -> None:
        """
        Parts are counted device by device, and how tightly the first would sit is noted: what `score` goes by.

        Needs that differ in CPUs and memory alone, and nodes of one kind that hold no parts, are counted once.
        """
        columns = self._columns
        mine = [at for at, slot in enumerate(slots) if slot in self._parted]
        if not mine:
            return
        usable = accepted[mine] & (columns.free_mask[rows] | columns.shared_mask[rows])
        possible = fits[mine] & (usable != 0)
        fits[mine] = False
        needs = [self._parted[slots[at]] for at in mine]
        tights = [self._tight_of(need) for need in needs]
        where, kinds = rows.tolist(), columns.kind[rows].tolist()
        held_on = [columns.parts_at(row) for row in where]
        known: dict[tuple[PieceAsk, int, int, int], tuple[int, int]] = {}
        at_need, at_row = np.nonzero(possible)
        for one, place, mask in zip(at_need.tolist(), at_row.tolist(), usable[at_need, at_row].tolist(), strict=True):
            member, held = needs[one].member, held_on[place]
            assert member.piece is not None
            key = (member.piece, member.pieces, mask, place if held else -1 - kinds[place])
            found = known.get(key)
            if found is None:
                found = known[key] = room_for(columns.layouts[where[place]].devices, held, mask, member.piece, member.pieces)
            tights[one][where[place]] = found[1]
            fits[mine[one], place] = found[0] >= member.pieces

    def _tight_of(self, need: Need) -> Ints:
        tight = self._columns.parts.tight.get(need)
        if tight is None:
            tight = self._columns.parts.tight[need] = np.full(len(self._columns), EMPTY_GPU, np.int64)
        return tight

    def parts_fitting(self, need: Need) -> Ints:
        """Per row: how many parts of the kind that the need asks for could be had now, counted up to a node's most."""
        columns, piece = self._columns, need.member.piece
        assert piece is not None
        usable = np.where(columns.open, self.accepted(need) & (columns.free_mask | columns.shared_mask), 0)
        counts: Ints = np.zeros(len(columns), np.int64)
        for row in np.flatnonzero(usable).tolist():
            most = limits.PARTS_PER_NODE_MAX
            counts[row] = room_for(columns.layouts[row].devices, columns.parts_at(row), int(usable[row]), piece, most)[0]
        return counts

    def _correct(self, need: Need, rows: NDArray[np.int64], free: NDArray[np.uint64], fits: Flags) -> None:
        columns = self._columns
        if need.member.pool:
            fits &= columns.in_pool(need.member.pool)[rows]
        if need.together:
            for at, row in enumerate(rows.tolist()):
                if fits[at]:
                    fits[at] = columns.layouts[row].groups_of(int(free[at]), need.together) * need.together >= need.member.gpus
        if need.avoid:
            avoided = [columns.row[node] for node in need.avoid if node in columns.row]
            fits &= ~np.isin(rows, avoided)

"""
Room for parts of GPUs in numbers and words, for `shortfall`: on each node what is free of the one GPU that comes nearest, never a sum of
crumbs that no share could have. Read-only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.planning.partition import share_held
from shoal.scheduling.asks import MemberAsk, PieceAsk, Shape
from shoal.scheduling.columns import Columns
from shoal.scheduling.rooms import Need, RoomTable
from shoal.scheduling.shares import may_hold, soft_free

MEMORY, THOUSANDTHS, INSTANCES = "gpu_memory", "gpu_share", "mig"
"""What a reason counts in: bytes of one GPU, thousandths of one GPU, instances (`mig/<profile>`)."""


class PartRoom(NamedTuple):
    """`asked` of one member, and per row what is free for it; `foreign` GPUs have room, beside shares of other projects."""

    resource: str
    asked: int
    free_by_row: NDArray[np.int64]
    foreign: int = 0


def part_room(columns: Columns, rooms: RoomTable, need: Need) -> PartRoom:
    """What a member that asks for parts of GPUs finds. Cost: the GPUs that could hold one."""
    piece = need.member.piece
    assert piece is not None
    if piece.profile:
        return PartRoom(f"{INSTANCES}/{piece.profile}", need.member.pieces, rooms.parts_fitting(need))
    return _soft_room(columns, rooms, need, piece)


def _soft_room(columns: Columns, rooms: RoomTable, need: Need, piece: PieceAsk) -> PartRoom:
    usable = np.where(columns.open, rooms.accepted(need) & (columns.free_mask | columns.shared_mask), 0)
    thousandths, free_bytes = np.zeros(len(columns), np.int64), np.zeros(len(columns), np.int64)
    held = share_held(piece.thousandths, piece.memory_bytes, need.member.most_bytes)
    foreign = 0
    for row in np.flatnonzero(usable).tolist():
        for at, device in enumerate(columns.layouts[row].devices):
            if not int(usable[row]) >> at & 1:
                continue
            pieces = columns.parts_at(row).get(at, ())
            free = soft_free(device, pieces)
            if any(other.tenant != piece.tenant for other in pieces):
                foreign += free[0] >= held[0] and free[1] >= held[1] and free[2] > 0
            elif free[2] > 0:
                thousandths[row], free_bytes[row] = max(thousandths[row], free[0]), max(free_bytes[row], free[1])
    if piece.thousandths and (thousandths.max(initial=0) < held[0] or not piece.memory_bytes):
        return PartRoom(THOUSANDTHS, held[0], thousandths, foreign)
    return PartRoom(MEMORY, held[1], free_bytes, foreign)


# --- words ------------------------------------------------------------------------------------------------------------------
def part_text(resource: str, amount: int) -> str | None:
    """An amount of a part of GPUs; None for anything else."""
    if resource == MEMORY:
        return f"{amount >> 20:,} MiB"
    if resource == THOUSANDTHS:
        return f"{amount:,} thousandths"
    kind, _, profile = resource.partition("/")
    return f"{amount} {profile}" if kind == INSTANCES else None


def ask_text(member: MemberAsk, model: str) -> str:
    """`2 1g.10gb of a100`, `2,000 MiB of one l40s`, `250 thousandths of one l40s`."""
    piece = member.piece
    assert piece is not None
    if piece.profile:
        return f"{member.pieces} {piece.profile} of {model}"
    amounts = (part_text(THOUSANDTHS, piece.thousandths) if piece.thousandths else None, part_text(MEMORY, piece.memory_bytes))
    words = " and ".join(amount for amount in amounts[: 2 if piece.memory_bytes else 1] if amount)
    return f"{words} of one {model}" + (f", {member.pieces} times" if member.pieces > 1 else "")


def cannot_text(shape: Shape, columns: Columns) -> str | None:
    """Why no GPU of the fleet could ever hold the parts that every alternative asks for; None where that is not what is missing."""
    asks = [(a.pool, group.member) for a in shape.alternatives for group in a.groups if group.member.piece is not None]
    if not asks:
        return None
    pool, member = asks[0]
    assert member.piece is not None
    there = (device for name, layout in columns.kinds if pool in ("", name) for device in layout.devices)
    devices = {device for device in there if not member.models or device.model in member.models}
    if any(may_hold(device, member.piece) for device in devices):
        return None
    what = ask_text(member, " or ".join(member.models) or "any model")
    if member.piece.profile:
        cut = any(device.partition.mig != "off" for device in devices)
        why = "no GPU there with MIG has that profile" if cut else "no GPU there is in MIG mode"
    else:
        shared = any(device.partition.soft != "off" for device in devices)
        why = "no GPU there is so large" if shared else "no GPU there may be shared (an agent is told so by --parts)"
    return f"asks for {what}, and {why}"

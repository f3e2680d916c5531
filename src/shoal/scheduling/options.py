"""
What a shape means for this fleet: its *options*, one per alternative and GPU model.

All members of a gang get the same GPU model, so "h100 or h200" is two options, not one. An avoid list holds until it would leave no
node; then it is passed over. Options are worked out once per shape and fleet, then remembered with the shape.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.scheduling.asks import Alternative, GroupAsk, MemberAsk, Shape
from shoal.scheduling.columns import Columns
from shoal.scheduling.pending import ShapeState
from shoal.scheduling.quota import Charge, add_charges, charge_of
from shoal.scheduling.rooms import Need, accepted_devices
from shoal.scheduling.shares import charge_of_piece, may_hold

HOST_LEVELS = ("host", "island")
"""Levels inside one node, implied for every node; a fleet may also name a level `island` of its own that spans nodes."""


class GroupOption(NamedTuple):
    """One group of an option: how many members, what each needs, and what each is charged."""

    group: GroupAsk
    need: Need
    charge: Charge


class Option(NamedTuple):
    """One way to place a shape. `charge_least` is what its smallest size costs."""

    alternative: Alternative
    model: str | None
    groups: tuple[GroupOption, ...]
    charge_least: Charge

    @property
    def members_least(self) -> int:
        return sum(part.group.low for part in self.groups)


def options_of(state: ShapeState, columns: Columns) -> tuple[Option, ...]:
    """The options of a pending shape in the order of preference; empty if the fleet has no such GPU."""
    epoch = columns.growth if state.shape.avoid else columns.epoch
    if state.options_epoch != epoch or state.options is None:
        state.options = options_for(state.shape, columns)
        state.options_epoch = epoch
    return state.options


def options_for(shape: Shape, columns: Columns) -> tuple[Option, ...]:
    """As `options_of`, for a shape that is not pending."""
    options = _options(shape, columns)
    if shape.avoid and not any(fits_when_empty(option, columns) for option in options):
        return _options(shape._replace(avoid=()), columns)
    return options


def options_apart(shape: Shape, columns: Columns) -> tuple[Option, ...]:
    """As `options_for`, but the avoid list holds whatever it leaves."""
    return _options(shape, columns)


def fits_when_empty(option: Option, columns: Columns) -> bool:
    """True if there are nodes enough for each group, were they empty: topology and other groups left aside."""
    return all(_nodes_when_empty(part.need, columns) >= part.group.low for part in option.groups)


def inside_host(shape: Shape, columns: Columns) -> bool:
    """True if the shape asks for a level inside one node: then the gang is one member."""
    return shape.level in HOST_LEVELS and all(level.name != shape.level for level in columns.levels)


def charge_for(option: Option, sizes: tuple[int, ...]) -> Charge:
    """What the option costs with so many members in each group."""
    return add_charges(*(_times(part.charge, size) for part, size in zip(option.groups, sizes, strict=True)))


def _times(charge: Charge, count: int) -> Charge:
    return tuple((resource, amount * count) for resource, amount in charge)


def _options(shape: Shape, columns: Columns) -> tuple[Option, ...]:
    return tuple(_option(shape, alternative, kind, columns) for alternative in shape.alternatives for kind in _kinds(alternative, columns))


def _nodes_when_empty(need: Need, columns: Columns) -> int:
    member = need.member
    fits = (
        columns.open
        & columns.in_pool(member.pool)
        & (columns.cpu_total >= member.cpu_milli)
        & (columns.memory_total >= member.memory_bytes)
    )
    if need.model is not None:
        accepted = [accepted_devices(layout, need) for _, layout in columns.kinds]
        free = np.array(accepted, np.uint64)[columns.kind] & columns.healthy
        fits &= np.bitwise_count(free) >= max(member.gpus, min(member.pieces, 1))
    fits[[columns.row[node] for node in need.avoid if node in columns.row]] = False
    return int(np.count_nonzero(fits))


class _Kind(NamedTuple):
    """GPUs of one model, and where parts of them are asked for, of one size."""

    model: str | None
    memory_bytes: int = 0


def _kinds(alternative: Alternative, columns: Columns) -> list[_Kind]:
    models = _models(alternative, columns)
    asks = [group.member for group in alternative.groups if group.member.piece is not None]
    if not asks:
        return [_Kind(model) for model in models]
    sizes: dict[str, set[int]] = {}
    for pool, layout in columns.kinds:
        if alternative.pool in ("", pool):
            for device in layout.devices:
                if all(member.piece is not None and may_hold(device, member.piece) for member in asks):
                    sizes.setdefault(device.model, set()).add(device.memory_bytes)
    return [_Kind(model, size) for model in models if model is not None for size in sorted(sizes.get(model, ()))]


def _models(alternative: Alternative, columns: Columns) -> tuple[str | None, ...]:
    """Models of its pool that every group with GPUs takes, in the order in which the ask names them, else in the fleet's."""
    asking = [group.member for group in alternative.groups if group.member.wants_gpus]
    if not asking:
        return (None,)
    named = [member.models for member in asking if member.models]
    there = columns.models_in(alternative.pool)
    wished = named[0] if named else there
    return tuple(m for m in wished if m in there and all(m in models for models in named))


def _option(shape: Shape, alternative: Alternative, kind: _Kind, columns: Columns) -> Option:
    parts = []
    for group in alternative.groups:
        need = _need(shape, group.member, kind, columns)
        parts.append(GroupOption(group, need, _charge(need)))
    least = add_charges(*(_times(part.charge, part.group.low) for part in parts))
    return Option(alternative, kind.model, tuple(parts), least)


def _need(shape: Shape, member: MemberAsk, kind: _Kind, columns: Columns) -> Need:
    if member.piece is None:
        model = kind.model if member.gpus else None
        return Need(member, model, shape.avoid, _together(shape, member.gpus, kind.model, columns))
    sized = member._replace(least_bytes=max(member.least_bytes, kind.memory_bytes), most_bytes=kind.memory_bytes)
    return Need(sized, kind.model, shape.avoid)


def _charge(need: Need) -> Charge:
    """What a member is charged."""
    member, model = need.member, need.model or ""
    parts = member.pieces * charge_of_piece(member.piece, model, member.most_bytes) if member.piece is not None else 0
    return charge_of(member.gpus, model, member.cpu_milli, member.memory_bytes, parts)


def _together(shape: Shape, gpus: int, model: str | None, columns: Columns) -> int:
    """GPUs that must lie in one island of a node: a tensor parallel group wherever an island can hold one; else where it is required."""
    if not gpus or model is None:
        return 0
    if shape.required and shape.level == "island" and inside_host(shape, columns):
        return gpus
    tp = shape.mesh[0] if shape.mesh is not None else 1
    if tp == 1 or gpus % tp:
        return 0
    kinds = [columns.kinds[code][1] for code in np.unique(columns.kind).tolist()]
    holds = max(((layout.by_model.get(model, 0) & island).bit_count() for layout in kinds for island in layout.islands), default=0)
    return tp if shape.whole or holds >= tp else 0


def least(option: Option) -> Option:
    """The option at its smallest size: a reservation keeps no more than it takes to start."""
    parts = tuple(part._replace(group=part.group._replace(high=part.group.low)) for part in option.groups)
    return option._replace(groups=parts)

"""
What a shape means for this fleet: its *options*, one per alternative and GPU model.

All members of a gang get the same GPU model, so "h100 or h200" is two options, not one. An avoid list holds until it would leave no
node; then it is passed over. Options are worked out once per shape and fleet, then remembered with the shape.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.scheduling.asks import Alternative, GroupAsk, Shape
from shoal.scheduling.columns import Columns
from shoal.scheduling.pending import ShapeState
from shoal.scheduling.quota import Charge, add_charges, charge_of
from shoal.scheduling.rooms import Need

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
    if shape.avoid and not any(_would_fit_empty(option, columns) for option in options):
        return _options(shape._replace(avoid=()), columns)
    return options


def inside_host(shape: Shape, columns: Columns) -> bool:
    """True if the shape asks for a level inside one node: then the gang is one member."""
    return shape.level in HOST_LEVELS and all(level.name != shape.level for level in columns.levels)


def charge_for(option: Option, sizes: tuple[int, ...]) -> Charge:
    """What the option costs with so many members in each group."""
    return add_charges(*(_times(part.charge, size) for part, size in zip(option.groups, sizes, strict=True)))


def _times(charge: Charge, count: int) -> Charge:
    return tuple((resource, amount * count) for resource, amount in charge)


def _options(shape: Shape, columns: Columns) -> tuple[Option, ...]:
    return tuple(
        _option(shape, alternative, model, columns) for alternative in shape.alternatives for model in _models(alternative, columns)
    )


def _would_fit_empty(option: Option, columns: Columns) -> bool:
    """True if there are nodes enough for each group, were they empty: topology and other groups left aside."""
    return all(_nodes_when_empty(part.need, columns) >= part.group.low for part in option.groups)


def _nodes_when_empty(need: Need, columns: Columns) -> int:
    member = need.member
    fits = (
        columns.open
        & columns.in_pool(member.pool)
        & (columns.cpu_total >= member.cpu_milli)
        & (columns.memory_total >= member.memory_bytes)
    )
    if need.model is not None:
        accepted = [layout.accepted(need.model, member.least_bytes, member.most_bytes) for _, layout in columns.kinds]
        free = np.array(accepted, np.uint64)[columns.kind] & columns.healthy
        fits &= np.bitwise_count(free) >= member.gpus
    fits[[columns.row[node] for node in need.avoid if node in columns.row]] = False
    return int(np.count_nonzero(fits))


def _models(alternative: Alternative, columns: Columns) -> tuple[str | None, ...]:
    """Models of its pool that every group with GPUs takes, in the order in which the ask names them, else in the fleet's."""
    asking = [group.member for group in alternative.groups if group.member.gpus]
    if not asking:
        return (None,)
    named = [member.models for member in asking if member.models]
    there = columns.models_in(alternative.pool)
    wished = named[0] if named else there
    return tuple(m for m in wished if m in there and all(m in models for models in named))


def _option(shape: Shape, alternative: Alternative, model: str | None, columns: Columns) -> Option:
    parts = []
    for group in alternative.groups:
        member = group.member
        need = Need(member, model if member.gpus else None, shape.avoid, _together(shape, member.gpus, model, columns))
        parts.append(GroupOption(group, need, charge_of(member.gpus, model or "", member.cpu_milli, member.memory_bytes)))
    least = add_charges(*(_times(part.charge, part.group.low) for part in parts))
    return Option(alternative, model, tuple(parts), least)


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

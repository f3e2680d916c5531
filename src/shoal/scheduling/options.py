"""
What a shape means for this fleet: its *options*, one per alternative and GPU model, and whether any of them could ever be met.

All members of a gang get the same GPU model, so "h100 or h200" is two options, not one. Options are worked out once per shape and
fleet, then remembered with the shape.
"""

from __future__ import annotations

from typing import NamedTuple

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
    if state.options_epoch != columns.epoch or state.options is None:
        state.options = options_for(state.shape, columns)
        state.options_epoch = columns.epoch
    return state.options


def options_for(shape: Shape, columns: Columns) -> tuple[Option, ...]:
    """As `options_of`, for a shape that is not pending."""
    return tuple(
        _option(shape, alternative, model, columns) for alternative in shape.alternatives for model in _models(alternative, columns)
    )


def inside_host(shape: Shape, columns: Columns) -> bool:
    """True if the shape asks for a level inside one node: then the gang is one member."""
    return shape.level in HOST_LEVELS and all(level.name != shape.level for level in columns.levels)


def charge_for(option: Option, sizes: tuple[int, ...]) -> Charge:
    """What the option costs with so many members in each group."""
    return add_charges(*(_times(part.charge, size) for part, size in zip(option.groups, sizes, strict=True)))


def _times(charge: Charge, count: int) -> Charge:
    return tuple((resource, amount * count) for resource, amount in charge)


def _models(alternative: Alternative, columns: Columns) -> tuple[str | None, ...]:
    """Models that every group with GPUs takes, in the order in which the ask names them, else in the fleet's."""
    asking = [group.member for group in alternative.groups if group.member.gpus]
    if not asking:
        return (None,)
    named = [member.models for member in asking if member.models]
    wished = named[0] if named else columns.models
    return tuple(m for m in wished if m in columns.models and all(m in models for models in named))


def _option(shape: Shape, alternative: Alternative, model: str | None, columns: Columns) -> Option:
    one_island = shape.required and shape.level == "island" and inside_host(shape, columns)
    parts = []
    for group in alternative.groups:
        member = group.member
        need = Need(member, model if member.gpus else None, shape.avoid, one_island and member.gpus > 0)
        parts.append(GroupOption(group, need, charge_of(member.gpus, model or "", member.cpu_milli, member.memory_bytes)))
    least = add_charges(*(_times(part.charge, part.group.low) for part in parts))
    return Option(alternative, model, tuple(parts), least)

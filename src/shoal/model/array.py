"""
The elements of an array that have no record yet, and what each will be at birth.

An array costs one record until its elements start: the parent says which positions are *unborn*, and everything about such an element
follows from the parent. Its id and number do too, so whoever names one finds the same job, before its birth and after.

    position   0, 1, 2, ... in the order of `spec.array.indices`
    number     the parent's + 1 + position: the parent's create sets these numbers aside
    id         the parent's, counted on
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from msgspec.structs import replace

from shoal.base.ids import is_uuid, uuid_after
from shoal.model.job import ArrayPlace, Job, JobSpec, JobState, Usage

Spans = tuple[tuple[int, int], ...]
"""Positions as half-open ranges, ascending and apart from each other."""


def unborn_count(parent: Job) -> int:
    """Elements without a record."""
    return sum(end - first for first, end in parent.unborn)


def is_unborn(parent: Job, position: int) -> bool:
    """True if the element at `position` has no record."""
    at = bisect_right(parent.unborn, (position, 1 << 62)) - 1
    return at >= 0 and parent.unborn[at][0] <= position < parent.unborn[at][1]


def next_unborn(parent: Job, after: int = -1) -> int | None:
    """The first unborn position behind `after`, if there is one."""
    for first, end in parent.unborn:
        if end > after + 1:
            return max(first, after + 1)
    return None


def position_of(parent: Job, index: int) -> int | None:
    """Where an index stands among those of the array; None if it is not one."""
    if parent.spec.array is None:
        return None
    indices = parent.spec.array.indices
    at = bisect_left(indices, index)
    return at if at < len(indices) and indices[at] == index else None


def place_in_array(element: Job) -> tuple[str, int]:
    """The id of an element's array and its position there."""
    assert element.array is not None
    return element.array.array_id, element.number - element.array.array - 1


def without(spans: Spans, positions: tuple[int, ...]) -> Spans:
    """`spans` less some positions, which ascend."""
    left: list[tuple[int, int]] = []
    at = 0
    for first, end in spans:
        start = first
        while at < len(positions) and positions[at] < end:
            if positions[at] > start:
                left.append((start, positions[at]))
            start = max(start, positions[at] + 1)
            at += 1
        if start < end:
            left.append((start, end))
    return tuple(left)


def element_spec(parent: Job) -> JobSpec:
    """The spec that all elements share; make it once for many of them."""
    return replace(parent.spec, array=None)


def element_of(parent: Job, position: int, spec: JobSpec | None = None) -> Job:
    """The element at `position` as it is born: what its parent is now, with a place of its own. `spec`: as of `element_spec`."""
    assert parent.spec.array is not None
    indices = parent.spec.array.indices
    return replace(
        parent,
        id=element_id(parent.id, position),
        number=parent.number + 1 + position,
        spec=element_spec(parent) if spec is None else spec,
        array=ArrayPlace(array=parent.number, array_id=parent.id, index=indices[position], count=len(indices)),
        state=JobState.HELD if parent.hold else JobState.QUEUED,
        reason=parent.reason if parent.hold else None,
        unborn=(),
        hold=False,
        generation=1,
        observed_generation=0,
        outcome=None,
        started_ms=None,
        ended_ms=None,
        usage=Usage(),
        version=0,
    )


def element_id(array_id: str, position: int) -> str:
    """The id of an element: for a UUID the next ones of the same kind and time; other ids (of traces and tests) get a suffix."""
    return uuid_after(array_id, 1 + position) if is_uuid(array_id) else f"{array_id}.{position:06}"

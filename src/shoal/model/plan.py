"""The judgement on one picture: decisions, a reason per job looked at, counters. No clocks, no new ids."""

from __future__ import annotations

import msgspec

from shoal.model.part import DevicePart
from shoal.model.reason import Reason


class PlacedMember(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One node's part of a placed gang, in node-rank order within the Place."""

    node: str
    group: str = ""
    devices: tuple[str, ...] = ()
    cpu_milli: int = 0
    memory_bytes: int = 0
    parts: tuple[DevicePart, ...] = ()
    """Pieces of further devices."""


class _Decision(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="type"):
    job: str


class Place(_Decision, frozen=True, kw_only=True, tag="place"):
    """Start this gang here."""

    members: tuple[PlacedMember, ...]
    gpu_model: str = ""
    domain: str | None = None
    """The topology domain it lies in, as level=name, when one was asked for."""
    borrowed: bool = False
    alternative: int | None = None
    """Which entry of the job's `any_of` or `ordered` this is."""
    relative_speed: float | None = None
    """Of a mesh: the predicted speed of its slowest tensor parallel group against one inside an island."""
    predicted: str = ""
    """What its place costs a mesh, in words; empty where nothing is lost."""


class Reserve(_Decision, frozen=True, kw_only=True, tag="reserve"):
    """This room is kept for the job until `start_ms`."""

    members: tuple[PlacedMember, ...]
    start_ms: int


class Evict(_Decision, frozen=True, kw_only=True, tag="evict"):
    """Stop this running gang in favour of `beneficiary`."""

    beneficiary: str
    reason: Reason
    graceful: bool = True


class Resize(_Decision, frozen=True, kw_only=True, tag="resize"):
    """
    Change an elastic gang to these members, of which those on nodes that it has already stay.

    In place, or as a new attempt for which this room is kept: as the job says. `beneficiary` gets what members give back, if anybody.
    """

    members: tuple[PlacedMember, ...]
    gpu_model: str = ""
    reason: Reason
    beneficiary: str | None = None


class Move(_Decision, frozen=True, kw_only=True, tag="move"):
    """Stop and start again at another place, which is kept for it, to free a shape that `beneficiary` waits for."""

    members: tuple[PlacedMember, ...]
    beneficiary: str
    reason: Reason


class Delegate(_Decision, frozen=True, kw_only=True, tag="delegate"):
    """Let a backend with a scheduler of its own decide."""

    backend: str


class Wait(_Decision, frozen=True, kw_only=True, tag="wait"):
    """Not now, and this is why."""

    reason: Reason


Decision = Place | Reserve | Evict | Resize | Move | Delegate | Wait


class Plan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """
    `decisions` in the order in which they were taken; each job has at most one.

    `version` is that of the picture. `waits` has one shared Reason per (queue, shape) in place of a Wait per job; `scheduling.explain`
    makes the answer for one job from it.
    """

    version: int
    decisions: tuple[Decision, ...] = ()
    counters: dict[str, int] = {}
    next_at_ms: int | None = None
    """When time alone could change the plan (a begin time, a back-off, the end of a reservation), if ever."""
    at_ms: int | None = None
    """The time that was judged at: what time limits and reservations are measured from."""

"""
Reservations of nodes: set, delete, list. They are declared, as queues are, so a change may say which version it was made from.

Called by `api`. What a reservation means for a job is `scheduling.windows`' to say; here one that could not work, or that overlaps
another, is refused before it is written. All are judged in one lane, since whether one overlaps another is a question about all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from shoal.base import limits
from shoal.base.errors import Conflict, Fault, Invalid, NotFound, VersionConflict
from shoal.control.access import Caller, need, need_all_projects
from shoal.control.answers import then
from shoal.control.world import World
from shoal.formats.moment import moment_text
from shoal.model.change import ChangeSet
from shoal.model.event import Event, EventRow, ReservationDeleted, ReservationSet
from shoal.model.node import Node
from shoal.model.reservation import PERIODS_MS, Reservation, ReservationSpec
from shoal.model.wire import ReservationView
from shoal.scheduling.windows import FOREVER, covers, window_meeting, windows_overlap

if TYPE_CHECKING:
    from shoal.control.plane import Plane

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")
NAME_RULE = "lower-case letters, digits, dots, dashes and underscores, with a letter or digit at both ends"
All = Mapping[str, Reservation]


def set_reservation(
    plane: Plane, caller: Caller, name: str, spec: ReservationSpec, *, if_version: int | None = None
) -> Future[ReservationView]:
    """
    The reservation as stored, once it is durable. `if_version` is the version it was read at (0: must not exist); None: whatever it is.

    Raises: Invalid with each broken rule; by the future, Conflict where it overlaps another, VersionConflict where it has moved.
    """
    _may(caller, "setting a reservation")
    plane.world.catch_up()
    now_ms = plane.clock.now_ms()
    faults = (*_name_faults(name), *_spec_faults(plane, spec, now_ms))
    if faults:
        raise Invalid(f"reservation {name!r} cannot be made: {faults[0].message}", faults)

    def judge(known: All | None) -> ChangeSet:
        before = (known or {}).get(name)
        _expect(before, name, if_version)
        if before is not None and before.spec == spec:
            return ChangeSet()
        _must_not_overlap(plane, known or {}, name, spec)
        made = Reservation(id=name, spec=spec, version=before.version if before else 0)
        return ChangeSet(put=(made,), events=(_row(plane, caller, name, ReservationSet(created=before is None)),))

    return then(plane.lanes.ask(_Reservations(plane.world), judge), lambda known: _view(plane, _found(name, known)))


def delete_reservation(plane: Plane, caller: Caller, name: str, *, if_version: int | None = None) -> Future[None]:
    """The nodes are everybody's again, once that is durable. Raises, by the future: NotFound; VersionConflict."""
    _may(caller, "deleting a reservation")

    def judge(known: All | None) -> ChangeSet:
        before = _found(name, known)
        _expect(before, name, if_version)
        return ChangeSet(delete=(before,), events=(_row(plane, caller, name, ReservationDeleted()),))

    return then(plane.lanes.ask(_Reservations(plane.world), judge), lambda _gone: None)


def list_reservations(plane: Plane) -> tuple[ReservationView, ...]:
    """All of them with their nodes and next window; those to come by when they begin, then those that have passed."""
    plane.world.catch_up()
    views = [_view(plane, reservation) for reservation in tuple(plane.world.reservations.values())]
    return tuple(sorted(views, key=lambda view: (view.next_start_ms is None, view.next_start_ms or 0, view.name)))


def get_reservation(plane: Plane, name: str) -> ReservationView:
    """One reservation with its nodes and next window."""
    plane.world.catch_up()
    return _view(plane, _found(name, plane.world.reservations))


@dataclass(slots=True, frozen=True)
class _Reservations:
    """All reservations as the subject of one lane."""

    world: World

    @property
    def key(self) -> str:
        return "reservations"

    def read(self) -> All:
        return dict(self.world.reservations)

    def moved(self, state: All | None, changes: ChangeSet) -> All:
        after = dict(state or {})
        after.update((record.id, record) for record in changes.put if isinstance(record, Reservation))
        for record in changes.delete:
            after.pop(record.id, None)
        return after

    def settled(self, state: All | None, changes: ChangeSet, version: int) -> All:
        written = {record.id for record in changes.put}
        return {name: msgspec.structs.replace(r, version=version) if name in written else r for name, r in (state or {}).items()}


def _view(plane: Plane, reservation: Reservation) -> ReservationView:
    spec = reservation.spec
    window = window_meeting(spec, plane.clock.now_ms(), FOREVER)
    nodes = tuple(sorted(node.id for node in _nodes_of(plane, spec)))
    busy = tuple(name for name in nodes if plane.world.live_on(name))
    return ReservationView(
        name=reservation.id,
        spec=spec,
        nodes=nodes,
        busy=busy,
        next_start_ms=window.start_ms if window else None,
        next_end_ms=window.end_ms if window else None,
        version=reservation.version,
    )


def _nodes_of(plane: Plane, spec: ReservationSpec) -> list[Node]:
    return [node for node in tuple(plane.world.nodes.values()) if covers(spec, node)]


def _may(caller: Caller, what: str) -> None:
    need(caller, "admin", what)
    need_all_projects(caller, what)


def _found(name: str, known: All | None) -> Reservation:
    found = (known or {}).get(name)
    if found is None:
        raise NotFound(f"there is no reservation {name!r}")
    return found


def _expect(before: Reservation | None, name: str, if_version: int | None) -> None:
    found = before.version if before else 0
    if before is not None and if_version == 0:
        when = f"{moment_text(before.spec.start_ms)} to {moment_text(before.spec.end_ms)}"
        raise VersionConflict(f"there is a reservation {name!r} already, {when}; choose another name, or delete that one first")
    if if_version is not None and if_version != found:
        raise VersionConflict(f"reservation {name!r} is at version {found}, not {if_version}: somebody changed it; read it again")


def _row(plane: Plane, caller: Caller, name: str, body: Event) -> EventRow:
    now_ms = plane.clock.now_ms()
    return EventRow(kind="reservation", subject=name, project="", at_ms=now_ms, body=body, actor=caller.principal)


# --- what is refused ------------------------------------------------------------------------------------------------------------
def _must_not_overlap(plane: Plane, known: All, name: str, spec: ReservationSpec) -> None:
    others = [other for other_name, other in sorted(known.items()) if other_name != name]
    if len(others) >= limits.RESERVATIONS_STORED_MAX:
        most = limits.RESERVATIONS_STORED_MAX
        raise Conflict(f"there are {len(others)} reservations, at most {most} are kept: delete some that have passed")
    mine = {node.id for node in _nodes_of(plane, spec)}
    for other in others:
        shared = sorted(mine & {node.id for node in _nodes_of(plane, other.spec)})
        if (shared or _same_place(spec, other.spec)) and windows_overlap(spec, other.spec):
            where = f"{', '.join(shared[: limits.HOLDERS_SHOWN_MAX])}{', ...' if len(shared) > limits.HOLDERS_SHOWN_MAX else ''}"
            raise Conflict(
                f"reservation {other.id!r} has {where or 'these nodes'} in an overlapping window, {_when(other.spec, spec)}; change "
                f"that one, choose other nodes, or another time"
            )


def _when(spec: ReservationSpec, beside: ReservationSpec) -> str:
    """The window that overlaps, or the first to come where they meet only later."""
    window = window_meeting(spec, beside.start_ms, beside.end_ms) or window_meeting(spec, beside.start_ms, FOREVER)
    start_ms, end_ms = window or (spec.start_ms, spec.end_ms)
    return f"{moment_text(start_ms)} to {moment_text(end_ms)}{f' and {spec.repeat}' if spec.repeat else ''}"


def _same_place(one: ReservationSpec, other: ReservationSpec) -> bool:
    """True for the same pool or domain, though no node is in it yet."""
    return (one.pool is not None and one.pool == other.pool) or (one.domain is not None and one.domain == other.domain)


def _name_faults(name: str) -> tuple[Fault, ...]:
    if len(name) > limits.NAME_CHARS_MAX:
        return (Fault(f"the name has {len(name)} characters, at most {limits.NAME_CHARS_MAX} are taken"),)
    return () if _NAME.fullmatch(name) else (Fault(f"a reservation's name has {NAME_RULE}; got {name!r}"),)


def _spec_faults(plane: Plane, spec: ReservationSpec, now_ms: int) -> list[Fault]:
    faults = []
    if (bool(spec.nodes), spec.pool is not None, spec.domain is not None).count(True) != 1:
        faults.append(Fault("exactly one of nodes, pool and domain says which nodes", "/nodes"))
    if len(spec.nodes) > limits.NODES_PER_JOB_MAX:
        faults.append(Fault(f"{len(spec.nodes)} nodes are named, at most {limits.NODES_PER_JOB_MAX} are taken; name a pool", "/nodes"))
    unknown = sorted(set(spec.nodes) - plane.world.nodes.keys())
    if unknown:
        faults.append(Fault(f"there is no node {', '.join(unknown[: limits.HOLDERS_SHOWN_MAX])}", "/nodes"))
    if spec.domain is not None and not all(spec.domain.partition("=")):
        faults.append(Fault(f"a domain is written level=name, for example rack=a3; got {spec.domain!r}", "/domain"))
    return [*faults, *_time_faults(spec, now_ms)]


def _time_faults(spec: ReservationSpec, now_ms: int) -> list[Fault]:
    length_ms = spec.end_ms - spec.start_ms
    if length_ms <= 0:
        return [Fault("the window ends before it begins" if length_ms else "the window ends as it begins", "/end_ms")]
    if not (spec.start_ms >= 0 and spec.end_ms <= limits.INT64_MAX // 4):
        return [Fault("the window lies outside the calendar", "/start_ms")]
    if spec.repeat is None and spec.end_ms <= now_ms:
        return [Fault("the window has passed already", "/end_ms")]
    if spec.repeat is not None and length_ms >= PERIODS_MS[spec.repeat]:
        return [Fault(f"a window that comes {spec.repeat} is shorter than its period", "/repeat")]
    return []

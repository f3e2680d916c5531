"""
Queues: set, delete, list. They are declared, so a change may say which version it was made from.

Called by `api`. What a queue's quota means is `scheduling`'s; here a queue that could not work is refused before it is written.
"""

from __future__ import annotations

import re
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from shoal.base import limits
from shoal.base.errors import Conflict, Fault, Invalid, NotFound, VersionConflict
from shoal.control.access import Caller, need, need_all_projects
from shoal.control.answers import then
from shoal.control.lanes import RecordSubject
from shoal.model.change import ChangeSet
from shoal.model.codec import to_plain
from shoal.model.event import Event, EventRow, QueueDeleted, QueueSet
from shoal.model.queue import Queue, QueueSpec
from shoal.model.wire import QueueView

if TYPE_CHECKING:
    from shoal.control.plane import Plane

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")
NAME_RULE = "lower-case letters, digits, dots, dashes and underscores, with a letter or digit at both ends"


def set_queue(plane: Plane, caller: Caller, name: str, spec: QueueSpec, *, if_version: int | None = None) -> Future[Queue]:
    """
    The queue as stored, once it is durable. `if_version` is the version it was read at (0: must not exist); None: whatever it is.

    Raises: Invalid with each broken rule; by the future, VersionConflict where the queue is not at `if_version`.
    """
    need(caller, "admin", "setting a queue")
    need_all_projects(caller, "setting a queue")
    plane.world.catch_up()
    faults = (*_name_faults(name), *_spec_faults(plane, name, spec))
    if faults:
        raise Invalid(f"queue {name!r} cannot be set: {faults[0].message}", faults)

    def judge(before: Queue | None) -> ChangeSet:
        _expect(before, name, if_version)
        if before is not None and before.spec == spec:
            return ChangeSet()
        _keep_project(plane, before, spec)
        queue = Queue(id=name, spec=spec, version=before.version if before else 0)
        return ChangeSet(put=(queue,), events=(_row(plane, caller, queue, QueueSet(created=before is None)),))

    return then(plane.lanes.ask(_subject(plane, name), judge), partial(_found, name))


def delete_queue(plane: Plane, caller: Caller, name: str, *, if_version: int | None = None) -> Future[None]:
    """
    The queue is gone, once that is durable.

    Raises, by the future: NotFound; Conflict while it has live jobs or child queues; VersionConflict.
    """
    need(caller, "admin", "deleting a queue")
    need_all_projects(caller, "deleting a queue")

    def judge(before: Queue | None) -> ChangeSet:
        queue = _found(name, before)
        _expect(before, name, if_version)
        _must_be_idle(plane, name)
        return ChangeSet(delete=(queue,), events=(_row(plane, caller, queue, QueueDeleted()),))

    return then(plane.lanes.ask(_subject(plane, name), judge), lambda _gone: None)


def get_queue(plane: Plane, caller: Caller, name: str) -> Queue:
    """A queue that the caller may see."""
    plane.world.catch_up()
    queue = plane.world.queues.get(name)
    if queue is None or not _sees(caller, queue):
        raise NotFound(f"there is no queue {name!r}")
    return queue


def list_queues(plane: Plane, caller: Caller) -> tuple[QueueView, ...]:
    """Every queue that the caller may see, with its numbers, by name."""
    views = plane.schedule.queue_views()
    return tuple(view for view in views if caller.project is None or _sees(caller, plane.world.queues.get(view.name)))


def view_queue(plane: Plane, caller: Caller, name: str) -> QueueView:
    """One queue with its numbers."""
    get_queue(plane, caller, name)
    for view in plane.schedule.queue_views():
        if view.name == name:
            return view
    raise NotFound(f"there is no queue {name!r}")


def _sees(caller: Caller, queue: Queue | None) -> bool:
    return queue is not None and (caller.project is None or queue.spec.project == caller.project)


def _subject(plane: Plane, name: str) -> RecordSubject[Queue]:
    return RecordSubject(Queue, name, plane.world.queues.get)


def _row(plane: Plane, caller: Caller, queue: Queue, body: Event) -> EventRow:
    now_ms = plane.clock.now_ms()
    return EventRow(kind="queue", subject=queue.id, project=queue.spec.project, at_ms=now_ms, body=body, actor=caller.principal)


def _found(name: str, queue: Queue | None) -> Queue:
    if queue is None:
        raise NotFound(f"there is no queue {name!r}")
    return queue


def _expect(before: Queue | None, name: str, if_version: int | None) -> None:
    found = before.version if before else 0
    if if_version is not None and if_version != found:
        raise VersionConflict(f"queue {name!r} is at version {found}, not {if_version}: somebody changed it; read it again")


def _keep_project(plane: Plane, before: Queue | None, spec: QueueSpec) -> None:
    if before is not None and before.spec.project != spec.project and (live := len(plane.world.jobs_in(before.id))):
        raise Conflict(
            f"queue {before.id!r} has {live} live jobs of project {before.spec.project!r}; it can change hands when they have ended"
        )


def _must_be_idle(plane: Plane, name: str) -> None:
    if live := len(plane.world.jobs_in(name)):
        raise Conflict(f"queue {name!r} has {live} live jobs; cancel them or move them to another queue first")
    children = sorted(queue.id for queue in tuple(plane.world.queues.values()) if queue.spec.parent == name)
    if children:
        raise Conflict(f"queue {name!r} has child queues ({', '.join(children[: limits.HOLDERS_SHOWN_MAX])}); delete them first")


def _name_faults(name: str) -> tuple[Fault, ...]:
    if len(name) > limits.NAME_CHARS_MAX:
        return (Fault(f"the name has {len(name)} characters, at most {limits.NAME_CHARS_MAX} are taken"),)
    return () if _NAME.fullmatch(name) else (Fault(f"a queue's name has {NAME_RULE}; got {name!r}"),)


def _spec_faults(plane: Plane, name: str, spec: QueueSpec) -> tuple[Fault, ...]:
    faults = [*_parent_faults(plane, name, spec)]
    if spec.weight < 0:
        faults.append(Fault(f"a weight is 0 or more, got {spec.weight}", "/weight"))
    for resource, quota in spec.quotas.items():
        amounts = {"nominal": quota.nominal, "borrowing_limit": quota.borrowing_limit, "lending_limit": quota.lending_limit}
        below = {field: amount for field, amount in amounts.items() if amount is not None and amount < 0}
        faults.extend(Fault(f"an amount is 0 or more, got {n}", f"/quotas/{resource}/{field}") for field, n in below.items())
        if not (resource in ("gpu", "cpu", "memory") or resource.startswith("gpu/")):
            faults.append(Fault(f"no resource {resource!r}", f"/quotas/{resource}", allowed=("gpu", "gpu/<model>", "cpu", "memory")))
    if spec.default_time_ms is not None and not 0 < spec.default_time_ms <= limits.TIME_LIMIT_MS_MAX:
        faults.append(Fault(f"a time limit lies between 1 ms and 366 days, got {spec.default_time_ms} ms", "/default_time_ms"))
    if spec.min_run_ms is not None and not 0 <= spec.min_run_ms <= limits.TIME_LIMIT_MS_MAX:
        faults.append(Fault(f"a least running time lies between 0 and 366 days, got {spec.min_run_ms} ms", "/min_run_ms"))
    for field, bound in to_plain(spec.limits).items():
        if bound < (1 if field == "time_ms" else 0):
            faults.append(Fault(f"a limit is a whole number of 0 or more (a time 1 ms or more), got {bound}", f"/limits/{field}"))
    return tuple(faults)


def _parent_faults(plane: Plane, name: str, spec: QueueSpec) -> tuple[Fault, ...]:
    """A parent that is missing, that lies under this queue itself, or too deep."""
    at, path = spec.parent, [name]
    while at is not None:
        if at in path:
            return (Fault(f"queue {name!r} would lie under itself: {' < '.join([*path, at])}", "/parent"),)
        parent = plane.world.queues.get(at)
        if parent is None:
            return (Fault(f"there is no queue {at!r} to be the parent", "/parent", allowed=tuple(sorted(plane.world.queues))),)
        path.append(at)
        at = parent.spec.parent
    if len(path) > limits.QUEUE_DEPTH_MAX:
        return (Fault(f"the tree would be {len(path)} deep, at most {limits.QUEUE_DEPTH_MAX} is taken", "/parent"),)
    return ()

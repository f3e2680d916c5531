"""
What people and machines do in a replay, as `Deed`s: events of a scenario file carried out through the lifecycle's own functions.

A verb that does not fit the state (cancelling what has ended is no news, requeueing what waits is refused) is an outcome and not a
fault: `refused` hears of it. The silence of a machine is followed here too, by the formula of `lifecycle.lease`, at the very moments
when it comes to something.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial

from msgspec.structs import replace

from shoal.base.errors import Conflict, Invalid
from shoal.formats.scenario import names_of, nodes_of, queue_of, reservation_of
from shoal.formats.scenario_sheet import Happening
from shoal.lifecycle import lease
from shoal.lifecycle import node as nodes
from shoal.model.attempt import Allocation
from shoal.model.change import ChangeSet
from shoal.model.event import CancelRequested, Event, JobHeld, JobUnheld, JobUpdated, RequeueRequested, ResizeRequested
from shoal.model.job import CancelMode, JobSpec
from shoal.model.node import Node
from shoal.model.reason import Reason, ReasonCode
from shoal.model.wire import Register
from shoal.sim.replay import BASE_MS, TIMERS, Deed, Replay

PERSON = "ada"
"""Who does what a scenario's events say."""
STORE = "replay"

Refused = Callable[[int, str], None]
"""Hears of a verb that was refused: when, and why."""


def deed_of(event: Happening, refused: Refused) -> Deed:
    """What an event of a scenario does when its time comes."""
    return partial(_do, event, refused)


def _do(event: Happening, refused: Refused, replay: Replay) -> None:
    try:
        if event.node is not None:
            for name in names_of(event.node):
                _do_to_node(event, replay, _node(replay, name))
        elif event.cycles is not None:
            for _ in range(event.cycles):
                replay.cycle()
        elif event.set_queue is not None:
            replay.write(ChangeSet(put=(queue_of(event.set_queue),)))
        elif event.delete_queue is not None:
            replay.write(ChangeSet(delete=(replay.world.queues[event.delete_queue],)))
        elif event.reserve is not None:
            replay.write(ChangeSet(put=(reservation_of(event.reserve, BASE_MS),)))
        elif event.unreserve is not None:
            replay.write(ChangeSet(delete=(replay.world.reservations[event.unreserve],)))
        elif event.add_nodes is not None:
            replay.write(ChangeSet(put=nodes_of(event.add_nodes)))
        else:
            _tell_jobs(event, replay)
    except Conflict as error:
        refused(replay.time_ms, error.message)


def _do_to_node(event: Happening, replay: Replay, node: Node) -> None:
    if event.does == "break":
        _break(replay, node, _chosen(node, event))
    elif event.does == "repair":
        _repair(replay, node, _chosen(node, event))
    else:
        _NODE_DEEDS[event.does or ""](replay, node)


def _tell_jobs(event: Happening, replay: Replay) -> None:
    """A verb of people on every job that the name or pattern means."""
    pattern = event.cancel or event.hold or event.release or event.requeue or event.update or event.resize or ""
    matched = [job for name, job in replay.ids.items() if fnmatchcase(name, pattern)]
    if not matched:
        raise Invalid(f"at {replay.time_ms} ms: no job that has arrived is named {pattern!r}")
    for job in matched:
        replay.tell(job, _verb(event), PERSON)
        for element in replay.world.elements_of(job):
            replay.tell(element, _verb(event), PERSON)


def _verb(event: Happening) -> tuple[Event, ...]:
    if event.cancel is not None:
        return (CancelRequested(mode=CancelMode(event.mode)),)
    if event.hold is not None:
        return (JobHeld(),)
    if event.release is not None:
        return (JobUnheld(),)
    if event.requeue is not None:
        return (RequeueRequested(),)
    if event.resize is not None:
        return (ResizeRequested(size=event.size),)
    changed = {name: (None, value) for name in ("priority", "time", "queue") if (value := getattr(event, name)) is not None}
    return (JobUpdated(changed=changed),)


def _node(replay: Replay, name: str) -> Node:
    node = replay.world.nodes.get(name)
    if node is None:
        raise Invalid(f"at {replay.time_ms} ms: there is no node {name!r}")
    return node


def _held_on(replay: Replay, node: str) -> list[Allocation]:
    held = replay.world.board.held_on.get(node, {})
    return [replay.world.board.allocations[one] for one in sorted(held)]


# --- by people -------------------------------------------------------------------------------------------------------------------
def _cordon(replay: Replay, node: Node) -> None:
    replay.write(nodes.cordon(node, "", PERSON, replay.now_ms))


def _drain(replay: Replay, node: Node) -> None:
    replay.write(nodes.drain(node, "", PERSON, replay.now_ms))


def _resume(replay: Replay, node: Node) -> None:
    replay.write(nodes.resume(node, PERSON, replay.now_ms))


def _remove(replay: Replay, node: Node) -> None:
    replay.write(nodes.remove(node, _held_on(replay, node.id), PERSON, replay.now_ms))


# --- devices ---------------------------------------------------------------------------------------------------------------------
def _break(replay: Replay, node: Node, chosen: frozenset[str]) -> None:
    """These devices are found broken; those that were broken before stay so."""
    since = replay.now_ms
    found = [
        (d.uuid, d.broken or Reason(code=ReasonCode.UNHEALTHY, message=f"device {d.index} of {node.id} is broken", since_ms=since))
        for d in node.facts.devices
        if d.uuid in chosen or d.broken is not None
    ]
    replay.write(nodes.devices_found(node, found, replay.now_ms))


def _repair(replay: Replay, node: Node, chosen: frozenset[str]) -> None:
    found = [(d.uuid, d.broken) for d in node.facts.devices if d.broken is not None and d.uuid not in chosen]
    replay.write(nodes.devices_found(node, found, replay.now_ms))


def _chosen(node: Node, event: Happening) -> frozenset[str]:
    """The devices that an event names by their indexes; all, where it names none."""
    wanted = event.devices or tuple(range(len(node.facts.devices)))
    return frozenset(device.uuid for device in node.facts.devices if device.index in wanted)


# --- silence ---------------------------------------------------------------------------------------------------------------------
def _silent(replay: Replay, node: Node) -> None:
    replay.machines.fall_silent(node.id, replay.now_ms)
    _look(node.id, replay)


def _look(node_id: str, replay: Replay) -> None:
    """What the silence of a machine has come to by now, on both sides; and when to look again."""
    since_ms = replay.machines.silent.get(node_id)
    node = replay.world.nodes.get(node_id)
    if since_ms is None or node is None:
        return
    now_ms, terms = replay.now_ms, replay.course.terms
    held = _held_on(replay, node_id)
    specs = {allocation.id: replay.world.jobs[allocation.job].spec for allocation in held}
    replay.write(nodes.silence(node, since_ms, specs.values(), now_ms, terms))
    for allocation in held:
        spec = specs[allocation.id]
        if now_ms >= lease.stop_by(since_ms, spec, terms):
            coming = replay.machines.stop_itself(allocation.id, allocation.job, allocation.attempt, now_ms)
            replay.expect_reports(coming)
        replay.tell(allocation.job, nodes.silence_of(allocation, spec, since_ms, now_ms, terms))
    moments = _moments(since_ms, tuple(specs.values()), replay)
    later = [moment for moment in moments if moment > now_ms]
    if later:
        replay.plan_deed(min(later) - BASE_MS, partial(_look, node_id), TIMERS)


def _moments(since_ms: int, specs: tuple[JobSpec, ...], replay: Replay) -> list[int]:
    terms = replay.course.terms
    ends = [moment for spec in specs for moment in (lease.stop_by(since_ms, spec, terms), lease.fenced_at(since_ms, spec, terms))]
    return [lease.unreachable_at(since_ms, terms), lease.node_lost_at(since_ms, specs, terms), *ends]


def _back(replay: Replay, node: Node) -> None:
    """It reports again: what ended there meanwhile, then what it is told now."""
    commands, reports = replay.machines.come_back(node.id)
    replay.write(nodes.heard(node, replay.now_ms))
    owners = {allocation.id: allocation.job for allocation in _held_on(replay, node.id)}
    for report in reports:
        if report.allocation in owners:
            replay.tell(owners[report.allocation], (report,))
    current = [row for row in commands if row.body.allocation in owners]
    for job in dict.fromkeys(row.body.job for row in current):
        replay.obey(row for row in current if row.body.job == job)


def _reboot(replay: Replay, node: Node) -> None:
    """It starts again with nothing on it, and its agent registers."""
    replay.machines.reboot(node.id)
    facts = replace(node.facts, boot_id=f"{node.facts.boot_id}+")
    registration = nodes.register(node, Register(facts=facts, store_id=STORE), _held_on(replay, node.id), STORE, replay.now_ms)
    replay.write(registration.changes)
    for job, fenced in registration.events:
        replay.tell(job, (fenced,))


_NODE_DEEDS: dict[str, Callable[[Replay, Node], None]] = {
    "cordon": _cordon,
    "drain": _drain,
    "resume": _resume,
    "remove": _remove,
    "silent": _silent,
    "back": _back,
    "reboot": _reboot,
}


def nothing(replay: Replay) -> None:
    """A moment at which somebody only looks."""

"""
What follows from an event for a node: it registers, is cordoned, drained, resumed, falls silent, comes back. Health is set here alone.

Agents report facts and findings (`NodeFacts`, `Upload.broken`, `Upload.dirty`, Unkillable); what they mean for whether a node may be used
is decided by these functions. What a node's silence or reboot means for the jobs on it comes out as events, which `control` passes to
`job.advance_job`, job by job: no ChangeSet has two nouns unless it must.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from shoal.base.errors import Conflict, Unavailable
from shoal.lifecycle import lease
from shoal.lifecycle.states import NODE, OfNode
from shoal.model.attempt import HOLDING, Allocation, AllocationState
from shoal.model.change import ChangeSet
from shoal.model.event import (
    AllocationFenced,
    AllocationLost,
    AllocationUnkillable,
    Event,
    EventRow,
    NodeJoined,
    NodeRegistered,
    NodeRemoved,
    NodeStateChanged,
)
from shoal.model.job import JobSpec
from shoal.model.node import Device, DeviceState, Node, NodeState
from shoal.model.reason import Reason, ReasonCode
from shoal.model.wire import Held, Join, LeaseTerms, Register

_AWAY = (NodeState.UNREACHABLE, NodeState.LOST)
_BACK = {NodeState.READY: OfNode.BACK_READY, NodeState.CORDONED: OfNode.BACK_CORDONED, NodeState.DRAINING: OfNode.BACK_DRAINING}


# --- coming ---------------------------------------------------------------------------------------------------------------
def join(
    request: Join, known: Node | None, now_ms: int, by: str = "shoal", *, on_node: Iterable[Allocation] = (), alive: bool = False
) -> ChangeSet:
    """
    The ChangeSet that makes a node known, or gives a known name to a machine that joins again; the node is first in `put`.

    A machine that joins under a name that is taken and alive is refused, since two of them would share every command. So is one while
    the name's `on_node` hold room: whoever joins does not have them, and his word that nothing runs would be believed. `alive` says
    that the known agent was heard within its lease.
    Raises: Conflict; Unavailable where waiting helps.
    """
    if known is not None:
        _check_free(request, known, tuple(a for a in on_node if a.state in HOLDING), alive)
    if known is None:
        node = Node(
            id=request.name, facts=request.facts, pool=request.pool, topology=request.topology, labels=request.labels, joined_ms=now_ms
        )
    elif known.state in _AWAY or known.facts.hostname == request.facts.hostname:
        node = replace(known, facts=_with_findings(known, request), pool=request.pool, topology=request.topology, labels=request.labels)
    else:
        raise Conflict(
            f"node {request.name} is {known.state} on host {known.facts.hostname}; host {request.facts.hostname} must take "
            f"another name, or remove that node first"
        )
    joined = NodeJoined(gpus=len(request.facts.devices))
    return ChangeSet(put=(node,), events=(node_row(node, joined, now_ms, by),))


def _check_free(request: Join, known: Node, holding: tuple[Allocation, ...], alive: bool) -> None:
    if alive:
        raise Unavailable(
            f"node {known.id} has a living agent, on host {known.facts.hostname}, and two agents cannot have one name; "
            f"take another name, or end that agent and wait until its lease has run out"
        )
    rebooted = known.facts.hostname == request.facts.hostname and known.facts.boot_id != request.facts.boot_id
    if holding and not rebooted:
        raise Unavailable(
            f"node {known.id} holds {len(holding)} allocations that this agent does not have, for example {holding[0].id}; "
            f"wait until they have ended or are fenced by time, or start the agent with its old state directory"
        )


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """
    What follows when an agent registers. `changes` puts the node. `keep` and `kill` answer what it holds.

    `events` are for the jobs of allocations that are fenced by it (job id first): they are known not to run any more.
    """

    changes: ChangeSet
    node: Node
    rebooted: bool
    keep: tuple[str, ...]
    kill: tuple[str, ...]
    events: tuple[tuple[str, AllocationFenced], ...]


def register(node: Node, request: Register, on_node: Iterable[Allocation], store_id: str, now_ms: int) -> Registration:
    """
    What an agent's start means, where `on_node` are the allocations that hold room on its node.

    A new epoch; a reboot is told by the boot id. Each allocation that the agent lists is kept if it is known and holds room here, and
    killed if not; but one of another installation is not killed (`store_id` differs). `held` lists also what has ended with reports not
    yet confirmed. One that is not listed does not run: it is fenced, unless it is only CLAIMED, since its Prepare may still be on its way.
    After a reboot that one is fenced too: nobody knows if the Prepare was obeyed and what ran then, so that attempt is over.
    """
    rebooted = node.epoch > 0 and request.facts.boot_id != node.facts.boot_id
    holding = {a.id: a for a in on_node if a.state in HOLDING}
    listed = {held.allocation: held for held in request.held}
    same_store = request.store_id == store_id
    gone = tuple(a for a in holding.values() if _is_gone(a, listed.get(a.id), rebooted))
    keep = tuple(name for name in listed if name in holding and holding[name] not in gone)
    kill = tuple(name for name in listed if name not in keep and same_store)
    how = "the node has rebooted" if rebooted else "its agent has started again and does not have it"
    events = tuple((a.job, AllocationFenced(allocation=a.id, attempt=a.attempt, how=how)) for a in gone)
    after = replace(node, facts=_with_findings(node, request), epoch=node.epoch + 1)
    rows = [node_row(after, NodeRegistered(epoch=after.epoch, rebooted=rebooted), now_ms, f"node/{node.id}")]
    after, moved = _back(after, now_ms)
    changes = ChangeSet(put=(after,), events=(*rows, *moved))
    return Registration(changes=changes, node=after, rebooted=rebooted, keep=keep, kill=kill, events=events)


def _is_gone(allocation: Allocation, held: Held | None, rebooted: bool) -> bool:
    """Whether it is known not to run. After a reboot nothing does; what ended before it may still have reports to send."""
    if held is None:
        return rebooted or allocation.state is not AllocationState.CLAIMED
    return rebooted and held.state != AllocationState.RELEASED


def _with_findings(node: Node, request: Join | Register) -> Any:
    """The new facts, with what is known to be broken still broken: a restart of the agent mends nothing."""
    broken = {d.uuid: d.broken for d in node.facts.devices if d.broken is not None}
    devices = tuple(replace(d, broken=broken.get(d.uuid, d.broken)) for d in request.facts.devices)
    return replace(request.facts, devices=devices)


# --- asked by people ------------------------------------------------------------------------------------------------------
def cordon(node: Node, why: str, by: str, now_ms: int) -> ChangeSet:
    """Takes no more work; what runs goes on."""
    return _wanted(node, OfNode.CORDON, NodeState.CORDONED, _by_hand("cordoned", why, by, now_ms), by, now_ms)


def drain(node: Node, why: str, by: str, now_ms: int) -> ChangeSet:
    """Takes no more work and empties as its jobs end."""
    return _wanted(node, OfNode.DRAIN, NodeState.DRAINING, _by_hand("drained", why, by, now_ms), by, now_ms)


def resume(node: Node, by: str, now_ms: int) -> ChangeSet:
    """Takes work again, also after a cordon by health: a person has looked."""
    return _wanted(node, OfNode.RESUME, NodeState.READY, None, by, now_ms)


def remove(node: Node, on_node: Iterable[Allocation], by: str, now_ms: int) -> ChangeSet:
    """Forgets the node. Raises Conflict while anything holds room there: it could come back and run on."""
    holding = sorted(a.id for a in on_node if a.state in HOLDING)
    if holding:
        raise Conflict(f"node {node.id} has {len(holding)} allocations, for example {holding[0]}; drain it and wait, or cancel its jobs")
    return ChangeSet(delete=(node,), events=(node_row(node, NodeRemoved(), now_ms, by),))


def _by_hand(what: str, why: str, by: str, now_ms: int) -> Reason:
    return Reason(code=ReasonCode.BY_HAND, message=f"{what} by {by}" + (f": {why}" if why else ""), since_ms=now_ms)


def _wanted(node: Node, trigger: OfNode, wanted: NodeState, reason: Reason | None, by: str, now_ms: int) -> ChangeSet:
    state = NODE.asked(trigger, node.state, node.id)
    if node.wanted is wanted and node.state is state:
        return ChangeSet()
    # Away, the reason goes on telling why it is away; `wanted` counts once it is back.
    shown = node.reason if state in _AWAY else reason
    after = replace(node, state=state, wanted=wanted, reason=shown, wanted_reason=reason)
    return ChangeSet(put=(after,), events=(_state_row(node, after, reason, by, now_ms),))


# --- followed by silence --------------------------------------------------------------------------------------------------
def silence(node: Node, heard_ms: int, specs: Iterable[JobSpec], now_ms: int, terms: LeaseTerms) -> ChangeSet:
    """
    What a node's silence since `heard_ms` has come to: UNREACHABLE after the lease, LOST once the last of its jobs (`specs`) has stopped.

    Empty when nothing has changed. `heard_ms` after a start of the control plane is that start: never earlier than what it knows.
    """
    silent_s = (now_ms - heard_ms) // 1_000
    reason = Reason(code=ReasonCode.NO_REPORT, message=f"nothing heard for {silent_s} s", since_ms=heard_ms)
    after = node
    if now_ms >= lease.unreachable_at(heard_ms, terms):
        state = NODE.reported(OfNode.SILENT, after.state)
        after = replace(after, state=state, reason=reason) if state else after
    if now_ms >= lease.node_lost_at(heard_ms, tuple(specs), terms):
        state = NODE.reported(OfNode.LOST, after.state)
        after = replace(after, state=state, reason=reason) if state else after
    if after is node:
        return ChangeSet()
    return ChangeSet(put=(after,), events=(_state_row(node, after, reason, "shoal", now_ms),))


def silence_of(allocation: Allocation, spec: JobSpec, heard_ms: int, now_ms: int, terms: LeaseTerms) -> tuple[Event, ...]:
    """
    The events that a node's silence since `heard_ms` brings for one allocation: lost, and in the end fenced.

    One with processes that outlived a kill is never fenced by time: nothing bounds how long those live.
    """
    events: list[Event] = []
    if allocation.state not in HOLDING:
        return ()
    if now_ms >= lease.stop_by(heard_ms, spec, terms) and allocation.state is not AllocationState.LOST:
        events.append(AllocationLost(allocation=allocation.id, attempt=allocation.attempt))
    if now_ms >= lease.fenced_at(heard_ms, spec, terms) and not allocation.stuck:
        how = f"silent for {(now_ms - heard_ms) // 1_000} s, so its supervisor has stopped the work"
        events.append(AllocationFenced(allocation=allocation.id, attempt=allocation.attempt, how=how))
    return tuple(events)


def heard(node: Node, now_ms: int) -> ChangeSet:
    """A node that was away has reported (same epoch, same boot): it is as it was wanted. Empty for one that was not away."""
    after, rows = _back(node, now_ms)
    return ChangeSet() if after is node else ChangeSet(put=(after,), events=rows)


def _back(node: Node, now_ms: int) -> tuple[Node, tuple[EventRow, ...]]:
    state = NODE.reported(_BACK[node.wanted], node.state)
    if state is None:
        return node, ()
    after = replace(node, state=state, reason=node.wanted_reason)
    return after, (_state_row(node, after, after.reason, "shoal", now_ms),)


# --- findings -------------------------------------------------------------------------------------------------------------
def unkillable(node: Node, event: AllocationUnkillable, now_ms: int) -> ChangeSet:
    """Processes that no kill ends: the node takes no more work until a person has looked."""
    message = f"{len(event.pids)} processes of {event.allocation} outlive a kill"
    return _cordon_for_health(node, Reason(code=ReasonCode.UNKILLABLE, message=message, since_ms=now_ms), now_ms)


def refusing(node: Node, jobs: int, last: Reason, now_ms: int) -> ChangeSet:
    """So many jobs in a row could not be prepared by the node's own fault: it takes no more work until a person has looked."""
    message = f"{jobs} jobs in a row could not be prepared here; the last: {last.message}"
    return _cordon_for_health(node, Reason(code=ReasonCode.UNHEALTHY, message=message, since_ms=now_ms), now_ms)


def devices_found(node: Node, broken: Iterable[tuple[str, Reason]], now_ms: int) -> ChangeSet:
    """
    Devices that the agent finds broken, as of now: those named are, all others of the node are whole again.

    A device that fell off the bus (DEVICE_LOST) cordons the node: its neighbours share power, switch and driver.
    """
    found = dict(broken)
    devices = tuple(_mark(device, found.get(device.uuid)) for device in node.facts.devices)
    if devices == node.facts.devices:
        return ChangeSet()
    after = replace(node, facts=replace(node.facts, devices=devices))
    news = [d for d, old in zip(devices, node.facts.devices, strict=True) if d.broken and d.broken != old.broken]
    gone = [d for d in news if d.broken and d.broken.code is ReasonCode.DEVICE_LOST]
    if gone:
        message = f"device {gone[0].uuid} is gone"
        changes = _cordon_for_health(after, Reason(code=ReasonCode.DEVICE_LOST, message=message, since_ms=now_ms), now_ms)
        return changes if not changes.empty else ChangeSet(put=(after,))
    reason = news[0].broken if news else None
    return ChangeSet(put=(after,), events=(_state_row(node, after, reason, "shoal", now_ms),))


def _mark(device: Device, reason: Reason | None) -> Device:
    same = device.broken is not None and reason is not None and device.broken.code is reason.code
    return device if same else replace(device, broken=reason)  # the first sighting's time and words stay


def _cordon_for_health(node: Node, reason: Reason, now_ms: int) -> ChangeSet:
    if node.wanted is not NodeState.READY:
        return ChangeSet()
    return _wanted(node, OfNode.CORDON, NodeState.CORDONED, reason, "shoal", now_ms)


def device_state(device: Device, held: bool, dirty: bool) -> DeviceState:
    """
    A device's state, which follows from what is known and is stored nowhere.

    `held`: some allocation holds it. `dirty`: the agent still sees processes there that nobody should have.
    """
    if device.broken is not None:
        return DeviceState.BROKEN
    if dirty:
        return DeviceState.DIRTY
    return DeviceState.TAKEN if held else DeviceState.FREE


# --- log rows -------------------------------------------------------------------------------------------------------------
def node_row(node: Node, event: Event, now_ms: int, by: str) -> EventRow:
    """The log row of an event of a node; nodes belong to no project."""
    return EventRow(kind="node", subject=node.id, project="", at_ms=now_ms, body=event, actor=by)


def _state_row(before: Node, after: Node, reason: Reason | None, by: str, now_ms: int) -> EventRow:
    return node_row(after, NodeStateChanged(before=before.state, after=after.state, reason=reason), now_ms, by)

"""
What people do with nodes: look, cordon, drain, resume, remove. What agents say comes through `reports`.

Called by `api`. What follows for a node is judged in `lifecycle.node`, in the node's lane.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

import msgspec

from shoal.base.errors import NotFound
from shoal.control.access import Caller, need, need_all_projects
from shoal.control.answers import then
from shoal.control.lanes import RecordSubject
from shoal.control.reports import join_node, poll_commands, record_upload, register_node
from shoal.control.tokens import revoke_tokens_of
from shoal.formats.partition import part_text, partition_text
from shoal.lifecycle import node as lifecycle
from shoal.model.attempt import Allocation
from shoal.model.change import ChangeSet
from shoal.model.node import Device, Node
from shoal.model.part import DevicePart
from shoal.model.wire import DeviceView, NodeView, NodeWindow, PartView
from shoal.scheduling.windows import FOREVER, covers, window_meeting

if TYPE_CHECKING:
    from shoal.control.plane import Plane

__all__ = [
    "cordon_node",
    "drain_node",
    "get_node",
    "join_node",
    "list_nodes",
    "node_subject",
    "poll_commands",
    "record_upload",
    "register_node",
    "remove_node",
    "resume_node",
]


def list_nodes(plane: Plane, caller: Caller) -> tuple[NodeView, ...]:
    """Every node with what is on it, by id. Jobs of projects that the caller may not see show as taken devices alone."""
    plane.world.catch_up()
    return tuple(_view(plane, caller, plane.world.nodes[node_id]) for node_id in sorted(plane.world.nodes))


def get_node(plane: Plane, caller: Caller, node_id: str) -> NodeView:
    """One node with what is on it."""
    plane.world.catch_up()
    return _view(plane, caller, _found(node_id, plane.world.nodes.get(node_id)))


def cordon_node(plane: Plane, caller: Caller, node_id: str, reason: str = "") -> Future[NodeView]:
    """The node takes no more work; what runs there goes on."""
    now_ms = plane.clock.now_ms()
    return _ask(plane, caller, node_id, lambda node: lifecycle.cordon(node, reason, caller.principal, now_ms))


def drain_node(plane: Plane, caller: Caller, node_id: str, reason: str = "") -> Future[NodeView]:
    """The node takes no more work and empties as its jobs end."""
    now_ms = plane.clock.now_ms()
    return _ask(plane, caller, node_id, lambda node: lifecycle.drain(node, reason, caller.principal, now_ms))


def resume_node(plane: Plane, caller: Caller, node_id: str, reason: str = "") -> Future[NodeView]:
    """The node takes work again, also after a cordon by health. `reason` is for the log alone."""
    del reason
    now_ms = plane.clock.now_ms()
    return _ask(plane, caller, node_id, lambda node: lifecycle.resume(node, caller.principal, now_ms))


def remove_node(plane: Plane, caller: Caller, node_id: str) -> Future[None]:
    """The node is forgotten and its token holds no longer. Raises, by the future, Conflict while anything holds room there."""
    _may(caller)
    now_ms = plane.clock.now_ms()

    def judge(node: Node | None) -> ChangeSet:
        changes = lifecycle.remove(_found(node_id, node), plane.world.live_on(node_id), caller.principal, now_ms)
        return msgspec.structs.replace(changes, put=revoke_tokens_of(plane, f"node/{node_id}"))

    def forget(_gone: Node | None) -> None:
        plane.agents.forget_node(node_id)
        plane.links.forget(node_id)

    return then(plane.lanes.ask(node_subject(plane, node_id), judge), forget)


def node_subject(plane: Plane, node_id: str) -> RecordSubject[Node]:
    """A node as the subject of a lane."""
    return RecordSubject(Node, node_id, plane.world.nodes.get)


def _ask(plane: Plane, caller: Caller, node_id: str, change: Callable[[Node], ChangeSet]) -> Future[NodeView]:
    _may(caller)
    asked = plane.lanes.ask(node_subject(plane, node_id), lambda node: change(_found(node_id, node)))
    return then(asked, lambda node: _view(plane, caller, _found(node_id, node)))


def _may(caller: Caller) -> None:
    need(caller, "admin", "changing a node")
    need_all_projects(caller, "changing a node")


def _found(node_id: str, node: Node | None) -> Node:
    if node is None:
        raise NotFound(f"there is no node {node_id!r}")
    return node


# --- views ----------------------------------------------------------------------------------------------------------------
def _view(plane: Plane, caller: Caller, node: Node) -> NodeView:
    held = plane.world.live_on(node.id)
    link = plane.links.link(node.id)
    by_device = {uuid: allocation for allocation in held for uuid in allocation.devices}
    in_parts: dict[str, list[tuple[Allocation, DevicePart]]] = {}
    for allocation in held:
        for part in allocation.parts:
            in_parts.setdefault(part.device, []).append((allocation, part))
    seen = [allocation for allocation in held if caller.project in (None, allocation.project)]
    return NodeView(
        node=node,
        devices=tuple(
            _device_view(plane, caller, d, (by_device.get(d.uuid), in_parts.get(d.uuid, [])), d.uuid in link.dirty)
            for d in node.facts.devices
        ),
        cpu_milli_free=node.facts.cpus * 1_000 - sum(a.cpu_milli for a in held),
        memory_bytes_free=node.facts.memory_bytes - sum(a.memory_bytes for a in held),
        jobs=tuple(dict.fromkeys(_address(plane, allocation) for allocation in seen)),
        last_seen_ms=link.seen_ms,
        reservations=_windows(plane, node),
    )


def _windows(plane: Plane, node: Node) -> tuple[NodeWindow, ...]:
    """The windows that the node is in or that come next, of each reservation one."""
    now_ms = plane.clock.now_ms()
    mine = [r for r in tuple(plane.world.reservations.values()) if covers(r.spec, node)]
    found = [(window, r) for r in mine if (window := window_meeting(r.spec, now_ms, FOREVER)) is not None]
    found.sort(key=lambda entry: (entry[0], entry[1].id))
    return tuple(NodeWindow(name=r.id, start_ms=w.start_ms, end_ms=w.end_ms, reason=r.spec.reason) for w, r in found)


def _device_view(
    plane: Plane, caller: Caller, device: Device, held: tuple[Allocation | None, list[tuple[Allocation, DevicePart]]], dirty: bool
) -> DeviceView:
    holder, in_parts = held
    seen = holder if holder is not None and caller.project in (None, holder.project) else None
    return DeviceView(
        uuid=device.uuid,
        index=device.index,
        model=device.model,
        memory_bytes=device.memory_bytes,
        state=str(lifecycle.device_state(device, holder is not None or bool(in_parts), dirty)),
        job=_address(plane, seen) if seen is not None else None,
        job_id=seen.job if seen is not None else None,
        gives=partition_text(device.partition),
        parts=tuple(_part_view(plane, caller, allocation, part) for allocation, part in in_parts),
    )


def _part_view(plane: Plane, caller: Caller, holder: Allocation, part: DevicePart) -> PartView:
    told = {"part": part_text(part), "charge": part.charge}
    if caller.project not in (None, holder.project):
        return PartView(**told)  # type: ignore[arg-type]
    return PartView(**told, job=_address(plane, holder), job_id=holder.job)  # type: ignore[arg-type]


def _address(plane: Plane, allocation: Allocation) -> str:
    job = plane.world.job(allocation.job)
    return job.address if job is not None else str(allocation.job_number)

"""Rules of where a gang wants to be: its level, its slices, and a mesh that its GPUs make up. Used by `spec_rules`."""

from __future__ import annotations

from shoal.base import limits
from shoal.base.errors import Fault
from shoal.lifecycle.layout import GroupLayout, alternatives, layout
from shoal.lifecycle.names import name_faults
from shoal.lifecycle.resource_rules import between
from shoal.model.job import JobSpec, Slice, Topology
from shoal.model.mesh import AXES, gpus_of, mesh_text


def check_topology(spec: JobSpec) -> tuple[Fault, ...]:
    """Every broken rule of `topology`. Call once the resources are sound."""
    topology = spec.topology
    if topology is None:
        return ()
    faults: list[Fault] = []
    if topology.required and topology.level is None and not topology.mesh:
        faults.append(Fault("topology.required needs a level, for example level: rack", "/topology/level"))
    if topology.level is not None:
        faults += name_faults("topology.level", topology.level, "/topology/level")
    if topology.slice is not None:
        faults += _slice(spec, topology, topology.slice)
    if topology.mesh:
        faults += _axes(topology.mesh) or _mesh(spec, topology)
    return tuple(faults)


def _slice(spec: JobSpec, topology: Topology, cut: Slice) -> tuple[Fault, ...]:
    where = "/topology/slice"
    faults = list(between("topology.slice.size", cut.size, 1, limits.NODES_PER_JOB_MAX, f"{where}/size"))
    faults += name_faults("topology.slice.level", cut.level, f"{where}/level")
    if topology.mesh:
        faults.append(Fault("topology.slice and topology.mesh exclude each other: a mesh makes its own slices", where))
    if spec.groups:
        faults.append(Fault("topology.slice is for a gang without groups: groups share one domain already", where))
    for index, group in _ways(spec) if not faults else ():
        if group.nodes_low % cut.size or group.nodes_high % cut.size:
            nodes = _range(group)
            which = "" if index is None else f" of alternative {index}"
            faults.append(Fault(f"nodes{which} is {nodes}, and slices have {cut.size} each: use a multiple of {cut.size}", "/nodes"))
    return tuple(faults)


def _axes(mesh: dict[str, int]) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    for axis in sorted(mesh):
        if axis not in AXES:
            known = ", ".join(AXES)
            faults.append(Fault(f"topology.mesh has no axis {axis[:80]!r}; there are {known}", f"/topology/mesh/{axis}", allowed=AXES))
        else:
            faults += between(f"topology.mesh.{axis}", mesh[axis], 1, limits.TASKS_PER_JOB_MAX, f"/topology/mesh/{axis}")
    return tuple(faults)


def _mesh(spec: JobSpec, topology: Topology) -> tuple[Fault, ...]:
    if spec.groups:
        return (Fault("topology.mesh is for a gang without groups: put the groups into jobs of their own", "/topology/mesh"),)
    mesh, tp = topology.mesh, topology.mesh.get("tp", 1)
    faults: list[Fault] = []
    for index, group in _ways(spec):
        which = "" if index is None else f"alternative {index}: "
        if group.nodes_low != group.nodes_high:
            faults.append(Fault(f"{which}nodes is {_range(group)}, and a mesh has one size: name one count", "/nodes"))
        elif group.nodes_low * group.gpus != gpus_of(mesh):
            product = f"{mesh_text(mesh)} multiplies to {gpus_of(mesh)}"
            asked = f"{group.nodes_low} x {group.gpus} GPUs make {group.nodes_low * group.gpus}"
            faults.append(Fault(f"{which}topology.mesh {product}, and {asked}: they must be the same", "/topology/mesh"))
        elif group.gpus and tp % group.gpus and group.gpus % tp:
            message = f"{which}tp is {tp} and a node gives {group.gpus} GPUs: one must divide the other, so that groups end where nodes do"
            faults.append(Fault(message, "/topology/mesh/tp"))
    return tuple(faults)


def _ways(spec: JobSpec) -> list[tuple[int | None, GroupLayout]]:
    """The gang as it stands, or as each of its alternatives has it."""
    indexes: list[int | None] = list(range(len(alternatives(spec)))) or [None]
    return [(index, layout(spec, index)[0]) for index in indexes]


def _range(group: GroupLayout) -> str:
    return str(group.nodes_low) if group.nodes_low == group.nodes_high else f"{group.nodes_low}..{group.nodes_high}"

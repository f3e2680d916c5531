"""
Evidence: what was seen on a node, piece by piece, each with the kind that says how to read it.

A piece is raw output (a log, a table, a listing) or a *reported* statement ("works on host") that somebody wrote down; a parser knows
which of the two it has read. The keys under which people file pieces vary, so `kind_of` maps any key to the closed list of kinds; the
mapping is printed in docs/explanation/doctor.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec


class Side(StrEnum):
    """On which side of the container wall something was seen: the one bit that separates layers 0-3 from 4-7."""

    HOST = "host"
    CONTAINER = "container"
    CLUSTER = "cluster"
    UNKNOWN = "unknown"


class Kind(StrEnum):
    """How a piece is read; one kind per program or place that evidence comes from."""

    POD_EVENTS = "pod-events"
    PODS = "pods"
    CAPACITY = "node-capacity"
    ALLOCATABLE = "node-allocatable"
    RESOURCES = "node-resources"
    LABELS = "node-labels"
    TAINTS = "node-taints"
    SMI_HOST = "nvidia-smi-host"
    SMI_CONTAINER = "nvidia-smi-container"
    SMI = "nvidia-smi"
    KERNEL_LOG = "kernel-log"
    LISTING = "listing"
    RUNTIME_CONFIG = "runtime-config"
    CDI = "cdi"
    CGROUP = "cgroup"
    PLUGIN_LOG = "plugin-log"
    DRA_LOG = "dra-log"
    GFD_LOG = "gfd-log"
    NFD_LOG = "nfd-log"
    DRIVER_LOG = "driver-log"
    OPERATOR_LOG = "operator-log"
    VALIDATOR_LOG = "validator-log"
    TOOLKIT_LOG = "toolkit-log"
    MIG = "mig"
    MPS = "mps"
    FABRIC = "fabric"
    KUBELET = "kubelet"
    CLAIM = "claim"
    JOURNAL = "journal"
    PACKAGES = "packages"
    SLURM = "slurm"
    RAY = "ray"
    SANDBOX = "sandbox"
    MONITOR = "monitor"
    APP_LOG = "app-log"
    CONTAINER_LOG = "container-log"
    SCHEDULER = "scheduler"
    IMAGE = "image"
    HARDWARE = "hardware"
    HOST = "host"
    NODE = "node"
    NOTE = "note"


SIDES: Final[dict[Kind, Side]] = {
    Kind.SMI_HOST: Side.HOST,
    Kind.KERNEL_LOG: Side.HOST,
    Kind.DRIVER_LOG: Side.HOST,
    Kind.JOURNAL: Side.HOST,
    Kind.PACKAGES: Side.HOST,
    Kind.HARDWARE: Side.HOST,
    Kind.HOST: Side.HOST,
    Kind.LISTING: Side.HOST,
    Kind.FABRIC: Side.HOST,
    Kind.SMI_CONTAINER: Side.CONTAINER,
    Kind.CGROUP: Side.CONTAINER,
    Kind.PLUGIN_LOG: Side.CONTAINER,
    Kind.DRA_LOG: Side.CONTAINER,
    Kind.GFD_LOG: Side.CONTAINER,
    Kind.APP_LOG: Side.CONTAINER,
    Kind.CONTAINER_LOG: Side.CONTAINER,
    Kind.MONITOR: Side.CONTAINER,
    Kind.POD_EVENTS: Side.CLUSTER,
    Kind.PODS: Side.CLUSTER,
    Kind.CAPACITY: Side.CLUSTER,
    Kind.ALLOCATABLE: Side.CLUSTER,
    Kind.RESOURCES: Side.CLUSTER,
    Kind.LABELS: Side.CLUSTER,
    Kind.TAINTS: Side.CLUSTER,
}
"""The side on which a kind is read; kinds that are not here do not say."""

KEYS: Final[dict[str, Kind]] = {
    "nvidia_smi": Kind.SMI,
    "host_smi": Kind.SMI_HOST,
    "container_smi": Kind.SMI_CONTAINER,
    "pod_smi": Kind.SMI_CONTAINER,
    "cdi_spec": Kind.CDI,
    "dcgm_exporter_log": Kind.MONITOR,
    "runtime_class": Kind.RUNTIME_CONFIG,
    "mps_log": Kind.MPS,
    "node_status": Kind.RESOURCES,
    "node_describe": Kind.RESOURCES,
    "node_capacity": Kind.CAPACITY,
    "node_allocatable": Kind.ALLOCATABLE,
    "allocatable": Kind.ALLOCATABLE,
    "capacity": Kind.CAPACITY,
    "node_os": Kind.NODE,
    "host": Kind.HOST,
    "node": Kind.NODE,
    "scheduler": Kind.SCHEDULER,
    "config": Kind.RUNTIME_CONFIG,
    "hardware": Kind.HARDWARE,
    "trigger": Kind.NOTE,
    "probe": Kind.NOTE,
    "note": Kind.NOTE,
}
"""Keys that mean one kind; all others go by their words."""

WORDS_OF_KINDS: Final[tuple[tuple[str, Kind], ...]] = (
    ("(?:container|pod) (?:nvidia )?smi|smi (?:in )?(?:container|pod)", Kind.SMI_CONTAINER),
    ("(?:host|node) (?:nvidia )?smi|smi (?:on )?(?:host|node)", Kind.SMI_HOST),
    ("smi|nvml", Kind.SMI),
    ("dmesg|kernel log|kern|xid|syslog|kmsg", Kind.KERNEL_LOG),
    ("dcgm|exporter|monitor|monitoring|metrics|prometheus|nvhostengine|hostengine", Kind.MONITOR),
    ("mps", Kind.MPS),
    ("mig", Kind.MIG),
    ("fabric|fabricmanager|nvswitch|imex", Kind.FABRIC),
    ("slurm|slurmd|slurmctld|scontrol|sinfo|squeue|srun|sbatch|gres", Kind.SLURM),
    ("ray|raylet", Kind.RAY),
    ("runsc|gvisor|kata|qemu|vfio|firecracker|sandbox|shim|iommu|vm", Kind.SANDBOX),
    ("nfd", Kind.NFD_LOG),
    ("gfd|feature discovery", Kind.GFD_LOG),
    ("dra|resourceslice|resourceslices|slice|slices", Kind.DRA_LOG),
    ("claim|claims|resourceclaim", Kind.CLAIM),
    ("plugin|hami", Kind.PLUGIN_LOG),
    ("kubelet", Kind.KUBELET),
    ("validator|validation", Kind.VALIDATOR_LOG),
    ("toolkit", Kind.TOOLKIT_LOG),
    ("operator|clusterpolicy", Kind.OPERATOR_LOG),
    ("driver|installer|dkms|build|modprobe|install", Kind.DRIVER_LOG),
    ("package|packages|apt|dpkg|rpm|yum|dnf", Kind.PACKAGES),
    ("cgroup|cgroups", Kind.CGROUP),
    ("cdi", Kind.CDI),
    ("event|events|admission", Kind.POD_EVENTS),
    ("pods|pod status|operands|daemonset|daemonsets|pod", Kind.PODS),
    ("allocatable", Kind.ALLOCATABLE),
    ("capacity", Kind.CAPACITY),
    ("labels|label", Kind.LABELS),
    ("taint|taints|tolerations", Kind.TAINTS),
    ("lspci|proc|dev|devices|lsmod|modules|ls|files|sockets", Kind.LISTING),
    ("containerd|crio|cri|docker|podman|runtime|runtimeclass|toml|config|conf|settings", Kind.RUNTIME_CONFIG),
    ("journal|journalctl|systemd|service|services|systemctl|unit", Kind.JOURNAL),
    ("image|dockerfile", Kind.IMAGE),
    ("app|application|torch|pytorch|python|traceback|job|workload|training|nccl|vllm|tensorflow|jax|user", Kind.APP_LOG),
    ("container|oci|runc|hook", Kind.CONTAINER_LOG),
    ("scheduler|scheduling|quota|queue", Kind.SCHEDULER),
    ("host|os|bios|bmc|ipmi|uname", Kind.HOST),
    ("node", Kind.NODE),
    ("gpu|gpus|hardware|pci|pcie|machine", Kind.HARDWARE),
)
"""First match wins: the more telling words stand first."""

_BY_WORDS: Final = tuple((re.compile(rf"(?:^| )(?:{words})(?: |$)"), kind) for words, kind in WORDS_OF_KINDS)


def kind_of(key: str) -> Kind:
    """The kind of the piece filed under `key`; NOTE, read like all text, where no word of it is known."""
    plain = re.sub(r"[^a-z0-9]+", " ", key.lower()).strip()
    exact = KEYS.get(plain.replace(" ", "_"))
    if exact is not None:
        return exact
    return next((kind for pattern, kind in _BY_WORDS if pattern.search(plain)), Kind.NOTE)


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was seen. `key` is the name under which it was filed, for people; `source` names file or command if known."""

    key: str
    kind: Kind
    text: str
    source: str = ""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that was seen of one node or one workload."""

    pieces: tuple[Piece, ...] = ()
    id: str = ""

    @property
    def kinds(self) -> frozenset[Kind]:
        return frozenset(piece.kind for piece in self.pieces)


def evidence_of(texts: Mapping[str, Any] | Iterable[tuple[str, Any]], id: str = "") -> Evidence:
    """Evidence from (key, text) pairs, as case files hold it. What is no text becomes the text of its JSON."""
    pairs = texts.items() if isinstance(texts, Mapping) else texts
    return Evidence(
        id=id, pieces=tuple(Piece(key=str(key), kind=kind_of(str(key)), text=_text_of(value)) for key, value in pairs if value is not None)
    )


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(value)
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode()

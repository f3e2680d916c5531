"""A machine and its devices: what it has, where it stands, whether it may be used. Never what runs on it."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from shoal.model.part import Partition
from shoal.model.reason import Reason


class DeviceState(StrEnum):
    """TAKEN from the claim on; DIRTY until the processes of its last holder are seen gone; BROKEN by `lifecycle.node` alone."""

    FREE = "FREE"
    TAKEN = "TAKEN"
    DIRTY = "DIRTY"
    BROKEN = "BROKEN"


class NodeState(StrEnum):
    """READY takes work. CORDONED takes none but keeps its own. DRAINING empties. UNREACHABLE is silent, LOST is given up."""

    READY = "READY"
    CORDONED = "CORDONED"
    DRAINING = "DRAINING"
    UNREACHABLE = "UNREACHABLE"
    LOST = "LOST"


class Device(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One GPU. `island` numbers the NVLink island inside the host; `pci` is the PCI bus id; `switch` its PCIe switch."""

    uuid: str
    index: int
    model: str
    """The short name that asks use: h100, a100, l40s."""
    product: str = ""
    memory_bytes: int = 0
    island: int = 0
    switch: int = 0
    numa: int = 0
    pci: str = ""
    mig: Literal["off", "on"] = "off"
    partition: Partition = Partition()
    broken: Reason | None = None


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a probe saw of a machine; the agent sends it when it registers."""

    hostname: str
    address: str
    cpus: int
    memory_bytes: int
    devices: tuple[Device, ...] = ()
    nics: int = 0
    """Network adapters for traffic between GPUs (RDMA devices); 0 where none is known, which counts as one path."""
    boot_id: str = ""
    kernel: str = ""
    driver: str | None = None
    isolation: Literal["cgroup2", "cgroup1", "weak"] = "weak"
    as_root: bool = False
    pretended: bool = False
    agent_version: str = ""


class Node(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """
    A node as the control plane knows it. `id` is its name, unique in the installation.

    `topology` is the path of (level, domain) from the widest level inwards, for example (("zone", "a"), ("rack", "a3")); the host
    itself and the NVLink islands inside it are implied.
    """

    id: str
    facts: NodeFacts
    pool: str = "default"
    topology: tuple[tuple[str, str], ...] = ()
    labels: dict[str, str] = {}
    backend: str = "agents"
    state: NodeState = NodeState.READY
    reason: Reason | None = None
    """Why it is not READY."""
    wanted: NodeState = NodeState.READY
    """What a person or a policy asked for (READY, CORDONED, DRAINING); comes back when the node is reachable again."""
    wanted_reason: Reason | None = None
    """Why that was asked for; `reason` again once the node is back from being away."""
    epoch: int = 0
    """Times its agent has registered; the agent's messages carry it, older ones are dropped."""
    joined_ms: int = 0
    version: int = 0

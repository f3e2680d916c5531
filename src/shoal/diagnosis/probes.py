"""
Which look at the node comes next: the probe that removes most doubt per second.

A probe *names* some layers (a fault there shows itself in the output) and *feels* others (their fault makes the output look bad without
saying which it is). With a belief over layers that gives the expected doubt after it, in bits; the gain over the time it takes is the
score. Probes that ask the API server take seconds and so come first by themselves. Cost: probes x layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from shoal.diagnosis.evidence import Kind
from shoal.diagnosis.layers import STACK, Layer


class Probe(NamedTuple):
    """One look. `seconds` is for a person or program with access; `needs` says which access."""

    name: str
    command: str
    seconds: int
    needs: str
    gives: Kind
    names: frozenset[Layer]
    feels: frozenset[Layer] = frozenset()


_L = Layer
_HOST_LAYERS = frozenset({_L.HARDWARE, _L.KERNEL_DRIVER})
_WALL = frozenset({_L.CONTAINER_TOOLKIT, _L.CDI, _L.CONTAINER_RUNTIME})
_API, _ROOT, _EXEC, _USER = "the API server", "root on the node", "exec into the pod", "nothing"


def _probe(name: str, command: str, cost: tuple[int, str], gives: Kind, names: Iterable[Layer], feels: Iterable[Layer] = ()) -> Probe:
    return Probe(name, command, *cost, gives, frozenset(names), frozenset(feels))


_OPERATOR = "kubectl logs -n gpu-operator"
PROBES: Final[dict[str, Probe]] = {
    probe.name: probe
    for probe in (
        _probe(
            "pod-events",
            "kubectl describe pod POD",
            (5, _API),
            Kind.POD_EVENTS,
            {_L.SCHEDULER, _L.KUBELET, _L.CDI, _L.SANDBOX},
            _WALL | {_L.CUDA_COMPAT},
        ),
        _probe(
            "node-resources",
            "kubectl describe node NODE",
            (5, _API),
            Kind.RESOURCES,
            {_L.DEVICE_HEALTH},
            {_L.DEVICE_PLUGIN, _L.MIG, *_HOST_LAYERS, *_WALL},
        ),
        _probe("node-taints", "kubectl get node NODE -o jsonpath='{.spec.taints}'", (5, _API), Kind.TAINTS, {_L.SCHEDULER}),
        _probe("node-labels", "kubectl get node NODE --show-labels", (5, _API), Kind.LABELS, {_L.NODE_LABELS, _L.DRIVER_UPGRADE, _L.MIG}),
        _probe(
            "operand-pods",
            "kubectl get pods -n gpu-operator -o wide",
            (5, _API),
            Kind.PODS,
            {_L.DRIVER_UPGRADE, _L.MPS},
            {*_HOST_LAYERS, _L.FABRIC, *_WALL, _L.DEVICE_PLUGIN, _L.MONITORING, _L.NODE_LABELS},
        ),
        _probe("resource-slices", "kubectl get resourceslices -o yaml", (5, _API), Kind.DRA_LOG, {_L.DRA_DRIVER}),
        _probe("pod-spec", "kubectl get pod POD -o yaml", (5, _API), Kind.NOTE, {_L.SCHEDULER}, {_L.CONTAINER_RUNTIME}),
        _probe("slurm-node", "scontrol show node NODE", (5, _USER), Kind.SLURM, {_L.SLURM_GRES}, _HOST_LAYERS),
        _probe(
            "image-config",
            "shoal doctor image IMAGE, or docker inspect IMAGE",
            (10, _USER),
            Kind.IMAGE,
            {_L.CUDA_COMPAT, _L.APPLICATION_IMAGE},
        ),
        _probe(
            "app-log",
            "the program's own output, from its start",
            (10, _USER),
            Kind.APP_LOG,
            {_L.APPLICATION, _L.APPLICATION_IMAGE, _L.CUDA_COMPAT},
            {_L.FABRIC, _L.GPU_STATE},
        ),
        _probe(
            "plugin-log",
            f"{_OPERATOR} PLUGIN-POD",
            (15, _API),
            Kind.PLUGIN_LOG,
            {_L.DEVICE_PLUGIN, _L.MIG, _L.MPS, _L.DEVICE_HEALTH, _L.CONTAINER_RUNTIME},
            _HOST_LAYERS | {_L.CONTAINER_TOOLKIT},
        ),
        _probe(
            "driver-log", f"{_OPERATOR} DRIVER-POD --all-containers", (15, _API), Kind.DRIVER_LOG, {_L.KERNEL_DRIVER, _L.DRIVER_UPGRADE}
        ),
        _probe(
            "toolkit-log",
            f"{_OPERATOR} TOOLKIT-POD --all-containers",
            (15, _API),
            Kind.TOOLKIT_LOG,
            {_L.CONTAINER_TOOLKIT, _L.CDI},
            {_L.KERNEL_DRIVER},
        ),
        _probe(
            "validator-log",
            f"{_OPERATOR} VALIDATOR-POD --all-containers",
            (15, _API),
            Kind.VALIDATOR_LOG,
            {_L.FABRIC, _L.CUDA_COMPAT},
            {_L.KERNEL_DRIVER, *_WALL},
        ),
        _probe(
            "container-smi",
            "kubectl exec POD -- nvidia-smi",
            (15, _EXEC),
            Kind.SMI_CONTAINER,
            {_L.CONTAINER_CGROUP},
            {*_HOST_LAYERS, _L.CONTAINER_RUNTIME, _L.DRA_DRIVER},
        ),
        _probe("dcgm-log", f"{_OPERATOR} DCGM-EXPORTER-POD", (15, _API), Kind.MONITOR, {_L.MONITORING}),
        _probe("mps-log", f"{_OPERATOR} MPS-CONTROL-DAEMON-POD", (15, _API), Kind.MPS, {_L.MPS}),
        _probe("mig-log", f"{_OPERATOR} MIG-MANAGER-POD", (15, _API), Kind.MIG, {_L.MIG}),
        _probe("host-smi", "nvidia-smi", (20, _ROOT), Kind.SMI_HOST, _HOST_LAYERS),
        _probe(
            "kernel-log", "dmesg | grep -iE 'nvrm|xid|nvidia|nouveau|sxid|aer'", (20, _ROOT), Kind.KERNEL_LOG, _HOST_LAYERS | {_L.FABRIC}
        ),
        _probe("lspci", "lspci -d 10de: -nnk", (20, _ROOT), Kind.LISTING, {_L.HARDWARE}, {_L.KERNEL_DRIVER, _L.SANDBOX}),
        _probe(
            "module-version", "cat /proc/driver/nvidia/version; modinfo -F version nvidia", (20, _ROOT), Kind.LISTING, {_L.KERNEL_DRIVER}
        ),
        _probe("holders", "lsof /dev/nvidia*", (20, _ROOT), Kind.LISTING, {_L.DRIVER_UPGRADE}, {_L.KERNEL_DRIVER, _L.GPU_STATE}),
        _probe("slurmd-log", "journalctl -u slurmd -n 200; slurmd -G", (20, _ROOT), Kind.SLURM, {_L.SLURM_GRES}),
        _probe(
            "gpu-fields", "nvidia-smi -q", (25, _ROOT), Kind.SMI_HOST, {_L.GPU_STATE, _L.HARDWARE, _L.MIG}, {_L.FABRIC, _L.KERNEL_DRIVER}
        ),
        _probe("mig-list", "nvidia-smi mig -lgi; nvidia-smi -L", (25, _ROOT), Kind.MIG, {_L.MIG}),
        _probe(
            "fabric-state", "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A3 Fabric", (25, _ROOT), Kind.FABRIC, {_L.FABRIC}
        ),
        _probe(
            "kubelet-version", "kubectl get node NODE -o jsonpath='{.status.nodeInfo.kubeletVersion}'", (5, _API), Kind.NODE, {_L.KUBELET}
        ),
        _probe(
            "kubelet-sockets",
            "ls -l /var/lib/kubelet/device-plugins /var/lib/kubelet/plugins_registry",
            (20, _ROOT),
            Kind.LISTING,
            {_L.DEVICE_PLUGIN, _L.DRA_DRIVER, _L.KUBELET},
        ),
        _probe("kubelet-log", "journalctl -u kubelet -n 300", (30, _ROOT), Kind.KUBELET, {_L.KUBELET}, {_L.DEVICE_PLUGIN, _L.DRA_DRIVER}),
        _probe(
            "runtime-config",
            "containerd config dump; kubectl get runtimeclass; nvidia-ctk --version",
            (30, _ROOT),
            Kind.RUNTIME_CONFIG,
            {_L.CONTAINER_RUNTIME},
        ),
        _probe("cdi-list", "nvidia-ctk cdi list; ls /etc/cdi /var/run/cdi", (30, _ROOT), Kind.CDI, {_L.CDI}, {_L.DRA_DRIVER}),
        _probe("cgroup-rules", "device rules of the container's cgroup; ls -l /dev/char", (30, _ROOT), Kind.CGROUP, {_L.CONTAINER_CGROUP}),
        _probe("sandbox-log", "debug log of runsc, or journal of the kata shim", (30, _ROOT), Kind.SANDBOX, {_L.SANDBOX}),
    )
}
"""Costs: an API read 5 s, a log over the API 15 s, a look on the node 20 to 30 s (the costs of the worked example of five checks)."""

_INCIDENTS: Final[dict[Layer, int]] = {
    _L.KERNEL_DRIVER: 8,
    _L.CONTAINER_RUNTIME: 5,
    _L.MIG: 4,
    _L.HARDWARE: 3,
    _L.KUBELET: 3,
    _L.FABRIC: 2,
    _L.CONTAINER_TOOLKIT: 2,
    _L.CONTAINER_CGROUP: 2,
    _L.NODE_LABELS: 2,
    _L.DEVICE_HEALTH: 2,
    _L.CUDA_COMPAT: 2,
    _L.SANDBOX: 2,
    _L.SLURM_GRES: 2,
}
"""Incidents by layer in 46 public threads of 2018 to 2026; layers that are not here had at most one."""

PRIORS: Final[dict[Layer, float]] = {layer: (_INCIDENTS.get(layer, 1)) / sum(_INCIDENTS.get(one, 1) for one in STACK) for layer in STACK}


def entropy_bits(weights: Iterable[float]) -> float:
    """Doubt in a set of weights (they need not sum to 1)."""
    kept = [weight for weight in weights if weight > 0]
    total = sum(kept)
    return -sum(weight / total * math.log2(weight / total) for weight in kept) if total > 0 else 0.0


def gain_bits(probe: Probe, belief: Mapping[Layer, float]) -> float:
    """Doubt that `probe` is expected to remove from `belief`."""
    total = sum(belief.values())
    if total <= 0:
        return 0.0
    felt = [weight for layer, weight in belief.items() if layer in probe.feels - probe.names]
    rest = [weight for layer, weight in belief.items() if layer not in probe.feels | probe.names]
    after = sum(felt) / total * entropy_bits(felt) + sum(rest) / total * entropy_bits(rest)
    return entropy_bits(belief.values()) - after


def next_probe(belief: Mapping[Layer, float], seen: frozenset[Kind] = frozenset(), done: Iterable[str] = ()) -> Probe | None:
    """The probe that removes most doubt per second, of those that would give something not yet `seen`; None where none helps."""
    left = [probe for probe in PROBES.values() if probe.gives not in seen and probe.name not in set(done)]
    scored = [(gain_bits(probe, belief) / probe.seconds, probe.name, probe) for probe in left]
    best = max(scored, key=lambda one: (one[0], one[1]), default=None)
    return best[2] if best is not None and best[0] > 1e-9 else None


def expected_seconds(order: Sequence[tuple[float, float]]) -> float:
    """
    Expected time until the fault is found, checking in `order`: pairs of (probability that the fault is here, seconds of the check).

    Raises ValueError where the probabilities do not sum to 1: some fault would then never be found.
    """
    if abs(sum(chance for chance, _ in order) - 1) > 1e-6:
        raise ValueError(f"the probabilities sum to {sum(chance for chance, _ in order):g}; they must sum to 1")
    passed = total = 0.0
    for chance, seconds in order:
        passed += seconds
        total += chance * passed
    return total


def best_order(checks: Sequence[tuple[float, float]]) -> list[int]:
    """Indexes of `checks` in the order of least expected time: by probability over seconds, falling; equal ones keep their order."""
    return sorted(range(len(checks)), key=lambda index: (-checks[index][0] / checks[index][1], index))

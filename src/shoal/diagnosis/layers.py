"""
The layers of a GPU node, lowest first: the closed list of words that a verdict may name.

A layer can only be blamed when what lies below it on the same node is good, so `DEPTH` is also the order of blame: of two equally
certain findings the lower layer is the root and the upper one its consequence.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Layer(StrEnum):
    """Lowest first. `NONE` and `UNKNOWN` are answers that blame nothing."""

    HARDWARE = "hardware"
    KERNEL_DRIVER = "kernel-driver"
    FABRIC = "fabric"
    GPU_STATE = "gpu-state"
    CONTAINER_TOOLKIT = "container-toolkit"
    CDI = "cdi"
    CONTAINER_RUNTIME = "container-runtime"
    CONTAINER_CGROUP = "container-cgroup"
    NODE_LABELS = "node-labels"
    DRIVER_UPGRADE = "driver-upgrade"
    MIG = "mig"
    MPS = "mps"
    DEVICE_PLUGIN = "device-plugin"
    DRA_DRIVER = "dra-driver"
    DEVICE_HEALTH = "device-health"
    KUBELET = "kubelet"
    SCHEDULER = "scheduler"
    SLURM_GRES = "slurm-gres"
    SANDBOX = "sandbox"
    CUDA_COMPAT = "cuda-compat"
    APPLICATION_IMAGE = "application-image"
    APPLICATION = "application"
    MONITORING = "monitoring"
    NONE = "none"
    """Nothing is broken."""
    UNKNOWN = "unknown"
    """The evidence does not say; the verdict carries the probe that would."""


class LayerWords(NamedTuple):
    """What a layer is, how it looks when it is good, and what people see when it is the broken one."""

    title: str
    good: str
    seen: str


LAYERS: Final[dict[Layer, LayerWords]] = {
    Layer.HARDWARE: LayerWords(
        "GPU, PCIe, power", "`lspci -d 10de:` shows every GPU of the machine", "fewer GPUs than in the machine, Xid 79, 48, 95 or 64"
    ),
    Layer.KERNEL_DRIVER: LayerWords(
        "kernel module and its user libraries",
        "`/proc/driver/nvidia/version` exists and libcuda has the same version",
        "nvidia-smi cannot talk to the driver, or says `Driver/library version mismatch`; the driver pod loops",
    ),
    Layer.FABRIC: LayerWords(
        "NVSwitch and fabric manager",
        "`nvidia-smi -q` has Fabric State Completed, Status Success",
        "nvidia-smi is fine, every CUDA program fails with 802 (system not yet initialized)",
    ),
    Layer.GPU_STATE: LayerWords(
        "modes and pending actions of a GPU",
        "compute mode Default, no reset or row remap pending, ECC as wished",
        "all CUDA-capable devices are busy; a GPU asks for a reset",
    ),
    Layer.CONTAINER_TOOLKIT: LayerWords(
        "container toolkit and its hook", "`nvidia-container-cli info` works", "containers do not start: `nvidia-container-cli: ...`"
    ),
    Layer.CDI: LayerWords(
        "CDI specifications",
        "`nvidia-ctk cdi list` has the kind and id asked for",
        "`unresolvable CDI devices KIND=ID`, mounts of files that are gone",
    ),
    Layer.CONTAINER_RUNTIME: LayerWords(
        "runtime handler and RuntimeClass",
        "containerd or CRI-O has the handler that the RuntimeClass names",
        '`no runtime for "nvidia" is configured`, or the pod starts without any GPU',
    ),
    Layer.CONTAINER_CGROUP: LayerWords(
        "device rules of a running container",
        "rw rules for the NVIDIA devices in the container's cgroup",
        "it worked, then `Failed to initialize NVML: Unknown Error` while the host is fine",
    ),
    Layer.NODE_LABELS: LayerWords(
        "NFD and GFD labels", "the PCI label and `nvidia.com/gpu.present=true`", "no operand pod at all on the node"
    ),
    Layer.DRIVER_UPGRADE: LayerWords(
        "the operator's driver upgrade",
        "upgrade state absent or `upgrade-done`",
        "nodes stay in upgrade-required or upgrade-failed, the driver pod waits in k8s-driver-manager",
    ),
    Layer.MIG: LayerWords(
        "MIG mode and layout",
        "mode equals pending mode, instances as the strategy wants, `mig.config.state=success`",
        "no GPU resource although nvidia-smi is healthy; the plugin refuses the layout",
    ),
    Layer.MPS: LayerWords("MPS daemon", "the control daemon answers", "`error checking MPS daemon health`, CUDA errors 805 to 809"),
    Layer.DEVICE_PLUGIN: LayerWords(
        "device plugin", "registered, devices Healthy", "the resource is absent or 0 although the layers below are good"
    ),
    Layer.DRA_DRIVER: LayerWords("DRA driver", "a ResourceSlice with the node's devices", "empty slices; claims that cannot be prepared"),
    Layer.DEVICE_HEALTH: LayerWords(
        "health as the plugin sees it", "allocatable equals capacity", "allocatable is lower than capacity and stays so"
    ),
    Layer.KUBELET: LayerWords(
        "kubelet's device, topology and DRA managers",
        "admission works, sockets are there",
        "`UnexpectedAdmissionError`, `TopologyAffinityError`",
    ),
    Layer.SCHEDULER: LayerWords(
        "scheduling: taints, selectors, quota, free GPUs", "no FailedScheduling", "`Insufficient nvidia.com/gpu`, `untolerated taint`"
    ),
    Layer.SLURM_GRES: LayerWords(
        "Slurm's generic resources", "slurmd reports the configured count", "node drained: `gres/gpu count reported lower than configured`"
    ),
    Layer.SANDBOX: LayerWords(
        "gVisor, Kata, VFIO",
        "the driver is one that nvproxy lists; the IOMMU group lies wholly on vfio",
        "`waiting for sandbox to start: EOF`, `group N is not viable`",
    ),
    Layer.CUDA_COMPAT: LayerWords(
        "the image's CUDA against the driver",
        "the driver meets what the image asks for",
        "`unsatisfied condition: cuda>=...`, CUDA errors 35, 803, 804",
    ),
    Layer.APPLICATION_IMAGE: LayerWords(
        "what the image was built for",
        "the GPU's architecture is in the build, libraries are there",
        "`no kernel image is available`, missing CUDA libraries",
    ),
    Layer.APPLICATION: LayerWords("the program itself", "it runs on another healthy node", "out of memory, illegal access, Xid 13, 31, 43"),
    Layer.MONITORING: LayerWords("DCGM and exporters", "metrics arrive", "metrics are missing although GPUs work"),
    Layer.NONE: LayerWords("nothing is broken", "", "a message that sounds worse than it is"),
    Layer.UNKNOWN: LayerWords("not known yet", "", "evidence that no rule knows"),
}

DEPTH: Final[dict[Layer, int]] = {layer: depth for depth, layer in enumerate(LAYERS)}
"""0 is nearest to the metal."""

STACK: Final[tuple[Layer, ...]] = tuple(layer for layer in LAYERS if layer not in (Layer.NONE, Layer.UNKNOWN))

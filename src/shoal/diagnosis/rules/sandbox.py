"""Rules for gVisor, Kata and passthrough."""

from __future__ import annotations

from typing import Final

from shoal.diagnosis.layers import Layer
from shoal.diagnosis.rules.rule import Rule, Tier, on
from shoal.diagnosis.signs import Sign

_RUNSC = ("runsc nvproxy list-supported-drivers", "nvidia-smi --query-gpu=driver_version --format=csv")

SANDBOX: Final[tuple[Rule, ...]] = (
    Rule(
        "nvproxy-driver",
        Layer.SANDBOX,
        Tier.ROOT,
        0.95,
        ((Sign.NVPROXY_DRIVER,),),
        "nvproxy of gVisor matches the driver's version exactly and does not list this one.",
        "Use a runsc that lists the driver, or a driver that it lists.",
        "sandbox-log",
        _RUNSC,
    ),
    Rule(
        "nvproxy-call",
        Layer.SANDBOX,
        Tier.ROOT,
        0.85,
        ((Sign.NVPROXY_CALL,),),
        "The program's CUDA makes a call that nvproxy does not pass through.",
        "Use a CUDA that was tested with the driver, or a newer runsc.",
        "sandbox-log",
        _RUNSC,
    ),
    Rule(
        "vfio-group",
        Layer.SANDBOX,
        Tier.ROOT,
        0.9,
        ((Sign.VFIO_GROUP, Sign.IOMMU_OFF),),
        "The GPU's IOMMU group is not wholly bound to vfio, or the IOMMU is off.",
        "Bind every device of the group to vfio-pci; switch the IOMMU on.",
        "sandbox-log",
        ("ls -l /sys/kernel/iommu_groups/*/devices",),
    ),
    Rule(
        "hypervisor",
        Layer.SANDBOX,
        Tier.LEAD,
        0.7,
        ((Sign.HYPERVISOR, Sign.VFIO_OPEN),),
        "The virtual machine around the pod does not start, or does not get the GPU.",
        "Read the hypervisor's and the shim's log.",
        "sandbox-log",
        ("journalctl -t kata",),
    ),
    Rule(
        "sandbox-eof",
        Layer.SANDBOX,
        Tier.LEAD,
        0.72,
        ((Sign.SANDBOX_EOF,),),
        "The sandbox ends while it starts; only its debug log says why.",
        "Switch on runsc's debug log and start again.",
        "sandbox-log",
        _RUNSC,
    ),
    Rule(
        "passthrough",
        Layer.SANDBOX,
        Tier.LEAD,
        0.55,
        ((Sign.PASSTHROUGH, Sign.VFIO_BOUND),),
        "The node's GPUs are given to virtual machines (vfio-pci), so containers get none.",
        "Set nvidia.com/gpu.workload.config=container, or use another node.",
        "node-labels",
        ("lspci -d 10de: -k",),
        beats=("module-not-loaded", "smi-no-driver"),
    ),
    Rule(
        "runsc-no-gpu",
        Layer.SANDBOX,
        Tier.LEAD,
        0.55,
        ((Sign.RUNSC,), (Sign.NO_CUDA_DEVICE, Sign.SMI_NO_DRIVER, Sign.CUDA_UNKNOWN, Sign.NVML_NOT_IN_POD)),
        "Under gVisor the program sees no GPU.",
        "Read runsc's debug log; nvproxy must be switched on.",
        "sandbox-log",
        _RUNSC,
    ),
    Rule(
        "sandbox-pod",
        Layer.SANDBOX,
        Tier.SYMPTOM,
        0.45,
        ((on(Sign.POD, operand="sandbox", state="crash"),),),
        "An operand for virtual machines fails.",
        "Read its log.",
        "sandbox-log",
        (),
    ),
)

"""Rules for MIG and MPS."""

from __future__ import annotations

from typing import Final

from shoal.diagnosis.layers import Layer
from shoal.diagnosis.rules.rule import Rule, Severity, Tier, on
from shoal.diagnosis.signs import Sign

_NODE = "kubectl get node NODE -o yaml"
_XID_ROOTS = (Sign.OFF_BUS, Sign.GPU_LOST, Sign.XID_HARDWARE)
_MIG = ("nvidia-smi mig -lgi", "nvidia-smi mig -lgipp")

MIG: Final[tuple[Rule, ...]] = (
    Rule(
        "mig-paused",
        Layer.MIG,
        Tier.ROOT,
        0.92,
        ((Sign.PAUSED_FOR_MIG,),),
        "A change of the MIG layout was started and not finished: the plugin and others are paused on this node.",
        "Set the gpu.deploy labels back to true and trigger the change again (another mig.config and back).",
        "node-labels",
        (_NODE,),
        beats=("none-allocatable", "resource-zero"),
    ),
    Rule(
        "mig-config-state",
        Layer.MIG,
        Tier.ROOT,
        0.85,
        ((Sign.MIG_CONFIG_FAILED, Sign.MIG_CONFIG_STUCK),),
        "The MIG manager has not brought the node to the layout asked for ({state}).",
        "Read its log; GPUs must be free of users while it works.",
        "mig-log",
        ("kubectl logs -n gpu-operator MIG-MANAGER-POD",),
        unless=_XID_ROOTS,
    ),
    Rule(
        "mig-mixed",
        Layer.MIG,
        Tier.ROOT,
        0.92,
        ((Sign.MIG_MIXED,),),
        "Strategy single wants one MIG profile everywhere, and the GPUs hold another layout.",
        "Apply an all-PROFILE layout first, or use strategy mixed.",
        "mig-list",
        _MIG,
    ),
    Rule(
        "mig-empty",
        Layer.MIG,
        Tier.ROOT,
        0.9,
        ((Sign.MIG_NOT_CONFIGURED,),),
        "MIG mode is on and no instances exist (they do not survive a reboot).",
        "Create instances (nvidia-smi mig -cgi ... -C, or the MIG manager), or switch MIG off.",
        "mig-list",
        _MIG,
        unless=(Sign.MIG_MIXED,),
        beats=("nvml-not-in-pod",),
    ),
    Rule(
        "mig-no-room",
        Layer.MIG,
        Tier.ROOT,
        0.85,
        ((Sign.MIG_NO_ROOM,),),
        "The GPU has no room for that MIG instance at any of its positions.",
        "Destroy instances left behind; plan layouts by positions, not by sums.",
        "mig-list",
        _MIG,
        beats=("dra-timeout",),
        severity=Severity.DEGRADED,
    ),
    Rule(
        "mig-pending",
        Layer.MIG,
        Tier.ROOT,
        0.85,
        ((Sign.MIG_PENDING,),),
        "A change of MIG mode waits for a reset of the GPU.",
        "Stop what uses the GPU, then nvidia-smi --gpu-reset or reboot.",
        "mig-list",
        ("nvidia-smi --query-gpu=mig.mode.current,mig.mode.pending --format=csv",),
    ),
    Rule(
        "mig-in-use",
        Layer.MIG,
        Tier.ROOT,
        0.85,
        ((Sign.MIG_IN_USE, Sign.MIG_CONFIG_BAD),),
        "The MIG layout could not be changed: in use, or not a valid layout for this GPU.",
        "Stop GPU users (also monitoring); check the profile names against the product.",
        "mig-list",
        _MIG,
    ),
    Rule(
        "mig-resource-name",
        Layer.MIG,
        Tier.ROOT,
        0.66,
        ((Sign.MIG_RESOURCES_ONLY,),),
        "The node offers MIG slices (nvidia.com/mig-*) and no whole GPU: with strategy mixed pods must ask for the slices by name.",
        "Ask for nvidia.com/mig-PROFILE, or switch the strategy.",
        "node-resources",
        (_NODE,),
        severity=Severity.NOTICE,
    ),
    Rule(
        "mig-hidden",
        Layer.MIG,
        Tier.LEAD,
        0.5,
        ((Sign.MIG_ON,), (Sign.NO_CUDA_DEVICE, Sign.RESOURCE_ZERO, Sign.RESOURCE_MISSING, Sign.NONE_ALLOCATABLE, Sign.PLUGIN_IDLE)),
        "MIG mode is on and no GPU is seen: perhaps no instances, or programs name whole GPUs.",
        "List the instances.",
        "mig-list",
        _MIG,
    ),
    Rule(
        "mig-manager-pod",
        Layer.MIG,
        Tier.SYMPTOM,
        0.44,
        ((on(Sign.POD, operand="mig-manager", state="crash"),),),
        "The MIG manager fails.",
        "Read its log.",
        "mig-log",
        ("kubectl logs -n gpu-operator MIG-MANAGER-POD",),
    ),
)

MPS: Final[tuple[Rule, ...]] = (
    Rule(
        "mps",
        Layer.MPS,
        Tier.ROOT,
        0.88,
        ((Sign.MPS_FAILED, on(Sign.POD, operand="mps", state="crash"), on(Sign.POD, operand="mps", state="pending")),),
        "The MPS control daemon is not there or does not answer.",
        "Deploy the chart's MPS control daemon (and the labels that select nodes for it); do not start one by hand.",
        "mps-log",
        ("kubectl get pods -A | grep mps",),
    ),
    Rule(
        "mps-exclusive",
        Layer.MPS,
        Tier.LEAD,
        0.7,
        ((Sign.DEVICES_BUSY, Sign.EXCLUSIVE_MODE), (Sign.MPS_ON, Sign.MPS_FAILED)),
        "MPS puts GPUs into exclusive mode, so programs that do not use MPS are refused.",
        "Run all programs of the node under MPS, or none.",
        "gpu-fields",
        ("nvidia-smi -q -d COMPUTE",),
        severity=Severity.DEGRADED,
    ),
)

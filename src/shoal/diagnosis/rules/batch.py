"""Rules for Slurm and monitoring."""

from __future__ import annotations

from typing import Final

from shoal.diagnosis.layers import Layer
from shoal.diagnosis.rules.rule import HOST, Rule, Severity, Tier, on
from shoal.diagnosis.signs import Sign

SLURM: Final[tuple[Rule, ...]] = (
    Rule(
        "gres-nvml",
        Layer.SLURM_GRES,
        Tier.ROOT,
        0.92,
        ((Sign.GRES_NO_NVML,),),
        "slurmd was built without NVML, so AutoDetect finds no GPU.",
        "Use a slurmd built with NVML, or list the device files in gres.conf.",
        "slurmd-log",
        ("slurmd -C", "slurmd -G"),
    ),
    Rule(
        "gres-file",
        Layer.SLURM_GRES,
        Tier.ROOT,
        0.88,
        ((Sign.GRES_FILE,),),
        "gres.conf names a device file that does not exist: the driver is not loaded yet, or the node has no GPU.",
        "Load the driver before slurmd, or take the line from nodes without GPUs.",
        "host-smi",
        ("ls -l /dev/nvidia*", "systemctl cat slurmd"),
    ),
    Rule(
        "gres-duplicate",
        Layer.SLURM_GRES,
        Tier.ROOT,
        0.9,
        ((Sign.GRES_DUPLICATE,),),
        "gres.conf names a GPU twice.",
        "With AutoDetect=nvml no Name=gpu lines are needed.",
        "slurmd-log",
        ("slurmd -G",),
    ),
    Rule(
        "gres-lower",
        Layer.SLURM_GRES,
        Tier.ROOT,
        0.75,
        ((Sign.GRES_LOWER,),),
        "slurmd found fewer GPUs than slurm.conf names.",
        "Compare nvidia-smi -L with slurmd -G: if NVML sees all, it is gres.conf or a slurmd without NVML.",
        "host-smi",
        ("nvidia-smi -L", "slurmd -G", "scontrol show node NODE"),
    ),
    Rule(
        "gres-bad",
        Layer.SLURM_GRES,
        Tier.LEAD,
        0.7,
        ((Sign.GRES_BAD,),),
        "Slurm's configuration of GPUs does not fit the node.",
        "Compare slurm.conf, gres.conf and slurmd -G.",
        "slurmd-log",
        ("slurmd -G",),
    ),
)

MONITORING: Final[tuple[Rule, ...]] = (
    Rule(
        "profiling",
        Layer.MONITORING,
        Tier.ROOT,
        0.88,
        ((Sign.DCGM_PROFILING,),),
        "DCGM's profiling module fails, mostly because two host engines or a profiler want it at once; the GPUs are fine.",
        "Run one host engine; pause profiling metrics while a profiler runs.",
        "dcgm-log",
        ("ps aux | grep nv-hostengine",),
        severity=Severity.NOTICE,
    ),
    Rule(
        "dcgm",
        Layer.MONITORING,
        Tier.LEAD,
        0.62,
        ((Sign.DCGM_FAILED,),),
        "DCGM or its exporter fails; this says nothing of the GPUs.",
        "Read the exporter's log; compare with nvidia-smi.",
        "dcgm-log",
        ("kubectl logs -n gpu-operator DCGM-EXPORTER-POD",),
        unless=(
            on(Sign.POD, operand="plugin", state="crash"),
            on(Sign.POD, operand="driver", state="crash"),
            Sign.HOST_BAD,
            Sign.NVML_NOT_IN_POD,
        ),
        severity=Severity.NOTICE,
    ),
    Rule(
        "exporter-pod",
        Layer.MONITORING,
        Tier.SYMPTOM,
        0.44,
        ((on(Sign.POD, operand="monitoring", state="crash"), on(Sign.POD, operand="monitoring", state="pending")),),
        "The exporter's pod fails.",
        "Read its log.",
        "dcgm-log",
        ("kubectl logs -n gpu-operator DCGM-EXPORTER-POD",),
        unless=(
            on(Sign.POD, operand="plugin", state="crash"),
            on(Sign.POD, operand="driver", state="crash"),
            on(Sign.POD, operand="toolkit", state="crash"),
            on(Sign.SMI_NO_DRIVER, HOST),
        ),
        severity=Severity.NOTICE,
    ),
)

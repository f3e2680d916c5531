"""Healthy nodes of every kind raise no alarm."""

from __future__ import annotations

import itertools
import random

import pytest

from doctor_variants import noise_lines
from shoal.diagnosis.evidence import evidence_of
from shoal.diagnosis.judge import diagnose

PRODUCTS = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA B200", "NVIDIA L40S", "Tesla T4")
SWITCHED = ("A100", "H100", "H200", "B200")


def smi_table(product: str, count: int, mig: bool) -> str:
    rows = "\n".join(
        f"|   {index}  {product:<24} On |   00000000:{16 + index:02X}:00.0 Off |                    0 |\n"
        f"| N/A   31C    P0             70W /  700W |       1MiB /  81559MiB |      0%      Default |\n"
        f"|                                         |                        |             {'Enabled' if mig else 'Disabled'} |"
        for index in range(count)
    )
    return f"| NVIDIA-SMI 570.124.06   Driver Version: 570.124.06   CUDA Version: 12.8 |\n{rows}\n|  No running processes found |"


def smi_query(product: str, count: int, mig: bool) -> str:
    switched = any(word in product for word in SWITCHED)
    mode = "Enabled" if mig else "Disabled"
    one = f"""\
GPU 00000000:18:00.0
    Product Name : {product}
    Compute Mode : Default
    MIG Mode
        Current : {mode}
        Pending : {mode}
    GPU Recovery Action : None
    ECC Errors
        Volatile
            SRAM Correctable : 0
            SRAM Uncorrectable Parity : 0
            DRAM Uncorrectable : 0
    Remapped Rows
        Correctable Error : 0
        Uncorrectable Error : 0
        Pending : No
        Remapping Failure Occurred : No
    Clocks Event Reasons
        Idle : Active
        HW Slowdown : Not Active
        HW Thermal Slowdown : Not Active
        SW Power Cap : Not Active
    Fabric
        State : {"Completed" if switched else "N/A"}
        Status : {"Success" if switched else "N/A"}
"""
    return f"Driver Version : 570.124.06\nAttached GPUs : {count}\n" + one * count


def healthy_node(product: str, mig: bool, slurm: bool, seed: int) -> dict[str, str]:
    rng = random.Random(seed)
    count = rng.choice([1, 2, 4, 8])
    evidence = {
        "nvidia_smi": smi_table(product, count, mig),
        "nvidia_smi_q": smi_query(product, count, mig),
        "lspci": "\n".join(f"{16 + index:02x}:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)" for index in range(count)),
        "dmesg": "\n".join(noise_lines(rng, 120)),
        "service": "nvidia-fabricmanager.service: active (running)" if any(word in product for word in SWITCHED) else "",
    }
    if slurm:
        return {**evidence, "scontrol": f"NodeName=n1 State=IDLE Gres=gpu:{count} Reason=(null)", "slurmd_log": "slurmd started"}
    resource = "nvidia.com/mig-1g.10gb" if mig else "nvidia.com/gpu"
    devices = count * 7 if mig else count
    labels = "\n".join(
        (
            "feature.node.kubernetes.io/pci-10de.present=true",
            "nvidia.com/gpu.present=true",
            "nvidia.com/gpu.deploy.driver=true",
            "nvidia.com/gpu-driver-upgrade-state=upgrade-done",
            "nvidia.com/mig.config.state=success",
            f"nvidia.com/gpu.product={product.replace(' ', '-')}",
        )
    )
    pods = (
        "nvidia-driver-daemonset-x 1/1 Running 0 3d",
        "nvidia-container-toolkit-daemonset-x 1/1 Running 0 3d",
        "nvidia-operator-validator-x 1/1 Running 0 3d",
        "nvidia-cuda-validator-x 0/1 Completed 0 3d",
        "nvidia-device-plugin-daemonset-x 1/1 Running 1 (3d ago) 3d",
        "gpu-feature-discovery-x 1/1 Running 0 3d",
        "nvidia-dcgm-exporter-x 1/1 Running 0 3d",
    )
    return {
        **evidence,
        "node_capacity": f"{resource}: {devices}",
        "node_allocatable": f"{resource}: {devices}",
        "node_labels": labels,
        "pods": "\n".join(pods),
        "plugin_log": "I1101 10:00:00 main.go:200] Starting Plugins.\nI1101 10:00:01 server.go:118] Registered device plugin",
        "validator_log": "[Vector addition of 50000 elements]\nCopy input data from the host memory to the CUDA device\nTest PASSED\nDone",
    }


NODES = [
    (product, mig, slurm, seed)
    for (product, mig, slurm), seed in itertools.product(itertools.product(PRODUCTS, (False, True), (False, True)), range(3))
    if not (mig and product in ("NVIDIA L40S", "Tesla T4"))
]


@pytest.mark.parametrize(("product", "mig", "slurm", "seed"), NODES)
def test_a_healthy_node_is_healthy(product: str, mig: bool, slurm: bool, seed: int) -> None:
    verdict = diagnose(evidence_of(healthy_node(product, mig, slurm, seed)))
    assert verdict.root.layer == "none", verdict.root
    assert verdict.consequences == ()
    assert verdict.root.severity == 0


def test_there_are_at_least_sixty_of_them() -> None:
    assert len(NODES) >= 60


FAULTS = {
    "hardware": {"dmesg": "NVRM: Xid (PCI:0000:12:00): 79, GPU has fallen off the bus."},
    "fabric": {"app_log": "Error 802: system not yet initialized"},
    "device-health": {"node_allocatable": "nvidia.com/gpu: 0", "node_capacity": "nvidia.com/gpu: 8"},
}


@pytest.mark.parametrize("layer", sorted(FAULTS))
def test_the_same_node_with_one_fault_is_not(layer: str) -> None:
    node = healthy_node("NVIDIA H100 80GB HBM3", False, False, 1)
    assert diagnose(evidence_of({**node, **FAULTS[layer]})).root.layer == layer

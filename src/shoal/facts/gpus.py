"""
NVIDIA GPUs as their data sheets and drivers describe them. The only copy: probes, pretended devices, planning and pricing read it here.

`memory_bytes` is what the driver reports as total (NVML, `nvidia-smi`), which is what can be scheduled on; it is under the number in
the product's name. Peak figures are dense and per GPU.
Sources, by the mark on a row: S, printed driver output or device properties in public logs, read November 2026; K, published data
sheets as generally known, not read again. Bandwidths, NVLink, PCIe and SM counts: K, for A100, H100, H200, B200 confirmed against a
public comparison, November 2026.
"""

from __future__ import annotations

from typing import NamedTuple

_MIB = 1 << 20


class Gpu(NamedTuple):
    """One product. `name` is its key here; `model` is the word that jobs ask by, which variants share."""

    name: str
    model: str
    products: tuple[str, ...]
    """As NVML names it; the first is the usual one."""
    memory_bytes: int
    memory_source: str
    bandwidth_gb_s: int
    nvlink_gen: int | None
    nvlink_gb_s: int
    """Both directions together; 0 without NVLink."""
    island: int
    """GPUs in one NVLink island of the usual machine; 1 without NVLink."""
    per_host: int
    """GPUs in the usual machine."""
    pcie_gen: int
    sms: int
    released: int


GPUS: tuple[Gpu, ...] = (
    Gpu("v100", "v100", ("Tesla V100-SXM2-16GB",), 16_160 * _MIB, "S", 900, 2, 300, 8, 8, 3, 80, 2017),
    Gpu("v100-32gb", "v100", ("Tesla V100-SXM2-32GB",), 32_510 * _MIB, "S", 900, 2, 300, 8, 8, 3, 80, 2018),
    Gpu("t4", "t4", ("Tesla T4",), 15_360 * _MIB, "S", 320, None, 0, 1, 8, 3, 40, 2018),
    Gpu("a100", "a100", ("NVIDIA A100-SXM4-80GB",), 81_920 * _MIB, "S", 2_039, 3, 600, 8, 8, 4, 108, 2020),
    Gpu("a100-40gb", "a100", ("NVIDIA A100-SXM4-40GB",), 40_960 * _MIB, "S", 1_555, 3, 600, 8, 8, 4, 108, 2020),
    Gpu("a100-pcie", "a100", ("NVIDIA A100 80GB PCIe",), 81_920 * _MIB, "S", 1_935, 3, 600, 2, 8, 4, 108, 2021),
    Gpu("a40", "a40", ("NVIDIA A40",), 46_068 * _MIB, "S", 696, 3, 112, 2, 8, 4, 84, 2020),
    Gpu("a30", "a30", ("NVIDIA A30",), 24_576 * _MIB, "K", 933, 3, 200, 2, 8, 4, 56, 2021),
    Gpu("a10g", "a10g", ("NVIDIA A10G",), 23_028 * _MIB, "S", 600, None, 0, 1, 8, 4, 80, 2021),
    Gpu("rtx4090", "rtx4090", ("NVIDIA GeForce RTX 4090",), 24_564 * _MIB, "S", 1_008, None, 0, 1, 8, 4, 128, 2022),
    Gpu("l4", "l4", ("NVIDIA L4",), 23_034 * _MIB, "S", 300, None, 0, 1, 8, 4, 58, 2023),
    Gpu("l40s", "l40s", ("NVIDIA L40S",), 46_068 * _MIB, "S", 864, None, 0, 1, 8, 4, 142, 2023),
    Gpu("h100", "h100", ("NVIDIA H100 80GB HBM3",), 81_559 * _MIB, "S", 3_350, 4, 900, 8, 8, 5, 132, 2022),
    Gpu("h100-pcie", "h100", ("NVIDIA H100 PCIe",), 81_559 * _MIB, "S", 2_000, 4, 600, 2, 8, 5, 114, 2022),
    Gpu("h100-nvl", "h100", ("NVIDIA H100 NVL",), 95_830 * _MIB, "S", 3_900, 4, 600, 2, 8, 5, 132, 2023),
    Gpu("h200", "h200", ("NVIDIA H200",), 143_771 * _MIB, "S", 4_800, 4, 900, 8, 8, 5, 132, 2024),
    Gpu("b200", "b200", ("NVIDIA B200",), 183_359 * _MIB, "S", 8_000, 5, 1_800, 8, 8, 5, 148, 2025),
    Gpu("gb200", "gb200", ("NVIDIA GB200",), 189_471 * _MIB, "K", 8_000, 5, 1_800, 4, 4, 5, 152, 2025),
)
"""`a100` stands for the 80 GB form; a job tells sizes apart by `gpus.memory`. GB200: the island goes over hosts (72 in an NVL72 rack)."""

_BY_NAME = {gpu.name: gpu for gpu in GPUS}
_BY_PRODUCT = {product.lower(): gpu for gpu in GPUS for product in gpu.products}


def gpu_named(name: str) -> Gpu:
    """The row called `name`. Raises ValueError with the names there are."""
    try:
        return _BY_NAME[name.lower()]
    except KeyError:
        raise ValueError(f"no GPU is called {name!r}; known are {', '.join(_BY_NAME)}") from None


def model_of(product: str) -> str:
    """
    The word that jobs ask by, for a product as the driver names it.

    A product that is not in the table gets a word made of its own name, without maker, memory size and form: `NVIDIA RTX A6000`
    is `rtx-a6000`.
    """
    known = _BY_PRODUCT.get(product.strip().lower())
    if known is not None:
        return known.model
    words = product.lower().replace("/", " ").split()
    kept = [word for word in words if word not in _NOT_A_MODEL and not (word.endswith("gb") and word[:-2].isdigit())]
    return "-".join(kept) or "gpu"


_NOT_A_MODEL = frozenset({"nvidia", "tesla", "geforce", "quadro", "pcie", "sxm", "hbm2", "hbm2e", "hbm3", "hbm3e", "graphics", "device"})

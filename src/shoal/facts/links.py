"""
How fast GPUs talk and compute, by the word that jobs ask for: what a predicted slow-down is worked out from.

Bandwidths are one direction, in GB/s, as the bus figure of nccl-tests has them: half of a data sheet's NVLink total (H100: 450; measured
460-480 with 8 GPUs, 230-250 for A100), PCIe at 16 lanes after encoding. Peaks are dense bf16 (fp16 where there is no bf16) TFLOP/s of the
usual form, from the makers' data sheets as generally known, not read again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from shoal.facts.gpus import GPUS

NETWORK_PATH_GB_S: Final = 50
"""One 400 Gbit/s adapter; what a node's adapters really do is not known here."""

_PCIE_GB_S: Final = {3: 15.75, 4: 31.5, 5: 63.0}
"""Sixteen lanes of 8, 16 and 32 GT/s, 128b/130b encoding."""

_PEAK_TFLOPS: Final = {
    "v100": 125,
    "t4": 65,
    "a100": 312,
    "a40": 150,
    "a30": 165,
    "a10g": 70,
    "rtx4090": 165,
    "l4": 121,
    "l40s": 362,
    "h100": 989,
    "h200": 989,
    "b200": 2_250,
    "gb200": 2_500,
}


class Links(NamedTuple):
    """`island_gb_s`: NVLink, 0 where the model has none. `host_gb_s`: between GPUs of one host without it."""

    island_gb_s: float
    host_gb_s: float
    peak_tflops: float


def links_of(model: str) -> Links:
    """The links of a model; those of an H100 for a word that is not known here, which is told apart by `is_known`."""
    word = model if is_known(model) else "h100"
    gpu = next(gpu for gpu in GPUS if gpu.model == word)
    return Links(gpu.nvlink_gb_s / 2, _PCIE_GB_S[gpu.pcie_gen], float(_PEAK_TFLOPS[word]))


def is_known(model: str) -> bool:
    """True if the model's own figures are here."""
    return model in _PEAK_TFLOPS

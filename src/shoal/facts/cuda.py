"""
Which driver a CUDA version needs, and which architectures builds of PyTorch hold.

Source: NVIDIA's CUDA release notes (toolkit and driver versions, Linux x86_64) and compatibility guide, through three public copies,
read 2026; rows for 11.1 to 11.6 were not read again. Architecture lists: PyTorch 2.9 release thread, 2025.
"""

from __future__ import annotations

from typing import Final

Version = tuple[int, ...]

FLOORS: Final[dict[int, Version]] = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}
"""Minor-version compatibility: within a major, a program needs only this driver. Features that need more fail at the call."""

SHIPPED_WITH: Final[dict[Version, Version]] = {
    (11, 7): (515, 43, 4),
    (11, 8): (520, 61, 5),
    (12, 0): (525, 60, 13),
    (12, 1): (530, 30, 2),
    (12, 2): (535, 54, 3),
    (12, 3): (545, 23, 6),
    (12, 4): (550, 54, 14),
    (12, 5): (555, 42, 2),
    (12, 6): (560, 28, 3),
    (12, 8): (570, 26),
    (12, 9): (575, 51, 3),
    (13, 0): (580, 65, 6),
    (13, 1): (590, 44, 1),
    (13, 2): (595, 45, 4),
}
"""The driver that came with a toolkit's first release. There is no 12.7."""

PYTORCH_ARCHITECTURES: Final[dict[str, tuple[str, ...]]] = {
    "cu126": ("5.0", "6.0", "7.0", "7.5", "8.0", "8.6", "9.0"),
    "cu128": ("7.0", "7.5", "8.0", "8.6", "9.0", "10.0", "12.0"),
    "cu130": ("7.5", "8.0", "8.6", "9.0", "10.0", "12.0"),
}
"""Compute capabilities in the wheels of PyTorch 2.9; cu130 also carries PTX of 12.0."""


def version_of(text: str) -> Version:
    """`550.144.03` as numbers, so that versions compare. Empty where there is none."""
    numbers = []
    for part in text.split("."):
        if not (part.isascii() and part.isdigit()):
            break
        numbers.append(int(part))
    return tuple(numbers)


def floor_of(cuda: Version) -> Version | None:
    """The oldest driver for programs built on `cuda`, or None for a major that the table lacks."""
    return FLOORS.get(cuda[0]) if cuda else None


def cuda_of(driver: Version) -> Version | None:
    """The newest CUDA that came with `driver` or an older one: what nvidia-smi prints as its CUDA version."""
    return max((cuda for cuda, shipped in SHIPPED_WITH.items() if shipped <= driver), default=None)

"""
Driver branches that CUDA's forward-compatibility packages are built for, and the classes of GPU on which they work.

Source: NVIDIA's CUDA compatibility guide through public copies, read August 2026.
"""

from __future__ import annotations

from typing import Final

TABLE_DATE: Final = "2026-08"
FORWARD_BRANCHES: Final = (535, 550, 570, 580)
"""Long-term branches 535 and 580, production branches 550 and 570."""
FORWARD_CLASSES: Final = ("datacenter", "ngc_ready", "jetson")
"""On others the application gets error 804."""

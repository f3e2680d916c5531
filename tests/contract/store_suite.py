"""
Every promise of `shoal.store.protocol.Store`, as tests that any implementation must pass.

A class per store inherits `StoreContract` and says in `open` how its store is opened (see test_store.py). Stores that outlive their
process also inherit `DurableContract`.
"""

from __future__ import annotations

from store_living import DurableContract, LivingContract
from store_reading import ReadingContract
from store_writing import WritingContract

__all__ = ["DurableContract", "StoreContract"]


class StoreContract(WritingContract, ReadingContract, LivingContract):
    """See module."""

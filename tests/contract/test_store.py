"""The store contract on SQLite in a file and in memory."""

from __future__ import annotations

from pathlib import Path

from store_suite import DurableContract, StoreContract

from shoal.store.protocol import Store
from shoal.store.sql import open_store


class TestSqliteFile(StoreContract, DurableContract):
    def open(self, tmp_path: Path) -> Store:
        return open_store(tmp_path / "shoal.db")


class TestSqliteMemory(StoreContract):
    def open(self, tmp_path: Path) -> Store:
        return open_store(":memory:")

"""A store under test, with the shortest words for writing to it; shared by the parts of the store contract."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from msgspec.structs import replace

from shoal.model.change import Applied, ChangeSet, Outcome, Record
from shoal.store.protocol import Store
from shoal.testing import records as make

WAIT_S = 30


def written(future: Future[Outcome]) -> int:
    """The version at which a set was written."""
    outcome = future.result(WAIT_S)
    assert isinstance(outcome, Applied), outcome
    return outcome.version


class Bench:
    """A store under a term, with the shortest words for writing to it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.term = store.take_term("the test")

    def apply(self, changes: ChangeSet) -> Future[Outcome]:
        return self.store.apply(changes, self.term)

    def write(self, changes: ChangeSet) -> int:
        return written(self.apply(changes))

    def put(self, *put: Record) -> tuple[Any, ...]:
        """Writes the records in one set and gives them as they now stand."""
        version = self.write(make.puts(*put))
        return tuple(replace(record, version=version) for record in put)

    def drop(self, *drop: Record) -> int:
        return self.write(ChangeSet(delete=drop))


class StoreFixtures:
    """Opens the store under test, and puts it under a term."""

    def open(self, tmp_path: Any) -> Store:
        raise NotImplementedError

    @pytest.fixture
    def store(self, tmp_path: Any) -> Iterator[Store]:
        store = self.open(tmp_path)
        yield store
        store.close()

    @pytest.fixture
    def bench(self, store: Store) -> Bench:
        return Bench(store)

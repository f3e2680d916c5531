"""
Random ChangeSets against a model of a few lines: the store accepts, refuses and shows exactly what the model does.

Sets are handed over in bursts and written in groups of random size, some of them cut short by a full disk or a reopening, so that what a
set meets may lie in its own group, in the last one, or in a file just opened.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shoal.base.errors import Conflict, VersionConflict
from shoal.model.change import Applied, Change, ChangeSet, KeyExists, Record
from shoal.model.job import Job, JobState
from shoal.model.node import Node
from shoal.model.queue import Queue
from shoal.store.sql import SqlStore, open_store
from shoal.testing import records as make

Place = tuple[type, str]


@dataclass
class Model:
    """What is stored, and every change so far. `apply` says what the store must say."""

    term: int = 0
    records: dict[Place, Record] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def apply(self, changes: ChangeSet, term: int) -> object:
        if term != self.term:
            return Conflict
        if changes.key is not None and changes.key.key in self.keys:
            return KeyExists
        for record in (*changes.put, *changes.delete):
            stored = self.records.get((type(record), record.id))
            if (stored.version if stored else 0) != record.version or (record in changes.delete and stored is None):
                return VersionConflict
        version = len(self.changes) + 1
        put = tuple(replace(record, version=version) for record in changes.put)
        events = tuple(replace(row, version=version, ordinal=i) for i, row in enumerate(changes.events))
        for record in changes.delete:
            del self.records[type(record), record.id]
        for record in put:
            self.records[type(record), record.id] = record
        if changes.key is not None:
            self.keys[changes.key.key] = changes.key.resource
        self.changes.append(Change(version=version, put=put, delete=changes.delete, events=events))
        return Applied(version=version)


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, object]]:
    """A life of a store: sets of draws (which record, which read version, put or delete), group writes, new terms, reopenings."""
    piece = st.tuples(st.sampled_from("jnq"), st.integers(1, 4), st.sampled_from(("now", "now", "now", "new", "old")), st.booleans())
    burst = st.tuples(st.lists(piece, min_size=0, max_size=3), st.none() | st.integers(1, 3), st.integers(0, 2), st.integers(0, 9))
    act = st.one_of(
        st.tuples(st.just("apply"), burst),
        st.tuples(st.just("apply"), burst),
        st.tuples(st.just("apply"), burst),
        st.tuples(st.just("write"), st.none()),
        st.tuples(st.sampled_from(("term", "reopen")), st.none()),
    )
    return draw(st.lists(act, max_size=40))


def a_set(model: Model, pieces: list[tuple[str, int, str, bool]], key: int | None, events: int, salt: int) -> ChangeSet:
    """The set that a caller makes who has read the model as it stands ("now"), thinks a record new, or read it long ago ("old")."""
    put: dict[Place, Record] = {}
    delete: dict[Place, Record] = {}
    for kind, number, read, deletes in pieces:
        record: Record
        if kind == "j":
            record = make.a_job(number, priority=salt, state=JobState.FAILED if salt % 3 == 0 else JobState.QUEUED)
        else:
            record = make.a_node(f"n{number}", pool=f"p{salt}") if kind == "n" else make.a_queue(f"q{number}")
        place = (type(record), record.id)
        stored = model.records.get(place)
        version = {"now": stored.version if stored else 0, "new": 0, "old": max((stored.version if stored else 0) - 1, 0)}[read]
        if place not in put and place not in delete:
            (delete if deletes and version else put)[place] = replace(record, version=version)
    return ChangeSet(
        put=tuple(put.values()),
        delete=tuple(delete.values()),
        events=tuple(make.an_event(str(i)) for i in range(events)),
        key=None if key is None else make.a_key(f"k{key}", "made"),
    )


@contextmanager
def a_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


def replayed(changes: tuple[Change, ...]) -> dict[Place, Record]:
    """What a reader of the tail has after these changes."""
    found: dict[Place, Record] = {}
    for change in changes:
        for record in change.delete:
            del found[type(record), record.id]
        for record in change.put:
            found[type(record), record.id] = record
    return found


def check(store: SqlStore, model: Model) -> None:
    """The store shows the model, on every road to it."""
    assert store.version() == len(model.changes)
    memory = store.changes_after(0, 10_000)
    assert memory == store._changes_on_disk(0, 10_000) == tuple(model.changes)
    assert replayed(memory) == model.records
    snapshot = store.snapshot()
    for kind, shown in ((Node, snapshot.nodes), (Queue, snapshot.queues)):
        assert shown == tuple(sorted((r for (k, _), r in model.records.items() if k is kind), key=lambda r: r.id))
    jobs = [r for r in model.records.values() if isinstance(r, Job)]
    assert snapshot.jobs == tuple(sorted((job for job in jobs if job.state is JobState.QUEUED), key=lambda job: job.id))
    assert store.jobs_by_id(tuple(job.id for job in jobs)) == tuple(jobs)
    assert store.events_after(None, 0, 10_000) == tuple(row for change in model.changes for row in change.events)
    assert {k: store.find_key("default", "user/anna", "jobs.create", k).resource for k in model.keys} == model.keys


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(life=steps(), group_max=st.sampled_from((1, 2, 3, 256)))
def test_the_store_does_what_the_model_does(life: list[tuple[str, object]], group_max: int) -> None:
    with a_directory() as directory:
        store = open_store(directory / "a.db", by_hand=True, group_max=group_max)
        model, terms = Model(), [0]
        waiting: list[tuple[object, object]] = []
        for act, argument in life:
            if act == "apply":
                pieces, key, events, salt = argument
                changes = a_set(model, pieces, key, events, salt)
                term = terms[-1] if salt else terms[0]
                waiting.append((store.apply(changes, term), model.apply(changes, term)))
            elif act == "write":
                store.writer.step()
            elif act == "term":
                terms.append(store.take_term("test"))  # Written behind what waits, as every hand-over.
                model.term = terms[-1]
            else:
                store.close()
                store = open_store(directory / "a.db", by_hand=True, group_max=group_max)
        while store.writer.step():
            pass
        for future, want in waiting:
            said = future.exception() or future.result()
            assert said == want if isinstance(want, Applied) else isinstance(said, want), (said, want)
        check(store, model)
        store.close()
        store = open_store(directory / "a.db", by_hand=True)
        check(store, model)
        store.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sizes=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 25)), min_size=1, max_size=12))
def test_a_disk_that_fills_at_any_page_leaves_what_was_acknowledged_and_no_half(sizes: list[tuple[int, int]]) -> None:
    with a_directory() as directory:
        store = open_store(directory / "a.db", by_hand=True)
        number, acknowledged = 0, []
        for burst, room in sizes:
            futures = []
            for _ in range(burst):
                number += 1
                futures.append((number, store.apply(ChangeSet(put=(make.a_job(number), make.a_node(f"n{number}"))), 0)))
            connection = store.writer._connection
            if connection is not None:
                (pages,) = connection.execute("PRAGMA page_count").fetchone()
                connection.execute(f"PRAGMA max_page_count={pages + room}")
            store.writer.step()
            acknowledged += [number for number, future in futures if future.exception() is None]
        snapshot = store.snapshot()
        assert sorted(job.number for job in snapshot.jobs) == acknowledged
        assert {node.id for node in snapshot.nodes} == {f"n{number}" for number in acknowledged}
        assert [change.version for change in store.changes_after(0, 10_000)] == list(range(1, len(acknowledged) + 1))
        store.close()
        store = open_store(directory / "a.db", by_hand=True)
        assert store.snapshot() == snapshot
        store.close()

"""
kill -9 of a process that writes without pause, at random instants: what it was told is written is there, and no set is there by half.

The child prints each acknowledged set's number after its future is settled. Each set writes a job, its key, an event and a pair of node
records that only ever carry the same number. The next child goes on in the same file.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from shoal.model.change import Change
from shoal.model.job import Job
from shoal.store.protocol import Store
from shoal.store.sql import open_store

CHILD = """
import sys
from msgspec.structs import replace
from shoal.model.change import ChangeSet
from shoal.store.sql import open_store
from shoal.testing import records as make
store = open_store(sys.argv[1])
term = store.take_term("child")
print("open", flush=True)
left, right = store.node("left") or make.a_node("left"), store.node("right") or make.a_node("right")
while True:
    futures = []
    for _ in range(20):
        number = store.reserve_numbers(1)
        single = make.a_submission(number)
        futures.append((number, store.apply(single, term)))
    number = store.reserve_numbers(1)
    left, right = replace(left, pool=str(number)), replace(right, pool=str(number))
    base = make.a_submission(number)
    both = store.apply(ChangeSet(put=(left, *base.put, right), events=base.events, key=base.key), term)
    for given, future in [*futures, (number, both)]:
        version = future.result().version
        print(given, flush=True)
    left, right = replace(left, version=version), replace(right, version=version)
"""
KILLS = 8


def run_and_kill(path: Path, after_s: float) -> list[int]:
    """Numbers that the child was told are written."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "open\n"
    time.sleep(after_s)
    child.kill()
    lines = child.communicate()[0].split("\n")
    return [int(line) for line in lines[:-1]]


def test_kill_9_at_random_instants_loses_nothing_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    acknowledged: list[int] = []
    rng = random.Random(20_250_601)
    for _ in range(KILLS):
        numbers = run_and_kill(path, rng.random() * 0.12)
        assert not set(numbers) & set(acknowledged), "a number was given twice"
        acknowledged += numbers
        store = open_store(path)
        check_nodes(store)
        assert {job.number for job in store.snapshot().jobs} >= set(numbers)
        store.close()
    store = open_store(path)
    check_all(store, acknowledged)
    store.close()
    assert len(acknowledged) > KILLS * 20, "the child wrote too little for its end to mean anything"


def check_nodes(store: Store) -> None:
    assert len({(node.pool, node.version) for node in store.nodes()}) <= 1, "a set was written by half"


def check_all(store: Store, acknowledged: list[int]) -> None:
    jobs = store.snapshot().jobs
    assert {job.number for job in jobs} >= set(acknowledged)
    changes: list[Change] = []
    while bite := store.changes_after(len(changes)):
        changes += bite
    assert [change.version for change in changes] == list(range(1, store.version() + 1))
    for change in changes:
        (job,) = [record for record in change.put if isinstance(record, Job)]
        assert [row.subject for row in change.events] == [job.id]
        assert len(change.put) in (1, 3)
    assert {row.subject for row in store.events_after(None, 0, 1_000_000)} == {job.id for job in jobs}
    for job in jobs[:: len(jobs) // 100]:
        key = store.find_key("default", "user/anna", "jobs.create", f"key-{job.number}")
        assert key is not None
        assert key.resource == job.id

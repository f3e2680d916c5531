"""
Known bugs, planted one at a time, each of which the swarm must find: a test of the test.

    python tests/simulation/swarm_mutants.py [--seeds 500] [--only early-release] [--workers 2]

Each is planted through one narrow place of the real code, for as long as a life lasts. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from shoal.agent.lease import Lease
from shoal.agent.supervisor.wards import Wards
from shoal.control import reports, submissions
from shoal.control.plane import Plane
from shoal.control.steps.reconcile import ReconcileStep
from shoal.control.world import World
from shoal.lifecycle import lease
from shoal.model.attempt import Attempt
from shoal.model.change import Change, Record
from shoal.model.event import Event
from shoal.model.job import CancelMode, Job
from shoal.sim.swarm.run import run_seed
from shoal.store.protocol import JobQuery
from shoal.store.reads import Reads

STEPS = 1_000


@contextmanager
def double_start() -> Iterator[None]:
    """A node that lost the control plane works on for ever, while its jobs are started elsewhere."""
    with patch.object(Wards, "_stop_by", lambda *_: 1 << 60), patch.object(Lease, "has_run_out", lambda _: False):
        yield


@contextmanager
def early_release() -> Iterator[None]:
    """Fenced as soon as the work is told to stop: its grace and the kill after it are not waited for."""
    with patch.object(lease, "fenced_at", lambda heard_ms, spec, terms: lease.unreachable_at(heard_ms, terms)):
        yield


@contextmanager
def key_without_fingerprint() -> Iterator[None]:
    """A used key answers with its job, whatever is asked."""
    real = submissions.Submission

    def blind(*args: Any, **kwargs: Any) -> submissions.Submission:
        return real(*args, **{**kwargs, "fingerprint": "any"})

    with patch.object(submissions, "Submission", blind), patch("shoal.api.jobs.use.Submission", blind):
        yield


@contextmanager
def offset_cursor() -> Iterator[None]:
    """The next page begins after so many rows, counted from the newest of now."""
    real, offsets = Reads.list_jobs, {}

    def by_offset(self: Reads, query: JobQuery) -> tuple[Job, ...]:
        offset = offsets.get(query.before, 0) if query.before is not None else 0
        rows = real(self, replace(query, before=None, as_of=None, limit=offset + query.limit))[offset:]
        for place, row in enumerate(rows, offset + 1):
            offsets[row.number] = place
        return rows

    with patch.object(Reads, "list_jobs", by_offset):
        yield


@contextmanager
def lost_wakeup() -> Iterator[None]:
    """Deadlines of a start are not looked at: whoever waits for a node that is not coming waits for ever."""
    real = ReconcileStep._note

    def deaf(self: ReconcileStep, change: Change) -> None:
        real(self, replace(change, put=tuple(r for r in change.put if not isinstance(r, Attempt | Job))))

    with patch.object(ReconcileStep, "_note", deaf):
        yield


@contextmanager
def stale_completion() -> Iterator[None]:
    """What is said of an earlier attempt counts for the one that lives."""
    real = reports._record

    def lenient(plane: Plane, node_id: str, job: str, events: tuple[Event, ...]) -> Future[None]:
        known = plane.world.job(job)
        now = known.attempt if known is not None else 0
        as_if = [
            replace(e, attempt=now, allocation=f"{job}.{now}.{e.allocation.rsplit('.', 1)[1]}") if hasattr(e, "allocation") else e
            for e in events
        ]
        return real(plane, node_id, job, tuple(as_if))

    with patch.object(reports, "_record", lenient):
        yield


@contextmanager
def cancel_that_forgets() -> Iterator[None]:
    """The wish to be cancelled is in memory alone: after a restart nobody knows of it, and the job starts again."""
    real = World._take_in

    def forget(record: Record) -> Record:
        wanted = isinstance(record, Job) and record.cancel is not CancelMode.NONE and record.ended_ms is None
        return replace(record, cancel=CancelMode.NONE, ending=None) if wanted else record

    def forgetful(self: World, change: Change) -> None:
        real(self, replace(change, put=tuple(forget(record) for record in change.put)))

    with patch.object(World, "_take_in", forgetful):
        yield


MUTANTS = {
    mutant.__name__.replace("_", "-"): mutant
    for mutant in (double_start, early_release, key_without_fingerprint, offset_cursor, lost_wakeup, stale_completion, cancel_that_forgets)
}


def violations_of(name: str, seed: int) -> tuple[str, ...]:
    """What one life has to say with that bug in it."""
    with MUTANTS[name]():
        try:
            return run_seed(seed, STEPS).violations
        except Exception as error:  # a bug may also make the plane stumble over itself
            return (f"{type(error).__name__}: {error}",)


def main() -> int:
    """0 when every bug was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--only", choices=sorted(MUTANTS))
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    found: dict[str, int | None] = {}
    for name in [options.only] if options.only else MUTANTS:
        begun_s = time.monotonic()
        found[name] = None
        with ProcessPoolExecutor(options.workers) as pool:
            for first in range(0, options.seeds, options.workers):
                seeds = range(first, min(options.seeds, first + options.workers))
                hits = [(seed, told[0]) for seed, told in zip(seeds, pool.map(partial(violations_of, name), seeds), strict=True) if told]
                if hits:
                    found[name] = hits[0][0]
                    sys.stdout.write(f"{name}: found by seed {hits[0][0]} in {time.monotonic() - begun_s:.0f} s: {hits[0][1][:160]}\n")
                    break
        if found[name] is None:
            sys.stdout.write(f"{name}: not found in {options.seeds} seeds\n")
        sys.stdout.flush()
    sys.stdout.write(json.dumps({"mutants": len(found), "found": sum(seed is not None for seed in found.values()), "by": found}) + "\n")
    return 0 if all(seed is not None for seed in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

"""
Kueue's load generators replayed in real time through the embedded control plane: its use cases, its steps, its store on disk; no HTTP and
no processes.

    baseline    5 cohorts x 6 queues x 500 jobs: 350 small (1 core, 200 ms, priority 50, one each 100 ms), 100 medium (5, 500 ms, 100, each
                500 ms), 50 large (20, 1 s, 200, each 1.2 s)
    large       10 cohorts x 100 queues x 50: 35 small (1, 150 ms, each 60 ms), 11 medium (5, 350 ms, each 300 ms), 4 large (20, 700 ms,
                each 700 ms)

Every queue has 20 cores nominal and may borrow 100; it takes back what is borrowed, and stops lower priorities of its own. Jobs are
submitted in batches when they are due, and how late that was is printed; a cycle runs whenever something changed. Nodes are played: a
prepared job runs for its time, and everything is reported through the uploads of agents. A job that is stopped for another has to run again
from the start; nothing is charged beyond that (restart_ms 0). Time counts from the first arrival to the last recorded end; SQLite in a
temporary directory, full sync.

    python bench/kueue.py [--only baseline|large] [--cohorts N] [--queues N] [--jobs N]

With fewer cohorts, queues or jobs there is no bound but that all ends within twice the ideal plus 10 s: a trial that it works. Kueue's own
figures, with an API server in the loop: 351 s and 1,179 s. Last line: JSON.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

from shoal.base import limits
from shoal.base.errors import ShoalError
from shoal.control import nodes, queues
from shoal.control.access import SYSTEM, Caller
from shoal.control.plane import Plane
from shoal.control.submissions import Submission, Submitted, submit_batch
from shoal.model.command import Prepare, Stop
from shoal.model.event import AllocationPrepared, AllocationReleased, AllocationStarted, Report, TaskExited
from shoal.model.job import JobSpec
from shoal.model.node import NodeFacts
from shoal.model.queue import QueueSpec, Quota
from shoal.model.wire import Join, Register, Upload
from shoal.run.clock import RealClock
from shoal.run.entropy import OsIds, octets
from shoal.scheduling.policy import Policy
from shoal.store.blobs import BlobStore
from shoal.store.logs import LogStore
from shoal.store.sealing import Sealer
from shoal.store.sql import open_store

BOUND_S = {"baseline": 75.0, "large": 60.0}
NOMINAL, BORROWING = 20, 100
CORES_PER_NODE = 256
RENEW_S = 2.0
IDLE_S = 0.002
"""A pause when nothing is due: far below the shortest time that is measured."""
USER = Caller(principal="user/bench", project="default", role="member")


class Kind(NamedTuple):
    """A class of jobs: how many of them a queue gets, and what each is."""

    name: str
    jobs: int
    cores: int
    run_ms: int
    priority: int
    every_ms: int


class Load(NamedTuple):
    """A generator."""

    name: str
    cohorts: int
    queues: int
    kinds: tuple[Kind, ...]

    def ideal_s(self) -> float:
        """Work over what is guaranteed, or until the last arrival and its run."""
        work = sum(kind.jobs * kind.cores * kind.run_ms for kind in self.kinds) / NOMINAL
        return max(work, *(kind.jobs * kind.every_ms + kind.run_ms for kind in self.kinds)) / 1e3


LOADS = {
    "baseline": Load(
        "baseline",
        5,
        6,
        (Kind("small", 350, 1, 200, 50, 100), Kind("medium", 100, 5, 500, 100, 500), Kind("large", 50, 20, 1_000, 200, 1_200)),
    ),
    "large": Load(
        "large", 10, 100, (Kind("small", 35, 1, 150, 50, 60), Kind("medium", 11, 5, 350, 100, 300), Kind("large", 4, 20, 700, 200, 700))
    ),
}


def shortened(load: Load, cohorts: int | None, queues_: int | None, per_queue: int | None) -> Load:
    """The same kinds in the same parts, fewer of them."""
    whole = sum(kind.jobs for kind in load.kinds)
    part = 1.0 if per_queue is None else per_queue / whole
    kinds = tuple(kind._replace(jobs=max(1, round(kind.jobs * part))) for kind in load.kinds)
    return load._replace(cohorts=cohorts or load.cohorts, queues=queues_ or load.queues, kinds=kinds)


class Arrival(NamedTuple):
    at_ms: int
    queue: str
    kind: Kind


def arrivals(load: Load) -> list[Arrival]:
    """All jobs in the order in which they come."""
    names = [f"c{cohort}-q{queue}" for cohort in range(load.cohorts) for queue in range(load.queues)]
    due = [Arrival(k * kind.every_ms, name, kind) for name in names for kind in load.kinds for k in range(kind.jobs)]
    return sorted(due, key=lambda arrival: (arrival.at_ms, arrival.queue, arrival.kind.name))


class Machines:
    """All nodes of the installation: they take commands, play run times, and report. Times are those of the plane's clock."""

    def __init__(self, plane: Plane, count: int) -> None:
        self._plane = plane
        self.callers = {name: Caller(principal=f"node/{name}", role="node") for name in (f"n{at:03}" for at in range(count))}
        self._epochs: dict[str, int] = {}
        self._seen = dict.fromkeys(self.callers, 0)
        self._seq = dict.fromkeys(self.callers, 0)
        self._mail: dict[str, None] = {}
        self._news: dict[str, list[Report]] = {}
        self._ends: list[tuple[int, str, str, int]] = []
        self._running: dict[str, tuple[str, int]] = {}
        self._renewed_s = time.monotonic()
        self.admitted: list[tuple[str, int]] = []
        """(job, when it was prepared)."""
        self.stopped = 0

    def join(self) -> None:
        for name, caller in self.callers.items():
            facts = NodeFacts(
                hostname=name, address="127.0.0.1", cpus=CORES_PER_NODE, memory_bytes=1 << 40, boot_id="boot-1", pretended=True
            )
            nodes.join_node(self._plane, SYSTEM, Join(name=name, facts=facts)).result()
            register = Register(facts=facts, store_id=self._plane.store.store_id)
            self._epochs[name] = nodes.register_node(self._plane, caller, register).result().epoch
            self._plane.agents.on_mail(name, lambda name=name: self._mail.__setitem__(name, None))  # type: ignore[misc]

    def tick(self, now_ms: int) -> bool:
        """Takes what is in the mailboxes, ends what is due, and reports; true if there was anything."""
        mail, self._mail = self._mail, {}
        for name in mail:
            self._take_orders(name, now_ms)
        while self._ends and self._ends[0][0] <= now_ms:
            _, allocation, node, attempt = heapq.heappop(self._ends)
            if self._running.pop(allocation, None) is not None:
                exited = TaskExited(allocation=allocation, attempt=attempt, rank=0, exit_code=0, at_ms=now_ms)
                self._tell(node, exited, AllocationReleased(allocation=allocation, attempt=attempt, at_ms=now_ms))
        if time.monotonic() - self._renewed_s > RENEW_S:
            self._renewed_s = time.monotonic()
            for name in self.callers:
                self._news.setdefault(name, [])
        told = bool(self._news)
        self._upload()
        return told or bool(mail)

    def _take_orders(self, name: str, now_ms: int) -> None:
        while True:
            commands = nodes.poll_commands(self._plane, self.callers[name], self._seen[name])
            if commands.last == self._seen[name]:
                return
            self._seen[name] = commands.last
            for row in commands.rows:
                if isinstance(row.body, Prepare):
                    self._start(name, row.body, now_ms)
                elif isinstance(row.body, Stop):
                    self._stop(name, row.body, now_ms)

    def _start(self, node: str, order: Prepare, now_ms: int) -> None:
        ids = {"allocation": order.allocation, "attempt": order.attempt}
        self._tell(
            node,
            AllocationPrepared(**ids, address="127.0.0.1", port=1),  # type: ignore[arg-type]
            AllocationStarted(**ids, at_ms=now_ms),  # type: ignore[arg-type]
        )
        self._running[order.allocation] = (node, order.attempt)
        self.admitted.append((order.job, now_ms))
        heapq.heappush(self._ends, (now_ms + int(order.spec.labels["run_ms"]), order.allocation, node, order.attempt))

    def _stop(self, node: str, order: Stop, now_ms: int) -> None:
        if self._running.pop(order.allocation, None) is not None:
            self.stopped += 1
            ids = {"allocation": order.allocation, "attempt": order.attempt}
            exited = TaskExited(**ids, rank=0, exit_code=143, signal=15, at_ms=now_ms, stopped=True)  # type: ignore[arg-type]
            self._tell(node, exited, AllocationReleased(**ids, at_ms=now_ms))  # type: ignore[arg-type]

    def _tell(self, node: str, *reports: Report) -> None:
        self._news.setdefault(node, []).extend(reports)

    def _upload(self) -> None:
        """What every node has to say, together; waits until it is durable, so that the numbers of reports stay in order."""
        said: list[Future[object]] = []
        later: dict[str, list[Report]] = {}
        for name, reports in self._news.items():
            first = tuple(reports[: limits.REPORTS_PER_UPLOAD_MAX])
            if len(reports) > len(first):
                later[name] = reports[len(first) :]
            upload = Upload(epoch=self._epochs[name], boot_id="boot-1", first_seq=self._seq[name], reports=first)
            self._seq[name] += len(first)
            said.append(nodes.record_upload(self._plane, self.callers[name], upload))  # type: ignore[arg-type]
        self._news = later
        for future in said:
            future.result()


class Played(NamedTuple):
    """What a replay came to. Times in seconds; `waits` by kind."""

    wall_s: float
    late_mean_s: float
    late_max_s: float
    jobs: int
    admissions: int
    stopped: int
    waits: dict[str, list[float]]


def play(plane: Plane, load: Load) -> Played:
    """The whole load, in real time."""
    machines = Machines(plane, -(-load.cohorts * load.queues * NOMINAL // CORES_PER_NODE) + 1)
    machines.join()
    _set_queues(plane, load)
    specs = {(a.queue, a.kind.name): _spec(a) for a in arrivals(load)}
    due, at = arrivals(load), 0
    born: dict[str, tuple[str, int]] = {}
    asked: list[tuple[Arrival, Future[Submitted] | ShoalError]] = []
    late: list[float] = []
    gc.collect()
    gc.freeze()
    began_ms = plane.clock.now_ms()
    while True:
        now_ms = plane.clock.now_ms()
        batch = due[at : at + limits.BATCH_JOBS_MAX]
        batch = [arrival for arrival in batch if began_ms + arrival.at_ms <= now_ms]
        if batch:
            at += len(batch)
            late += [(now_ms - began_ms - arrival.at_ms) / 1e3 for arrival in batch]
            wanted = [Submission(project="default", spec=specs[arrival.queue, arrival.kind.name]) for arrival in batch]
            asked += zip(batch, submit_batch(plane, USER, wanted), strict=True)
        plane.step_all(now_ms)
        busy = machines.tick(plane.clock.now_ms())
        asked = _note_born(asked, began_ms, born)
        if at == len(due) and not asked and not plane.world.jobs:
            break
        if not batch and not busy:
            time.sleep(IDLE_S)
    wall_s = (plane.clock.now_ms() - began_ms) / 1e3
    _check_all_ended(plane, born, len(due))
    waits: dict[str, list[float]] = {kind.name: [] for kind in load.kinds}
    first: dict[str, int] = {}
    for job, at_ms in machines.admitted:
        first.setdefault(job, at_ms)
    for job, (kind, due_ms) in born.items():
        waits[kind].append((first[job] - due_ms) / 1e3)
    return Played(wall_s, statistics.fmean(late), max(late), len(due), len(machines.admitted), machines.stopped, waits)


def _spec(arrival: Arrival) -> JobSpec:
    kind = arrival.kind
    return JobSpec(run="true", queue=arrival.queue, cpus=kind.cores, priority=kind.priority, labels={"run_ms": str(kind.run_ms)})


def _set_queues(plane: Plane, load: Load) -> None:
    quotas = {"cpu": Quota(nominal=NOMINAL * 1_000, borrowing_limit=BORROWING * 1_000)}
    for cohort in range(load.cohorts):
        queues.set_queue(plane, SYSTEM, f"c{cohort}", QueueSpec()).result()
        for queue in range(load.queues):
            queues.set_queue(plane, SYSTEM, f"c{cohort}-q{queue}", QueueSpec(parent=f"c{cohort}", quotas=quotas)).result()


def _note_born(
    asked: list[tuple[Arrival, Future[Submitted] | ShoalError]], began_ms: int, born: dict[str, tuple[str, int]]
) -> list[tuple[Arrival, Future[Submitted] | ShoalError]]:
    """Those that were answered are in `born`, with their kind and when they were due; gives back the rest."""
    rest: list[tuple[Arrival, Future[Submitted] | ShoalError]] = []
    for arrival, answer in asked:
        if isinstance(answer, ShoalError):
            raise answer
        if answer.done():
            born[answer.result().job.id] = (arrival.kind.name, began_ms + arrival.at_ms)
        else:
            rest.append((arrival, answer))
    return rest


def _check_all_ended(plane: Plane, born: dict[str, tuple[str, int]], count: int) -> None:
    if len(born) != count:
        raise SystemExit(f"{count} jobs were submitted and {len(born)} are known")
    states: dict[str, int] = {}
    for ids in _in_pages(list(born)):
        for job in plane.store.jobs_by_id(ids):
            states[str(job.state)] = states.get(str(job.state), 0) + 1
    if states != {"SUCCEEDED": count}:
        raise SystemExit(f"not all jobs succeeded: {states}")
    if plane.troubles:
        raise SystemExit(f"a step was in trouble: {plane.troubles}")


def _in_pages(ids: list[str]) -> Iterator[tuple[str, ...]]:
    for at in range(0, len(ids), 500):
        yield tuple(ids[at : at + 500])


def run(load: Load) -> Played:
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        root = Path(folder)
        store = open_store(root / "shoal.db")
        plane = Plane(
            store=store,
            logs=LogStore(root / "logs"),
            blobs=BlobStore(root / "blobs"),
            sealer=Sealer(root / "key"),
            clock=RealClock(),
            ids=OsIds(),
            entropy=octets,
            policy=Policy(waits_per_plan=0, min_run_ms=0, restart_ms=0),
        )
        try:
            return play(plane, load)
        finally:
            plane.close()
            store.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(LOADS))
    parser.add_argument("--cohorts", type=int)
    parser.add_argument("--queues", type=int)
    parser.add_argument("--jobs", type=int, help="jobs of each queue")
    given = parser.parse_args()
    short = any(value is not None for value in (given.cohorts, given.queues, given.jobs))
    figures: dict[str, object] = {}
    over: list[str] = []
    for name in [given.only] if given.only else list(LOADS):
        load = shortened(LOADS[name], given.cohorts, given.queues, given.jobs)
        began_cpu_s = time.process_time()
        done = run(load)
        cpu_s = time.process_time() - began_cpu_s
        bound_s = 2 * load.ideal_s() + 10 if short else BOUND_S[name]
        print(
            f"{name}: {done.jobs:,} jobs in {done.wall_s:.1f} s (ideal {load.ideal_s():.1f}, bound {bound_s:.0f}), CPU {cpu_s:.0f} s\n"
            f"    {done.admissions:,} admissions, {done.admissions / done.wall_s:.0f} a second; {done.stopped:,} stopped for others\n"
            f"    arrivals late by {done.late_mean_s * 1e3:.0f} ms in the mean, {done.late_max_s * 1e3:.0f} at most"
        )
        for kind, waits in done.waits.items():
            ordered = sorted(waits)
            p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
            print(
                f"    {kind:8} to admission: mean {statistics.fmean(waits):6.2f} s, median {statistics.median(waits):6.2f}, p99 {p99:6.2f}"
            )
        figures |= {
            f"{name}_s": round(done.wall_s, 1),
            f"{name}_per_s": round(done.admissions / done.wall_s, 1),
            f"{name}_late_max_s": round(done.late_max_s, 2),
        }
        if done.wall_s > bound_s:
            over.append(f"{name} took {done.wall_s:.1f} s, at most {bound_s:.0f} is allowed")
    print(json.dumps(figures))
    print("\n".join(over), file=sys.stderr, end="\n" if over else "")
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())

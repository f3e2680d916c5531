"""
What one cycle costs on a large fleet that is full: 10,000 nodes x 8 GPUs, 200 queues, 1,000 to 100,000 pending jobs of 400 shapes.

Each steady cycle takes in 100 jobs that ended and 100 that arrived (and what the last cycle placed), as changes of the store, and then
judges: at most 100 are placed. The time is that of both, `Board.apply` and `cycle.schedule`. No store, no HTTP, no processes.

    python bench/cycle.py [--pending 1000,10000,100000] [--cycles 100] [--nodes 10000] [--limits]

The last line is JSON. `growth_100k_over_1k` compares the medians of the largest and the smallest queue.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import time
from collections.abc import Iterator

from msgspec.structs import replace

from shoal.base.rng import Rng
from shoal.model.attempt import Allocation, AllocationState
from shoal.model.change import Change
from shoal.model.job import GpuAsk, Job, JobSpec, JobState
from shoal.model.node import Device, Node, NodeFacts
from shoal.model.plan import Place, Plan
from shoal.model.queue import Queue, QueueSpec, Quota
from shoal.model.snapshot import Snapshot
from shoal.model.values import CountRange, Memory
from shoal.scheduling.board import Board
from shoal.scheduling.check import check_plan
from shoal.scheduling.cycle import schedule
from shoal.scheduling.policy import Policy

GPUS_PER_NODE = 8
SIZES = ((1, 40), (2, 15), (4, 15), (8, 20), (16, 7), (64, 3))
"""(GPUs of a gang, per cent of jobs)."""
VARIANTS = 67
"""Asks of CPU and memory per size: 6 x 67 = 402, about the 400 shapes of the issue."""
QUEUES = 200
MOVED = 100
"""Jobs that end, and jobs that arrive, per steady cycle; also the most that are placed."""
WARM_CYCLES = 10
_clock = time.perf_counter


class Fleet:
    """Records of a full fleet and of its queue, made from a seed, and moved on by `end`, `arrive` and `carry_out`."""

    def __init__(self, nodes: int, pending: int, limits: bool = False, seed: int = 1) -> None:
        self._rng = Rng(seed)
        self._limits = limits
        self._numbers = 0
        self.version = 1
        self.nodes = {node.id: node for node in (_node(i) for i in range(nodes))}
        self.queues = tuple(_queue(i, nodes) for i in range(QUEUES)) + tuple(Queue(id=f"org{i}", spec=QueueSpec()) for i in range(10))
        self.jobs: dict[str, Job] = {}
        self.running: list[str] = []
        self.held: dict[str, list[Allocation]] = {}
        self._fill()
        for _ in range(pending):
            self._new_job()

    def snapshot(self) -> Snapshot:
        held = (allocation for mine in self.held.values() for allocation in mine)
        return Snapshot(
            version=self.version,
            jobs=tuple(self.jobs[job] for job in sorted(self.jobs)),
            allocations=tuple(sorted(held, key=lambda allocation: allocation.id)),
            nodes=tuple(self.nodes.values()),
            queues=self.queues,
        )

    def _new_job(self, size: int | None = None) -> Job:
        self._numbers += 1
        size = size or self._size()
        per_node = min(size, GPUS_PER_NODE)
        variant = self._rng.below(VARIANTS)
        spec = JobSpec(
            run="true",
            gpus=GpuAsk(count=per_node),
            nodes=CountRange(size // per_node, size // per_node),
            cpus=per_node * (1 + variant % 12),
            memory=Memory(per_node * (1 + variant // 12) * (8 << 30)),
        )
        job = Job(
            id=f"{self._numbers:012}",
            number=self._numbers,
            project="default",
            owner="ada",
            queue=f"q{self._rng.below(QUEUES):03}",
            priority=self._rng.below(3),
            state=JobState.QUEUED,
            spec=spec,
            created_ms=self._numbers,
            queued_ms=self._numbers,
            time_limit_ms=(1 + self._rng.below(24)) * 3_600_000 if self._limits else None,
        )
        self.jobs[job.id] = job
        return job

    def _size(self) -> int:
        at = self._rng.below(100)
        for size, percent in SIZES:
            at -= percent
            if at < 0:
                return size
        raise AssertionError("per cents do not add up to 100")

    def _fill(self) -> None:
        """Whole-node gangs and small jobs, packed in the order of nodes until every GPU is taken."""
        free = [(node, GPUS_PER_NODE) for node in reversed(self.nodes.values())]
        while free:
            job = self._new_job()
            per_node, count = job.spec.gpus.count, job.spec.nodes.low  # type: ignore[union-attr]
            whole = [node for node, gpus in free[-count - 1 :] if gpus >= per_node]
            if len(whole) < count:
                node = free[-1][0]
                per_node, count, whole = 1, 1, [node]
                spec = replace(job.spec, gpus=GpuAsk(count=1), nodes=CountRange(1, 1), cpus=1, memory=None)
                self.jobs[job.id] = job = replace(job, spec=spec)
            self._start_on(job, [self._take(free, node, per_node) for node in whole[-count:]])

    @staticmethod
    def _take(free: list[tuple[Node, int]], node: Node, gpus: int) -> tuple[str, tuple[str, ...]]:
        at = next(i for i in range(len(free) - 1, -1, -1) if free[i][0] is node)
        left = free[at][1]
        devices = tuple(device.uuid for device in node.facts.devices[GPUS_PER_NODE - left :][:gpus])
        if left == gpus:
            del free[at]
        else:
            free[at] = (node, left - gpus)
        return node.id, devices

    def _start_on(self, job: Job, places: list[tuple[str, tuple[str, ...]]]) -> tuple[Job, list[Allocation]]:
        asked = job.spec
        self.jobs[job.id] = started = replace(job, state=JobState.RUNNING, attempt=1, started_ms=10**9)
        memory = asked.memory.bytes if asked.memory else 0
        self.held[job.id] = [
            Allocation(
                id=f"{job.id}.1.{rank}",
                job=job.id,
                job_number=job.number,
                project=job.project,
                queue=job.queue,
                attempt=1,
                node=node,
                node_rank=rank,
                devices=devices,
                gpu_model="h100",
                cpu_milli=(asked.cpus or 0) * 1_000,
                memory_bytes=memory,
                state=AllocationState.STARTED,
            )
            for rank, (node, devices) in enumerate(places)
        ]
        self.running.append(job.id)
        return started, self.held[job.id]

    def _change(self, *put: Job | Allocation) -> Change:
        self.version += 1
        return Change(version=self.version, put=put)

    def ends(self, count: int) -> Iterator[Change]:
        for _ in range(min(count, len(self.running))):
            at = self._rng.below(len(self.running))
            self.running[at], self.running[-1] = self.running[-1], self.running[at]
            job_id = self.running.pop()
            released = (replace(held, state=AllocationState.RELEASED) for held in self.held.pop(job_id))
            yield self._change(replace(self.jobs.pop(job_id), state=JobState.SUCCEEDED), *released)

    def arrivals(self, count: int) -> Iterator[Change]:
        for _ in range(count):
            yield self._change(self._new_job())

    def carry_out(self, plan: Plan) -> Iterator[Change]:
        for place in plan.decisions:
            if isinstance(place, Place):
                job, held = self._start_on(self.jobs[place.job], [(member.node, member.devices) for member in place.members])
                yield self._change(job, *held)


def _node(i: int) -> Node:
    devices = tuple(
        Device(uuid=f"GPU-{i:05}-{k}", index=k, model="h100", memory_bytes=80 << 30, island=0, numa=k // 4, switch=k // 2)
        for k in range(GPUS_PER_NODE)
    )
    facts = NodeFacts(hostname=f"n{i:05}", address=f"n{i:05}", cpus=192, memory_bytes=2 << 40, devices=devices)
    return Node(id=f"n{i:05}", facts=facts, topology=(("block", f"b{i // 320}"), ("rack", f"r{i // 16}")))


def _queue(i: int, nodes: int) -> Queue:
    """Twenty queues to an organisation; each is guaranteed its part of the fleet and may borrow the rest."""
    nominal = nodes * GPUS_PER_NODE * 1_000 // QUEUES
    return Queue(id=f"q{i:03}", spec=QueueSpec(parent=f"org{i % 10}", weight=1_000 + 500 * (i % 3), quotas={"gpu": Quota(nominal=nominal)}))


def measure(nodes: int, pending: int, cycles: int, limits: bool = False) -> dict[str, float]:
    """One fleet: the cold start, then `cycles` steady ones, in milliseconds."""
    fleet = Fleet(nodes, pending, limits)
    snapshot = fleet.snapshot()
    policy = Policy(placed_per_cycle=MOVED)
    started = _clock()
    board = Board.of(snapshot)
    plan = schedule(board, policy, 10**9, Rng(1))
    cold_ms = (_clock() - started) * 1e3
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 20)
    # What a server does once its world is loaded: what lives long is not walked again, and the collector comes seldom, since a cycle
    # leaves it nothing to find (tests/unit/scheduling/test_order.py).
    took: list[float] = []
    parts = {"apply": 0.0, "schedule": 0.0, "placed": 0, "reserved": 0}
    for cycle in range(WARM_CYCLES + cycles):
        changes = [*fleet.carry_out(plan), *fleet.ends(MOVED), *fleet.arrivals(MOVED)]
        started = _clock()
        for change in changes:
            board.apply(change)
        applied = _clock()
        plan = schedule(board, policy, 10**9, Rng(1))
        ended = _clock()
        if cycle >= WARM_CYCLES:
            took.append((ended - started) * 1e3)
            parts["apply"] += (applied - started) * 1e3 / cycles
            parts["schedule"] += (ended - applied) * 1e3 / cycles
            parts["placed"] += plan.counters["placed"] / cycles
            parts["reserved"] += plan.counters["reserved"] / cycles
        if cycle % 20 == 0:
            faults = check_plan(board.records, plan)
            assert not faults, faults
    gc.unfreeze()
    took.sort()
    return {
        "cold_ms": cold_ms,
        "p50_ms": took[len(took) // 2],
        "p99_ms": took[min(len(took) - 1, len(took) * 99 // 100)],
        "apply_ms": parts["apply"],
        "schedule_ms": parts["schedule"],
        "placed": parts["placed"],
        "reserved": parts["reserved"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pending", default="1000,10000,100000")
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--cpu-time", action="store_true", help="CPU time in place of wall time: for a machine that others use too")
    parser.add_argument("--limits", action="store_true", help="all jobs have a time limit, so that blocked gangs get reservations")
    args = parser.parse_args()
    if args.cpu_time:
        global _clock
        _clock = time.process_time
    results = {}
    for pending in (int(text) for text in args.pending.split(",")):
        results[pending] = measured = measure(args.nodes, pending, args.cycles, args.limits)
        print(f"{pending:>7} pending: " + ", ".join(f"{name} {value:.2f}" for name, value in measured.items()))
    least, most = results[min(results)], results[max(results)]
    line = {
        "cold_ms": round(most["cold_ms"], 1),
        "steady_p50_ms": round(most["p50_ms"], 2),
        "steady_p99_ms": round(most["p99_ms"], 2),
        "growth_100k_over_1k": round(most["p50_ms"] / least["p50_ms"], 2),
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()

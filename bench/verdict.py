"""
What the cycle costs where its answer is hard: a gang that cannot start, a gang that others must be stopped for, a long queue to backfill.

    verdict    500 nodes x 8 GPUs full of 4,000 jobs of one GPU: a gang of 10 x 8 comes. Time of the cycle and of the full explanation:
               causes with numbers, the smallest set of blockers, what would start it, the earliest start.
    reclaim    the same fleet, all of it borrowed by one queue: the gang of another asks for 250 x 8 GPUs that are guaranteed to it. Time
               of the cycle that decides the victims; once over jobs of one GPU, once over jobs of eight. The larger time counts.
    backfill   1,000 nodes x 8 GPUs, most of them taken; a gang that needs all of them stands first and has a reservation; behind it
               9,999 jobs that have time limits, of as many kinds as can be: sizes 1 to 512 GPUs, CPUs, memory and limits are drawn.
               Each is tried, or is of a kind of which one that may run no longer has just been refused.

    python bench/verdict.py [--rounds 3] [--pending 10000]

Processor time, the best of the rounds, on boards made anew: each is one thread that waits for nothing, so that an idle machine takes as
long by the clock, and what others do on a busy one does not count. Every plan is checked by `check_plan`. Bounds are those below. The
last line is JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable

from msgspec.structs import replace

from shoal.base.rng import Rng
from shoal.formats.workload import NodeKind, node_of
from shoal.model.attempt import Allocation, AllocationState
from shoal.model.job import GpuAsk, Job, JobSpec, JobState
from shoal.model.node import Node
from shoal.model.plan import Evict, Plan, Reserve
from shoal.model.queue import Queue, QueueSpec, Quota
from shoal.model.snapshot import Snapshot
from shoal.model.values import CountRange, Memory
from shoal.scheduling.board import Board
from shoal.scheduling.check import check_plan
from shoal.scheduling.cycle import schedule
from shoal.scheduling.explain import explain_job
from shoal.scheduling.policy import Policy

VERDICT_MS_MAX, RECLAIM_MS_MAX, BACKFILL_MS_MAX = 100.0, 1_000.0, 2_000.0
GPUS = 8
HOUR_MS = 3_600_000
NOW_MS = 1_000 * HOUR_MS
POLICY = Policy()


def fleet(count: int) -> tuple[Node, ...]:
    """Nodes of eight, sixteen to a rack."""
    return tuple(node_of(f"n{at:05}", NodeKind(gpus=GPUS), topology=(("rack", f"r{at // 16}"),)) for at in range(count))


def a_job(number: int, queue: str, spec: JobSpec, limit_ms: int | None) -> Job:
    """A queued one; its id rises with its number."""
    return Job(
        id=f"{number:012}",
        number=number,
        project="default",
        owner="ada",
        queue=queue,
        state=JobState.QUEUED,
        spec=spec,
        created_ms=number,
        queued_ms=number,
        time_limit_ms=limit_ms,
    )


def running(number: int, queue: str, node: Node, at: int, gpus: int, limit_ms: int | None) -> tuple[Job, Allocation]:
    """A job on GPUs `at` to `at + gpus` of a node; the fleet was filled in the order of numbers, a job each second."""
    since_ms = NOW_MS - 3 * HOUR_MS + number * 1_000
    job = replace(
        a_job(number, queue, ask(gpus), limit_ms), state=JobState.RUNNING, attempt=1, started_ms=since_ms, created_ms=0, queued_ms=0
    )
    held = Allocation(
        id=f"{job.id}.1.0",
        job=job.id,
        job_number=number,
        project="default",
        queue=queue,
        attempt=1,
        node=node.id,
        node_rank=0,
        devices=tuple(device.uuid for device in node.facts.devices[at : at + gpus]),
        gpu_model=node.facts.devices[0].model,
        state=AllocationState.STARTED,
        claimed_ms=since_ms,
    )
    return job, held


def ask(gpus: int, nodes: int = 1, cpus: int | None = None, memory: Memory | None = None) -> JobSpec:
    return JobSpec(run="true", gpus=GpuAsk(count=gpus), nodes=CountRange(nodes, nodes), cpus=cpus, memory=memory)


def full(nodes: tuple[Node, ...], queue: str, gpus: int, limit_ms: Callable[[int], int | None]) -> tuple[list[Job], list[Allocation]]:
    """The whole fleet held by jobs of so many GPUs."""
    spots = [(node, at) for node in nodes for at in range(0, GPUS, gpus)]
    pairs = [running(number, queue, node, at, gpus, limit_ms(number)) for number, (node, at) in enumerate(spots, 1)]
    return [job for job, _ in pairs], [held for _, held in pairs]


def board_of(nodes: tuple[Node, ...], queues: tuple[Queue, ...], jobs: list[Job], held: list[Allocation]) -> Board:
    return Board.of(Snapshot(version=1, nodes=nodes, queues=queues, jobs=tuple(jobs), allocations=tuple(held)))


def timed(work: Callable[[], Plan]) -> tuple[float, Plan]:
    gc.collect()
    began = time.process_time()
    plan = work()
    return (time.process_time() - began) * 1e3, plan


def checked(board: Board, plan: Plan) -> Plan:
    faults = check_plan(board.records, plan)
    if faults:
        raise SystemExit(f"the plan is not legal: {faults[:3]}")
    return plan


def verdict() -> float:
    """Milliseconds from a new gang on the board to the whole reason why it waits."""
    nodes = fleet(500)
    queue = Queue(id="q", spec=QueueSpec())
    jobs, held = full(nodes, "q", 1, lambda number: (4 + number % 40) * HOUR_MS)
    gang = a_job(9_999, "q", ask(GPUS, 10), HOUR_MS)
    board = board_of(nodes, (queue,), [*jobs, gang], held)

    def judge() -> Plan:
        plan = schedule(board, POLICY, NOW_MS, Rng(1))
        told = explain_job(board, POLICY, gang.id, NOW_MS)
        if told is None or not told.reasons or told.earliest_start_ms is None:
            raise SystemExit(f"the gang was not explained: {told}")
        return plan

    took_ms, plan = timed(judge)
    checked(board, plan)
    return took_ms


def reclaim(victim_gpus: int) -> float:
    """Milliseconds of the cycle that stops jobs of so many GPUs for 2,000 of them."""
    nodes = fleet(500)
    half = Quota(nominal=2_000 * 1_000)
    queues = tuple(Queue(id=name, spec=QueueSpec(quotas={"gpu": half})) for name in ("lends", "borrows"))
    top = Queue(id="org", spec=QueueSpec())
    queues = (top, *(replace(queue, spec=replace(queue.spec, parent="org")) for queue in queues))
    jobs, held = full(nodes, "borrows", victim_gpus, lambda _: None)
    gang = a_job(9_999, "lends", ask(GPUS, 250), None)
    board = board_of(nodes, queues, [*jobs, gang], held)
    took_ms, plan = timed(lambda: schedule(board, POLICY, NOW_MS, Rng(1)))
    checked(board, plan)
    victims = sum(isinstance(decision, Evict) for decision in plan.decisions)
    if victims != 2_000 // victim_gpus:
        raise SystemExit(f"{victims} jobs of {victim_gpus} GPUs are stopped for 2,000 GPUs, {2_000 // victim_gpus} are enough")
    return took_ms


def backfill(pending: int) -> tuple[float, int]:
    """Milliseconds of a cycle that tries `pending` jobs on a full fleet where room is kept for the first; and how many were alike."""
    nodes = fleet(1_000)
    rng = Rng(7)
    jobs, held = full(nodes, "q", 4, lambda number: (4 + number % 19) * HOUR_MS)
    # Room is left on every fourth node, so that many fit and must be held against the reservation.
    gone = {one.job for at, one in enumerate(held) if at % 8 == 0}
    jobs, held = [job for job in jobs if job.id not in gone], [one for one in held if one.job not in gone]
    jobs.append(a_job(20_000, "q", ask(GPUS, 1_000), HOUR_MS))
    kinds: set[tuple[int, ...]] = set()
    for number in range(20_001, 20_000 + pending):
        size = 1 << rng.below(10)
        per_node = min(size, GPUS)
        cpus, gib, minutes = per_node * (1 + rng.below(14)), 1 + rng.below(100), 5 + rng.below(6_000)
        kinds.add((size, cpus, gib, minutes))
        spec, limit_ms = ask(per_node, size // per_node, cpus, Memory(gib << 30)), minutes * 60_000
        jobs.append(a_job(number, "q", spec, limit_ms))
    board = board_of(nodes, (Queue(id="q", spec=QueueSpec()),), jobs, held)
    took_ms, plan = timed(lambda: schedule(board, POLICY, NOW_MS, Rng(1)))
    checked(board, plan)
    print(f"backfill: {plan.counters}, {len(kinds):,} distinct asks of {pending - 1:,} behind the head")
    if [decision.job for decision in plan.decisions if isinstance(decision, Reserve)] != [f"{20_000:012}"]:
        raise SystemExit("it is not the head of the queue that has a reservation")
    if plan.counters["bound"] or plan.counters["attempts"] < pending * 3 // 4:
        raise SystemExit(f"not all were tried: {plan.counters}")
    return took_ms, len(kinds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pending", type=int, default=10_000)
    given = parser.parse_args()
    verdict_ms = min(verdict() for _ in range(given.rounds))
    by_size = {gpus: min(reclaim(gpus) for _ in range(given.rounds)) for gpus in (1, GPUS)}
    rounds = [backfill(given.pending) for _ in range(given.rounds)]
    figures = {
        "verdict_ms": round(verdict_ms, 1),
        "reclaim_ms": round(max(by_size.values()), 1),
        "reclaim_of_1_ms": round(by_size[1], 1),
        "reclaim_of_8_ms": round(by_size[GPUS], 1),
        "backfill_ms": round(min(took_ms for took_ms, _ in rounds), 1),
        "pending": given.pending,
        "distinct_asks": rounds[0][1],
    }
    print(json.dumps(figures))
    bounds = {"verdict_ms": VERDICT_MS_MAX, "reclaim_ms": RECLAIM_MS_MAX, "backfill_ms": BACKFILL_MS_MAX}
    over = [f"{name} is {figures[name]:,}, at most {bound:,.0f} is allowed" for name, bound in bounds.items() if figures[name] > bound]
    print("\n".join(over), file=sys.stderr, end="\n" if over else "")
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""
Packing where tasks come and go: GPU time served by each policy, with departures. What does not fit on arrival is dropped.

    python bench/packing_churn.py [--worlds own,default,mig] [--loads 80,100,130] [--seeds 10] [--processes 2]

The worlds are those of `packing_worlds`. Served is the GPU time of what was placed over the GPU time there is, in per cent, once the first
quarter is over; every policy sees the same tasks. The last line is JSON: where Value, Shoal's policy with its one setting and the table
that ships, lies against the better of FGD and BestFit. Ends with 1 if it serves more than 0.2 points less anywhere (a mean over seeds; of
fewer than SEEDS, more as the root of their number) or does not win on average. Who pays is printed by class of task.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from statistics import fmean
from typing import Any, NamedTuple

import packing_worlds as worlds

POLICIES = ("BestFit", "FGD", "Value")
LOADS = (80, 100, 130)
LOSS_MOST = 0.2
SEEDS = 10
FIRST_SEED = 42


class Served(NamedTuple):
    """GPU time served in per cent of what there is; by class, time asked and served (GPU time; cores' for tasks without GPUs)."""

    percent: float
    asked: dict[str, float]
    served: dict[str, float]


def replay(name: str, load: float, policy: str, seed: int) -> Served:
    """One world under one policy."""
    fleet, course = worlds.world_of(name, load, policy, seed)
    ends: list[tuple[float, int, Any]] = []
    asked: dict[str, float] = {}
    served: dict[str, float] = {}
    gpu_time = 0.0
    for number, stay in enumerate(course.stays):
        while ends and ends[0][0] <= stay.at:
            fleet.give(heapq.heappop(ends)[2])
        counted = max(0.0, min(stay.at + stay.length, course.until) - max(stay.at, course.since))
        weight = counted * (stay.ask.milli or stay.ask.cpu_milli)
        asked[stay.ask.kind] = asked.get(stay.ask.kind, 0.0) + weight
        taken = fleet.place(stay.ask)
        if taken is not None:
            served[stay.ask.kind] = served.get(stay.ask.kind, 0.0) + weight
            gpu_time += counted * stay.ask.milli
            heapq.heappush(ends, (stay.at + stay.length, number, taken))
    return Served(100 * gpu_time / (fleet.capacity_milli * (course.until - course.since)), asked, served)


Runs = dict[tuple[str, int, str], list[Served]]


def replay_all(names: list[str], loads: list[int], seeds: int, processes: int) -> Runs:
    """Every replay, by (world, load, policy); progress on stderr."""
    wanted = [(w, x, p, FIRST_SEED + s) for w in names for x in loads for p in POLICIES for s in range(seeds)]
    runs: Runs = {}
    began = time.perf_counter()
    with ProcessPoolExecutor(processes) as pool:
        found = pool.map(replay, *zip(*((w, x / 100, p, s) for w, x, p, s in wanted), strict=True))
        for at, ((world, load, policy, _), run) in enumerate(zip(wanted, found, strict=True), 1):
            runs.setdefault((world, load, policy), []).append(run)
            print(f"\r{at} of {len(wanted)} replays, {time.perf_counter() - began:.0f} s", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return runs


def margins_of(runs: Runs, world: str, load: int) -> list[float]:
    """Value against the policy that serves more on the mean of the seeds, seed by seed."""
    by_policy = [[run.percent for run in runs[world, load, policy]] for policy in POLICIES]
    best = max(by_policy[:-1], key=fmean)
    return [mine - other for mine, other in zip(by_policy[-1], best, strict=True)]


def print_tables(names: list[str], loads: list[int], runs: Runs) -> None:
    """Served by policy, and who pays."""
    print(f"{'GPU time served, %':20s} {'load':>5s}" + "".join(f"{policy:>9s}" for policy in POLICIES) + f"{'margin':>9s}  by seed")
    for world in names:
        for load in loads:
            means = [fmean(run.percent for run in runs[world, load, policy]) for policy in POLICIES]
            margins = margins_of(runs, world, load)
            seeds = f"{min(margins):+.2f} to {max(margins):+.2f}"
            print(f"{world:20s} {load:4d} %" + "".join(f"{mean:9.2f}" for mean in means) + f"{fmean(margins):+9.2f}  {seeds}")
    print("\nwho pays: time served of time asked, % (of CPU time for tasks without GPUs)")
    for world in names:
        kinds = sorted({kind for load in loads for run in runs[world, load, POLICIES[0]] for kind in run.asked})
        print(f"{world:20s} {'':14s}" + "".join(f"{kind:>13s}" for kind in kinds))
        for load in loads:
            for policy in POLICIES:
                print(f"{'':20s} {load:4d} % {policy:7s}" + "".join(f"{_part(runs[world, load, policy], kind):>13s}" for kind in kinds))


def _part(runs: list[Served], kind: str) -> str:
    asked, served = (sum(times.get(kind, 0.0) for times in each) for each in ([r.asked for r in runs], [r.served for r in runs]))
    return f"{100 * served / asked:.1f}" if asked else "-"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default=",".join(worlds.WORLDS), help="some of them, by comma")
    parser.add_argument("--loads", default=",".join(map(str, LOADS)), help="per cent, by comma")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"from {FIRST_SEED} on")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    names, loads = options.worlds.split(","), [int(load) for load in options.loads.split(",")]
    unknown = sorted(set(names) - set(worlds.WORLDS))
    if unknown:
        parser.error(f"no such world: {', '.join(unknown)}; there are {', '.join(worlds.WORLDS)}")
    runs = replay_all(names, loads, options.seeds, options.processes)
    print_tables(names, loads, runs)
    margins = {(world, load): fmean(margins_of(runs, world, load)) for world in names for load in loads}
    worst, mean = min(margins.values()), fmean(margins.values())
    loss_most = LOSS_MOST * max(1.0, SEEDS / options.seeds) ** 0.5
    for (world, load), by in margins.items():
        if by < -loss_most:
            print(f"MISSED: Value serves {by:+.2f} points in {world} at {load} %, {-loss_most:.2f} is allowed for {options.seeds} seeds")
    if mean <= 0:
        print(f"MISSED: Value does not win on average, {mean:+.2f}")
    print(json.dumps({"worlds": len(margins), "min_margin": round(worst, 3), "mean_margin": round(mean, 3)}))
    return 1 if worst < -loss_most or mean <= 0 else 0


if __name__ == "__main__":
    raise SystemExit(main())

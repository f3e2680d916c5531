"""
How fast a log is replayed: a log made from a seed, played through the cycle and the lifecycle with a cycle per instant.

    python bench/swf.py [--jobs 20000] [--processors 1024] [--per-node 8] [--largest 512] [--load 0.9] [--seed 1] [--policy default]

The jobs of the log are gangs of up to 64 nodes of eight; `--largest 8` shows what a job of one node costs, `--per-node 64` a machine of
large nodes. The last line is JSON; the bench ends with 1 below a million jobs in five minutes. `seconds`, `events_per_s` and `jobs_per_s`
are of the whole replay, reading and making the log apart.
`events` are what happens on virtual time: a job arrives, its gang ends, a time is up. Figures are for an idle machine; `cpu_s` is what
a busy one took.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time

from shoal.sim.generate import LogPlan, generate_swf
from shoal.sim.policies import named_policy
from shoal.sim.simulate import PER_NODE, Setting, fleet_for, read_trace, simulate

JOBS_PER_S_LEAST = 1_000_000 / 300


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--processors", type=int, default=1_024)
    parser.add_argument("--per-node", type=int, default=PER_NODE)
    parser.add_argument("--largest", type=int, default=512)
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", default="default")
    given = parser.parse_args()
    plan = LogPlan(jobs=given.jobs, processors=given.processors, largest=given.largest, load=given.load, seed=given.seed)
    began = time.perf_counter()
    workload = read_trace(generate_swf(plan), "generated", given.per_node)
    made_s = time.perf_counter() - began
    setting = Setting(nodes=fleet_for(workload, given.per_node), policies=(named_policy(given.policy),), seed=given.seed)
    began, began_cpu = time.perf_counter(), time.process_time()
    (run,) = simulate(workload, "generated", setting).runs
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    metrics = run.metrics
    print(f"{metrics.jobs:,} jobs, {run.cycles:,} cycles, mean wait {metrics.wait_s.mean:,.0f} s, use {metrics.utilisation:.1%}")
    figures = {
        "jobs": metrics.jobs,
        "cycles": run.cycles,
        "made_s": round(made_s, 2),
        "seconds": round(seconds, 2),
        "cpu_s": round(cpu_s, 2),
        "events_per_s": round(run.events / seconds),
        "jobs_per_s": round(metrics.jobs / seconds),
        "jobs_per_cpu_s": round(metrics.jobs / cpu_s),
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(f"bound: at least {JOBS_PER_S_LEAST:,.0f} jobs a second")
    print(json.dumps(figures))
    return 0 if metrics.jobs / seconds >= JOBS_PER_S_LEAST else 1


if __name__ == "__main__":
    sys.exit(main())

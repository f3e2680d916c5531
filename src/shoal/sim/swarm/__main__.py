"""
Plays seeds of the swarm and says what went wrong:

    python -m shoal.sim.swarm [--seeds 100] [--from 0] [--steps 1000] [--trace]

The last line is JSON. A seed that fails prints the line that plays it again, alone and with its trace.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from shoal.sim.swarm.run import Life, run_seed


def main(argv: Sequence[str] | None = None) -> int:
    """0 when no seed has failed, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m shoal.sim.swarm", description="The whole plane on virtual time, with faults.")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first one")
    parser.add_argument("--steps", type=int, default=1_000, help="of each, at least")
    parser.add_argument("--trace", action="store_true", help="prints every step of every life")
    parser.add_argument("--workers", type=int, default=1, help="processes that play seeds at once")
    options = parser.parse_args(argv)
    seeds = range(options.first, options.first + options.seeds)
    play = partial(_play, options.steps, options.trace)
    lives: list[tuple[Life, float]] = []
    if options.workers > 1:
        with ProcessPoolExecutor(options.workers) as pool:
            for life, seconds in pool.map(play, seeds, chunksize=4):
                lives.append((life, seconds))
                _tell(life, options.steps)
    else:
        for seed in seeds:
            lives.append(play(seed))
            _tell(lives[-1][0], options.steps)
    steps, cpu_s = sum(life.steps for life, _ in lives), sum(seconds for _, seconds in lives)
    failed = [life.seed for life, _ in lives if life.violations]
    told = {
        "seeds": len(lives),
        "violations": sum(len(life.violations) for life, _ in lives),
        "failed": failed,
        "steps": steps,
        "least_steps": min((life.steps for life, _ in lives), default=0),
        "cpu_s": round(cpu_s, 1),
        "steps_per_s": round(steps / cpu_s) if cpu_s else 0,
    }
    sys.stdout.write(json.dumps(told) + "\n")
    return 1 if failed else 0


def _play(steps: int, keep: bool, seed: int) -> tuple[Life, float]:
    begun_s = time.process_time()
    return run_seed(seed, steps, keep=keep), time.process_time() - begun_s


def _tell(life: Life, steps: int) -> None:
    for line in life.lines:
        sys.stdout.write(line + "\n")
    for violation in life.violations:
        sys.stdout.write(f"seed {life.seed}: {violation}\n")
    if life.violations:
        sys.stdout.write(f"again: python -m shoal.sim.swarm --from {life.seed} --seeds 1 --steps {steps} --trace\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

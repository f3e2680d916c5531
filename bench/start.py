"""
How soon commands and a whole Shoal are there: CPU time of `shoal --help` and `shoal queue`, wall time of a second `shoal up`.

Each figure is a median, and stands also as a ratio to what a bare interpreter takes to start and end in the same run: CPU time for the
commands, wall time for `up`. The second start is the one that counts, as the first also makes the database, keys and tokens; it is
over when both agents of two pretended nodes are registered. Last line: JSON. Bounds, for an idle 2-core machine: 200 ms, 200 ms, 1.5 s.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from installation import SHOAL, Installation

CPU_MS_MAX = 200.0
UP_SECONDS_MAX = 1.5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, help="starts of each command")
    parser.add_argument("--ups", type=int, default=5, help="second starts of the whole")
    options = parser.parse_args()
    with Installation(nodes=2, pretend="h100:8") as installation:
        environment = installation.environment()
        bare_cpu_ms, bare_ms = measure([sys.executable, "-c", "pass"], environment, options.runs)
        help_ms, _ = measure([str(SHOAL), "--help"], environment, options.runs)
        queue_ms, _ = measure([str(SHOAL), "queue"], environment, options.runs)
        up_s = statistics.median(installation.time_second_start() for _ in range(options.ups))
    figures = {
        "bare_cpu_ms": round(bare_cpu_ms, 1),
        "help_cpu_ms": round(help_ms, 1),
        "help_vs_bare": round(help_ms / bare_cpu_ms, 1),
        "queue_cpu_ms": round(queue_ms, 1),
        "queue_vs_bare": round(queue_ms / bare_cpu_ms, 1),
        "up_s": round(up_s, 2),
        "up_vs_bare": round(up_s * 1_000 / bare_ms, 1),
    }
    print(f"bounds: commands {CPU_MS_MAX:.0f} ms of CPU time, second `shoal up` {UP_SECONDS_MAX} s")
    print(json.dumps(figures))
    return 0 if max(help_ms, queue_ms) <= CPU_MS_MAX and up_s <= UP_SECONDS_MAX else 1


def measure(command: list[str], environment: dict[str, str], runs: int) -> tuple[float, float]:
    """Median milliseconds of CPU time (user and system, children too) and of wall time of a command that must succeed."""
    cpu_ms, wall_ms = [], []
    for _ in range(runs):
        began = time.monotonic()
        started = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(started.pid, 0)
        wall_ms.append((time.monotonic() - began) * 1_000)
        cpu_ms.append((used.ru_utime + used.ru_stime) * 1_000)
        started.returncode = os.waitstatus_to_exitcode(status)
        if started.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {started.returncode}")
    return statistics.median(cpu_ms), statistics.median(wall_ms)


if __name__ == "__main__":
    sys.exit(main())

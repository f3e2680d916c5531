"""
From submit to recorded end: no-op jobs with one GPU each, as real processes on four nodes, against a real Slurm in turn in one run.

Shoal: `shoal up` with four agents of eight pretended GPUs; single creates over HTTP with the client, by a few threads, each durable
before it is answered; over when none of the jobs is unfinished. Slurm: see `bench/slurm.py`; the better of several shells that call
`sbatch` and of one array. Both start the same script, `#!/bin/sh` and `exit 0`. The systems run one after the other, never together,
in `--rounds` rounds of both, and medians count. Last line: JSON. Bound: at least 3 times Slurm's rate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from installation import Installation
from slurm import SlurmCluster, missing_programs

from shoal.client.api import Api
from shoal.model.job import ENDED, JobState

RATIO_MIN = 3.0
NODES, GPUS = 4, 8
POLL_SECONDS = 0.1
UNFINISHED = tuple(state for state in JobState if state not in ENDED)
NOOP = {"name": "noop", "run": "#!/bin/sh\nexit 0\n", "gpus": {"count": 1}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--clients", type=int, default=4, help="threads that create jobs, and shells that call sbatch")
    parser.add_argument("--only", choices=["shoal", "slurm"], help="measure one of them; no ratio, no bound")
    options = parser.parse_args()
    lacking = missing_programs() if options.only != "shoal" else ()
    if lacking:
        print(f"missing: {', '.join(lacking)}; apt-get install slurmctld slurmd slurm-client munge", file=sys.stderr)
        return 1
    shoal: list[float] = []
    slurm: list[float] = []
    for number in range(1, options.rounds + 1):
        if options.only != "slurm":
            shoal.append(options.jobs / run_shoal(options.jobs, options.clients))
            print(f"round {number}: Shoal {shoal[-1]:.1f} jobs/s", flush=True)
        if options.only != "shoal":
            slurm.append(max(run_slurm(options.jobs, options.clients)))
    return report(shoal, slurm)


def report(shoal: list[float], slurm: list[float]) -> int:
    """Prints the figures, JSON last; gives the exit code."""
    figures = {f"{name}_jobs_per_s": round(statistics.median(rates), 1) for name, rates in (("shoal", shoal), ("slurm", slurm)) if rates}
    if not (shoal and slurm):
        print(json.dumps(figures))
        return 0
    ratio = statistics.median(shoal) / statistics.median(slurm)
    print(f"bound: ratio at least {RATIO_MIN}")
    print(json.dumps({**figures, "ratio": round(ratio, 2)}))
    return 0 if ratio >= RATIO_MIN else 1


def run_shoal(jobs: int, clients: int) -> float:
    """Seconds from the first create to the last recorded end."""
    with Installation(nodes=NODES, pretend=f"h100:{GPUS}") as installation:
        api = installation.api()
        began = time.monotonic()
        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(lambda _: api.jobs.submit(NOOP), range(jobs)))
        created = time.monotonic() - began
        await_end(api)
        seconds = time.monotonic() - began
        succeeded = sum(1 for job in api.jobs.list_all(count_max=2 * jobs) if job.state is JobState.SUCCEEDED)
        if succeeded != jobs:
            raise RuntimeError(f"Shoal completed {succeeded} of {jobs} jobs; see {installation.state}")
        print(f"  Shoal: {jobs} created in {created:.1f} s, ended after {seconds:.1f} s")
        return seconds


def await_end(api: Api) -> None:
    """Returns once no job is unfinished."""
    while api.jobs.list(states=UNFINISHED, limit=1).items:
        time.sleep(POLL_SECONDS)


def run_slurm(jobs: int, clients: int) -> tuple[float, float]:
    """Jobs per second by sbatch from several shells, and by one array."""
    with SlurmCluster(nodes=NODES, gpus=GPUS) as cluster:
        singly = jobs / cluster.run_singly(jobs, shells=clients)
        array = jobs / cluster.run_array(jobs)
    print(f"  Slurm: {singly:.1f} jobs/s by sbatch from {clients} shells, {array:.1f} by one array", flush=True)
    return singly, array


if __name__ == "__main__":
    sys.exit(main())

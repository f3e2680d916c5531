"""
Tables of jobs with a number of GPUs, as the Philly trace (Microsoft, 2017) and those made from it are spread.

Columns are found by name: arrival in `timestamp` (a date and time, taken as UTC) or `submit_time` (seconds); `num_gpus` or `num_gpu`;
`duration` in seconds; and where they are there, `cluster` or `user` for the queue, `user` for the owner. Other columns are not looked at.
A job of more GPUs than a node has is a gang of whole nodes and a rest; one of less than a GPU (0.25) has a share of one, in thousandths.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain

from msgspec.structs import replace

from shoal.base.errors import Invalid
from shoal.formats.tabular import Row, read_rows
from shoal.formats.workload import TraceJob, Workload, ask_of, in_order, share_of
from shoal.model.job import JobSpec

ARRIVAL = ("timestamp", "submit_time")
GPUS = ("num_gpus", "num_gpu")


def read_jobs_table(lines: Iterable[str], source: str, per_node: int) -> Workload:
    """The jobs of a table as gangs on nodes of `per_node`; the first arrives at 0. Raises Invalid with the line of a fault."""
    jobs: list[TraceJob] = []
    without = rounded = 0
    for row, arrival, gpus in _rows(iter(lines), source):
        run_s, count = row.number("duration", -1), row.number(gpus)
        if run_s < 0 or count < 0:
            without += 1
            continue
        rounded += count > 1 and not count.is_integer()
        owner = row.text("user") or "trace"
        jobs.append(
            TraceJob(
                submit_ms=_moment_ms(row, arrival),
                run_ms=round(run_s * 1_000),
                spec=_spec(count, per_node),
                owner=owner,
                queue=row.text("cluster") or row.text("user") or "default",
            )
        )
    first_ms = min((job.submit_ms for job in jobs), default=0)
    moved = (_moved(job, first_ms) for job in jobs) if first_ms else jobs
    notes = []
    if without:
        notes.append(f"{without:,} jobs without a run time or GPUs are left out")
    if rounded:
        notes.append(f"{rounded:,} jobs asked for GPUs and a part of one; rounded up to whole ones")
    return Workload(jobs=in_order(moved), notes=tuple(notes))


def _spec(gpus: float, per_node: int) -> JobSpec:
    if 0 < gpus < 1:
        return share_of(max(1, min(999, round(gpus * 1_000))))
    return ask_of(math.ceil(gpus), per_node)


def _rows(lines: Iterator[str], source: str) -> Iterator[tuple[Row, str, str]]:
    heading = next(lines, "")
    names = [name.strip() for name in next(csv.reader([heading]), [])]
    arrival = next((name for name in ARRIVAL if name in names), None)
    gpus = next((name for name in GPUS if name in names), None)
    if arrival is None or gpus is None:
        raise Invalid(f"{source}: the first line must name {' or '.join(ARRIVAL)}, {' or '.join(GPUS)}, and duration")
    for row in read_rows(chain([heading], lines), source, (arrival, gpus, "duration")):
        yield row, arrival, gpus


def _moment_ms(row: Row, column: str) -> int:
    if column == "submit_time":
        return round(row.number(column) * 1_000)
    text = row.text(column)
    try:
        return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)
    except ValueError as error:
        raise row.fault(f"{column} is {text[:40]!r}, wanted a time such as 2017-10-09 07:01:55") from error


def _moved(job: TraceJob, by_ms: int) -> TraceJob:
    return replace(job, submit_ms=job.submit_ms - by_ms)

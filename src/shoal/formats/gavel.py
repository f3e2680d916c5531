"""
Gavel's traces (Stanford, OSDI 2020): a job per line, tab-separated, without a heading; work in steps, not in seconds.

    7 fields    job type, command, steps flag, needs data, total steps, arrival (s), GPUs
    10 fields   job type, command, working directory, steps flag, needs data, total steps, GPUs, priority weight, objective, arrival (s)

How long a job runs is its steps over the steps per second of its type on so many GPUs of one model, which the trace's *throughputs* file
says: JSON, model -> `('job type', GPUs)` -> `null` -> steps per second with nobody beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from shoal.base.errors import Fault, Invalid
from shoal.formats.workload import TraceJob, Workload, ask_of, in_order

Rates = dict[tuple[str, int], float]
"""Steps per second by (job type, GPUs)."""
SHORT, LONG = 7, 10
"""Fields of a line of either form."""
ALONE = "null"


def read_rates(raw: bytes, source: str, model: str) -> Rates:
    """The throughputs of one GPU model. Raises Invalid for a file of another form, or one without the model."""
    try:
        told: dict[str, Any] = msgspec.json.decode(raw, type=dict[str, Any])
        of_model: Mapping[str, Any] | None = told.get(model)
        if of_model is None:
            raise Invalid(f"{source}: it has no throughputs for {model!r}; it has {', '.join(sorted(told))}")
        return {_kind(name, source): float(beside[ALONE]) for name, beside in of_model.items()}
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise Invalid(f"{source}: not a file of throughputs: wanted model -> ('job type', GPUs) -> null -> steps per second") from error


def read_gavel(lines: Iterable[str], source: str, per_node: int, rates: Rates) -> Workload:
    """
    The jobs of a trace as gangs on nodes of `per_node`; the first arrives at 0. Raises Invalid with the line of a fault.

    Jobs of which the throughputs say nothing are left out and counted in the notes.
    """
    jobs: list[TraceJob] = []
    unknown: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            job = _job(line.rstrip("\r\n").split("\t"), f"{source} line {number}", number, (per_node, rates))
            if isinstance(job, str):
                unknown[job] = unknown.get(job, 0) + 1
            else:
                jobs.append(job)
    first_ms = min((job.submit_ms for job in jobs), default=0)
    moved = [msgspec.structs.replace(job, submit_ms=job.submit_ms - first_ms) for job in jobs] if first_ms else jobs
    left_out = sum(unknown.values())
    example = min(unknown, key=lambda kind: (-unknown[kind], kind), default="")
    notes = (f"{left_out:,} jobs are left out: the throughputs do not say how fast they run, for example {example}",) if left_out else ()
    return Workload(jobs=in_order(moved), notes=notes)


def is_gavel(line: str) -> bool:
    """True for a line of such a trace."""
    fields = line.rstrip("\r\n").split("\t")
    return len(fields) in (SHORT, LONG) and _whole(fields[4 if len(fields) == SHORT else 5]) is not None


def _job(fields: list[str], where: str, number: int, given: tuple[int, Rates]) -> TraceJob | str:
    """The job; or, where the throughputs do not know its kind, that kind."""
    per_node, rates = given
    if len(fields) not in (SHORT, LONG):
        raise _fault(f"{where}: {len(fields)} fields; a line of a Gavel trace has {SHORT} or {LONG}, separated by tabs", number)
    kind = fields[0].strip()
    steps, gpus, arrival = (fields[4], fields[6], fields[5]) if len(fields) == SHORT else (fields[5], fields[6], fields[9])
    count, total = _whole(gpus), _whole(steps)
    try:
        arrival_ms = round(float(arrival) * 1_000)
    except (ValueError, OverflowError):
        arrival_ms = -1
    if count is None or count < 1 or total is None or arrival_ms < 0:
        raise _fault(f"{where}: wanted steps, GPUs and arrival as numbers, got {steps[:20]!r}, {gpus[:20]!r} and {arrival[:20]!r}", number)
    rate = rates.get((kind, count), 0.0)
    if not rate > 0:
        return f"{kind} on {count} GPUs"
    return TraceJob(submit_ms=arrival_ms, run_ms=round(total / rate * 1_000), spec=ask_of(count, per_node), owner=kind)


def _kind(name: str, source: str) -> tuple[str, int]:
    """`('ResNet-18 (batch size 16)', 1)` as a pair."""
    kind, _, count = name.strip()[1:-1].rpartition(",")
    gpus = _whole(count.strip())
    if gpus is None:
        raise Invalid(f"{source}: {name[:60]!r} is not ('job type', GPUs)")
    return kind.strip().strip("'\""), gpus


def _whole(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def _fault(message: str, line: int) -> Invalid:
    return Invalid(message, (Fault(message, "", line),))

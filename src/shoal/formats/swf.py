"""
Standard Workload Format 2.2 (Parallel Workloads Archive): one job a line, 18 fields, -1 for unknown, `;` before comments.

    1 job  2 submit  3 wait  4 run  5 allocated processors  6 average CPU time  7 memory  8 requested processors  9 requested time
    10 requested memory  11 status  12 user  13 group  14 application  15 queue  16 partition  17 preceding job  18 think time

Times are seconds and may be fractional; a run of 0 s is legal. Rules: the requested processors count where the allocated are unknown; a
job cancelled before it ran (status 5, no run) is left out, and so are the pieces of a checkpointed job (2 to 4), whose whole has a line of
its own; what ran longer than it asked for gets the longer limit, since the log says that it was let run. Everything left out or changed
is counted in the workload's notes. A processor is played as a GPU; memory, preceding job and think time are not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from shoal.base.errors import Fault, Invalid
from shoal.formats.workload import TraceJob, Workload, ask_of, in_order

FIELDS = 18
CANCELLED = 5
PIECES = frozenset({2, 3, 4})
FAILED = 0
NUMBER_MAX = 1e12
"""Past any time or count of a log; also keeps out what is no number."""


class SwfLine(NamedTuple):
    """The fields that a replay looks at, by their names; times in seconds."""

    job: int
    submit_s: float
    run_s: float
    allocated: int
    requested: int
    requested_s: float
    status: int
    user: int
    queue: int

    @property
    def processors(self) -> int:
        """Those that it had, or those that it asked for where the log does not know; -1 where it knows neither."""
        return self.allocated if self.allocated > 0 else self.requested


def read_swf(lines: Iterable[str], source: str, per_node: int, *, round_up: bool = False) -> Workload:
    """
    The jobs of a log as gangs on nodes of `per_node`; `round_up` makes whole nodes of what asks for more than one.

    Raises: Invalid with the line of a job that cannot be read.
    """
    header: dict[str, str] = {}
    left_out = {"cancelled before they ran": 0, "pieces of checkpointed jobs": 0, "without run time or processors": 0}
    jobs: list[TraceJob] = []
    longer = 0
    for line in _lines(lines, source, header):
        why = _reason_to_leave_out(line)
        if why:
            left_out[why] += 1
            continue
        longer += 0 < line.requested_s < line.run_s
        jobs.append(_job(line, per_node, round_up))
    notes = [f"{count:,} jobs {why} are left out" for why, count in left_out.items() if count]
    if longer:
        notes.append(f"{longer:,} jobs ran longer than they had asked for; their limit is the time that they ran")
    processors = header.get("MaxProcs", header.get("MaxNodes", "0")).split(" ")[0]
    return Workload(jobs=in_order(jobs), notes=tuple(notes), processors=int(processors) if processors.isdecimal() else 0)


def _lines(lines: Iterable[str], source: str, header: dict[str, str]) -> Iterator[SwfLine]:
    for number, text in enumerate(lines, 1):
        stripped = text.strip()
        if not stripped:
            continue
        if stripped.startswith(";"):
            name, colon, value = stripped.lstrip("; ").partition(":")
            if colon:
                header.setdefault(name.strip(), value.strip())
            continue
        yield _line(stripped, number, source)


def _line(text: str, number: int, source: str) -> SwfLine:
    fields = text.split()
    if len(fields) < FIELDS:
        what = f"a job has {FIELDS} fields, this line {len(fields)}"
        raise Invalid(f"{source} line {number}: {what}", (Fault(what, "", number),))
    values = [_value(field) for field in fields[:FIELDS]]
    odd = next((field for field, value in zip(fields, values, strict=False) if value is None), None)
    if odd is not None:
        what = f"{odd[:40]!r} is no number that a log can have"
        raise Invalid(f"{source} line {number}: {what}", (Fault(what, "", number),))
    known = [value or 0.0 for value in values]
    job, allocated, requested, status, user, queue = (int(known[at]) for at in (0, 4, 7, 10, 11, 14))
    return SwfLine(job, known[1], known[3], allocated, requested, known[8], status, user, queue)


def _value(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= NUMBER_MAX else None


def _reason_to_leave_out(line: SwfLine) -> str:
    if line.status == CANCELLED and line.run_s <= 0:
        return "cancelled before they ran"
    if line.status in PIECES:
        return "pieces of checkpointed jobs"
    if line.run_s < 0 or line.processors <= 0 or line.submit_s < 0:
        return "without run time or processors"
    return ""


def _job(line: SwfLine, per_node: int, round_up: bool) -> TraceJob:
    run_ms = round(line.run_s * 1_000)
    count = line.processors
    if round_up and count > per_node:
        count = -(-count // per_node) * per_node
    return TraceJob(
        submit_ms=round(line.submit_s * 1_000),
        run_ms=run_ms,
        spec=ask_of(count, per_node),
        limit_ms=max(round(line.requested_s * 1_000), run_ms, 1) if line.requested_s > 0 else None,
        owner=f"user{line.user}" if line.user >= 0 else "unknown",
        queue=f"queue{line.queue}" if line.queue >= 0 else "default",
        exit_code=1 if line.status == FAILED else 0,
    )


def format_swf(line: SwfLine) -> str:
    """The line of a job, with what a replay does not look at as unknown."""
    times = f"{line.job} {_number(line.submit_s)} -1 {_number(line.run_s)}"
    asked = f"{line.allocated} -1 -1 {line.requested} {_number(line.requested_s)} -1"
    return f"{times} {asked} {line.status} {line.user} -1 -1 {line.queue} -1 -1 -1"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"

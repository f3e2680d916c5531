"""
Figures of a replay, from its record: waits, slowdowns, completion times, and how much of the fleet was in use.

    wait                start - submit, of the attempt that ended the job
    bounded slowdown    max(1, (wait + run) / max(run, 10 s))
    JCT                 end - submit
    utilisation         sum of run x GPUs over GPUs x makespan; a part of a GPU counts by what a queue is charged for it. `steady`
                        looks only at the time from the arrival of the first tenth of the jobs to the last arrival, so without warm-up
                        and drain
    allocation          GPUs held over GPUs owned, by time, from the first arrival to the last event
    fragmentation       what is free on nodes of which others are held, over all that is free, by time: no use to a gang of whole nodes
    broken              what is free of GPUs of which others are held, over all that is free, by time: no use to who wants a whole GPU
    waste               work that was done again since others displaced it after its last checkpoint, over all work
    forecast error      how far the first earliest start that was told of a job was off, either way; of jobs that were told one
    fairness            Jain's index over owners of (run) / (run + wait), by GPU-time: 1 is the same service for everybody

Jobs without GPUs count in waits and not in utilisation. Percentiles are interpolated between neighbours. Numbers are rounded, so that
equal replays give equal bytes.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from shoal.sim.record import Record

SHORT_RUN_S = 10.0
"""Runs shorter than this count as so long in the slowdown, else it is a measure of the shortest jobs alone."""
WARM_UP = 0.1
SIZES = ((0, "no GPU"), (999, "part"), (1_000, "1"), (8_000, "2-8"), (64_000, "9-64"), (1 << 62, "more"))
"""Classes by what is held: up to so many thousandths of a GPU, and what the class is called."""

Floats = NDArray[np.float64]


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution in a few numbers; seconds, or a ratio."""

    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    most: float = 0.0


class SizeClass(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of about one size."""

    gpus: str
    jobs: int
    wait_s: Spread
    bounded_slowdown: Spread
    jct_s: Spread


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """See module."""

    jobs: int
    """Jobs that started and ended."""
    states: dict[str, int]
    """All jobs by their state at the end, those that still wait or run too."""
    makespan_s: float
    wait_s: Spread
    bounded_slowdown: Spread
    jct_s: Spread
    utilisation: float
    utilisation_steady: float
    allocation: float
    fragmentation: float
    broken: float
    waste: float
    fairness: float
    forecasts: int
    """Jobs that were told an earliest start before they started."""
    forecast_error_s: Spread
    gpus: int
    gpus_held_most: float
    waiting_most: int
    attempts: int
    by_size: tuple[SizeClass, ...]


def metrics_of(record: Record, gpus: int, left: dict[str, int]) -> Metrics:
    """
    The figures of a record on a fleet of `gpus`. `left` counts jobs that had not ended, by state.

    Cost: a few passes over the columns of the record.
    """
    columns = {name: np.frombuffer(getattr(record, name), np.int64) for name in ("submit", "start", "end", "gpu_milli", "attempts")}
    ran = (columns["start"] >= 0) & (columns["end"] >= columns["start"]) if len(record) else np.zeros(0, np.bool_)
    submit, start, end = (columns[name][ran] / 1_000.0 for name in ("submit", "start", "end"))
    milli = columns["gpu_milli"][ran]
    size = milli / 1_000.0
    wait, run = start - submit, end - start
    slowdown = np.maximum(1.0, (wait + run) / np.maximum(run, SHORT_RUN_S))
    first = float(columns["submit"].min()) / 1_000 if len(record) else 0.0
    makespan = float(end.max()) - first if len(end) else 0.0
    free_gpu_us = record.owned_gpu_us - record.held_gpu_us
    states = dict(left)
    for state in record.state:
        states[state] = states.get(state, 0) + 1
    return Metrics(
        jobs=len(start),
        states=dict(sorted(states.items())),
        makespan_s=_rounded(makespan),
        wait_s=_spread(wait),
        bounded_slowdown=_spread(slowdown),
        jct_s=_spread(wait + run),
        utilisation=_ratio(float((run * size).sum()), gpus * makespan),
        utilisation_steady=_steady(columns["submit"] / 1_000.0, start, end, size, gpus),
        allocation=_ratio(record.held_gpu_us, record.owned_gpu_us),
        fragmentation=_ratio(record.stranded_gpu_us, free_gpu_us),
        broken=_ratio(record.broken_gpu_us, free_gpu_us),
        waste=_ratio(record.lost_gpu_us, record.held_gpu_us),
        fairness=_fairness([owner for owner, kept in zip(record.owner, ran, strict=True) if kept], wait, run, size),
        forecasts=len(record.forecast_error),
        forecast_error_s=_spread(np.abs(np.frombuffer(record.forecast_error, np.int64)) / 1_000.0) if record.forecast_error else Spread(),
        gpus=gpus,
        gpus_held_most=record.held_milli_most / 1_000,
        waiting_most=record.waiting_most,
        attempts=int(columns["attempts"].sum()),
        by_size=_classes(milli, wait, slowdown, wait + run),
    )


def _spread(values: Floats) -> Spread:
    if not len(values):
        return Spread()
    p50, p95, p99 = np.percentile(values, (50, 95, 99))
    return Spread(mean=_rounded(values.mean()), p50=_rounded(p50), p95=_rounded(p95), p99=_rounded(p99), most=_rounded(values.max()))


def _rounded(value: Any) -> float:
    return round(float(value), 4)


def _ratio(part: float, whole: float) -> float:
    return round(part / whole, 6) if whole > 0 else 0.0


def _steady(submit: Floats, start: Floats, end: Floats, size: Floats, gpus: int) -> float:
    """Use of the fleet between the arrival of the first tenth of the jobs and the last arrival."""
    if not len(submit):
        return 0.0
    ordered = np.sort(submit)
    first, last = float(ordered[int(len(ordered) * WARM_UP)]), float(ordered[-1])
    inside = np.clip(np.minimum(end, last) - np.maximum(start, first), 0.0, None)
    return _ratio(float((inside * size).sum()), gpus * (last - first))


def _fairness(owners: list[str], wait: Floats, run: Floats, size: Floats) -> float:
    """Jain's index; jobs without GPUs weigh as one GPU."""
    names, code = np.unique(np.array(owners, dtype=np.str_), return_inverse=True)
    if not len(names):
        return 1.0
    weight = np.where(size > 0, size, 1.0)
    served = np.bincount(code, weights=run * weight)
    asked = np.bincount(code, weights=(run + wait) * weight)
    service = np.divide(served, asked, out=np.ones_like(served), where=asked > 0)
    return _ratio(float(service.sum()) ** 2, len(names) * float((service**2).sum()))


def _classes(milli: NDArray[np.int64], wait: Floats, slowdown: Floats, jct: Floats) -> tuple[SizeClass, ...]:
    found, above = [], -1
    for most, words in SIZES:
        inside = (milli > above) & (milli <= most)
        above = most
        if inside.any():
            spreads = {"wait_s": _spread(wait[inside]), "bounded_slowdown": _spread(slowdown[inside]), "jct_s": _spread(jct[inside])}
            found.append(SizeClass(gpus=words, jobs=int(inside.sum()), **spreads))
    return tuple(found)

"""
A value table learned for one fleet and the tasks that come to it: what became of free pieces in replayed arrivals.

    start     per size of a lone GPU's piece and cores beside it, what random fitting tasks of one GPU would fill of it
    round     arrivals drawn from the mix until ROUND_RATIOS of the fleet's GPUs are asked for, each placed by the table as it stands; a
              piece that was noted just after a placement was worth what of it was filled in the end
    blend     sums fade from round to round, rare cells lean on the start, more cores never are worth less, half of the old table stays
    choice    the table of the last rounds that fills most on arrivals that no round has seen

`check_table` says what a table does beside best fit and FGD where the fleet is nearly full, which overload says nothing about: a table that
loses there may not be used (`faults_of`). Cost: some ten thousand decisions per round.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from statistics import fmean
from typing import Final, NamedTuple

import numpy as np

from shoal.base import limits
from shoal.base.rng import Rng
from shoal.scheduling.packing.fragmentation import Fragmentation
from shoal.scheduling.packing.mix import Mix
from shoal.scheduling.packing.nodes import WHOLE, ArrayFleet, Floats, Ints, Nodes, TaskShape
from shoal.scheduling.packing.packer import Packer, Scorer
from shoal.scheduling.packing.simple import Tightest
from shoal.scheduling.packing.table import COLUMNS_CPU, PARTS, ROWS, Checked, Table
from shoal.scheduling.packing.value import Value, cores_beside, rows_of

ROUNDS: Final = 8
ROUND_RATIOS: Final = (1.0, 1.3)
"""Of all GPUs, what is asked for when a replay ends."""
NOTED_PART: Final = 0.9
"""Of a replay's arrivals: what is left by the last ones had no time to be filled."""
FADE: Final = 0.9
START_WEIGHT: Final = 20.0
"""How many notes the start of a cell counts for."""
CHOSEN_FROM: Final = 3
CHECK_LOADS: Final = (80, 90, 100)
"""Per cent of all GPUs asked for."""
CHECK_SEEDS: Final = 3
CHECK_LOSS_MOST: Final = 0.1
"""Points of GPUs that a table may fill less than the better of the others at any of CHECK_LOADS."""

Progress = Callable[[int, int], None]
"""Hears how many rounds are done, and of how many."""


class Trained(NamedTuple):
    """A table, and what it and the others fill of the fleet, in per cent."""

    table: Table
    checked: tuple[Checked, ...]


def train(empty: Nodes, mix: Mix, rng: Rng, progress: Progress | None = None) -> Trained:
    """The best table of a few rounds on a fleet with nothing on it (scarcity filled in), and its check. The mix asks for some GPUs."""
    start = start_cells(mix)
    cells = start.copy()
    sums, counts = np.zeros_like(cells), np.zeros_like(cells)
    tables: list[Table] = []
    for number in range(ROUNDS):
        sums, counts = sums * FADE, counts * FADE
        for ratio in ROUND_RATIOS:
            noted = _note(empty, mix, Table(cells), rng.stream(f"round {number} {ratio}"), ratio)
            sums += noted[0]
            counts += noted[1]
        seen = (sums + START_WEIGHT * start) / (counts + START_WEIGHT)
        cells = 0.5 * cells + 0.5 * np.maximum.accumulate(seen, axis=1)
        tables.append(Table(cells))
        if progress is not None:
            progress(number + 1, ROUNDS)
    best = max(tables[-CHOSEN_FROM:], key=lambda table: _fills(empty, mix, table, rng))
    return Trained(best, check_table(empty, mix, best, rng))


def check_table(empty: Nodes, mix: Mix, table: Table, rng: Rng) -> tuple[Checked, ...]:
    """What is filled at CHECK_LOADS by the table, by FGD and by best fit: means over arrivals that no round has seen."""
    scorers: tuple[Scorer, ...] = (Value(table, mix), Fragmentation(mix), Tightest())
    filled: list[list[float]] = [[], [], []]
    for seed in range(CHECK_SEEDS):
        arriving = draws(mix, empty, CHECK_LOADS[-1] / 100, rng.stream(f"check {seed}"))
        for at, scorer in enumerate(scorers):
            filled[at] += _filled(empty, scorer, arriving)
    means = [[fmean(one[at :: len(CHECK_LOADS)]) for at in range(len(CHECK_LOADS))] for one in filled]
    return tuple(
        Checked(load=load, value=value, fragmentation=fgd, best_fit=fit) for load, value, fgd, fit in zip(CHECK_LOADS, *means, strict=True)
    )


def faults_of(checked: tuple[Checked, ...]) -> tuple[str, ...]:
    """Why a table may not be used, in numbers; none if it may."""
    missing = [load for load in CHECK_LOADS if load not in {check.load for check in checked}]
    if missing:
        return (f"it was not checked at {', '.join(map(str, missing))} % load",)
    return tuple(
        f"at {check.load:g} % load it fills {check.value:.2f} % of the GPUs, "
        f"{'FGD' if check.fragmentation > check.best_fit else 'best fit'} {max(check.fragmentation, check.best_fit):.2f} %"
        for check in checked
        if check.value < max(check.fragmentation, check.best_fit) - CHECK_LOSS_MOST
    )


# --- arrivals ----------------------------------------------------------------------------------------------------------------
def draws(mix: Mix, empty: Nodes, ratio: float, rng: Rng) -> list[TaskShape]:
    """Tasks drawn from a mix until the next would ask for more than `ratio` of the fleet's GPUs; at most ARRIVALS_TRAINED_MAX."""
    most, asked = ratio * float(empty.gpu_milli.sum()), 0
    ends = list(accumulate(mix.counts))
    arriving: list[TaskShape] = []
    while len(arriving) < limits.ARRIVALS_TRAINED_MAX:
        shape = mix.shapes[int(np.searchsorted(ends, rng.below(ends[-1]), side="right"))]
        asked += shape.asked_milli
        if asked > most:
            break
        arriving.append(shape)
    return arriving


def _filled(empty: Nodes, scorer: Scorer, arriving: list[TaskShape]) -> list[float]:
    """Per cent of the GPUs that are filled when CHECK_LOADS have been asked for; loads that are never reached count as the end."""
    fleet = ArrayFleet(empty)
    packer = Packer(fleet, scorer)
    asked = filled = 0
    found: list[float] = []
    for shape in arriving:
        while len(found) < len(CHECK_LOADS) and asked + shape.asked_milli > CHECK_LOADS[len(found)] / 100 * fleet.capacity_milli:
            found.append(100 * filled / fleet.capacity_milli)
        asked += shape.asked_milli
        place = packer.best(shape)
        if place is not None:
            fleet.take(place[0], shape, place[1])
            filled += shape.asked_milli
    return found + [100 * filled / fleet.capacity_milli] * (len(CHECK_LOADS) - len(found))


def _fills(empty: Nodes, mix: Mix, table: Table, rng: Rng) -> float:
    arriving = draws(mix, empty, ROUND_RATIOS[-1], rng.stream("choice"))
    return _filled(empty, Value(table, mix, _stays), arriving)[-1]


def _stays() -> bool:
    """In what a table is learned from, nobody leaves: its worth is that of the last filling."""
    return False


# --- notes -------------------------------------------------------------------------------------------------------------------
def _note(empty: Nodes, mix: Mix, table: Table, rng: Rng, ratio: float) -> tuple[Floats, Floats]:
    """One replay: per cell, how much was filled of the pieces that were noted there, and how many they were."""
    fleet = ArrayFleet(empty)
    packer = Packer(fleet, Value(table, mix, _stays))
    arriving = draws(mix, empty, ratio, rng)
    rows, cpus, free = list(range(len(empty.gpus))), list(empty.cpu_milli), list(empty.gpu_milli)
    for at, shape in enumerate(arriving):
        place = packer.best(shape)
        if place is None:
            continue
        row = place[0]
        fleet.take(row, shape, place[1])
        if at < NOTED_PART * len(arriving):
            rows.append(row)
            cpus.append(fleet.free.cpu_milli[row])
            free.append(fleet.free.gpu_milli[row].copy())
    return _sums(np.array(cpus), np.array(free), fleet.free.gpu_milli[np.array(rows)])


def _sums(cpu_milli: Ints, gpu_milli: Ints, in_the_end: Ints) -> tuple[Floats, Floats]:
    """Pieces by cell, each spread over the two columns that it lies between."""
    there = gpu_milli > 0
    rows = rows_of(gpu_milli)[there]
    cores = np.minimum(cores_beside(cpu_milli, gpu_milli)[there], COLUMNS_CPU[-1])
    filled = (gpu_milli - in_the_end)[there].astype(float)
    columns = np.array(COLUMNS_CPU, float)
    left = np.minimum(columns.searchsorted(cores, side="right") - 1, len(columns) - 2)
    part = (cores - columns[left]) / (columns[left + 1] - columns[left])
    cell = rows * len(columns) + left
    sums, counts = np.zeros(ROWS * len(columns)), np.zeros(ROWS * len(columns))
    for at, weight in ((cell, 1 - part), (cell + 1, part)):
        sums += np.bincount(at, weight * filled, len(sums))
        counts += np.bincount(at, weight, len(counts))
    return sums.reshape(ROWS, -1), counts.reshape(ROWS, -1)


# --- the start ---------------------------------------------------------------------------------------------------------------
def start_cells(mix: Mix) -> Floats:
    """
    What random fitting tasks of at most one GPU fill of a lone piece, in thousandths; a wholly free GPU is one of 1,000.

    By size from the smallest on, in steps of ten thousandths (asks rounded up) and whole cores (asks rounded up).
    """
    cores = COLUMNS_CPU[-1] + 1
    asks: dict[tuple[int, int], int] = {}
    for shape, count in zip(mix.shapes, mix.counts, strict=True):
        if shape.gpus == 1:
            key = (-(-min(shape.gpu_milli, WHOLE) // 10), min(-(-shape.cpu_milli // 1_000), cores - 1))
            asks[key] = asks.get(key, 0) + count
    filled = np.zeros((WHOLE // 10 + 1, cores))
    for size in range(1, len(filled)):
        total, weight = np.zeros(cores), np.zeros(cores)
        for (part, cpu), count in sorted(asks.items()):
            if part <= size:
                total[cpu:] += count * (10.0 * part + filled[size - part, : cores - cpu])
                weight[cpu:] += count
        filled[size] = np.maximum.accumulate(total / np.maximum(weight, 1))
    by_column = filled[:, list(COLUMNS_CPU)]
    return np.concatenate((by_column[: PARTS + 1], np.repeat(by_column[-1:], ROWS - PARTS - 1, axis=0)))

"""Value tables trained for a fleet: what the start is by hand, what training brings, and that a table that loses is refused in numbers."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.base import limits
from shoal.base.rng import Rng
from shoal.formats.partition import partition_of
from shoal.formats.workload import NodeKind, node_of
from shoal.model.job import GpuAsk, GroupSpec, JobSpec
from shoal.model.node import Node
from shoal.model.values import CountRange
from shoal.scheduling.history import history_of, thinned
from shoal.scheduling.packing.mix import Mix
from shoal.scheduling.packing.nodes import TaskShape
from shoal.scheduling.packing.table import COLUMNS_CPU, ROWS, Checked, MixRow, Table
from shoal.scheduling.packing.train import CHECK_LOADS, check_table, draws, faults_of, start_cells, train

SHARED = NodeKind(model="h100", cpus=64, partition=partition_of("mps"))


def fleet(count: int = 12) -> tuple[Node, ...]:
    return tuple(node_of(f"n{at:03}", SHARED) for at in range(count))


def a_spec(gpus: GpuAsk | None = None, cpus: int = 1, **fields: object) -> JobSpec:
    return JobSpec(run="true", gpus=gpus, cpus=cpus, **fields)  # type: ignore[arg-type]


SPECS = [
    *[a_spec(GpuAsk(share=700), 4)] * 6,
    *[a_spec(GpuAsk(share=300), 12)] * 3,
    *[a_spec(GpuAsk(count=1), 8)] * 4,
    *[a_spec(GpuAsk(count=8), 32)] * 1,
    *[a_spec(cpus=6)] * 3,
]


# --- out of records -------------------------------------------------------------------------------------------------------------
def test_a_history_counts_members_and_leaves_out_what_the_fleet_could_not_run() -> None:
    gang = a_spec(GpuAsk(count=8), 16, nodes=CountRange(2, 4))
    groups = JobSpec(run="true", groups=(GroupSpec(name="a", gpus=GpuAsk(count=2), cpus=3), GroupSpec(name="b", cpus=5)))
    none = a_spec(GpuAsk(count=1, model=("l4",)))
    found = history_of([gang, gang, groups, none, a_spec(GpuAsk(share=250), 2)], fleet())
    assert found.left_out == 1
    assert found.rows == (
        MixRow(2_000, 0, 1, 250, (), 1),
        MixRow(3_000, 0, 2, 1_000, (), 1),
        MixRow(5_000, 0, 0, 0, (), 1),
        MixRow(16_000, 0, 8, 1_000, (), 4),
    )
    assert found.mix.asked_milli == 250 + 2_000 + 4 * 8_000


def test_of_a_large_fleet_so_many_nodes_of_each_kind_are_looked_at() -> None:
    small = NodeKind(gpus=2, model="l4", cpus=16)
    nodes = (*fleet(1_500), *(node_of(f"s{at:03}", small) for at in range(500)))
    chosen = thinned(nodes)
    assert len(chosen) == limits.NODES_TRAINED_MAX
    assert sum(len(node.facts.devices) == 2 for node in chosen) == pytest.approx(limits.NODES_TRAINED_MAX / 4, abs=2)


# --- by hand --------------------------------------------------------------------------------------------------------------------
def test_the_start_is_what_random_tasks_would_fill() -> None:
    """One kind of task, 400 thousandths and two cores: a whole GPU takes two of them where there are four cores."""
    cells = start_cells(Mix((TaskShape(2_000, 0, 1, 400),), (1,)))
    assert cells[39].max() == 0
    assert [cells[40][COLUMNS_CPU.index(cpu)] for cpu in (0, 1, 2, 4)] == [0, 0, 400, 400]
    assert [cells[ROWS - 1][COLUMNS_CPU.index(cpu)] for cpu in (1, 2, 3, 4, 52)] == [0, 400, 400, 800, 800]


def test_arrivals_stop_before_the_fleet_is_asked_for_too_much() -> None:
    found = history_of(SPECS, fleet())
    arriving = draws(found.mix, found.empty, 1.0, Rng(3))
    asked = sum(shape.asked_milli for shape in arriving)
    assert 12 * 8_000 - 8_000 < asked <= 12 * 8_000


# --- trained --------------------------------------------------------------------------------------------------------------------
def test_a_trained_table_is_checked_and_a_matter_of_its_seed() -> None:
    found = history_of(SPECS, fleet())
    heard: list[tuple[int, int]] = []
    first = train(found.empty, found.mix, Rng(1), lambda done, of: heard.append((done, of)))
    again = train(found.empty, found.mix, Rng(1))
    assert np.array_equal(first.table.cells, again.table.cells)
    assert first.checked == again.checked
    assert heard[-1][0] == heard[-1][1] == len(heard)
    assert [check.load for check in first.checked] == list(CHECK_LOADS)
    assert faults_of(first.checked) == ()
    cells = first.table.cells
    assert (np.diff(cells, axis=1) >= -1e-9).all()  # More cores are never worth less.
    assert cells.min() >= 0
    assert cells.max() <= 1_000


def test_a_table_that_wants_every_gpu_broken_loses_and_is_refused() -> None:
    """Parts are worth all of themselves and whole GPUs nothing: shares go to empty GPUs."""
    found = history_of([a_spec(GpuAsk(share=500))] * 5 + [a_spec(GpuAsk(count=8))], fleet())
    cells = np.zeros((ROWS, len(COLUMNS_CPU)))
    cells[1:100] = 100_000.0
    checked = check_table(found.empty, found.mix, Table(cells), Rng(1))
    faults = faults_of(checked)
    assert faults
    assert "100 % load it fills" in faults[-1]


def test_faults_are_told_in_numbers() -> None:
    good = [Checked(load=load, value=90.0, fragmentation=90.05, best_fit=80.0) for load in (80, 90)]
    assert faults_of(tuple(good)) == ("it was not checked at 100 % load",)
    bad = Checked(load=100, value=90.0, fragmentation=90.2, best_fit=91.5)
    assert faults_of((*good, bad)) == ("at 100 % load it fills 90.00 % of the GPUs, best fit 91.50 %",)

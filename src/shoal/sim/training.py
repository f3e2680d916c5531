"""A value table for a fleet from its history, as a file, and how it stands beside other policies. Called by `shoal plan fragmentation`."""

from __future__ import annotations

from typing import NamedTuple

from shoal.base.errors import Invalid
from shoal.base.rng import Rng
from shoal.model.job import JobSpec
from shoal.model.node import Node
from shoal.scheduling.history import history_of
from shoal.scheduling.packing.table import COLUMNS_CPU, FORMAT, ROWS, TableFile, row_label, write_table
from shoal.scheduling.packing.train import Progress, faults_of, train
from shoal.sim.simulate import shared_as_asked


class Load(NamedTuple):
    """Per cent of the GPUs that are filled once `load` per cent are asked for, by the table and by the others."""

    load: float
    value: float
    fragmentation: float
    best_fit: float


class Learned(NamedTuple):
    """The file of a table, how it stood its check, why it may not be used (in numbers), and jobs that it knows nothing of."""

    content: bytes
    checked: tuple[Load, ...]
    faults: tuple[str, ...]
    left_out: int


def learn_table(specs: list[JobSpec], nodes: tuple[Node, ...], source: str, seed: int, progress: Progress | None = None) -> Learned:
    """Trains and checks: the same history, fleet and seed give the same bytes. Raises Invalid where no job asks for a GPU of the fleet."""
    past = history_of(specs, shared_as_asked(nodes, specs))
    if not past.mix.asked_milli:
        raise Invalid("none of the jobs asks for GPUs that this fleet has; there is nothing to learn from")
    trained = train(past.empty, past.mix, Rng(seed), progress)
    rows = tuple((row_label(row), tuple(round(float(value), 1) for value in trained.table.cells[row])) for row in range(1, ROWS))
    file = TableFile(format=FORMAT, source=source, columns_cpu=COLUMNS_CPU, rows=rows, checked=trained.checked, mix=past.rows)
    checked = tuple(Load(check.load, check.value, check.fragmentation, check.best_fit) for check in trained.checked)
    return Learned(write_table(file), checked, faults_of(trained.checked), past.left_out)

"""The openb lists as arrays: nodes, tasks, published figures, and the arrivals of the FGD paper's protocol."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shoal.base.rng import Rng
from shoal.scheduling.packing.nodes import ANY_MODEL, ArrayFleet, Nodes, TaskShape

HERE = Path(__file__).parent / "data" / "openb"
WORKLOADS = (
    *("default", "cpu050", "cpu100", "cpu200", "cpu250", "gpushare40", "gpushare60", "gpushare80", "gpushare100"),
    *("gpuspec10", "gpuspec20", "gpuspec25", "gpuspec33", "multigpu20", "multigpu30", "multigpu40", "multigpu50"),
)
GPUS_MOST = 8


class Task(NamedTuple):
    """A row of a list. Times in seconds, -1 where a list has none."""

    shape: TaskShape
    created: int
    deleted: int


def _rows(name: str) -> Iterator[dict[str, str]]:
    with gzip.open(HERE / f"{name}.csv.gz", "rt", newline="") as file:
        yield from csv.DictReader(file)


@cache
def node_rows() -> tuple[dict[str, str], ...]:
    return tuple(sorted(_rows("openb_node_list_gpu_node"), key=lambda row: row["sn"]))


@cache
def models() -> dict[str, int]:
    """Codes of the GPU models, by name in ascending order."""
    return {name: code for code, name in enumerate(sorted({row["model"] for row in node_rows()}))}


def nodes() -> Nodes:
    """The 1,213 nodes with GPUs, empty, by name; memory in MiB."""
    rows = node_rows()
    gpus = np.array([int(row["gpu"]) for row in rows])
    return Nodes(
        cpu_milli=np.array([int(row["cpu_milli"]) for row in rows]),
        memory=np.array([int(row["memory_mib"]) for row in rows]),
        gpu_milli=np.where(np.arange(GPUS_MOST) < gpus[:, None], 1_000, 0),
        gpus=gpus,
        model=np.array([models()[row["model"]] for row in rows]),
        scarcity=np.zeros(len(rows)),
    )


def fleet() -> ArrayFleet:
    """A fleet of its own with nothing on it."""
    return ArrayFleet(nodes())


@cache
def tasks(workload: str) -> tuple[Task, ...]:
    """A list, in its order. The multigpu lists name no models and no times."""
    return tuple(_task(row) for row in _rows(f"openb_pod_list_{workload}"))


def _task(row: dict[str, str]) -> Task:
    gpus = int(row["num_gpu"])
    spec = row.get("gpu_spec") or ""
    allowed = sum(1 << models()[name] for name in sorted(set(spec.split("|"))) if name in models()) if spec else ANY_MODEL
    shape = TaskShape(int(row["cpu_milli"]), int(row["memory_mib"]), gpus, int(row["gpu_milli"]) if gpus else 0, allowed)
    return Task(shape, int(row.get("creation_time") or -1), int(row.get("deletion_time") or -1))


def arrivals(listed: tuple[TaskShape, ...], capacity_milli: int, ratio: float, rng: Rng) -> list[TaskShape]:
    """
    The list shuffled, then draws with replacement in the order drawn, until the next one would ask for more than `ratio` of all GPUs.

    As in the public simulator, read in its source: the draws are not shuffled in. A list that asks for more by itself is cut off there.
    """
    order = list(listed)
    rng.stream("shuffle").shuffle(order)
    most = int(ratio * capacity_milli)
    asked = np.cumsum([shape.asked_milli for shape in order])
    if asked[-1] > most:
        return order[: int(np.searchsorted(asked, most, side="right"))]
    total, draws = int(asked[-1]), rng.stream("draws")
    while True:
        shape = draws.choice(listed)
        total += shape.asked_milli
        if total > most:
            return order
        order.append(shape)


@cache
def published() -> dict[tuple[str, str], dict[int, float]]:
    """Per (workload, policy), the mean allocation in per cent by arrived per cent."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    with (HERE / "published.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault((row["workload"], row["policy"]), {})[int(row["arrived_percent"])] = float(row["allocated_percent"])
    return found

"""
Worlds in which tasks come and go, for `packing_churn`: who comes, when, for how long, and the fleet that takes them in.

    own          openb's own creations and deletions: the last DAYS of the list, in which most of it happens, as a ring of days. So many
                 copies are laid over each other, each turned by whole days, that the load (GPU time asked over GPU time there is) is the
                 one named
    NAME         shapes drawn from openb's list of that name, exponential gaps, log-normal stays (mean twice the median); the fleet begins
                 with a drawn population as it is in the long run
    mig          nodes whose GPUs are cut into MIG instances as asked (true start places), 7g the largest
    domains      racks of eight nodes, gangs of 1/2/4/8/16/32 GPUs at 40/15/15/20/7/3 %; those of several nodes stay in one rack
    shares       openb's nodes in racks of 16, its default list, and one gang in 25 tasks

The first two go through `Packer` over plain arrays, the others through the cycle's own search (`place_options` on a board).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist, fmean
from typing import Any, NamedTuple, Protocol

import numpy as np
import openb
import openb_trace

from shoal.base.rng import Rng
from shoal.formats.partition import partition_of
from shoal.formats.workload import NodeKind, node_of
from shoal.model.job import GpuAsk, JobSpec, Topology
from shoal.model.node import Node
from shoal.model.snapshot import Snapshot
from shoal.model.values import CountRange
from shoal.scheduling.asks import shape_of_spec
from shoal.scheduling.board import Board
from shoal.scheduling.ledger import Ledger
from shoal.scheduling.options import options_for
from shoal.scheduling.packed import use_packing
from shoal.scheduling.packing.nodes import WHOLE, ArrayFleet, TaskShape
from shoal.scheduling.packing.table import MixRow, TableFile, default_file
from shoal.scheduling.place import Placement, place_options
from shoal.scheduling.policy import Policy

EVERY = 8
"""One node of so many of openb's: 152 nodes, all kinds of them, so that a few thousand tasks turn the fleet over."""
EVERY_OWN = 32
"""And one of so many where its own times are kept: most GPU time is that of tasks that stay for weeks."""
DAYS = 10
DAY_S = 86_400.0
TURNS = 4.0
"""How long arrivals last, in mean stays."""
SIGMA = math.sqrt(2 * math.log(2))
"""Of a log-normal whose mean is twice its median."""
MODELS = ("h100", "a100")
PACKINGS = {"BestFit": "best-fit", "FGD": "fragmentation", "Value": "value"}


class Ask(NamedTuple):
    """What a task asks: its class, thousandths of GPUs and cores in all, and the ask as its fleet reads it."""

    kind: str
    milli: int
    cpu_milli: int
    what: Any


class Stay(NamedTuple):
    """A task that comes `at` and stays for so long, in one unit of time."""

    at: float
    length: float
    ask: Ask


class Course(NamedTuple):
    """Who comes, in order, and the time that is counted."""

    stays: list[Stay]
    since: float
    until: float


class Fleet(Protocol):
    """Takes tasks in, as one policy does, and lets them go."""

    capacity_milli: int

    def place(self, ask: Ask) -> Any | None:
        """What was taken, or None where it fits nowhere."""
        ...

    def give(self, taken: Any) -> None: ...


class Arrays:
    """Plain arrays under a `Packer`."""

    def __init__(self, every: int, policy: str, listed: tuple[TaskShape, ...], seed: int) -> None:
        nodes = openb_trace.nodes()
        self._fleet = ArrayFleet(nodes.at(np.arange(0, len(nodes.gpus), every)))
        self.capacity_milli = self._fleet.capacity_milli
        self._packer = openb.packer_for(policy, self._fleet, listed, seed)

    def place(self, ask: Ask) -> Any | None:
        found = self._packer.best(ask.what)
        return None if found is None else (found[0], ask.what, self._fleet.take(found[0], ask.what, found[1]))

    def give(self, taken: Any) -> None:
        self._fleet.give(*taken)


class Live:
    """A board on which the cycle's search places, and nothing else of a cycle happens."""

    def __init__(self, nodes: list[Node], policy: str, table: TableFile) -> None:
        self.capacity_milli = WHOLE * sum(len(node.facts.devices) for node in nodes)
        self._policy = Policy(packing=PACKINGS[policy], packing_table=table)  # type: ignore[arg-type]
        self._board = Board.of(Snapshot(version=1, nodes=tuple(nodes)))
        use_packing(self._board.columns, self._policy)
        self._ledger = Ledger(self._board)

    def place(self, ask: Ask) -> Any | None:
        self._board.begin_cycle(0)
        shape = shape_of_spec(ask.what, project="p")
        found = place_options(self._ledger, None, shape, options_for(shape, self._board.columns), self._policy)
        if not isinstance(found, Placement):
            return None
        members = [found.option.groups[seat.group].need.member for seat in found.seats]
        taken = [(s.row, s.mask, m.cpu_milli, m.memory_bytes, s.pieces) for s, m in zip(found.seats, members, strict=True)]
        for one in taken:
            self._board.columns.take(*one)
        return taken

    def give(self, taken: Any) -> None:
        for one in reversed(taken):
            self._board.columns.give(*one)


# --- who comes ---------------------------------------------------------------------------------------------------------------
def drawn(asks: list[Ask], load: float, capacity_milli: int, rng: Rng) -> Course:
    """Arrivals of asks drawn from a list, and who is there when they begin. The mean stay is the unit of time."""
    mean_milli = fmean(ask.milli for ask in asks)
    gap = mean_milli / (load * capacity_milli)
    stays = []
    for _ in range(round(1 / gap)):  # A stay that is met is a longer one than a stay that begins, and some of it is over.
        stays.append(Stay(0.0, rng.unit() * _length(rng, SIGMA * SIGMA / 2), rng.choice(asks)))
    now = 0.0
    while now < TURNS:
        now -= gap * math.log(1 - rng.unit())
        stays.append(Stay(now, _length(rng, -SIGMA * SIGMA / 2), rng.choice(asks)))
    return Course(stays, TURNS / 4, TURNS)


def _length(rng: Rng, mu: float) -> float:
    return math.exp(mu + SIGMA * NormalDist().inv_cdf(min(max(rng.unit(), 1e-12), 1 - 1e-12)))


def own(load: float, capacity_milli: int, rng: Rng) -> Course:
    """openb's own times, laid over each other."""
    listed = openb_trace.tasks("default")
    end = max(task.created for task in listed)
    begin = end - DAYS * DAY_S
    inside = [task for task in listed if task.deleted > max(begin, task.created)]
    held = sum((min(task.deleted, end) - max(task.created, begin)) * task.shape.asked_milli for task in inside)
    copies = load * capacity_milli * DAYS * DAY_S / held
    stays = []
    for copy in range(math.ceil(copies)):
        turned = rng.below(DAYS) * DAY_S
        for task in inside:
            if rng.unit() < copies - copy:
                stays += _turned(max(task.created, begin) - begin + turned, min(task.deleted, end) - begin + turned, task.shape, rng)
    stays.sort(key=lambda stay: stay.at)
    return Course(stays, DAYS * DAY_S / 5, DAYS * DAY_S)


def _turned(at: float, until: float, shape: TaskShape, rng: Rng) -> list[Stay]:
    """A stay on the ring of days: what passes the end goes on at the beginning. Two copies are never of one second."""
    ring = DAYS * DAY_S
    at, until = (at - ring, until - ring) if at >= ring else (at, until)
    at += rng.unit()
    ask = ask_of(shape)
    if until <= ring:
        return [Stay(at, until - at, ask)]
    return [Stay(at, ring - at, ask), Stay(rng.unit(), until - ring, ask)]


def ask_of(shape: TaskShape) -> Ask:
    """A task of a list."""
    return Ask(openb.CLASSES[openb.class_of(shape)], shape.asked_milli, shape.cpu_milli, shape)


# --- worlds of boards --------------------------------------------------------------------------------------------------------
def _spec(gpus: GpuAsk | None, cpus: int, nodes: int = 1, level: str | None = None) -> JobSpec:
    topology = Topology(level=level, required=True) if level else None
    return JobSpec(run="true", gpus=gpus, cpus=cpus, nodes=CountRange(nodes, nodes), topology=topology)


def _gang(gpus: int, level: str | None = "rack") -> tuple[Ask, MixRow]:
    nodes, each = max(1, gpus // 8), min(gpus, 8)
    spec = _spec(GpuAsk(count=each), 8 * each, nodes, level if nodes > 1 else None)
    row = MixRow(8_000 * each, 0, each, WHOLE, (), nodes)
    return Ask(f"{gpus} GPU", gpus * WHOLE, 8_000 * gpus, spec), row


def mig_world() -> tuple[list[Node], list[tuple[Ask, MixRow]]]:
    """30 nodes of eight GPUs of two models, and what is asked of them: per hundred tasks."""
    kinds = [NodeKind(model=model, cpus=96, partition=partition_of("mig")) for model in MODELS]
    nodes = [node_of(f"n{at:03}", kinds[at % 3 == 0]) for at in range(30)]
    asks: list[tuple[Ask, MixRow]] = []
    for profile, milli, cpus, count in (
        *(("1g.10gb", 143, 1, 25), ("1g.20gb", 143, 2, 5), ("2g.20gb", 286, 3, 15)),
        *(("3g.40gb", 429, 6, 20), ("4g.40gb", 571, 6, 5), ("7g.80gb", 1_000, 10, 30)),
    ):
        ask = Ask(profile, milli, 1_000 * cpus, _spec(GpuAsk(mig=profile, count=1), cpus))
        asks += [(ask, MixRow(1_000 * cpus, 0, 1, milli, (), 1))] * count
    return nodes, asks


def domains_world() -> tuple[list[Node], list[tuple[Ask, MixRow]]]:
    """64 nodes in racks of eight, two racks to a zone."""
    nodes = [
        node_of(f"n{at:03}", NodeKind(model="h100"), topology=(("zone", f"z{at // 16}"), ("rack", f"r{at // 8:02}"))) for at in range(64)
    ]
    asks = []
    for gpus, count in ((1, 40), (2, 15), (4, 15), (8, 20), (16, 7), (32, 3)):
        asks += [_gang(gpus)] * count
    return nodes, asks


def shares_world() -> tuple[list[Node], list[tuple[Ask, MixRow]]]:
    """openb's nodes and default list, and gangs of two and four nodes."""
    rows = sorted(openb_trace.node_rows(), key=lambda row: row["sn"])[::EVERY]
    share = partition_of("mps")
    nodes = [
        node_of(
            row["sn"],
            NodeKind(gpus=int(row["gpu"]), model=row["model"].lower(), cpus=int(row["cpu_milli"]) // 1_000, partition=share),
            topology=(("rack", f"r{at // 16:02}"),),
        )
        for at, row in enumerate(rows)
    ]
    asks = [(_as_spec(task.shape), _as_row(task.shape)) for task in openb_trace.tasks("default")]
    for nodes_of, each in ((2, 2), (4, 2), (2, 8)):
        ask = Ask(f"{nodes_of} x {each}", nodes_of * each * WHOLE, nodes_of * each * 6_000, _gang_spec(nodes_of, each))
        asks += [(ask, MixRow(6_000 * each, 0, each, WHOLE, (), nodes_of))] * (len(asks) // 75)
    return nodes, asks


def _gang_spec(nodes: int, each: int) -> JobSpec:
    return _spec(GpuAsk(count=each), 6 * each, nodes, "rack")


def _as_spec(shape: TaskShape) -> Ask:
    gpus = GpuAsk(share=shape.gpu_milli) if shape.shares else GpuAsk(count=shape.gpus) if shape.gpus else None
    return ask_of(shape)._replace(what=_spec(gpus, -(-shape.cpu_milli // 1_000)))


def _as_row(shape: TaskShape) -> MixRow:
    return MixRow(shape.cpu_milli, 0, shape.gpus, shape.gpu_milli, (), 1)


_LIVE: dict[str, Callable[[], tuple[list[Node], list[tuple[Ask, MixRow]]]]] = {
    "mig": mig_world,
    "domains": domains_world,
    "shares": shares_world,
}
WORLDS = ("own", "default", "cpu250", "gpushare100", "gpuspec33", "multigpu50", *_LIVE)


def world_of(name: str, load: float, policy: str, seed: int) -> tuple[Fleet, Course]:
    """A world of its own: the same course for every policy."""
    rng = Rng(seed).stream(name)
    if name in _LIVE:
        nodes, asks = _LIVE[name]()
        live = Live(nodes, policy, table_for([row for _, row in asks]))
        return live, drawn([ask for ask, _ in asks], load, live.capacity_milli, rng)
    listed = tuple(task.shape for task in openb_trace.tasks("default" if name == "own" else name))
    arrays = Arrays(EVERY_OWN if name == "own" else EVERY, policy, listed, seed)
    if name == "own":
        return arrays, own(load, arrays.capacity_milli, rng)
    return arrays, drawn([ask_of(shape) for shape in listed], load, arrays.capacity_milli, rng)


def table_for(rows: list[MixRow]) -> TableFile:
    """The default table beside the mix of this world: what FGD and scarcity go by, as on the openb lists."""
    counts: dict[tuple[int, int, int], int] = {}
    for row in rows:
        alike = (row.cpu_milli, row.gpus, row.gpu_milli)
        counts[alike] = counts.get(alike, 0) + row.count
    shipped = default_file()
    mix = tuple(MixRow(cpu_milli, 0, gpus, gpu_milli, (), count) for (cpu_milli, gpus, gpu_milli), count in sorted(counts.items()))
    return TableFile(format=shipped.format, source="bench", columns_cpu=shipped.columns_cpu, rows=shipped.rows, mix=mix)

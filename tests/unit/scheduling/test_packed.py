"""Packing policies in the cycle: it places as the same scorer does over plain arrays, and by more than one node's state where told."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from msgspec.structs import replace

from shoal.base.rng import Rng
from shoal.model.job import GpuAsk
from shoal.model.node import Node
from shoal.scheduling.packed import mix_of
from shoal.scheduling.packing.fragmentation import Fragmentation
from shoal.scheduling.packing.mix import Mix, scarcity
from shoal.scheduling.packing.nodes import ArrayFleet, Nodes, TaskShape
from shoal.scheduling.packing.packer import Packer, Scorer
from shoal.scheduling.packing.simple import Spread, Tightest
from shoal.scheduling.packing.table import MixRow, default_file, default_table
from shoal.scheduling.packing.value import Value
from shoal.scheduling.policy import Policy
from shoal.testing.clusters import Cluster, a_host

PACKINGS: tuple[Literal["best-fit", "spread", "fragmentation", "value"], ...] = ("best-fit", "spread", "fragmentation", "value")
MODELS = ("a100", "h100", "l4")
PICKY = MixRow(4_000, 1_024, 1, 1_000, ("l4",), 900)


def a_fleet(rng: Rng, count: int = 14) -> list[Node]:
    kinds = ((8, "h100", 96), (2, "l4", 64), (4, "a100", 48), (0, "h100", 32), (1, "l4", 16))
    drawn = (rng.choice(kinds) for _ in range(count))
    return [a_host(f"n{at:02}", gpus, model, cpus=cpus, parts="mps") for at, (gpus, model, cpus) in enumerate(drawn)]


def as_arrays(hosts: list[Node], mix: Mix) -> ArrayFleet:
    """The same machines as a bench sees them."""
    width = max(len(host.facts.devices) for host in hosts)
    gpus = np.array([len(host.facts.devices) for host in hosts])
    models = [host.facts.devices[0].model if host.facts.devices else "a100" for host in hosts]
    known = sorted({model for host, model in zip(hosts, models, strict=True) if host.facts.devices})
    empty = Nodes(
        cpu_milli=np.array([host.facts.cpus * 1_000 for host in hosts]),
        memory=np.array([host.facts.memory_bytes >> 20 for host in hosts]),
        gpu_milli=np.where(np.arange(width) < gpus[:, None], 1_000, 0),
        gpus=gpus,
        model=np.array([known.index(model) if model in known else 0 for model in models]),
        scarcity=np.zeros(len(hosts)),
    )
    return ArrayFleet(empty._replace(scarcity=scarcity(mix, empty)))


def a_task(rng: Rng) -> tuple[int, int, int]:
    """Cores, GPUs, and thousandths of each."""
    kind = rng.below(5)
    if kind == 0:
        return 1 + rng.below(6), 0, 0
    if kind < 3:
        return 1 + rng.below(6), 1, 10 * (1 + rng.below(95))
    return 1 + rng.below(6), rng.choice((1, 1, 2, 4)), 1_000


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("seed", range(3))
def test_the_cycle_and_the_bench_place_the_same(packing: Literal["best-fit", "spread", "fragmentation", "value"], seed: int) -> None:
    rng = Rng(seed)
    hosts = a_fleet(rng)
    file = replace(default_file(), mix=(*default_file().mix, PICKY))
    cluster = Cluster(*hosts, policy=Policy(packing=packing, packing_table=file))
    models = sorted({d.model for host in hosts for d in host.facts.devices})
    mix = mix_of(file.mix, {model: code for code, model in enumerate(models)})
    fleet = as_arrays(hosts, mix)
    scorers: dict[str, Scorer] = {
        "best-fit": Tightest(),
        "spread": Spread(),
        "fragmentation": Fragmentation(mix),
        "value": Value(default_table(), mix),
    }
    packer = Packer(fleet, scorers[packing])
    held: list[tuple[str, int, TaskShape, tuple[int, ...]]] = []
    placed = 0
    for _ in range(60):
        if held and rng.below(3) == 0:
            job, *back = held.pop(rng.below(len(held)))
            cluster.end(job)
            fleet.give(*back)  # type: ignore[arg-type]
        cores, gpus, milli = a_task(rng)
        code = rng.below(len(models))
        ask = GpuAsk(share=milli, model=(models[code],)) if 0 < milli < 1_000 else GpuAsk(count=gpus, model=(models[code],) if gpus else ())
        shape = TaskShape(cores * 1_000, 0, gpus, milli, 1 << code if gpus else -1)
        job = cluster.submit(ask, cpus=cores)
        cluster.cycle()
        want = packer.best(shape)
        assert cluster.nodes_of(job) == (() if want is None else (hosts[want[0]].id,)), (packing, shape)
        if want is None:
            cluster.end(job)
        else:
            placed += 1
            held.append((job, want[0], shape, fleet.take(want[0], shape, want[1])))
    assert placed > 20


def test_between_models_the_score_decides_too() -> None:
    """Picky tasks want the l4: who takes anything goes elsewhere, though fewest GPUs would be left over there."""
    hosts = (a_host("n0", 4, "h100", parts="mps"), a_host("n1", 1, "l4", parts="mps"))
    file = replace(default_file(), mix=(PICKY, MixRow(4_000, 1_024, 1, 1_000, (), 100)))
    got = {}
    for policy in (Policy(), Policy(packing="value", packing_table=file)):
        cluster = Cluster(*hosts, policy=policy)
        job = cluster.submit(1, cpus=4)
        cluster.cycle()
        got[policy.packing] = cluster.nodes_of(job)
    assert got == {"best-fit": ("n1",), "value": ("n0",)}

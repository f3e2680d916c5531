"""The whole plane on virtual time: lives with faults, each decided by its seed alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.sim.swarm.run import run_seed

SEEDS = int(os.environ.get("SWARM_SEEDS", "100"))
STEPS = 1_000
GROUPS = 10
"""Seeds are played in so many tests, so that workers share them."""
FAILED_ONCE = Path(__file__).with_name("swarm_seeds.txt")


def failed_once() -> list[tuple[int, int]]:
    """Seed and steps of each life that has failed before."""
    lines = [line.partition("#")[0].split() for line in FAILED_ONCE.read_text().splitlines()]
    return [(int(words[0]), int(words[1])) for words in lines if words]


def test_the_same_seed_gives_the_same_life_whatever_the_order_of_sets() -> None:
    code = "from shoal.sim.swarm.run import run_seed; life = run_seed(7, 500); print(life.steps, life.trace)"
    told = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": salt}, capture_output=True, text=True, check=True
        ).stdout
        for salt in ("1", "2")
    }
    assert len(told) == 1
    assert run_seed(8, 500).trace not in told.pop()


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
def test_no_life_breaks_a_promise(group: int) -> None:
    for seed in range(group, SEEDS, GROUPS):
        life = run_seed(seed, STEPS)
        assert life.violations == (), f"python -m shoal.sim.swarm --from {seed} --seeds 1 --steps {STEPS} --trace"
        assert life.steps >= STEPS


@pytest.mark.slow
def test_a_life_that_failed_once_does_so_no_more() -> None:
    assert {seed: run_seed(seed, steps).violations for seed, steps in failed_once()} == {seed: () for seed, _ in failed_once()}

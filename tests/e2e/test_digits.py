"""The example that trains: its ring averages right, a rank that differs is seen, and eight processes learn the digits."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from from_path import load

SCRIPT = Path(__file__).parents[2] / "examples" / "digits" / "train.py"
train = load("examples/digits/train.py")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
        return port


def in_rings(world: int, use):  # type: ignore[no-untyped-def]
    """What `use(ring)` gives in each of `world` ranks, each in a thread of its own."""
    port = free_port()

    def rank(number: int):  # type: ignore[no-untyped-def]
        return use(train.Ring.meet(number, world, "127.0.0.1", port))

    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(rank, range(world)))


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [1, 4, 7, 100_003])
def test_the_ring_gives_every_rank_the_same_mean(world: int, length: int) -> None:
    """Also where the vector is shorter than the ring, does not divide by it, or is larger than the buffers of a socket."""
    vectors = [np.random.default_rng(rank).normal(size=length) for rank in range(world)]
    means = in_rings(world, lambda ring: ring.average(vectors[ring.rank]))
    np.testing.assert_allclose(means[0], np.mean(vectors, axis=0), atol=1e-12)
    assert len({mean.tobytes() for mean in means}) == 1


@pytest.mark.parametrize("odd", [None, 0, 2])
def test_one_rank_that_differs_is_seen_by_all(odd: int | None) -> None:
    mine = [hashlib.sha256(b"other" if rank == odd else b"same").digest() for rank in range(3)]
    seen = in_rings(3, lambda ring: ring.all_equal(mine[ring.rank]))
    assert seen == [odd is None] * 3


def test_the_data_is_what_its_page_says() -> None:
    page = SCRIPT.with_name("DATA.md").read_text(encoding="utf-8")
    assert hashlib.sha256(train.DATA.read_bytes()).hexdigest() in page
    images, labels = train.load(np.random.default_rng(1))
    assert images.shape == (1797, 64)
    assert (images.min(), images.max()) == (0, 1)
    assert sorted(set(labels.tolist())) == list(range(10))


def test_processes_learn_together_and_hold_the_same_weights() -> None:
    world, port = 4, free_port()
    common = {**os.environ, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen([sys.executable, SCRIPT], env={**common, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(world)
    ]
    said = [rank.communicate(timeout=90)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * world
    losses = [float(line.split()[-1]) for line in said[0].splitlines() if line.startswith("epoch")]
    assert losses[-1] < 0.2 < 1.5 < losses[0]
    accuracy = next(float(line.split()[2]) for line in said[0].splitlines() if line.startswith("test accuracy"))
    assert accuracy > 0.94, "0.967 with the seed that is set; chance gives 0.1"
    assert "weights are the same on all 4 ranks" in said[0]

"""
Trains a small network on handwritten digits, data-parallel: each rank has its own part of the data and a copy of the weights, and
gradients are averaged by a ring all-reduce over plain TCP. NumPy only, so that everything that happens can be read here.

Reads MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE as any launcher sets them; alone (`python train.py`) it is a world of one.
Ends with 1 if the ranks do not hold the same weights, or if the network has learned too little.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import select
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

# One thread each: the ranks share the machine's cores. Must be set before NumPy is loaded.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402  the variables above must be set before it is loaded

DATA = Path(__file__).with_name("digits.csv.gz")
PIXELS, HIDDEN, DIGITS = 64, 64, 10
TEST_ROWS = 360
MEET_SECONDS_MAX = 60.0


# --- the ring -----------------------------------------------------------------------------------------------------------------
class Ring:
    """Each rank sends to the next and receives from the one before. A world of one has nobody to talk to."""

    def __init__(self, rank: int, world: int, right: socket.socket | None = None, left: socket.socket | None = None) -> None:
        self.rank, self.world = rank, world
        self._right, self._left = right, left

    @classmethod
    def meet(cls, rank: int, world: int, address: str, port: int) -> Ring:
        """Rank 0 collects where each rank listens and tells everyone; then each connects to its right neighbour."""
        if world == 1:
            return cls(rank, world)
        with socket.create_server(("", 0)) as ear:
            ear.settimeout(MEET_SECONDS_MAX)
            places = _collect(world, port, ear) if rank == 0 else _report(rank, address, port, ear)
            right = socket.create_connection(places[(rank + 1) % world], timeout=MEET_SECONDS_MAX)
            left, _ = ear.accept()
        for one in (right, left):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.settimeout(None)
        return cls(rank, world, right, left)

    def exchange(self, outgoing: bytes) -> bytes:
        """Sends to the right while receiving as many bytes from the left. Doing one after the other would block once buffers are full."""
        assert self._right is not None
        assert self._left is not None
        view, received = memoryview(outgoing), bytearray()
        while view or len(received) < len(outgoing):
            readable, writable, _ = select.select([self._left], [self._right] if view else [], [])
            if readable:
                part = self._left.recv(len(outgoing) - len(received))
                if not part:
                    raise ConnectionError(f"rank {(self.rank - 1) % self.world} has gone")
                received += part
            if writable:
                view = view[self._right.send(view) :]
        return bytes(received)

    def average(self, values: np.ndarray) -> np.ndarray:
        """
        The mean of every rank's `values`, bit for bit the same on all ranks.

        The vector is cut into one chunk per rank. First each chunk goes once around the ring and is summed on its way (reduce-scatter),
        so that each rank owns one finished chunk; then the finished chunks go around once more (all-gather). Each rank sends
        2 (world - 1) / world of the vector, however many ranks there are.
        """
        world, rank = self.world, self.rank
        chunk = -(-len(values) // world)
        parts = np.zeros((world, chunk))
        parts.reshape(-1)[: len(values)] = values
        for step in range(world - 1):
            incoming = self.exchange(parts[(rank - step) % world].tobytes())
            parts[(rank - step - 1) % world] += np.frombuffer(incoming)
        for step in range(world - 1):
            incoming = self.exchange(parts[(rank + 1 - step) % world].tobytes())
            parts[(rank - step) % world] = np.frombuffer(incoming)
        return parts.reshape(-1)[: len(values)] / world

    def all_equal(self, mine: bytes) -> bool:
        """True if every rank brought the same bytes: each value goes once around the ring."""
        seen, equal = mine, True
        for _ in range(self.world - 1):
            seen = self.exchange(seen)
            equal = equal and seen == mine
        return equal


Places = list[tuple[str, int]]


def _collect(world: int, port: int, ear: socket.socket) -> Places:
    """Rank 0: hears from every other rank, then tells each of them where all are."""
    places: dict[int, tuple[str, int]] = {}
    callers: list[socket.socket] = []
    with socket.create_server(("", port)) as door:
        door.settimeout(MEET_SECONDS_MAX)
        while len(callers) < world - 1:
            caller, (host, _) = door.accept()
            said = json.loads(caller.makefile().readline())
            places[said["rank"]] = (host, said["port"])
            places[0] = (caller.getsockname()[0], ear.getsockname()[1])
            callers.append(caller)
    table = [places[rank] for rank in range(world)]
    for caller in callers:
        caller.sendall((json.dumps(table) + "\n").encode())
        caller.close()
    return table


def _report(rank: int, address: str, port: int, ear: socket.socket) -> Places:
    """Other ranks: tell rank 0 where to find us and hear where all are. It may start later than we do."""
    by = time.monotonic() + MEET_SECONDS_MAX
    while True:
        try:
            call = socket.create_connection((address, port), timeout=MEET_SECONDS_MAX)
            break
        except OSError:
            if time.monotonic() > by:
                raise
            time.sleep(0.05)
    with call:
        call.sendall((json.dumps({"rank": rank, "port": ear.getsockname()[1]}) + "\n").encode())
        return [(host, at) for host, at in json.loads(call.makefile().readline())]


# --- the network ----------------------------------------------------------------------------------------------------------------
class Network:
    """64 pixels, one hidden layer, 10 digits. All weights lie in one flat vector, which is what the ring averages."""

    def __init__(self, rng: np.random.Generator) -> None:
        shapes = [(PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, DIGITS), (DIGITS,)]
        self.weights = np.concatenate([rng.normal(0, 1 / np.sqrt(s[0]), s).ravel() if len(s) == 2 else np.zeros(s) for s in shapes])
        self._cuts = np.cumsum([int(np.prod(s)) for s in shapes])[:-1]
        self._shapes = shapes

    def _parts(self) -> Iterator[np.ndarray]:
        return (part.reshape(shape) for part, shape in zip(np.split(self.weights, self._cuts), self._shapes, strict=True))

    def loss_and_gradient(self, images: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
        """Mean cross-entropy over the batch and its gradient as one flat vector."""
        w1, b1, w2, b2 = self._parts()
        hidden = np.maximum(images @ w1 + b1, 0)
        scores = hidden @ w2 + b2
        scores -= scores.max(axis=1, keepdims=True)
        odds = np.exp(scores)
        odds /= odds.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = float(-np.log(odds[rows, labels]).mean())
        odds[rows, labels] -= 1
        back = odds / len(labels)
        back_hidden = (back @ w2.T) * (hidden > 0)
        gradient = [images.T @ back_hidden, back_hidden.sum(0), hidden.T @ back, back.sum(0)]
        return loss, np.concatenate([part.ravel() for part in gradient])

    def accuracy(self, images: np.ndarray, labels: np.ndarray) -> float:
        """Share of images whose digit is told right."""
        w1, b1, w2, b2 = self._parts()
        return float(((np.maximum(images @ w1 + b1, 0) @ w2 + b2).argmax(axis=1) == labels).mean())


def load(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Images in 0..1 and their digits, in an order that is the same on all ranks."""
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    table = table[rng.permutation(len(table))]
    return table[:, :PIXELS] / 16, table[:, PIXELS].astype(int)


def train(ring: Ring, network: Network, images: np.ndarray, labels: np.ndarray, options: argparse.Namespace) -> None:
    """Descends with momentum; every rank takes its own rows of each batch and all take the same step."""
    speed = np.zeros_like(network.weights)
    order = np.random.default_rng(options.seed)
    for epoch in range(1, options.epochs + 1):
        losses = []
        rows = order.permutation(len(labels) // options.batch * options.batch).reshape(-1, options.batch)
        for batch in rows:
            mine = batch[ring.rank :: ring.world]
            loss, gradient = network.loss_and_gradient(images[mine], labels[mine])
            averaged = ring.average(np.append(gradient, loss))
            speed = 0.9 * speed - options.rate * averaged[:-1]
            network.weights = network.weights + speed
            losses.append(averaged[-1])
        if ring.rank == 0:
            print(f"epoch {epoch:2d}  loss {np.mean(losses):.4f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=128, help="rows of all ranks together")
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-least", type=float, default=0.9, help="test accuracy under which the job has failed")
    options = parser.parse_args()
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    print(
        f"rank {rank} of {world} on {os.environ.get('SHOAL_NODE', socket.gethostname())}, device {os.environ.get('CUDA_VISIBLE_DEVICES')}"
    )

    ring = Ring.meet(rank, world, os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "0")))
    images, labels = load(np.random.default_rng(options.seed))
    network = Network(np.random.default_rng(options.seed))
    train(ring, network, images[TEST_ROWS:], labels[TEST_ROWS:], options)

    same = ring.all_equal(hashlib.sha256(network.weights.tobytes()).digest())
    accuracy = network.accuracy(images[:TEST_ROWS], labels[:TEST_ROWS])
    if rank == 0:
        print(f"test accuracy {accuracy:.3f} on {TEST_ROWS} images that no rank has trained on")
        print(f"weights are {'the same' if same else 'NOT the same'} on all {world} ranks", flush=True)
    return 0 if same and accuracy >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())

"""
One life of the swarm: a seed in, what went wrong out.

The storm lasts until so many steps are done; then the weather clears, whoever is down comes back, and within CALM_MS everything must
have ended. `python -m shoal.sim.swarm` plays many seeds.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from shoal.agent.home import Home
from shoal.base.rng import Rng
from shoal.model.job import ENDED
from shoal.model.wire import LeaseTerms
from shoal.sim.swarm.agenda import Agenda, MachineClock
from shoal.sim.swarm.faults import Faults
from shoal.sim.swarm.machine import Machine
from shoal.sim.swarm.network import Network
from shoal.sim.swarm.node import Agent
from shoal.sim.swarm.oracle import Oracle
from shoal.sim.swarm.people import People
from shoal.sim.swarm.server import Server
from shoal.sim.swarm.tasks import Tasks
from shoal.store.sql import open_store

TERMS = LeaseTerms(renew_every_ms=1_500, ttl_ms=5_000, kill_bound_ms=2_000, skew_ms=500, start_deadline_ms=10_000)
"""Short ones: a storm of a minute has several losses and returns."""
NODES = 3
STORM_PERCENT = 70
"""Of a life's steps; the rest shows that everything comes to its end."""
STORM_MS_MAX = 600_000
CALM_MS = 600_000
"""Virtual time in which everything must have ended once the faults have stopped."""
LOOK_MS = 2_000
"""How often it is looked whether everything has ended."""


@dataclass(frozen=True, slots=True)
class Life:
    """How a seed went. `trace` names the whole course: the same for the same seed and code."""

    seed: int
    steps: int
    virtual_ms: int
    trace: str
    violations: tuple[str, ...]
    lines: tuple[str, ...] = ()


@dataclass
class World:
    """Everything of one life."""

    agenda: Agenda
    oracle: Oracle
    server: Server
    network: Network
    people: People
    machines: list[Machine] = field(default_factory=list)
    agents: dict[str, Agent] = field(default_factory=dict)
    rng: Rng = field(default_factory=lambda: Rng(0))

    def start_agent(self, machine: Machine) -> None:
        """An agent process starts, unless one is there."""
        if machine.name not in self.agents:
            self.agenda.note(f"{machine.name} has a new agent")
            home = Home(machine.root, machine.root / "work", machine.root / "secret")
            rng = self.rng.stream(f"{machine.name} {self.agenda.steps}")
            self.agents[machine.name] = Agent(machine, home, self.network, rng, lambda: self.server.tokens.join)

    def kill_agent(self, machine: Machine) -> None:
        """The agent process is gone; the machine works on."""
        agent = self.agents.pop(machine.name, None)
        if agent is not None:
            agent.kill()


def run_seed(seed: int, steps: int = 1_000, *, faults: Faults | None = None, keep: bool = False) -> Life:
    """Plays one life. `faults` says which kinds there are (all), `keep` whether the trace is kept to be read."""
    with _folder() as folder, _quiet():
        world = make_world(folder, seed, keep)
        weather = Faults() if faults is None else faults
        world.server.ensure()
        for machine in world.machines:
            world.start_agent(machine)
        weather.begin(world)
        _storm(world, steps * STORM_PERCENT // 100)
        weather.end(world)
        _calm(world, steps)
        if world.server.plane is not None and not world.oracle.violations:
            world.oracle.at_rest(world.server.plane)
        _close(world)
        agenda = world.agenda
        return Life(seed, agenda.steps, agenda.now_ms, agenda.trace, tuple(world.oracle.violations), tuple(agenda.lines))


def make_world(folder: Path, seed: int, keep: bool = False) -> World:
    """Nothing runs yet."""
    shutil.copyfile(_template(), folder / "shoal.db")
    rng = Rng(seed)
    agenda = Agenda(keep=keep)
    oracle = Oracle(agenda)
    server = Server(agenda, folder, rng.stream("server"), seed, MachineClock(agenda), TERMS, oracle.changed)
    network = Network(agenda, rng.stream("network"), server)
    people = People(agenda, network, oracle, rng.stream("people"), lambda: server.tokens.admin)
    world = World(agenda, oracle, server, network, people, rng=rng.stream("agents"))
    for number in range(NODES):
        world.machines.append(_machine(world, folder, f"n{number + 1}", rng.stream(f"machine {number}")))
    return world


def _machine(world: World, folder: Path, name: str, rng: Rng) -> Machine:
    root = folder / name
    for directory in ("supervisor", "tasks", "blobs", "work/.hostfiles", "secret"):
        (root / directory).mkdir(parents=True)
    clock = MachineClock(world.agenda, drift_ppm=rng.below(2_001) - 1_000)
    machine = Machine(world.agenda, name, root, rng, clock, Tasks(world.agenda, name, world.oracle.started, lambda: machine.died()))
    world.oracle.machines.append(machine.tasks)
    return machine


def _storm(world: World, steps: int) -> None:
    """Until so many steps are done."""
    while world.agenda.steps < steps and world.agenda.now_ms < STORM_MS_MAX and not world.oracle.violations:
        world.agenda.play_next(STORM_MS_MAX)


def _calm(world: World, steps: int) -> None:
    """Until everything has ended and so many steps are done, or time is up."""
    until_ms = world.agenda.now_ms + CALM_MS
    look_ms = world.agenda.now_ms
    while world.agenda.now_ms < until_ms and not world.oracle.violations:
        look_ms += LOOK_MS
        while world.agenda.play_next(look_ms):
            pass
        if world.agenda.steps >= steps and _is_at_rest(world):
            return


def _is_at_rest(world: World) -> bool:
    plane = world.server.plane
    if plane is None or world.people.open_requests or any(tasks.living for tasks in world.oracle.machines):
        return False
    plane.world.catch_up()
    return not world.server.store.writer.waiting and not any(job.state not in ENDED for job in plane.world.jobs.values())


def _close(world: World) -> None:
    for machine in world.machines:
        world.kill_agent(machine)
        machine.kill_supervisor(heard=False)
    world.server.kill()


@contextmanager
def _folder() -> Iterator[Path]:
    """A directory in memory, gone in the end: what a power cut would take is not what the swarm is about."""
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(prefix="shoal-swarm-", dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@cache
def _template() -> Path:
    """A fresh store, made once: its schema takes longer than many a life."""
    folder = Path(tempfile.mkdtemp(prefix="shoal-swarm-"))
    open_store(folder / "shoal.db", by_hand=True, store_id="swarm").close()
    return folder / "shoal.db"


@contextmanager
def _quiet() -> Iterator[None]:
    """Lives are full of warnings that are the point of them."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)

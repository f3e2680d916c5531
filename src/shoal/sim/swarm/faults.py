"""
What goes wrong, and when: drawn from the seed, spread over the storm, ended with it.

Each kind comes again and again at random gaps, and each seed leaves some kinds out, so that rare meetings of few kinds happen too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shoal.base.rng import Rng
from shoal.sim.swarm.machine import Machine
from shoal.sim.swarm.network import Weather

if TYPE_CHECKING:
    from shoal.sim.swarm.run import World

PEOPLE_MS_MAX = 2_500
KINDS = ("wires", "cuts", "server", "writes", "disk", "slow", "clocks", "agents", "hangs", "supervisors", "reboots")
GAP_MS_MAX = {
    "wires": 8_000,
    "cuts": 12_000,
    "server": 15_000,
    "writes": 12_000,
    "disk": 25_000,
    "slow": 15_000,
    "clocks": 15_000,
    "agents": 10_000,
    "hangs": 15_000,
    "supervisors": 30_000,
    "reboots": 40_000,
}
"""A kind comes at most so long after it came last; on average after half of it."""
KIND_PERCENT = 45
"""So likely is a kind to be part of a seed."""
DOWN_MS_MAX = 6_000
"""How long what has fallen stays down: around the lease, and beyond it."""
LONG_MS_MAX = 25_000
"""Now and then longer: past every lease, self-stop and fence of the swarm's terms and jobs."""
SLOW_COMMIT_MS = 900
JUMP_MS_MAX = 120_000
"""Not an hour: back-offs are kept by the wall clock, and one that is set back makes them longer by as much, which would pass for a hang."""


@dataclass
class Faults:
    """`kinds`: those that may come; empty for fine weather."""

    kinds: tuple[str, ...] = KINDS
    over: bool = False
    chosen: tuple[str, ...] = ()
    _rng: Rng = field(default_factory=lambda: Rng(0))

    def begin(self, world: World) -> None:
        """People begin to act, and things begin to fail."""
        self._rng = rng = world.rng.stream("faults")
        self.chosen = tuple(kind for kind in self.kinds if rng.below(100) < KIND_PERCENT)
        self._every(world, PEOPLE_MS_MAX, world.people.act)
        acts = {
            "wires": self._wires,
            "cuts": self._cut,
            "server": self._server,
            "writes": self._writes,
            "disk": self._disk,
            "slow": self._slow,
            "clocks": self._clocks,
            "agents": self._agents,
            "hangs": self._hangs,
            "supervisors": self._supervisors,
            "reboots": self._reboots,
        }
        for kind in self.chosen:
            self._every(world, GAP_MS_MAX[kind], lambda act=acts[kind]: act(world))  # type: ignore[misc]

    def end(self, world: World) -> None:
        """The weather clears; whoever is down comes back."""
        self.over = True
        world.agenda.note("the storm is over")
        world.network.weather = Weather()
        world.network.cut.clear()
        server = world.server
        server.commit_ms_max, server.die_in_writes, server.full = 3, 0, False
        server.limit_disk()
        server.ensure()
        for machine in world.machines:
            world.start_agent(machine)

    # --- kinds ------------------------------------------------------------------------------------------------------------------
    def _wires(self, world: World) -> None:
        rng = self._rng
        world.network.weather = Weather(lose=rng.below(4) * 40, delay=rng.below(4) * 80, repeat=rng.below(4) * 60)

    def _cut(self, world: World) -> None:
        who = self._rng.choice((*(machine.name for machine in world.machines), "people"))
        world.agenda.note(f"{who} is cut off")
        world.network.cut[who] = None
        self._then(world, lambda: world.network.cut.pop(who, None))

    def _server(self, world: World) -> None:
        world.server.kill()
        self._then(world, world.server.ensure)

    def _writes(self, world: World) -> None:
        """Dies between two writes of a step; when that comes about is the step's matter."""
        world.server.die_in_writes = 1 + self._rng.below(4)
        self._then(world, world.server.ensure)

    def _disk(self, world: World) -> None:
        world.agenda.note("the disk is full")
        world.server.full = True
        world.server.limit_disk()
        self._then(world, lambda: self._room(world))

    def _room(self, world: World) -> None:
        world.server.full = False
        world.server.limit_disk()

    def _slow(self, world: World) -> None:
        world.server.commit_ms_max = SLOW_COMMIT_MS
        self._then(world, lambda: setattr(world.server, "commit_ms_max", 3))

    def _clocks(self, world: World) -> None:
        clock = self._rng.choice((world.server.clock, *(machine.clock for machine in world.machines)))
        clock.set_by_ms = self._rng.below(2 * JUMP_MS_MAX) - JUMP_MS_MAX
        world.agenda.note(f"a wall clock is off by {clock.set_by_ms}")

    def _agents(self, world: World) -> None:
        machine = self._machine(world)
        world.kill_agent(machine)
        self._then(world, lambda: world.start_agent(machine))

    def _hangs(self, world: World) -> None:
        agent = world.agents.get(self._machine(world).name)
        if agent is not None:
            agent.freeze(self._for_ms())

    def _supervisors(self, world: World) -> None:
        self._machine(world).kill_supervisor()

    def _reboots(self, world: World) -> None:
        machine = self._machine(world)
        world.kill_agent(machine)
        machine.reboot()
        self._then(world, lambda: world.start_agent(machine))

    # --- when -------------------------------------------------------------------------------------------------------------------
    def _machine(self, world: World) -> Machine:
        return self._rng.choice(world.machines)

    def _for_ms(self) -> int:
        return self._rng.below(LONG_MS_MAX if self._rng.below(3) == 0 else DOWN_MS_MAX)

    def _then(self, world: World, act: Callable[[], object]) -> None:
        """After a while, unless the storm is over by then: its end has mended everything."""

        def mend() -> None:
            if not self.over:
                act()

        world.agenda.after(self._for_ms(), mend)

    def _every(self, world: World, gap_ms_max: int, act: Callable[[], None]) -> None:
        """`act` again and again, at random gaps, until the storm is over."""

        def once() -> None:
            if not self.over:
                act()
                self._every(world, gap_ms_max, act)

        world.agenda.after(self._rng.below(gap_ms_max), once)

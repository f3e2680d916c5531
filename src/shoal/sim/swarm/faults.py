"""
What goes wrong, and when: drawn from the seed, spread over the storm, ended with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.base.rng import Rng
from shoal.sim.swarm.network import Weather

if TYPE_CHECKING:
    from shoal.sim.swarm.run import World

PEOPLE_MS_MAX = 1_500


@dataclass
class Faults:
    """Kinds that can be switched off one by one, so that a test can say what it wants."""

    wires: bool = True
    over: bool = False
    _rng: Rng | None = None

    def begin(self, world: World) -> None:
        """People begin to act, and things begin to fail."""
        self._rng = world.rng.stream("faults")
        self._people(world)

    def end(self, world: World) -> None:
        """The weather clears; whoever is down comes back."""
        self.over = True
        world.network.weather = Weather()

    def _people(self, world: World) -> None:
        self._every(world, PEOPLE_MS_MAX, world.people.act)

    def _every(self, world: World, gap_ms_max: int, act: Callable[[], None]) -> None:
        """`act` again and again, at random gaps, until the storm is over."""
        assert self._rng is not None

        def once() -> None:
            if not self.over:
                act()
                self._every(world, gap_ms_max, act)

        world.agenda.after(self._rng.below(gap_ms_max), once)

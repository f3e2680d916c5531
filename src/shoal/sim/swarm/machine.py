"""
A machine of the swarm: its clocks, its pretended processes, its directory, and the real supervisor over them. It outlives its agents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from shoal.agent.supervisor import wire
from shoal.agent.supervisor.journal import Journal
from shoal.agent.supervisor.link import SupervisorGone
from shoal.agent.supervisor.wards import Wards
from shoal.base.rng import Rng
from shoal.sim.swarm.agenda import Agenda, Alarm, MachineClock
from shoal.sim.swarm.tasks import Tasks

Hear = Callable[[wire.Event], None]
LOOK_MS_MAX = 5
"""How soon the supervisor hears of an end, and the agent of what the supervisor says."""


class Supervisor:
    """The real wards and journal, stepped by the agenda in place of a selector."""

    def __init__(self, agenda: Agenda, rng: Rng, tasks: Tasks, directory: Path, clock: MachineClock) -> None:
        self._agenda = agenda
        self._rng = rng
        self._tasks = tasks
        self._clock = clock
        self._outputs: dict[int, Callable[[], None]] = {}
        self._journal = Journal(str(directory / "journal"))
        self.listeners: list[tuple[Hear, Callable[[], None]]] = []
        self.dead = False
        self._alarm: Alarm | None = None
        self.wards = Wards(tasks, tasks, self._journal, clock, self._publish, self)
        self.wards.recover()
        self.soon()

    # --- what wards ask for --------------------------------------------------------------------------------------------------
    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        self._outputs[fd] = callback

    def unwatch(self, fd: int) -> None:
        self._outputs.pop(fd, None)

    def _publish(self, event: wire.Event) -> None:
        for hear, _ in self.listeners:
            hear(event)

    # --- rounds --------------------------------------------------------------------------------------------------------------
    def give(self, orders: tuple[wire.Order, ...]) -> tuple[wire.Result, ...]:
        """Carries out orders; raises SupervisorGone for one that has died."""
        if self.dead:
            raise SupervisorGone("the supervisor was killed")
        results = tuple(self._order(order) for order in orders)
        self.soon()
        return results

    def _order(self, order: wire.Order) -> wire.Result:
        if isinstance(order, wire.Hello):
            return wire.Greeting(wire.VERSION, 1, self._tasks.isolation, self._tasks.base)
        return self.wards.order(order)

    def soon(self) -> None:
        """There is something to do within a moment."""
        self._plan(self._rng.below(LOOK_MS_MAX))

    def _plan(self, delay_ms: int) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._agenda.after(delay_ms, self._round)

    def _round(self) -> None:
        if self.dead:
            return
        for callback in tuple(self._outputs.values()):
            callback()
        for pid, status, usage in self._tasks.reap():
            self.wards.reap(pid, status, usage)
        next_ms = self.wards.tick()
        self._journal.sync()
        wait_ms = 1_000 if next_ms is None else min(1_000, next_ms - self._clock.boottime_ms())
        self._plan(max(1, wait_ms))

    def die(self, heard: bool) -> None:
        """The process is gone; what it had open is closed. `heard`: those who listened find their connection closed."""
        self.dead = True
        self._journal.close()
        self.wards.close()
        for _, ended in self.listeners if heard else ():
            ended()


@dataclass
class Machine:
    """See module."""

    agenda: Agenda
    name: str
    root: Path
    rng: Rng
    clock: MachineClock
    tasks: Tasks
    boots: int = 1
    supervisor: Supervisor | None = None
    ports: dict[int, None] = field(default_factory=dict)

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boots}"

    @property
    def supervisor_home(self) -> Path:
        return self.root / "supervisor"

    def start_supervisor(self) -> Supervisor:
        """The one that is there, or a new one."""
        if self.supervisor is None:
            self.agenda.note(f"{self.name} has a new supervisor")
            self.supervisor = Supervisor(self.agenda, self.rng, self.tasks, self.supervisor_home, self.clock)
        return self.supervisor

    def died(self) -> None:
        """A process has ended."""
        if self.supervisor is not None:
            self.supervisor.soon()

    def kill_supervisor(self, heard: bool = True) -> None:
        """As by `kill -9`: its guardian ends all processes of the node at once."""
        if self.supervisor is not None:
            self.agenda.note(f"{self.name} loses its supervisor")
            self.tasks.kill_all()
            supervisor, self.supervisor = self.supervisor, None
            supervisor.die(heard)

    def reboot(self) -> None:
        """Power off and on: processes and supervisor are gone, files stay, clocks begin anew."""
        self.agenda.note(f"{self.name} reboots")
        self.kill_supervisor(heard=False)
        self.tasks.kill_all()
        self.ports.clear()
        self.boots += 1
        self.clock.booted_ms = self.agenda.now_ms

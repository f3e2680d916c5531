"""
One control plane process of the swarm: the real store, plane and API over a file that outlives it; killed and started again at will.

Its parts take turns as events: the API's loop, the writer (one group of sets per turn), each step of the plane for itself. A kill comes
between two of these, or, by `die_in_writes`, between two writes inside a step; what was not committed is then lost, the file stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.api.app import build_app
from shoal.api.service import Service
from shoal.base.errors import ShoalError
from shoal.base.rng import Rng
from shoal.control.plane import Plane
from shoal.control.steps import step_through
from shoal.control.tokens import new_token
from shoal.model.change import Change, ChangeSet
from shoal.model.wire import Health, LeaseTerms, TokenAsk
from shoal.scheduling.policy import Policy
from shoal.sim.swarm.agenda import Agenda, Alarm, MachineClock
from shoal.sim.swarm.loop import VirtualLoop
from shoal.store.blobs import BlobStore
from shoal.store.logs import LogStore
from shoal.store.sealing import Sealer
from shoal.store.sql import SqlStore, open_store
from shoal.testing.ids import SeededEntropy, SeededIds

ROLES = (("user/admin", "admin"), ("service/join", "join"))
RESTART_MS = 1_000
STEP_GAP_MS_MAX = 4
"""Between two steps of a round other things may happen."""


class Died(BaseException):
    """The process was killed at this point of its code."""


@dataclass
class Tokens:
    """What the first start wrote down for people and machines."""

    admin: str = ""
    join: str = ""


class SwarmPlane(Plane):
    """A plane that says when it is woken, where a thread would wait for its bell."""

    rung: Callable[[], None] | None = None

    def wake(self) -> None:
        super().wake()
        if self.rung is not None:
            self.rung()


@dataclass
class Server:
    """See module. `changed` hears of every change that the live plane takes in."""

    agenda: Agenda
    folder: Path
    rng: Rng
    seed: int
    clock: MachineClock
    terms: LeaseTerms
    changed: Callable[[Change], None]
    tokens: Tokens = field(default_factory=Tokens)
    plane: SwarmPlane | None = None
    app: Any = None
    """The API as an ASGI application."""
    loop: VirtualLoop | None = None
    starts: int = 0
    commit_ms_max: int = 3
    """How slow the disk is: a group of writes waits up to so long."""
    die_in_writes: int = 0
    """Dies at so many writes from now, counted inside of steps; 0: not."""
    full: bool = False
    """The disk has no room for more."""
    on_death: list[Callable[[], None]] = field(default_factory=list)
    """Told once, when this process dies: the connections to it break."""
    store: SqlStore = field(init=False)
    _service: Service | None = None
    _turn: Alarm | None = None
    _write: Alarm | None = None
    _round: Alarm | None = None
    _round_at_ms: int = 0
    _in_round: bool = False
    _next_ms: int = 0

    @property
    def up(self) -> bool:
        return self.plane is not None

    # --- life -------------------------------------------------------------------------------------------------------------------
    def ensure(self) -> None:
        """A process over the file of the last one, unless one runs. One that cannot start is tried again in a second."""
        if self.plane is not None:
            return
        self.starts += 1
        self.store = open_store(self.folder / "shoal.db", by_hand=True, store_id="swarm")
        self.limit_disk()
        try:
            self.plane = plane = self._make_plane()
            if not self.tokens.admin:
                self._make_tokens()
        except ShoalError as error:
            self.agenda.note(f"server {self.starts} cannot start: {error.code}")
            self.plane = None
            self.store.abandon()
            self.agenda.after(RESTART_MS, self.ensure)
            return
        plane.world.on_change(self.changed)
        plane.rung = self._ring
        self.loop = VirtualLoop(self.agenda, self._want_turn)  # type: ignore[abstract]  # asyncio asks for no more
        self._service = Service(plane, self.loop, secret=b"s" * 32, health=lambda: Health(ok=True))
        self.app = build_app(self._service)
        self.agenda.note(f"server {self.starts} is up at version {self.store.version()}")
        self._ring()

    def _make_plane(self) -> SwarmPlane:
        own = Rng(self.seed).stream(f"server {self.starts}").next64()
        return SwarmPlane(
            store=self.store,
            logs=LogStore(self.folder / "logs"),
            blobs=BlobStore(self.folder / "blobs"),
            sealer=Sealer(self.folder / "key"),
            clock=self.clock,
            ids=SeededIds(own),
            entropy=SeededEntropy(own),
            policy=Policy(preempt=True),
            terms=self.terms,
            holder=f"server {self.starts}",
            write=self._write_in_step,
        )

    def limit_disk(self) -> None:
        """As much room as `full` says, from the next write on."""
        if self.starts:
            self.store.limit_pages(1 if self.full else 0)

    def kill(self) -> None:
        """As by `kill -9`: nothing more is written or said."""
        if self.plane is None or self.loop is None:
            return
        self.agenda.note("server is killed")
        self.loop.close()
        self.plane.rung = None
        self.store.abandon()
        self.plane = self.app = self._service = None
        for alarm in (self._turn, self._write, self._round):
            if alarm is not None:
                alarm.cancel()
        self._turn = self._write = self._round = None
        self._in_round = False
        self.die_in_writes = 0
        told, self.on_death = self.on_death, []
        for tell in told:
            tell()

    def _make_tokens(self) -> None:
        plane = self.plane
        assert plane is not None
        for principal, role in ROLES:
            token, text = new_token(plane, TokenAsk(principal=principal, role=role))  # type: ignore[arg-type]
            plane.await_all((plane.store.apply(ChangeSet(put=(token,)), plane.term),))
            setattr(self.tokens, role, text)
        plane.world.catch_up()

    # --- turns of the API's loop and of the writer --------------------------------------------------------------------------------
    def _want_turn(self) -> None:
        if self._turn is None:
            self._turn = self.agenda.after(0, self.take_turn)

    def take_turn(self) -> None:
        """The API's loop does what is ready; what it wants written waits for the disk."""
        self._turn = None
        if self.loop is None or self.plane is None:
            return
        self.loop.turn()
        self._want_write()

    def _want_write(self) -> None:
        if self._write is None and self.plane is not None and self.store.writer.waiting:
            self._write = self.agenda.after(self.rng.below(self.commit_ms_max + 1), self._write_group)

    def _write_group(self) -> None:
        self._write = None
        if self.plane is None:
            return
        settled = self.store.writer.step()
        self.agenda.note(f"{settled} writes, version {self.store.version()}")
        self._want_write()

    def _write_in_step(self) -> int:
        """A write that a step of the plane waits for: the places at which a process dies between two writes."""
        if self.die_in_writes:
            self.die_in_writes -= 1
            if self.die_in_writes == 0:
                raise Died
        return self.store.writer.step()

    # --- rounds of the plane --------------------------------------------------------------------------------------------------------
    def _ring(self) -> None:
        """Something may have to be done: a round begins soon, unless one runs that is not over."""
        if not self._in_round:
            self._plan_round(self.rng.below(STEP_GAP_MS_MAX + 1))

    def _plan_round(self, delay_ms: int) -> None:
        at_ms = self.agenda.now_ms + delay_ms
        if self._round is not None and self._round_at_ms <= at_ms:
            return
        if self._round is not None:
            self._round.cancel()
        self._round, self._round_at_ms = self.agenda.after(delay_ms, self._begin_round), at_ms

    def _begin_round(self) -> None:
        self._round, self._in_round, self._next_ms = None, True, 1_000
        self._take_step(0)

    def _take_step(self, place: int) -> None:
        plane = self.plane
        if plane is None:
            return
        steps = plane.steps()
        version = plane.store.version()
        try:
            progress = step_through((steps[place],), self.clock.now_ms(), plane.troubles)
        except Died:
            self.agenda.note(f"server dies inside of {steps[place].name}")
            self.kill()
            return
        self._next_ms = min(self._next_ms, max(1, progress.wait_ms(self.clock.now_ms())))
        if progress.did or plane.store.version() != version:
            self.agenda.note(f"{steps[place].name} did {progress.did}, version {plane.store.version()}")
        self._want_write()
        if place + 1 < len(steps):
            gap_ms = self.rng.below(STEP_GAP_MS_MAX + 1) if progress.did else 0
            self.agenda.after(gap_ms, self._same_life(place + 1))
            return
        self._in_round = False
        moved = plane.store.version() != plane.world.version
        self._plan_round(self.rng.below(STEP_GAP_MS_MAX + 1) if moved else self._next_ms)

    def _same_life(self, place: int) -> Callable[[], None]:
        """The next step, unless the process has died meanwhile."""
        life = self.starts
        return lambda: self._take_step(place) if self.starts == life else None

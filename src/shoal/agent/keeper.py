"""Keeps a supervisor running and a link to it open; tells the engine what it says, and when it is gone."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable
from typing import Protocol

from shoal.agent.home import Home, safe
from shoal.agent.messages import Gone, Message, Said
from shoal.agent.supervisor import wire
from shoal.agent.supervisor.launch import start_supervisor
from shoal.agent.supervisor.link import Link, SupervisorGone, Watcher
from shoal.base.errors import Unavailable

log = logging.getLogger(__name__)

TRIES_MAX = 5
FEED_EVERY_MS = 200
"""A busy node renews its lease with every upload; the deadline need not follow each one. Far under any lease."""


class Line(Protocol):
    """Orders to a supervisor; `supervisor.link.Link` is the real one. Each call raises SupervisorGone when it has ended."""

    def greet(self) -> wire.Greeting: ...

    def give(self, *orders: wire.Order) -> tuple[wire.Result, ...]: ...

    def list(self) -> wire.Listing: ...

    def close(self) -> None: ...


class Reach(Protocol):
    """How a node's supervisor is started and spoken with: `SocketReach`, or a pretended one in simulation."""

    def start(self) -> None:
        """One is there. Raises Unavailable."""
        ...

    def line(self) -> Line:
        """A line to it. Raises SupervisorGone."""
        ...

    def listen(self, hear: Callable[[wire.Event], None], ended: Callable[[], None]) -> None:
        """Its events from now on, and its end. Raises SupervisorGone."""
        ...


class SocketReach:
    """A supervisor in a process of its own, at home in `directory`."""

    def __init__(self, directory: str, name: str, isolation: str) -> None:
        self._directory = directory
        self._name = name
        self._isolation = isolation

    def start(self) -> None:
        start_supervisor(self._directory, self._name, self._isolation)

    def line(self) -> Line:
        return Link(self._directory)

    def listen(self, hear: Callable[[wire.Event], None], ended: Callable[[], None]) -> None:
        watcher = Watcher(self._directory)

        def run() -> None:
            for event in watcher.events():
                hear(event)
            watcher.close()
            ended()

        threading.Thread(target=run, name="supervisor-events", daemon=True).start()


class Keeper:
    """`link` and `greeting` are there after `ensure`. `ensure` is the engine's; `feed` may come from any thread."""

    def __init__(self, home: Home, node: str, isolation: str, post: Callable[[Message], None], reach: Reach | None = None) -> None:
        self._home = home
        self._reach = reach or SocketReach(self.directory, group_name(home, node), isolation)
        self._post = post
        self._generation = 0
        self._renewed_ms = 0
        self.link: Line | None = None
        self.greeting: wire.Greeting | None = None

    @property
    def directory(self) -> str:
        return str(self._home.supervisor)

    def ensure(self) -> wire.Greeting:
        """A supervisor is there, ours to command. Raises Unavailable when none can be started."""
        for attempt in range(TRIES_MAX):
            try:
                return self._connect()
            except SupervisorGone:
                if attempt + 1 == TRIES_MAX:
                    raise
                self._reach.start()
        raise AssertionError

    def lose(self) -> None:
        """The link is of no use any more."""
        if self.link is not None:
            self.link.close()
        self.link = None

    @property
    def generation(self) -> int:
        """Of the supervisor that we spoke with last."""
        return self._generation

    def is_current(self, gone: Gone) -> bool:
        return gone.generation == self._generation

    def list(self) -> wire.Listing:
        """What the supervisor holds. Raises SupervisorGone."""
        if self.link is None:
            raise SupervisorGone("no supervisor is running")
        return self.link.list()

    def give(self, *orders: wire.Order) -> tuple[wire.Result, ...]:
        """Raises SupervisorGone."""
        if self.link is None:
            raise SupervisorGone("no supervisor is running")
        return self.link.give(*orders)

    def feed(self, renewed_ms: int) -> None:
        """The control plane has answered what was sent at this boot-time instant. A supervisor that is gone is fed when it is back."""
        if renewed_ms - self._renewed_ms < FEED_EVERY_MS:
            return
        self._renewed_ms = renewed_ms
        link = self.link
        if link is not None:
            try:
                link.give(wire.Feed(self._renewed_ms))
            except Unavailable:
                log.warning("the supervisor could not be fed; it is being started anew")

    def _connect(self) -> wire.Greeting:
        self.lose()
        link = self._reach.line()
        greeting = link.greet()
        link.give(wire.Feed(self._renewed_ms))
        mine = self._generation + 1
        # Before anybody lists: what happens in between must be in one of the two.
        self._reach.listen(lambda event: self._post(Said(event)), lambda: self._post(Gone(mine)))
        self._generation = mine
        self.link, self.greeting = link, greeting
        return greeting


def group_name(home: Home, node: str) -> str:
    """The name of the node's groups: no two agents on a machine share one, also two of one name."""
    mark = hashlib.sha256(str(home.root).encode()).hexdigest()[:8]
    return f"shoal-{safe(node)[:64]}-{mark}"

"""The port where a gang meets: found free and held from prepare until right before start, so that two gangs never get the same."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Protocol

from shoal.agent.unprepared import Unprepared
from shoal.base.rng import Rng

PORT_LOW, PORT_HIGH = 20_000, 29_999
"""Under Linux's ephemeral range (from 32768), whose ports an outgoing connection may take at any time."""
TRIES_MAX = 200


class Port(Protocol):
    """A port that is held until `release`."""

    port: int

    def release(self) -> None: ...


Ports = Callable[[Rng, int], Port]
"""As `hold_port`."""


class HeldPort:
    """A bound socket that nobody listens on."""

    def __init__(self, held: socket.socket) -> None:
        self._held = held
        self.port: int = held.getsockname()[1]

    def release(self) -> None:
        self._held.close()


def hold_port(rng: Rng, wanted: int = 0) -> HeldPort:
    """A free port, `wanted` if it is free. Raises Unprepared when none is found."""
    for attempt in range(TRIES_MAX):
        port = wanted if wanted and attempt == 0 else PORT_LOW + rng.below(PORT_HIGH - PORT_LOW + 1)
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        with contextlib.suppress(OSError):
            held.bind(("", port))
            return HeldPort(held)
        held.close()
    raise Unprepared(f"no port between {PORT_LOW} and {PORT_HIGH} is free for the gang to meet on", of_node=True)

"""
What every backend can do: look (`observe`), make a command true (`act`), say what it is able to (`describe`).

Called by `control.steps` alone. `act` is idempotent: the allocation names the process, the pod, the outside job, and a backend
looks for it before it creates it. What cannot be seen is left out of an `Observation`, never reported as gone: unknown is not no.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from shoal.model.command import CommandRow


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend is able to, so that a job that needs more is told so before it is placed there."""

    name: str
    gang: bool = True
    """Prepare and commit are separate: all members start together or none does."""
    exec: bool = False
    """A command can be run beside a task."""
    logs: bool = False
    """Output arrives as bytes by offset."""


class PostBox(msgspec.Struct, frozen=True, kw_only=True):
    """How one node stands with its orders."""

    node: str
    waiting: int
    """Commands that the node has not confirmed."""
    oldest_seq: int | None = None
    newest_seq: int = 0


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend sees now, by node, ascending. A node that is not listed is unknown."""

    nodes: tuple[PostBox, ...] = ()


class Backend(Protocol):
    """A way to make commands true: the machines of one engine. It never decides."""

    name: str

    def observe(self) -> Observation: ...

    def act(self, row: CommandRow) -> None:
        """Makes the command true, or takes note of it so that it will be. Doing it twice equals doing it once."""
        ...

    def describe(self) -> Capabilities: ...

"""
A mailbox per node: commands in outbox order, waiting for the node's next poll, and calls to serve a terminal.

`control.steps.DispatchStep` puts in (`act`), `control.nodes.poll_commands` takes out. A mailbox is a mirror of the outbox, so nothing
here needs to survive a crash: on start the outbox is loaded again. A row goes when the node asks for what comes after it.
A long poll waits by `on_mail`, a callback, so that no thread is held for it. All methods may be called from any thread.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from shoal.backends.protocol import Capabilities, Observation, PostBox
from shoal.base import limits
from shoal.model.command import CommandRow
from shoal.model.wire import Commands, ExecSession

NAME = "agents"


@dataclass(slots=True)
class _Box:
    rows: deque[CommandRow] = field(default_factory=deque)
    newest_seq: int = 0
    """Highest seq ever put in; lower ones are repeats."""
    execs: list[ExecSession] = field(default_factory=list)
    listeners: list[Callable[[], None]] = field(default_factory=list)


class AgentsBackend:
    """See module."""

    name = NAME

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._boxes: dict[str, _Box] = {}

    def describe(self) -> Capabilities:
        return Capabilities(name=NAME, gang=True, exec=True, logs=True)

    def observe(self) -> Observation:
        """How many orders each node has yet to take."""
        with self._lock:
            return Observation(nodes=tuple(_stand(node, self._boxes[node]) for node in sorted(self._boxes)))

    def act(self, row: CommandRow) -> None:
        """Leaves the command in its node's mailbox and wakes the node's poll. A seq that was there before is dropped."""
        with self._lock:
            box = self._boxes.setdefault(row.node, _Box())
            if row.seq <= box.newest_seq:
                return
            box.newest_seq = row.seq
            box.rows.append(row)
            listeners = tuple(box.listeners)
        for wake in listeners:
            wake()

    def call_exec(self, node: str, session: ExecSession) -> None:
        """Asks the node, by its next poll, to dial out for a terminal. Calls over the bound push out the oldest."""
        with self._lock:
            box = self._boxes.setdefault(node, _Box())
            box.execs.append(session)
            del box.execs[: -limits.EXEC_CALLS_PER_NODE_MAX]
            listeners = tuple(box.listeners)
        for wake in listeners:
            wake()

    def confirm(self, node: str, through_seq: int) -> bool:
        """Drops the node's commands up to `through_seq`; true if there were any."""
        with self._lock:
            box = self._boxes.get(node)
            if box is None or not box.rows or box.rows[0].seq > through_seq:
                return False
            while box.rows and box.rows[0].seq <= through_seq:
                box.rows.popleft()
            return True

    def take(self, node: str, after: int, wanted: Callable[[CommandRow], bool] = lambda _row: True) -> Commands:
        """
        What the node has to do beyond `after`, oldest first; execs are handed out once.

        Rows that are not `wanted` any more are passed over, and confirmed with the rest. `last` never falls under `after`, so that a
        node that polls with a seq of before a restart is not thrown back.
        """
        with self._lock:
            box = self._boxes.get(node)
            if box is None:
                return Commands(last=after)
            held = tuple(itertools.islice((row for row in box.rows if row.seq > after), limits.COMMANDS_PER_POLL_MAX))
            execs, box.execs = tuple(box.execs), []
        return Commands(rows=tuple(row for row in held if wanted(row)), execs=execs, last=held[-1].seq if held else after)

    def on_mail(self, node: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Calls `wake()` whenever something is put into the node's mailbox, from the putter's thread. Returns the way to stop it."""
        with self._lock:
            listeners = self._boxes.setdefault(node, _Box()).listeners
            listeners.append(wake)

        def stop() -> None:
            with self._lock:
                if wake in listeners:
                    listeners.remove(wake)

        return stop

    def forget_node(self, node: str) -> None:
        """Throws the mailbox away and wakes whoever waits at it: the node was removed, and what comes under its name has a new one."""
        with self._lock:
            box = self._boxes.pop(node, None)
            listeners = tuple(box.listeners) if box is not None else ()
        for wake in listeners:
            wake()


def _stand(node: str, box: _Box) -> PostBox:
    oldest = box.rows[0].seq if box.rows else None
    return PostBox(node=node, waiting=len(box.rows), oldest_seq=oldest, newest_seq=box.newest_seq)

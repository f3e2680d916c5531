"""
Terminals being opened: a user's request waits here until the agent of the node dials out, then both ends belong together.

`api` holds the two sockets; this is the bookkeeping alone. In memory only: after a restart the user asks again.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.base import limits
from shoal.base.errors import Conflict, NotFound, Unavailable
from shoal.control.access import Caller
from shoal.control.finding import find_job_to_change
from shoal.model.attempt import Allocation, AllocationState
from shoal.model.wire import ExecRequest, ExecSession

if TYPE_CHECKING:
    from shoal.control.plane import Plane


@dataclass(slots=True, frozen=True)
class Terminal:
    """One terminal: the call that the agent got, the node that must answer it, and until when."""

    call: ExecSession
    node: str
    project: str
    job: str
    expires_ms: int


class Terminals:
    """Terminals that wait for their agent, by session id; any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, Terminal] = {}

    def put(self, terminal: Terminal, monotonic_ms: int) -> None:
        with self._lock:
            for session in [s for s, t in self._waiting.items() if t.expires_ms <= monotonic_ms]:
                del self._waiting[session]
            if len(self._waiting) >= limits.TERMINALS_MAX:
                raise Unavailable(f"{len(self._waiting)} terminals are being opened, the most this server takes; try again")
            self._waiting[terminal.call.session] = terminal

    def take(self, session: str, node: str, monotonic_ms: int) -> Terminal | None:
        """The terminal, once, for the node that it was meant for and while it has not expired."""
        with self._lock:
            terminal = self._waiting.get(session)
            if terminal is None or terminal.node != node:
                return None
            del self._waiting[session]
            return terminal if terminal.expires_ms > monotonic_ms else None

    def drop(self, session: str) -> None:
        with self._lock:
            self._waiting.pop(session, None)


def open_terminal(plane: Plane, caller: Caller, project: str, ref: str, request: ExecRequest) -> Terminal:
    """
    Asks the node of the job's task `request.rank` to dial out for a terminal; the caller waits for `take_terminal` by that node.

    Raises: NotFound for no such job or rank, Conflict for a job that does not run, Unavailable over TERMINALS_MAX.
    """
    job = find_job_to_change(plane, caller, project, ref, "opening a terminal in")
    allocation = _place_of(plane, job.id, job.address, request.rank)
    now_ms = plane.clock.monotonic_ms()
    call = ExecSession(session=plane.ids.uuid(plane.clock.now_ms()), allocation=allocation.id, request=request)
    terminal = Terminal(call=call, node=allocation.node, project=project, job=job.id, expires_ms=now_ms + limits.TERMINAL_WAIT_MS)
    plane.terminals.put(terminal, now_ms)
    plane.agents.call_exec(allocation.node, call)
    return terminal


def take_terminal(plane: Plane, caller: Caller, session: str) -> Terminal:
    """The terminal that a node dials out for. Raises NotFound when it expired, was taken, or is another node's."""
    terminal = plane.terminals.take(session, caller.node, plane.clock.monotonic_ms())
    if terminal is None:
        raise NotFound(f"no terminal {session!r} waits for node {caller.node!r}")
    return terminal


def close_terminal(plane: Plane, session: str) -> None:
    """The user went away, or both ends are done."""
    plane.terminals.drop(session)


def _place_of(plane: Plane, job_id: str, address: str, rank: int) -> Allocation:
    live = [a for a in plane.world.allocations_of(job_id) if a.state is AllocationState.STARTED]
    if not live:
        raise Conflict(f"job {address} does not run, so nothing can be run beside it; see shoal status {address}")
    for allocation in live:
        if any(task.rank == rank for task in allocation.tasks):
            return allocation
    ranks = sorted(task.rank for allocation in live for task in allocation.tasks)
    raise NotFound(f"job {address} has no running task {rank}; its tasks are {ranks[0]} to {ranks[-1]}")

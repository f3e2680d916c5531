"""
Every transition of jobs, allocations, nodes and devices: trigger x state -> state. The only copy; the docs are printed from it.

A trigger is what an event comes to once it has been judged: `TaskExited` is FAIL, FINISH or nothing. Both the judging and the acting are
in `job`, `node` and `enact`; this table says what may follow. A pair that is not in it does not happen: `asked` refuses a person's
verb with a sentence, `reported` ignores a report that came late or twice (delivery is at least once). No record's `state` is written
but through one of the two (an array's parent apart, whose state is derived).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from shoal.base.errors import Conflict
from shoal.model.attempt import AllocationState as A
from shoal.model.job import ENDED
from shoal.model.job import JobState as J
from shoal.model.node import DeviceState as D
from shoal.model.node import NodeState as N

S = TypeVar("S", bound=StrEnum)


class Trigger(StrEnum):
    """Base of the four kinds; the value is the word that people read."""


class OfJob(Trigger):
    """What moves a job."""

    HOLD = "hold"
    UNHOLD = "release"
    PLACE = "placed"
    ABORT = "start given up"
    START = "all members started"
    FINISH = "all tasks exited 0"
    FAIL = "a task failed"
    LOSE = "a member was lost"
    LIMIT = "time limit"
    EVICT = "evicted"
    REQUEUE = "requeue"
    CANCEL = "cancel"
    AGAIN = "all released: try again"
    SUCCEEDED = "all released: succeeded"
    FAILED = "all released: failed"
    CANCELLED = "all released: cancelled"
    TIMEOUT = "all released: over time"
    OOM = "all released: out of memory"
    NODE_LOST = "all released: node lost"
    PREEMPTED = "all released: preempted"


class OfAllocation(Trigger):
    """What moves a member of an attempt."""

    PREPARED = "prepared"
    STARTED = "started"
    STOP = "stop sent"
    RELEASED = "released"
    LOST = "node silent"
    FENCED = "fenced"


class OfNode(Trigger):
    """What moves a node."""

    CORDON = "cordon"
    DRAIN = "drain"
    RESUME = "resume"
    SILENT = "lease run out"
    LOST = "given up"
    BACK_READY = "back, wanted ready"
    BACK_CORDONED = "back, wanted cordoned"
    BACK_DRAINING = "back, wanted draining"


class OfDevice(Trigger):
    """What moves a device."""

    CLAIM = "claimed"
    CLEAR = "released, seen free"
    STRAY = "processes seen that should be gone"
    BREAK = "found broken"
    MEND = "found whole"


class Table(msgspec.Struct, Generic[S], frozen=True, kw_only=True):
    """The transitions of one kind of thing. `notes` explain in the docs what a cell alone does not say."""

    noun: str
    cells: Mapping[Trigger, Mapping[S, S]]
    notes: tuple[str, ...] = ()

    def reported(self, trigger: Trigger, state: S) -> S | None:
        """The state that follows a fact, or None when the fact says nothing new here and is ignored."""
        return self.cells[trigger].get(state)

    def asked(self, trigger: Trigger, state: S, name: str) -> S:
        """The state that follows a person's wish for `name`. Raises Conflict when the state does not allow it."""
        after = self.cells[trigger].get(state)
        if after is None:
            allowed = ", ".join(self.cells[trigger])
            raise Conflict(f"{self.noun} {name} is {state}; {trigger} needs {allowed}")
        return after


_STARTED_OR_ABOUT = (J.STARTING, J.RUNNING)
_IN_END_ORDER = tuple(state for state in J if state in ENDED)

JOB: Table[J] = Table(
    noun="job",
    cells={
        OfJob.HOLD: {J.QUEUED: J.HELD, J.HELD: J.HELD},
        OfJob.UNHOLD: {J.HELD: J.QUEUED, J.QUEUED: J.QUEUED},
        OfJob.PLACE: {J.QUEUED: J.STARTING},
        OfJob.ABORT: {J.STARTING: J.COMPLETING},
        OfJob.START: {J.STARTING: J.RUNNING},
        OfJob.FINISH: dict.fromkeys((*_STARTED_OR_ABOUT, J.PREEMPTING), J.COMPLETING),
        OfJob.FAIL: dict.fromkeys(_STARTED_OR_ABOUT, J.COMPLETING),
        OfJob.LOSE: dict.fromkeys(_STARTED_OR_ABOUT, J.COMPLETING),
        OfJob.LIMIT: {J.RUNNING: J.COMPLETING},
        OfJob.EVICT: dict.fromkeys(_STARTED_OR_ABOUT, J.PREEMPTING),
        OfJob.REQUEUE: {
            **dict.fromkeys((*_STARTED_OR_ABOUT, J.COMPLETING), J.COMPLETING),
            J.PREEMPTING: J.PREEMPTING,
            **dict.fromkeys(_IN_END_ORDER, J.QUEUED),
        },
        OfJob.CANCEL: {
            **dict.fromkeys((J.HELD, J.QUEUED), J.CANCELLED),
            **dict.fromkeys((*_STARTED_OR_ABOUT, J.PREEMPTING, J.COMPLETING, J.CANCELLING), J.CANCELLING),
            **{state: state for state in _IN_END_ORDER},
        },
        OfJob.AGAIN: dict.fromkeys((J.COMPLETING, J.PREEMPTING), J.QUEUED),
        OfJob.SUCCEEDED: {J.COMPLETING: J.SUCCEEDED},
        OfJob.FAILED: {J.COMPLETING: J.FAILED},
        OfJob.CANCELLED: dict.fromkeys((J.CANCELLING, J.COMPLETING), J.CANCELLED),
        OfJob.TIMEOUT: {J.COMPLETING: J.TIMEOUT},
        OfJob.OOM: {J.COMPLETING: J.OOM},
        OfJob.NODE_LOST: {J.COMPLETING: J.NODE_LOST},
        OfJob.PREEMPTED: {J.PREEMPTING: J.PREEMPTED},
    },
    notes=(
        "COMPLETING means that the attempt is decided and its members are giving back what they hold.",
        "Once that is for good (not for another try), a cancel is kept as a wish and changes only how hard the rest is stopped.",
        "A cancel of a job that has ended is no error and no change.",
        "QUEUED after STARTING or later always means that every allocation of that attempt is RELEASED or FENCED.",
        "Losing a member, a start given up and preemption lead to another try and never count against `retry.limit`.",
        "NODE_LOST and PREEMPTED are ends only for interactive jobs, whose user is gone with the first try.",
        "The parent of an array has no transitions of its own: its state is that of its elements (`lifecycle.array.array_state`).",
        "A start given up for the START_FAILURES_MAX-th time in a row is QUEUED for a moment and then HELD, for a person to look.",
        "DEADLINE is reserved for jobs with a latest useful end; nothing leads to it yet.",
    ),
)

_HELD = (A.CLAIMED, A.PREPARED, A.STARTED, A.STOPPING)

ALLOCATION: Table[A] = Table(
    noun="allocation",
    cells={
        OfAllocation.PREPARED: {A.CLAIMED: A.PREPARED},
        OfAllocation.STARTED: dict.fromkeys((A.CLAIMED, A.PREPARED), A.STARTED),
        OfAllocation.STOP: {**dict.fromkeys(_HELD, A.STOPPING), A.LOST: A.LOST},
        OfAllocation.RELEASED: dict.fromkeys((*_HELD, A.LOST), A.RELEASED),
        OfAllocation.LOST: dict.fromkeys(_HELD, A.LOST),
        OfAllocation.FENCED: dict.fromkeys((*_HELD, A.LOST), A.FENCED),
    },
    notes=(
        "Devices, CPUs, memory and quota are held up to RELEASED or FENCED, never only up to the click on cancel.",
        "A member that failed to prepare holds nothing any more: it is RELEASED.",
        "A lost member is sent its stop all the same, for when its node comes back.",
    ),
)

_REACHABLE = (N.READY, N.CORDONED, N.DRAINING)

NODE: Table[N] = Table(
    noun="node",
    cells={
        OfNode.CORDON: {**dict.fromkeys(_REACHABLE, N.CORDONED), N.UNREACHABLE: N.UNREACHABLE, N.LOST: N.LOST},
        OfNode.DRAIN: {**dict.fromkeys(_REACHABLE, N.DRAINING), N.UNREACHABLE: N.UNREACHABLE, N.LOST: N.LOST},
        OfNode.RESUME: {**dict.fromkeys(_REACHABLE, N.READY), N.UNREACHABLE: N.UNREACHABLE, N.LOST: N.LOST},
        OfNode.SILENT: dict.fromkeys(_REACHABLE, N.UNREACHABLE),
        OfNode.LOST: {N.UNREACHABLE: N.LOST},
        OfNode.BACK_READY: dict.fromkeys((N.UNREACHABLE, N.LOST), N.READY),
        OfNode.BACK_CORDONED: dict.fromkeys((N.UNREACHABLE, N.LOST), N.CORDONED),
        OfNode.BACK_DRAINING: dict.fromkeys((N.UNREACHABLE, N.LOST), N.DRAINING),
    },
    notes=("On a node that cannot be reached, cordon, drain and resume set what is wanted; it takes effect when the node is back.",),
)

DEVICE: Table[D] = Table(
    noun="device",
    cells={
        OfDevice.CLAIM: {D.FREE: D.TAKEN},
        OfDevice.CLEAR: {D.TAKEN: D.FREE, D.DIRTY: D.FREE},
        OfDevice.STRAY: {D.FREE: D.DIRTY, D.TAKEN: D.DIRTY},
        OfDevice.BREAK: dict.fromkeys((D.FREE, D.TAKEN, D.DIRTY), D.BROKEN),
        OfDevice.MEND: {D.BROKEN: D.FREE},
    },
    notes=("A device's state is stored nowhere: `lifecycle.node.device_state` derives it from allocations and the agent's findings.",),
)


def markdown() -> str:
    """The four tables as one Markdown page, `docs/reference/states.md`."""
    head = (
        "# States and transitions\n\n"
        "Printed from `shoal.lifecycle.states` by `tools/docs_states.py`; change the code, not this page. Rows are what happened, columns "
        "the state it met. An empty cell: a person's verb is refused with a sentence, a report is ignored (it came late or twice).\n"
    )
    return "\n".join((head, _page(JOB, J), _page(ALLOCATION, A), _page(NODE, N), _page(DEVICE, D)))


def _page(table: Table[S], states: type[S]) -> str:
    met = [state for state in states if any(state in row for row in table.cells.values())]
    lines = [f"## {table.noun.capitalize()}", "", "| | " + " | ".join(met) + " |", "|---" * (len(met) + 1) + "|"]
    for trigger, row in table.cells.items():
        lines.append(f"| {trigger} | " + " | ".join(row.get(state, "") for state in met) + " |")
    return "\n".join((*lines, "", *(f"- {note}" for note in table.notes), ""))

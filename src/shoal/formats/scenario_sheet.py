"""
What a scenario file may say, as it is written: nodes, queues, reservations, what jobs do, events, and what is expected. `scenario` reads
them; docs/reference/scenario.md tells them to people.
"""

from __future__ import annotations

from typing import Any, Literal

from shoal.formats.workload import GIB
from shoal.model.job import Spec
from shoal.model.queue import QueueLimits, Quota
from shoal.model.values import Duration, Memory

Deed = Literal["cordon", "drain", "resume", "silent", "back", "reboot", "break", "repair", "remove"]
State = Literal[
    "HELD", "QUEUED", "STARTING", "RUNNING", "PREEMPTING", "CANCELLING", "COMPLETING", "SUCCEEDED", "FAILED", "CANCELLED", "TIMEOUT",
    "OOM", "NODE_LOST", "PREEMPTED", "DEADLINE", "ABSENT",
]  # fmt: skip
"""A job's state; ABSENT: it has not arrived yet."""
_ZERO = Duration(0)


class Nodes(Spec, frozen=True, kw_only=True):
    """
    Nodes that are alike. `topology` goes from the widest level inwards. `parts`: what their GPUs may be given as beside whole; MIG ones
    are given in instances only.
    """

    nodes: str
    gpus: int = 8
    model: str = "gpu"
    gpu_memory: Memory = Memory(80 * GIB)
    cpus: int = 128
    memory: Memory = Memory(1024 * GIB)
    pool: str = "default"
    topology: dict[str, str] = {}
    parts: str = "whole"


class QueueEntry(Spec, frozen=True, kw_only=True):
    """A queue. `gpus`, `borrow` and `lend` are whole GPUs of any model; other resources are in `quotas`, in their own units."""

    name: str
    parent: str | None = None
    project: str = "default"
    weight: int = 1000
    order: Literal["strict", "best-effort"] = "best-effort"
    closed: bool = False
    default_time: Duration | None = None
    min_run: Duration | None = None
    gpus: int | None = None
    borrow: int | None = None
    lend: int | None = None
    quotas: dict[str, Quota] = {}
    limits: QueueLimits = QueueLimits()


class ReservationEntry(Spec, frozen=True, kw_only=True, rename={"from_": "from"}):
    """A reservation of nodes; its window is told from the start of the play."""

    name: str
    nodes: str | None = None
    pool: str | None = None
    domain: str | None = None
    from_: Duration
    to: Duration
    repeat: Literal["daily", "weekly"] | None = None
    users: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    reason: str = ""


class Behaviour(Spec, frozen=True, kw_only=True):
    """What a scenario says of a job beside what a job file would: when it arrives and what its tasks do."""

    at: Duration = _ZERO
    runs: Duration | None = None
    exit_code: int = 0
    prepares_in: Duration = _ZERO
    stops_in: Duration = _ZERO
    saves_in: Duration | None = None
    times: int = 1
    every: Duration = _ZERO
    project: str = "default"
    owner: str = "ada"


class Happening(Spec, frozen=True, kw_only=True):
    """Something that is done at a moment: exactly one of the keys of `DEEDS`."""

    at: Duration
    cancel: str | None = None
    mode: Literal["graceful", "force"] = "graceful"
    hold: str | None = None
    release: str | None = None
    requeue: str | None = None
    update: str | None = None
    resize: str | None = None
    size: int | None = None
    priority: int | None = None
    time: str | None = None
    queue: str | None = None
    set_queue: QueueEntry | None = None
    delete_queue: str | None = None
    reserve: ReservationEntry | None = None
    unreserve: str | None = None
    node: str | None = None
    does: Deed | None = None
    devices: tuple[int, ...] = ()
    add_nodes: Nodes | None = None
    cycles: int | None = None


DEEDS = (
    *("cancel", "hold", "release", "requeue", "update", "resize", "set_queue", "delete_queue", "reserve", "unreserve", "node"),
    *("add_nodes", "cycles"),
)
"""Keys of which an event has one."""


class JobWant(Spec, frozen=True, kw_only=True):
    """What must be true of a job, or of all jobs that a pattern names; with `count`, of exactly so many of them."""

    state: State | None = None
    count: int | None = None
    gpus: float | None = None
    parts: tuple[str | int, ...] | None = None
    """`1g.10gb@6` an instance with its start, `250` a soft share in thousandths."""
    nodes: tuple[str, ...] | None = None
    nodes_one_of: tuple[tuple[str, ...], ...] | None = None
    attempt: int | None = None
    started: Duration | None = None
    ended: Duration | None = None
    exit_code: int | None = None
    reason: str | None = None
    says: str | None = None


class QueueWant(Spec, frozen=True, kw_only=True):
    """What must be true of a queue and all below it."""

    gpus: float | None = None
    pending: int | None = None


class NodeWant(Spec, frozen=True, kw_only=True):
    state: str | None = None
    gpus_held: float | None = None


class Facts(Spec, frozen=True, kw_only=True):
    """Things that must be true together."""

    jobs: dict[str, JobWant] = {}
    queues: dict[str, QueueWant] = {}
    nodes: dict[str, NodeWant] = {}
    gpus_held: float | None = None
    evictions: int | None = None
    moves: int | None = None
    idle_gpu_seconds_most: int | None = None


class Expectation(Facts, frozen=True, kw_only=True):
    """`at`: a moment (`100s`), a span (`0s..60s`), `always`, or `end`: when nothing is left to happen."""

    at: str
    any_of: tuple[Facts, ...] = ()


class Sheet(Spec, frozen=True, kw_only=True):
    """The file itself, with jobs still as they were written."""

    name: str
    about: str = ""
    waits_for: str | None = None
    policy: dict[str, Any] = {}
    interleavings: int = 1
    cluster: tuple[Nodes, ...]
    queues: tuple[QueueEntry, ...] = ()
    reservations: tuple[ReservationEntry, ...] = ()
    jobs: tuple[dict[str, Any], ...] = ()
    events: tuple[Happening, ...] = ()
    expect: tuple[Expectation, ...]

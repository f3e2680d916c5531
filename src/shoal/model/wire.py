"""
Messages between agents and the control plane, and the few answers of the API that are no records.

Agents only dial out: one long poll for commands (`after=seq`), one upload for reports, log bytes and samples (MessagePack, since
logs are raw bytes). The upload is also the lease renewal.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from shoal.model.access import Role
from shoal.model.command import CommandRow
from shoal.model.event import EventRow, Report
from shoal.model.job import CancelMode, Job, JobSpec
from shoal.model.node import Node, NodeFacts
from shoal.model.problem import Problem
from shoal.model.queue import QueueSpec
from shoal.model.reason import Reason
from shoal.model.reservation import ReservationSpec


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """First contact, with the join token: gives the node its own token."""

    name: str
    facts: NodeFacts
    pool: str = "default"
    topology: tuple[tuple[str, str], ...] = ()
    labels: dict[str, str] = {}


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    node: Node
    token: str
    store_id: str
    """Identity of the installation; an agent never obeys another one's kill orders."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """
    An allocation that an agent finds on its node when it starts, or whose reports are not all confirmed yet.

    `state` is the agent's word in terms of AllocationState; RELEASED: it has ended, and its reports are on their way.
    """

    allocation: str
    job: str
    attempt: int
    state: str


class Register(msgspec.Struct, frozen=True, kw_only=True):
    """Every start of an agent: what the machine is, and what it holds: keep or kill?"""

    facts: NodeFacts
    store_id: str
    held: tuple[Held, ...] = ()


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent that has started is told: its epoch, what of its allocations goes on and what must end, the times of its lease."""

    epoch: int
    store_id: str
    keep: tuple[str, ...]
    kill: tuple[str, ...]
    lease: LeaseTerms


class LeaseTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The times of rule 3; `lifecycle.lease` ties them together, agents are told, nothing is configured twice."""

    renew_every_ms: int = 10_000
    ttl_ms: int = 30_000
    kill_bound_ms: int = 60_000
    skew_ms: int = 5_000
    start_deadline_ms: int = 120_000
    """A gang must be prepared within this time."""


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one task's output from `offset` on."""

    job: str
    attempt: int
    rank: int
    offset: int
    data: bytes


class Sample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One look at what an allocation uses. `gpus` is (uuid, utilisation 0..100, memory bytes)."""

    allocation: str
    job: str
    at_ms: int
    cpu_ms: int
    """CPU time since start."""
    memory_bytes: int
    processes: int = 0
    gpus: tuple[tuple[str, int, int], ...] = ()


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """`reports` carry rising numbers from `first_seq`; the reply confirms through which they are recorded for good."""

    epoch: int
    boot_id: str
    first_seq: int = 0
    reports: tuple[Report, ...] = ()
    logs: tuple[LogChunk, ...] = ()
    samples: tuple[Sample, ...] = ()
    dirty: tuple[str, ...] = ()
    """Devices whose processes are not gone although nothing should run there."""
    broken: tuple[tuple[str, Reason], ...] = ()


class UploadReply(msgspec.Struct, frozen=True, kw_only=True):
    """`log_offsets` has, per (job, attempt, rank) sent, the bytes that the log store now has: the place to send from next."""

    recorded: int
    """Reports up to this seq (exclusive of the next) are durable; the agent may forget them."""
    log_offsets: tuple[tuple[str, int, int, int], ...] = ()
    forget: tuple[str, ...] = ()
    """Allocations recorded as ended: their directories may go."""
    kill: tuple[str, ...] = ()
    """Allocations that are not this node's to run."""


class ExecRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A command to run beside a task, inside its control group; an empty `command` attaches to an interactive job's terminal."""

    command: tuple[str, ...] = ()
    tty: bool = False
    rows: int = 24
    columns: int = 80
    rank: int = 0
    env: dict[str, str] = {}


class ExecSession(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's call to dial out and serve one `ExecRequest`. Lives in memory only: a lost one is asked for again by its user."""

    session: str
    allocation: str
    request: ExecRequest


class ExecStream(IntEnum):
    """The first byte of each binary message of a terminal; the rest is its data."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    RESIZE = 3
    """`ExecResize` as JSON, from the user."""
    EXIT = 4
    """`ExecExit` as JSON, from the agent; the last message."""
    STDIN_END = 5


class ExecResize(msgspec.Struct, frozen=True, kw_only=True):
    rows: int
    columns: int


class ExecExit(msgspec.Struct, frozen=True, kw_only=True):
    """`message` says why a command did not start."""

    exit_code: int
    message: str = ""


class Commands(msgspec.Struct, frozen=True, kw_only=True):
    rows: tuple[CommandRow, ...] = ()
    execs: tuple[ExecSession, ...] = ()
    last: int = 0
    """`after` for the next poll; also confirms every row up to it."""


class JobPatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may change on a job that exists; absent fields stay."""

    priority: int | None = None
    time: str | None = None
    queue: str | None = None


class CancelRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: CancelMode = CancelMode.GRACEFUL
    grace: str | None = None
    reason: str = ""


class KeyCancelRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The wish that whatever a create with this key has made, or will make, ends."""

    key: str
    mode: CancelMode = CancelMode.GRACEFUL
    grace: str | None = None
    reason: str = ""


class KeyCancelled(msgspec.Struct, frozen=True, kw_only=True):
    """`job` is what the key had made. Without one no create has come yet; should it still come, its job is born cancelled."""

    job: Job | None = None


class BatchItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key: str
    spec: JobSpec


class Batch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Several creates in one request, each with a key and an answer of its own."""

    items: tuple[BatchItem, ...]


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`job`, or the problem (RFC 9457 fields) that this item met."""

    job: Job | None = None
    replayed: bool = False
    problem: Problem | None = None


class TaskLog(msgspec.Struct, frozen=True, kw_only=True):
    rank: int
    attempt: int
    bytes: int


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[Job, ...]
    next: str | None = None
    """Opaque cursor; absent at the end."""
    resource_version: int = 0


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[EventRow, ...]
    resource_version: int = 0


class PartView(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a GPU that is held; the job is told to whom may see it."""

    part: str
    """`1g.10gb@6` an instance and its start, `250/1000 mps` a soft share."""
    charge: int
    """What it counts for, in thousandths of the GPU."""
    job: str | None = None
    job_id: str | None = None


class DeviceView(msgspec.Struct, frozen=True, kw_only=True):
    """A device as people see it: its state follows from allocations and reports, and is stored nowhere."""

    uuid: str
    index: int
    model: str
    memory_bytes: int
    state: str
    job: str | None = None
    """Who has all of it."""
    job_id: str | None = None
    gives: str = "whole"
    """What it may be given as: `whole`, `mps=16`, `time-slice=4`, `mig`, or the MIG instances that it is cut into."""
    parts: tuple[PartView, ...] = ()
    """Parts of it that are held."""


class NodeWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A reservation as a node sees it: the window that is on or comes next."""

    name: str
    start_ms: int
    end_ms: int
    reason: str = ""


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node with what is on it."""

    node: Node
    devices: tuple[DeviceView, ...] = ()
    cpu_milli_free: int = 0
    memory_bytes_free: int = 0
    jobs: tuple[str, ...] = ()
    last_seen_ms: int | None = None
    reservations: tuple[NodeWindow, ...] = ()
    """By when they begin."""


class ReservationView(msgspec.Struct, frozen=True, kw_only=True):
    """A reservation with what it comes to now: its nodes, those on which somebody works, and the window that is on or comes next."""

    name: str
    spec: ReservationSpec
    nodes: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    next_start_ms: int | None = None
    """None: it has passed."""
    next_end_ms: int | None = None
    version: int = 0


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with its numbers, per resource (see `model.queue`)."""

    name: str
    parent: str | None
    spec: QueueSpec
    used: dict[str, int] = {}
    available: dict[str, int] = {}
    borrowed: dict[str, int] = {}
    pending_jobs: int = 0
    running_jobs: int = 0
    pending_gpus: int = 0
    used_lately: dict[str, float] = {}
    """Shares of the fleet that it and those under it used, decayed (`Policy.half_life_ms`)."""
    version: int = 0


class RankView(msgspec.Struct, frozen=True, kw_only=True):
    """Where one task is: its rank, its node, and the GPUs that it sees, by their numbers on the node and by UUID."""

    rank: int
    node: str
    gpus: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    """As in a node's view, of the GPU at the same place in `gpus`."""


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """`shoal status`: the job, where it is, what it uses, why it waits."""

    job: Job
    places: tuple[tuple[str, int, tuple[str, ...], str], ...] = ()
    """(node, node rank, uuids of the GPUs it has or has parts of, allocation state) of the current attempt."""
    ranks: tuple[RankView, ...] = ()
    """Ranks of the current attempt on their devices, ascending; the first RANKS_TOLD_MAX."""
    samples: tuple[Sample, ...] = ()
    why: Explanation | None = None
    elements: dict[str, int] = {}
    """Of an array: how many elements are in each state."""
    predicted: str = ""
    """What its place costs the current attempt of a mesh, in words; empty where nothing is lost."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`shoal why`: the state in one sentence, every reason with numbers, the place in the queue, what would help."""

    job: str
    state: str
    headline: str
    reasons: tuple[Reason, ...] = ()
    position: int | None = None
    """1 is next in its queue."""
    queue: str = ""
    ahead: tuple[str, ...] = ()
    """The jobs before it, by address, at most HOLDERS_SHOWN_MAX."""
    hints: tuple[str, ...] = ()
    """What would start it, each tried before it is told, and advice."""
    blockers: tuple[str, ...] = ()
    """Jobs, by address, whose end would start it."""
    blockers_smallest: bool | None = None
    """True: no smaller set of jobs would do. False: these are enough, and perhaps fewer are. None without blockers."""
    earliest_start_ms: int | None = None
    forecasts: int = 0
    """How many past forecasts of the queue the next two are from; 0 while they are too few to tell."""
    forecast_within_ms: int | None = None
    """Four in five of them were off by at most so much."""
    forecast_late_ms: int | None = None
    """Half of those jobs started by so much after their forecast, or earlier; below 0 before it."""
    as_of_ms: int = 0


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """`/v1/meta`: what this server is and can."""

    version: str
    api: str = "v1"
    store_id: str = ""
    store: str = "sqlite"
    features: tuple[str, ...] = ()
    limits: dict[str, int] = {}
    ready: bool = True
    nodes: int = 0
    now_ms: int = 0


class NodeAsk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a node is cordoned, drained or brought back; shown to everybody who waits for it."""

    reason: str = ""


class JobAsk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a job is held, released or requeued."""

    reason: str = ""


class JobResize(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many nodes a job with a range of them shall have; without a size as many as there is room for."""

    size: int | None = None


class TokenAsk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to be made. `life` is a duration (`30d`); without it the token holds until it is revoked."""

    principal: str
    role: Role = "member"
    project: str | None = None
    unix_user: str | None = None
    note: str = ""
    life: str | None = None


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    """A token as people may see it: everything but its hash."""

    id: str
    principal: str
    role: Role
    project: str | None = None
    unix_user: str | None = None
    note: str = ""
    created_ms: int = 0
    expires_ms: int | None = None
    revoked_ms: int | None = None


class TokenMade(msgspec.Struct, frozen=True, kw_only=True):
    """The only time that a token's text is told."""

    token: TokenView
    text: str


class SecretValue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A secret on its way in. Bytes (base64 in JSON): a key file is no text."""

    value: bytes

    def __repr__(self) -> str:
        return "SecretValue(...)"


class SecretView(msgspec.Struct, frozen=True, kw_only=True):
    """That a secret is there. Its value is never read back by people."""

    name: str
    project: str
    created_ms: int = 0
    version: int = 0


class OpenedSecrets(msgspec.Struct, frozen=True, kw_only=True):
    """What a node gets for an allocation that it holds: file name under $SHOAL_SECRETS -> value (base64 in JSON)."""

    files: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"OpenedSecrets({len(self.files)} files)"


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """`/healthz`: is the server able to do its work. `faults` says what is wrong in words."""

    ok: bool = True
    faults: tuple[str, ...] = ()
    watchers: int = 0
    plane_steps: int = 0
    """Rounds of the plane's steps since start."""
    plane_idle_ms: int = 0
    """Since the last round ended."""

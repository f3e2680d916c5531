"""
A job: what was asked (`JobSpec`, which is the file, the wire form and the stored request in one) and what became of it (`Job`).

`JobSpec` never holds state, `Job` never holds where it runs (that is `allocation`). Shorthands that people write
(`gpus: 8`, `model: h100`, `depends_on: 12`) are opened by `formats.jobfile.expand` before the strict decode, for files and wire alike.
Everything asked for is *per node* unless its name says otherwise: `cpus`, `memory` and `gpus.count` are what one node gives.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from shoal.model.reason import Reason
from shoal.model.values import ArrayList, CountRange, Duration, Memory, MemoryRange


class Spec(msgspec.Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """Base of everything a user may write: an unknown key is an error, a default is not written back."""


class GpuAsk(Spec, frozen=True, kw_only=True):
    """GPUs of one node. Exactly one of: whole GPUs (`count` alone), MIG slices (`mig`), a soft share (`share` or `share_memory`)."""

    count: int = 0
    """How many, per node (see `per`)."""
    model: tuple[str, ...] = ()
    """Acceptable models, any of them; empty takes every model. The gang's nodes all get the same one."""
    memory: MemoryRange | None = None
    """Memory that each GPU must have."""
    per: Literal["node", "task"] = "node"
    """What `count` is for: a node, or each of its tasks."""
    mig: str | None = None
    """A MIG profile such as `1g.10gb`; `count` of them."""
    share: int | None = None
    """Thousandths of one GPU, soft."""
    share_memory: Memory | None = None
    """A part of one GPU's memory, soft."""


class Slice(Spec, frozen=True, kw_only=True):
    """A gang cut into runs of `size` nodes by rank, each run inside one domain of `level`; the runs may be apart."""

    size: int
    """Nodes of a run; the gang is whole runs."""
    level: str
    """What each run stays inside of: a level that the nodes name."""


class Topology(Spec, frozen=True, kw_only=True):
    """Where the gang's nodes should be together: within one `level` (zone, block, rack, island, host)."""

    level: str | None = None
    """The widest domain that the gang may span."""
    required: bool = False
    """True: wait rather than start wider. False: a wish."""
    slice: Slice | None = None
    """Runs of nodes that each stay together, where the whole gang need not."""
    mesh: dict[str, int] = {}
    """Sizes of the parallel axes (tp, ep, pp, dp), which multiply to the gang's GPUs. Ranks run along tp first, then ep, pp, dp. Each tp
    group gets one NVLink island, wherever one is large enough; `required` without a level: in any case."""


class Checkpoint(Spec, frozen=True, kw_only=True):
    """How the job saves its work: the signal that asks for a checkpoint, how often it does so itself, how long one takes."""

    signal: str | None = None
    """Sent to ask for a checkpoint."""
    every: Duration | None = None
    """How often the job saves without being asked."""
    takes: Duration | None = None
    """How long saving takes; a graceful stop leaves so much time."""


class Retry(Spec, frozen=True, kw_only=True):
    """How often a failed job starts again. Losing a node or being preempted never counts against `limit`."""

    limit: int = 0
    """Tries after the first."""
    exit_codes: tuple[int, ...] = ()
    """Only these count as worth another try; empty means any non-zero."""
    backoff: Duration = Duration(10_000)
    """Wait before the first retry; doubles each time up to an hour."""


class Stop(Spec, frozen=True, kw_only=True):
    """How the job is told to end: `signal`, then after `grace` the kill of everything it started."""

    signal: str = "TERM"
    """Sent first."""
    grace: Duration = Duration(30_000)
    """Time from the signal to the kill."""


class Elastic(Spec, frozen=True, kw_only=True):
    """
    How a gang with a range of `nodes` grows and shrinks inside it while it runs.

    `restart`: it is stopped and starts again as a new attempt of the new size. `in_place`: what stays goes on, new members join it and
    others are stopped; for programs that form anew by themselves, such as torchrun with a range of nodes.
    """

    how: Literal["restart", "in_place"] = "restart"
    """How it takes another size."""
    signal: str | None = None
    """Sent to the tasks that stay, once $SHOAL_HOSTFILE names the new members; only `in_place`."""


class OnDisconnect(Spec, frozen=True, kw_only=True):
    """`stop_after` a node has lost the control plane for so long, the work on it stops by itself."""

    stop_after: Duration = Duration(300_000)
    """Time without the control plane after which the work stops itself."""


class Mount(Spec, frozen=True, kw_only=True):
    """A directory of the node made visible in the job at `target`."""

    source: str
    """Path on the node."""
    target: str
    """Path that the job sees."""
    read_only: bool = False
    """True: the job cannot write there."""


class WorkDir(Spec, frozen=True, kw_only=True):
    """The job's files. `path` is what the user wrote; `blob` is the SHA-256 of the uploaded archive that agents unpack."""

    path: str | None = None
    """The directory to send, relative to the job file."""
    ignore: tuple[str, ...] = ()
    """Patterns of what stays behind, as in a .gitignore; added to those of the directory's .shoalignore or .gitignore."""
    blob: str | None = None
    """Set by the client once the archive is uploaded."""


class Dependency(Spec, frozen=True, kw_only=True):
    """Wait for `job` (number or id): `after` start, `afterok` success, `afternotok` failure, `afterany` end."""

    job: str
    """Number, array element or id."""
    condition: Literal["after", "afterok", "afternotok", "afterany"] = "afterok"
    """What it must have done."""


class Resources(Spec, frozen=True, kw_only=True):
    """What one node gives to one group; also one entry of `any_of` or `ordered`. None means: as the job says, or any."""

    nodes: CountRange | None = None
    """How many nodes, or a range out of which one is chosen at start."""
    tasks_per_node: int | None = None
    """Processes per node; 1 unless said."""
    gpus: GpuAsk | None = None
    """GPUs of one node."""
    cpus: int | None = None
    """CPU cores of one node."""
    memory: Memory | None = None
    """Memory of one node."""
    pool: str | None = None
    """The pool that the nodes are in. A gang lies in one pool in any case."""


class GroupSpec(Resources, frozen=True, kw_only=True):
    """A part of a gang with its own resources and command; the gang still starts together or not at all."""

    name: str
    """The group's name; tasks see it as SHOAL_GROUP."""
    run: str | tuple[str, ...] | None = None
    """As the job's, for this group; without it the job's is taken."""
    env: dict[str, str] = {}
    """Laid over the job's."""


class JobSpec(Resources, frozen=True, kw_only=True):
    """A request for a gang. `formats.jobfile` reads it from YAML; `control.jobs` checks it with `lifecycle.spec_rules`."""

    name: str = "job"
    """Shown in lists; need not be unique."""
    run: str | tuple[str, ...] | None = None
    """Text is a script (run by its own #! line, else by /bin/sh -e); a list is a command without a shell."""
    setup: str | None = None
    """A script run once per node before the tasks start, in the working directory."""
    queue: str | None = None
    """Where it waits; the project's default queue unless said."""
    priority: int = 0
    """Higher goes first inside its queue."""
    preemptible: bool = True
    """False: never stopped in favour of another."""
    elastic: Elastic | None = None
    """May grow and shrink inside `nodes` while it runs; `true` for by restart."""
    time: Duration | None = None
    """Limit on the running time of an attempt; then the job ends as TIMEOUT."""
    begin: str | None = None
    """Not before: an ISO 8601 time with zone, or `+2h` from submission."""
    env: dict[str, str] = {}
    """Environment variables of every task."""
    workdir: WorkDir | None = None
    """Files to bring; tasks start in them."""
    mounts: tuple[Mount, ...] = ()
    """Directories of the node to show."""
    secrets: dict[str, str] = {}
    """File name under $SHOAL_SECRETS -> name of a secret of the project."""
    image: str | None = None
    """Container image."""
    isolation: Literal["process", "sandbox", "vm"] = "process"
    """How far tasks are kept apart from the node."""
    user: str | None = None
    """Unix user; by default the one the submitting principal is mapped to."""
    any_of: tuple[Resources, ...] = ()
    """Alternatives of what one node gives: the one that can start first."""
    ordered: tuple[Resources, ...] = ()
    """Alternatives in order of preference."""
    groups: tuple[GroupSpec, ...] = ()
    """Parts with resources and commands of their own."""
    array: ArrayList | None = None
    """Runs once per index; `%` bounds how many at once."""
    depends_on: tuple[Dependency, ...] = ()
    """Jobs to wait for."""
    topology: Topology | None = None
    """Where the nodes should be together."""
    retry: Retry = Retry()
    """What happens after a failure."""
    checkpoint: Checkpoint | None = None
    """How it saves its work."""
    stop: Stop = Stop()
    """How it is told to end."""
    on_disconnect: OnDisconnect = OnDisconnect()
    """What a node does that loses the control plane."""
    hold_on_failure: Duration | None = None
    """Keep the gang's nodes for its next attempt so long after a failure, the slot of a broken node included."""
    tolerance: Duration | None = None
    """How long it would rather wait than preempt others."""
    labels: dict[str, str] = {}
    """Free text for people and tools; Shoal does nothing with it."""
    interactive: bool = False
    """The first task gets a terminal that waits for its user (`shoal run --pty`)."""


class JobState(StrEnum):
    """The transition table is `lifecycle.states`; ends are listed in `ENDED`."""

    HELD = "HELD"
    QUEUED = "QUEUED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    PREEMPTING = "PREEMPTING"
    CANCELLING = "CANCELLING"
    COMPLETING = "COMPLETING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    OOM = "OOM"
    NODE_LOST = "NODE_LOST"
    PREEMPTED = "PREEMPTED"
    DEADLINE = "DEADLINE"


ENDED = frozenset(
    {
        JobState.SUCCEEDED,
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.TIMEOUT,
        JobState.OOM,
        JobState.NODE_LOST,
        JobState.PREEMPTED,
        JobState.DEADLINE,
    }
)
WAITING = frozenset({JobState.HELD, JobState.QUEUED})
LIVE = frozenset({JobState.STARTING, JobState.RUNNING, JobState.PREEMPTING, JobState.CANCELLING, JobState.COMPLETING})
"""States in which a job may hold devices."""


class CancelMode(StrEnum):
    """How much a job is wished gone. Monotone: none < graceful < force; a weaker wish never undoes a stronger one."""

    NONE = "none"
    GRACEFUL = "graceful"
    FORCE = "force"


class JobEnd(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a job ended: the first failing task by time, then rank. `exit_code` is 128 + signal for a killed one."""

    exit_code: int
    signal: int | None = None
    node: str | None = None
    task: int | None = None
    by: str | None = None
    message: str = ""
    at_ms: int = 0
    """When that task ended, by its node's clock: what "first" is judged by."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an attempt used, summed over its allocations."""

    cpu_ms: int = 0
    memory_bytes_max: int = 0
    gpu_busy_ms: int = 0
    gpu_memory_bytes_max: int = 0


class ArrayPlace(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job's place in an array: `array` is the number of its parent; shown as `12_3`."""

    array: int
    array_id: str
    index: int
    count: int


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """
    A spec with its status. `version` is the store version at which this record was last written (0: never).

    An array is one parent job (state derived from its elements, never placed; `spec.array` is set) and one job per index
    (`array` is set, `spec.array` is None), of which those that nothing has happened to have no record yet (`model.array`).
    """

    id: str
    number: int
    project: str
    owner: str
    spec: JobSpec
    queue: str
    state: JobState
    reason: Reason | None = None
    attempt: int = 0
    """Number of the current or last attempt; 0 before the first. The fencing token."""
    retries: int = 0
    """Tries used up against `spec.retry.limit`."""
    start_failures: int = 0
    """Attempts in a row that were given up before they ran; each makes the wait before the next one longer."""
    avoid: tuple[str, ...] = ()
    """Nodes that failed to prepare this job; not placed there again until the list would leave no node."""
    not_before_ms: int = 0
    priority: int = 0
    """The one in force; `spec.priority` is the one asked for."""
    time_limit_ms: int | None = None
    expected_ms: int | None = None
    """How long runs of its kind took of late, as known when it was submitted; None where none was known."""
    size: int | None = None
    """Nodes that it shall have, inside the range that it asks for (`shoal resize`); None: as many of the range as there is room for."""
    cancel: CancelMode = CancelMode.NONE
    cancel_reason: str = ""
    cancel_by: str = ""
    """Who asked for the strongest cancel so far; becomes `outcome.by`."""
    requeue: bool = False
    """A requeue was asked for; when the attempt has ended, the job is queued again."""
    outcome: JobEnd | None = None
    """Set by the first failing task (or the last success) while others are still stopping; becomes the end."""
    ending: JobState | None = None
    """The end state (or QUEUED for another try) this attempt is on its way to, while COMPLETING, CANCELLING or PREEMPTING."""
    generation: int = 1
    observed_generation: int = 0
    array: ArrayPlace | None = None
    unborn: tuple[tuple[int, int], ...] = ()
    """Of an array: positions of elements that have no record yet, as ranges; the second number of each is not in it any more."""
    hold: bool = False
    """Of an array: elements that have no record yet are held."""
    created_ms: int
    queued_ms: int
    started_ms: int | None = None
    checkpointed_ms: int | None = None
    """When its work was last saved, as far as it has been reported: what a preemption would not lose."""
    ended_ms: int | None = None
    usage: Usage = Usage()
    version: int = 0

    @property
    def address(self) -> str:
        """What people type and see: `12`, or `12_3` for element 3 of array 12."""
        return f"{self.array.array}_{self.array.index}" if self.array else str(self.number)

    @property
    def nodes_most(self) -> int:
        """The most nodes that it may have, of a gang without groups."""
        high = self.spec.nodes.high if self.spec.nodes is not None else 1
        return high if self.size is None else min(high, self.size)

    @property
    def in_place(self) -> bool:
        """True for a gang that takes another size without a new attempt."""
        return self.spec.elastic is not None and self.spec.elastic.how == "in_place"

    @property
    def is_array(self) -> bool:
        """True for the parent of an array."""
        return self.spec.array is not None

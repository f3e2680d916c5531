"""
What durable state can do, in verbs of the domain. One SQL implementation stands behind it (`store.sql`); everybody else sees this.

One general write: `apply`. Reads never wait for the writer. The tail (`changes_after`) is how the live picture, the board and the
watchers move forward: in commit order, without gaps. All methods may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

import msgspec

from shoal.model.access import IdempotencyKey, Secret, Token
from shoal.model.attempt import Allocation
from shoal.model.change import Change, ChangeSet, Outcome
from shoal.model.command import CommandRow
from shoal.model.event import EventRow
from shoal.model.job import Job, JobState
from shoal.model.node import Node
from shoal.model.queue import Queue
from shoal.model.snapshot import Picture, Snapshot


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """
    Which jobs of a project to list. Filters are conjunctive; empty means all.

    Newest first by number. `before` is the number to continue under, `as_of` the store version of the first page: jobs created
    later never come in, so pages neither skip nor repeat.
    """

    project: str
    states: tuple[JobState, ...] = ()
    queue: str | None = None
    owner: str | None = None
    array: int | None = None
    """Only elements of this array."""
    top_level: bool = False
    """Leave out elements of arrays: each array is one row."""
    before: int | None = None
    as_of: int | None = None
    limit: int = 50


class Store(Protocol):
    """See module. Each promise here is a test of the store's contract suite."""

    store_id: str
    """Identity of this installation, made once."""

    def apply(self, changes: ChangeSet, term: int) -> Future[Outcome]:
        """
        Writes the set durably. The future gives Applied or KeyExists, or raises VersionConflict, Conflict (term passed by) or Unavailable.

        Sets are written in the order in which they were handed over; several share one transaction and one sync. Where the disk failed
        (Unavailable) a set may nevertheless have been written: repeat it with its key, or read again. A future cancelled before its turn
        writes nothing; one that cannot be cancelled any more is being written.
        """
        ...

    @property
    def trouble(self) -> str:
        """Why the last write did not reach the disk; empty when it did."""
        ...

    def take_term(self, holder: str) -> int:
        """A new term, higher than every earlier one; writes of lower terms fail from now on."""
        ...

    def reserve_numbers(self, count: int) -> int:
        """The first of `count` fresh job numbers. Never given twice, also not after a crash; gaps are allowed."""
        ...

    def version(self) -> int:
        """The version of the last committed change."""
        ...

    def snapshot(self) -> Snapshot:
        """All live records at one version."""
        ...

    def changes_after(self, version: int, limit: int = 1_000) -> tuple[Change, ...]:
        """
        Changes with a higher version, ascending; served from memory when recent, and equal to that from disk.

        Raises VersionExpired for a reader more than `limits.CHANGES_KEPT` behind: it starts again from a snapshot.
        """
        ...

    def on_commit(self, wake: Callable[[int], None]) -> Callable[[], None]:
        """Calls `wake(version)` after each commit, from the writer's thread; it must not block. Returns the way to stop it."""
        ...

    def job(self, job_id: str) -> Job | None: ...

    def find_job(self, project: str, ref: str) -> Job | None:
        """By id, number (`12`) or array element (`12_3`) within a project; None if there is none, or if it is another project's."""
        ...

    def jobs_by_id(self, ids: tuple[str, ...]) -> tuple[Job, ...]:
        """Those that exist, in the order asked; any count of ids."""
        ...

    def picture(self, job_id: str) -> Picture | None: ...

    def list_jobs(self, query: JobQuery) -> tuple[Job, ...]:
        """Up to `query.limit` jobs; see JobQuery for the promise."""
        ...

    def count_elements(self, array_id: str) -> dict[JobState, int]:
        """How many elements of an array are in each state."""
        ...

    def allocations_on(self, node: str) -> tuple[Allocation, ...]:
        """Those that hold room on a node, by id."""
        ...

    def node(self, node_id: str) -> Node | None: ...

    def nodes(self) -> tuple[Node, ...]: ...

    def queue(self, name: str) -> Queue | None: ...

    def queues(self) -> tuple[Queue, ...]: ...

    def token(self, token_id: str) -> Token | None: ...

    def tokens(self) -> tuple[Token, ...]: ...

    def secret(self, project: str, name: str) -> Secret | None: ...

    def secrets(self, project: str) -> tuple[Secret, ...]: ...

    def find_key(self, project: str, principal: str, operation: str, key: str) -> IdempotencyKey | None: ...

    def events_after(
        self, project: str | None, version: int, limit: int, kinds: tuple[str, ...] = (), subject: str | None = None
    ) -> tuple[EventRow, ...]:
        """
        Events with a higher version in (version, ordinal) order; a version's rows are never split between two answers.

        Version 0 asks for all that are kept. Raises VersionExpired for another one more than `limits.EVENT_VERSIONS_KEPT` behind.
        """
        ...

    def commands_after(self, backend: str, seq: int, limit: int) -> tuple[CommandRow, ...]:
        """Unconfirmed commands of a backend with a higher seq, ascending."""
        ...

    def confirm_commands(self, node: str, through_seq: int) -> None:
        """
        Drops a node's commands up to a seq, in its turn among the writes handed over.

        Neither waited for nor synced: a lost confirmation only means that a command is delivered again.
        """
        ...

    def close(self) -> None:
        """Writes what was handed over, then closes. Idempotent."""
        ...

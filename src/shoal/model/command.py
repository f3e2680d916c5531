"""
What a backend is told to make true: a closed union, written with the change that caused it (outbox) and delivered at least once.

Each names the allocation and the attempt; doing it twice equals doing it once. An agent drops a command of a lower attempt.

No command is stored with the whole gang in it: 1,000 nodes with 8 GPUs and 8 tasks each write 2.3 MB of them (measured; with the list of
members in each Prepare and Commit it was 162 MB). The members are read from the live picture when a Commit is handed out.
"""

from __future__ import annotations

import msgspec

from shoal.model.attempt import Allocation
from shoal.model.job import CancelMode, JobSpec


class Member(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One node of the gang as its peers need to know it."""

    node: str
    tasks: int
    address: str


class _Command(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="type"):
    allocation: str
    job: str
    attempt: int


class Prepare(_Command, frozen=True, kw_only=True, tag="prepare"):
    """Lock devices, make the private directory, bring files and secrets, open the rendezvous port; then say PREPARED."""

    claim: Allocation
    spec: JobSpec
    address: str
    """The job's address (`12`, `12_3`)."""
    owner: str
    unix_user: str | None
    world_size: int
    """Tasks of the whole gang."""
    array_index: int | None = None
    array_count: int | None = None
    restarts: int = 0
    commit_at_once: bool = False
    """A gang of one node needs nobody's consent: it starts when it is prepared."""


class Commit(_Command, frozen=True, kw_only=True, tag="commit"):
    """All members are prepared: start. `members`, in node-rank order, are there from the hand-out on (`lifecycle.orders`)."""

    master_address: str
    master_port: int
    members: tuple[Member, ...] = ()


class Stop(_Command, frozen=True, kw_only=True, tag="stop"):
    """The stop ladder: `signal`, `grace_ms`, then kill of the whole control group. FORCE skips to the kill. Ends in Released."""

    mode: CancelMode
    signal: str
    grace_ms: int
    why: str = ""


class Regroup(_Command, frozen=True, kw_only=True, tag="regroup"):
    """
    The gang has other members now: they stand in $SHOAL_HOSTFILE from here on, and then the tasks get `signal`, if there is one.

    `members` are filled in at the hand-out, as those of a Commit: an old one that comes late names the members of its hand-out.
    """

    signal: str | None = None
    members: tuple[Member, ...] = ()


class Save(_Command, frozen=True, kw_only=True, tag="save"):
    """The job gives its room away: its tasks get `signal`, if any, and the agent looks often for what they say when they have saved."""

    signal: str | None = None


Command = Prepare | Commit | Regroup | Save | Stop


class CommandRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A command in the outbox. `seq` rises in commit order (0 until written); it goes when its receiver has confirmed it."""

    node: str
    backend: str
    body: Command
    seq: int = 0

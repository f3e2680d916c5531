"""
Which commands may still be handed to a node, and in which form. `control` asks at each poll, before a command leaves the outbox.

The hole it closes: a node falls silent with a Prepare in its mailbox; its allocation is fenced by time and the next attempt runs
elsewhere; the node comes back, polls, and would start the old attempt beside the new one. The attempt's number does not help there,
since that node has never heard of the newer one. Two rules close it together:

1. A Prepare or Commit is handed out only while its allocation still holds its room (this module).
2. An agent whose lease has run out renews it before it obeys a Prepare or Commit, and throws away the answers of polls that it sent
   before the renewal: they may have been written before the fence.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from shoal.model.attempt import HOLDING, Allocation, AllocationState
from shoal.model.command import Command, Commit, Member, Regroup, Save, Stop
from shoal.model.snapshot import Picture


def is_wanted(command: Command, allocation: Allocation | None) -> bool:
    """
    Whether the command still is what should happen; `allocation` is its allocation as stored now, None when it is not known.

    A Stop always is: at worst it stops what should not run. Nobody is asked to save once he is being stopped. A command that is not wanted
    is confirmed without being handed out.
    """
    if isinstance(command, Save):
        return allocation is not None and allocation.state is AllocationState.STARTED
    return isinstance(command, Stop) or (allocation is not None and allocation.state in HOLDING)


C = TypeVar("C", bound=Commit | Regroup)


def with_members(command: C, picture: Picture) -> C:
    """
    The command as its node gets it: with every member of its attempt, which is the one that `picture` has.

    The outbox holds it without them, since each of n nodes would have n of them written. Handed out twice it is the same, unless the gang
    has been resized in between: then the later one is right. Addresses do not change once a member is prepared.
    """
    mine = (a for a in picture.allocations if a.attempt == command.attempt and not a.leaving and a.state is not AllocationState.CLAIMED)
    members = sorted(mine, key=lambda a: a.node_rank)
    return replace(command, members=tuple(Member(node=a.node, tasks=len(a.tasks), address=a.address) for a in members))

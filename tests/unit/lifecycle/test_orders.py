"""Commands on their way out of the outbox: which are still handed out, in which form, and how much is stored of them."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.lifecycle.job import advance_all
from shoal.lifecycle.orders import is_wanted, with_members
from shoal.model.codec import encode_stored
from shoal.model.command import Commit
from shoal.model.event import AllocationFenced, AllocationLost
from shoal.model.job import GpuAsk
from shoal.testing.gangs import TERMS, Gang


def lost(gang: Gang, node_rank: int) -> AllocationLost:
    return AllocationLost(allocation=gang.members[node_rank].id, attempt=gang.job.attempt)


def fenced(gang: Gang, node_rank: int) -> AllocationFenced:
    return AllocationFenced(allocation=gang.members[node_rank].id, attempt=gang.job.attempt, how="silent for 400 s")


def test_a_commit_is_stored_without_members_and_handed_out_with_all_of_them() -> None:
    gang = Gang.placed(nodes=3)
    gang.commands()
    for rank in range(3):
        gang.tell(gang.prepared(rank))
    for commit in gang.commands():
        assert isinstance(commit, Commit)
        assert commit.members == ()
        members = with_members(commit, gang.picture).members
        assert [(m.node, m.address, m.tasks) for m in members] == [(f"n{i}", f"10.0.0.{i}", 1) for i in range(3)]


def test_a_commit_that_is_handed_out_again_later_has_the_same_members() -> None:
    gang = Gang.placed(nodes=3, tasks_per_node=2)
    gang.commands()
    for rank in range(3):
        gang.tell(gang.prepared(rank))
    commit = gang.commands()[0]
    assert isinstance(commit, Commit)
    first = with_members(commit, gang.picture)
    gang.tell(gang.started(1))
    for rank in (2, 3):
        gang.tell(gang.exited(1, rank=rank))
    gang.tell(gang.released(1))
    gang.tell(lost(gang, 2))
    mixed = replace(gang.picture, allocations=tuple(reversed(gang.picture.allocations)))
    assert with_members(commit, mixed) == first
    assert [member.tasks for member in first.members] == [2, 2, 2]


def test_what_a_gang_has_stored_grows_as_its_nodes_do() -> None:
    """A thousand nodes of eight tasks write 2 MB of commands (measured 1.8), each twice: in the outbox and in the change. Not 162."""
    sizes = []
    for nodes in (10, 1_000):
        gang = Gang.placed(nodes=nodes, tasks_per_node=8, gpus=GpuAsk(count=8))
        events = [gang.prepared(rank) for rank in range(nodes)]
        rows = (*gang.sent, *advance_all(gang.picture, events, gang.now_ms, TERMS).commands)
        assert len(rows) == 2 * nodes
        sizes.append(sum(len(encode_stored(row)) for row in rows))
    assert sizes[1] < 110 * sizes[0]
    assert sizes[1] < 3_000_000


def test_a_start_is_not_handed_out_once_its_allocation_is_fenced_but_a_stop_always_is() -> None:
    gang = Gang.placed()
    prepare = gang.commands()[0]
    assert is_wanted(prepare, gang.members[0])
    gang.tell(lost(gang, 0))
    stop = gang.commands()[0]
    assert is_wanted(prepare, gang.members[0])
    gang.tell(fenced(gang, 0))
    assert not is_wanted(prepare, gang.members[0])
    assert not is_wanted(prepare, None)
    assert is_wanted(stop, gang.members[0])

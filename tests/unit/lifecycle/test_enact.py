"""From a decision to records and commands: ranks, devices, groups, alternatives, versions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shoal.base.errors import Conflict
from shoal.lifecycle.enact import enact_evict, enact_place
from shoal.lifecycle.job import advance_all, advance_job, next_due_ms, time_events
from shoal.lifecycle.layout import chosen, layout
from shoal.lifecycle.picture import merged, moved
from shoal.model.attempt import Allocation
from shoal.model.change import ChangeSet
from shoal.model.command import Prepare
from shoal.model.event import JobEvicted, JobHeld, JobPlaced, PrepareLate, TimeLimitReached
from shoal.model.job import ArrayPlace, GpuAsk, GroupSpec, JobState, Resources
from shoal.model.plan import Evict, Place, PlacedMember
from shoal.model.reason import ReasonCode
from shoal.model.values import CountRange, Duration
from shoal.testing.gangs import JOB_ID, TERMS, Gang, a_node, a_reason, a_spec

NODES = {name: a_node(name) for name in ("n0", "n1", "n2", "n3")}


def member(node: str, gpus: int = 0, group: str = "") -> PlacedMember:
    return PlacedMember(node=node, group=group, devices=tuple(f"{node}-gpu{i}" for i in range(gpus)), cpu_milli=2_000, memory_bytes=1 << 30)


def enact(gang: Gang, *members: PlacedMember, unix_user: str | None = None) -> ChangeSet:
    return enact_place(Place(job=gang.job.id, members=members, gpu_model="h100"), gang.job, NODES, gang.now_ms, TERMS, unix_user)


def claims(changes: ChangeSet) -> list[Allocation]:
    return [record for record in changes.put if isinstance(record, Allocation)]


def test_ranks_run_on_over_the_nodes_and_devices_are_split_in_equal_runs() -> None:
    gang = Gang(a_spec(2, tasks_per_node=4, gpus=GpuAsk(count=8)))
    first, second = claims(enact(gang, member("n2", 8), member("n0", 8)))
    assert (first.id, first.node, first.node_rank) == (f"{JOB_ID}.1.0", "n2", 0)
    assert [t.rank for t in second.tasks] == [4, 5, 6, 7]
    assert [t.local_rank for t in second.tasks] == [0, 1, 2, 3]
    assert [t.devices for t in second.tasks[:2]] == [("n0-gpu0", "n0-gpu1"), ("n0-gpu2", "n0-gpu3")]
    assert (first.cpu_milli, first.memory_bytes, first.gpu_model, first.backend) == (2_000, 1 << 30, "h100", "agents")


def test_groups_have_their_own_tasks_and_ranks_of_their_own() -> None:
    groups = (GroupSpec(name="head", tasks_per_node=1), GroupSpec(name="worker", nodes=CountRange(2, 2), tasks_per_node=2))
    gang = Gang(a_spec(1, groups=groups))
    head, one, two = claims(enact(gang, member("n0", group="head"), member("n1", group="worker"), member("n2", group="worker")))
    assert [(a.group, a.group_rank, [t.rank for t in a.tasks]) for a in (head, one, two)] == [
        ("head", 0, [0]),
        ("worker", 0, [1, 2]),
        ("worker", 1, [3, 4]),
    ]


def test_an_alternative_brings_its_own_tasks_whether_the_plan_names_it_or_not() -> None:
    ways = (
        Resources(nodes=CountRange(1, 1), gpus=GpuAsk(count=8), tasks_per_node=8),
        Resources(nodes=CountRange(2, 2), gpus=GpuAsk(count=4)),
    )
    spec = a_spec(1, any_of=ways)
    place = Place(job=JOB_ID, members=(member("n0", 4), member("n1", 4)))
    assert chosen(spec, place) == 1
    assert chosen(spec, replace(place, alternative=0)) == 0
    assert [len(a.tasks) for a in claims(enact(Gang(spec), member("n0", 8)))] == [8]


def test_per_task_asks_are_multiplied_out() -> None:
    (group,) = layout(a_spec(1, tasks_per_node=3, gpus=GpuAsk(count=2, per="task")))
    assert (group.gpus, group.gpus_per_task) == (6, 2)


def test_the_job_is_written_at_the_version_it_was_read_and_the_rest_as_new() -> None:
    gang = Gang(a_spec(2))
    changes = enact(gang, member("n0"), member("n1"))
    assert [record.version for record in changes.put] == [gang.job.version, 0, 0, 0]  # type: ignore[union-attr]
    placed = changes.events[0].body
    assert placed == JobPlaced(attempt=1, nodes=("n0", "n1"), gpus=0)


def test_agents_get_who_where_and_which_element_but_not_what_only_the_control_plane_uses() -> None:
    gang = Gang(a_spec(1, any_of=(Resources(),)))
    gang.job = replace(gang.job, attempt=2, array=ArrayPlace(array=12, array_id="x", index=3, count=10))
    (row,) = enact(gang, member("n0"), unix_user="anna").commands
    body = row.body
    assert isinstance(body, Prepare)
    assert (body.address, body.unix_user, body.restarts, body.array_index, body.array_count) == ("12_3", "anna", 2, 3, 10)
    assert body.spec.any_of == ()
    assert body.commit_at_once


def test_the_users_own_choice_of_unix_user_wins() -> None:
    body = enact(Gang(a_spec(1, user="bob")), member("n0"), unix_user="anna").commands[0].body
    assert isinstance(body, Prepare)
    assert body.unix_user == "bob"


def test_a_job_that_is_not_queued_any_more_is_not_placed() -> None:
    gang = Gang(a_spec())
    gang.tell(JobHeld())
    with pytest.raises(Conflict, match="job 12 is HELD; placed needs QUEUED"):
        enact(gang, member("n0"))


def test_a_node_that_is_gone_takes_no_gang() -> None:
    with pytest.raises(Conflict, match="n9, which is gone"):
        enact(Gang(a_spec(2)), member("n0"), member("n9"))


def test_an_eviction_says_who_needs_the_room_and_is_empty_for_a_job_on_its_way_out() -> None:
    gang = Gang.running()
    evict = Evict(job=JOB_ID, beneficiary="other", reason=a_reason(ReasonCode.PREEMPTED, "for job 20"))
    gang.apply(enact_evict(evict, gang.picture, gang.now_ms, TERMS))
    assert gang.job.state is JobState.PREEMPTING
    assert gang.log[-1] == JobEvicted(attempt=1, reason=evict.reason)
    assert enact_evict(evict, gang.picture, gang.now_ms, TERMS).empty


def test_the_clock_brings_a_late_start_and_a_time_limit_when_due_and_not_before() -> None:
    gang = Gang.placed(nodes=2, time=Duration(60_000))
    gang.tell(gang.prepared(1))
    due_ms = gang.now_ms + TERMS.start_deadline_ms
    assert next_due_ms(gang.picture) == due_ms
    assert time_events(gang.picture, due_ms - 1) == ()
    assert time_events(gang.picture, due_ms) == (PrepareLate(attempt=1, missing=("n0",)),)
    gang.run()
    limit_ms = gang.now_ms + 60_000
    assert (time_events(gang.picture, limit_ms - 1), time_events(gang.picture, limit_ms)) == ((), (TimeLimitReached(attempt=1),))
    assert time_events(Gang(a_spec()).picture, limit_ms) == ()


def test_several_events_make_the_same_records_as_one_set_or_one_by_one() -> None:
    apart, together = Gang.placed(), Gang.placed()
    events = [apart.prepared(0), apart.started(0), apart.exited(0), apart.released(0)]
    for event in events:
        apart.tell(event)
    changes = advance_all(together.picture, events, together.now_ms, TERMS)
    together.apply(changes)
    same = {"version": 0}
    assert replace(together.job, **same) == replace(apart.job, **same)
    assert [replace(a, **same) for a in together.members] == [replace(a, **same) for a in apart.members]
    assert together.log == apart.log
    first = advance_job(Gang.placed().picture, events[0], apart.now_ms, TERMS)
    assert merged(first, ChangeSet()) is first
    assert moved(apart.picture, ChangeSet()) == apart.picture

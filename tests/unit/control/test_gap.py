"""A reader that slept for longer than the store keeps changes: the live picture, the board, the outbox and alarms go on from a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from serving import ANNA, SYSTEM, Service, facts_of, spec_of
from shoal.base.errors import VersionExpired
from shoal.control import jobs, nodes, queues, tokens
from shoal.control.access import Caller
from shoal.control.check import check_plane
from shoal.control.gap import bridge
from shoal.control.plane import Plane
from shoal.control.world import World
from shoal.model.attempt import HOLDING
from shoal.model.change import Change, ChangeSet
from shoal.model.event import AllocationReleased, TaskExited
from shoal.model.job import CancelMode, Dependency, JobState, Retry
from shoal.model.queue import QueueSpec
from shoal.model.values import ArrayList, Duration
from shoal.model.wire import Join, Sample, TokenAsk, Upload
from shoal.scheduling.board import Board
from shoal.store.tail import Tail


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    for name in ("n1", "n2", "n3"):
        service.add_node(name)
    service.run(100)
    yield service
    service.close()


def forget_changes(service: Service) -> None:
    """As if more than CHANGES_KEPT had come since anybody read: what is kept begins now."""
    while service.store.writer.step():
        pass
    version = service.store.version()
    connection = service.store.writer._connection
    connection.execute("BEGIN")
    connection.execute(f"UPDATE head SET change_floor = {version}")
    connection.execute("COMMIT")
    service.store.writer._head = None  # to be read again
    service.store._tail._held = Tail(version)._held
    with pytest.raises(VersionExpired):
        service.store.changes_after(version - 1)


def fields_of(world: World) -> dict[str, Any]:
    """Everything that a world tells, in one order; ended jobs apart, of which a new one knows none."""
    plain = ("jobs", "attempts", "allocations", "nodes", "queues", "claims", "tokens")
    found: dict[str, Any] = {name: dict(sorted(getattr(world, name).items())) for name in plain}
    found["version"] = world.version
    found["live on"] = {node: sorted(a.id for a in world.live_on(node)) for node in sorted(world.nodes)}
    found["of job"] = {job: sorted(a.id for a in world.allocations_of(job)) for job in sorted(world.jobs)}
    found["in queue"] = {queue: sorted(world.jobs_in(queue)) for queue in sorted(world.queues)}
    found["elements"] = {job: dict(world.element_counts(job) or {}) for job in sorted(world.jobs)}
    found["live elements"] = {job: sorted(world.live_elements(job)) for job in sorted(world.jobs)}
    found["dependents"] = {job: sorted(world.dependents_of(job)) for job in sorted(world.jobs)}
    found["numbered"] = {job.number: job.id for job in world.jobs.values() if world.job_numbered(job.number) is job}
    return found


def live_a_little(service: Service) -> None:
    """Something of everything: jobs that run, end, fail, come again, arrays, gangs, nodes and queues that come and go."""
    plane = service.plane
    service.settle(nodes.join_node(plane, SYSTEM, Join(name="late", facts=facts_of("late"))))
    service.settle(nodes.drain_node(plane, SYSTEM, "late"))
    gone = service.submit(spec_of(run_ms=200))
    again = service.submit(spec_of(labels={"exit": "3"}, retry=Retry(limit=2, backoff=Duration(100))))
    array = service.submit(spec_of(run_ms=300, array=ArrayList.parse("0-7%2")))
    service.submit(spec_of(nodes=3, run_ms=400))
    waiting = service.submit(spec_of(nodes=9))
    service.settle(queues.set_queue(plane, SYSTEM, "passing", QueueSpec()))
    made = service.settle(tokens.create_token(plane, SYSTEM, TokenAsk(principal="user/bob")))
    service.run(900)
    service.settle(jobs.requeue_job(plane, ANNA, "default", gone.id))
    service.settle(jobs.update_job(plane, ANNA, "default", waiting.id, jobs.JobPatch(priority=7)))
    service.settle(nodes.remove_node(plane, SYSTEM, "late"))
    service.settle(nodes.drain_node(plane, SYSTEM, "n3"))
    service.settle(queues.delete_queue(plane, SYSTEM, "passing"))
    service.settle(tokens.revoke_token(plane, SYSTEM, made.token.id))
    service.submit(spec_of(run_ms=60_000))
    service.run(500)
    assert service.job(again).attempt > 1
    assert service.job(array).state is JobState.RUNNING


@pytest.mark.parametrize("before", [lambda _service: None, live_a_little], ids=["from the start", "in the middle"])
def test_a_world_that_lost_the_tail_is_as_a_new_one(service: Service, before: Callable[[Service], None]) -> None:
    before(service)
    behind = World(service.store)
    live_a_little(service)
    forget_changes(service)
    behind.catch_up()
    assert behind.jumps == 1
    assert fields_of(behind) == fields_of(World(service.store))
    live_a_little(service)
    behind.catch_up()
    assert behind.jumps == 1
    assert fields_of(behind) == fields_of(World(service.store))


def test_it_knows_the_ends_that_it_missed_and_tells_its_listeners(service: Service) -> None:
    ended_before = service.submit(spec_of(run_ms=100))
    missed = service.submit(spec_of(run_ms=1_000))
    service.run_until_ended(ended_before)
    behind = World(service.store)
    behind.ended[ended_before.id] = service.job(ended_before)
    heard: list[Change] = []
    behind.on_change(heard.append)
    service.settle(jobs.requeue_job(service.plane, ANNA, "default", ended_before.id))
    service.run_until_ended()
    forget_changes(service)
    behind.catch_up()
    assert not behind.jobs
    for job in (missed, ended_before):
        assert behind.job(job.id) == service.job(job)
    (change,) = heard
    assert {record.id for record in change.put} >= {missed.id, ended_before.id}


def test_it_has_the_members_that_gave_back_while_their_gang_runs_on(service: Service) -> None:
    behind = World(service.store)
    gang = service.submit(spec_of(nodes=2, run_ms=60_000))
    service.run(300)
    first = service.plane.world.allocations_of(gang.id)[0]
    caller = Caller(principal=f"node/{first.node}", role="node")
    service.fleet.crash(first.node)
    ids = {"allocation": first.id, "attempt": 1}
    last = (TaskExited(**ids, rank=0, exit_code=0), AllocationReleased(**ids))
    epoch = service.plane.world.nodes[first.node].epoch
    first_seq = service.plane.links.link(first.node).recorded or 0
    upload = Upload(epoch=epoch, boot_id="boot-1", first_seq=first_seq, reports=last)
    service.settle(nodes.record_upload(service.plane, caller, upload))
    assert [a.state in HOLDING for a in service.plane.world.allocations_of(gang.id)] == [False, True]
    forget_changes(service)
    behind.catch_up()
    assert fields_of(behind) == fields_of(World(service.store))
    assert len(behind.allocations_of(gang.id)) == 2


def test_it_counts_the_elements_that_ended_in_another_way_meanwhile(service: Service) -> None:
    array = service.submit(spec_of(run_ms=100, array=ArrayList.parse("0-3%1")))
    service.run(500)
    element = next(iter(service.plane.world.ended.values()))
    behind = World(service.store)
    assert element.id not in behind.ended
    service.settle(jobs.requeue_job(service.plane, ANNA, "default", element.id))
    service.cancel(element)
    service.round()
    assert service.job(element).state is JobState.CANCELLED
    forget_changes(service)
    behind.catch_up()
    assert behind.element_counts(array.id) == World(service.store).element_counts(array.id)
    assert (behind.element_counts(array.id) or {})[JobState.CANCELLED] == 1


def test_what_nobody_has_any_more_is_dropped(service: Service) -> None:
    job = service.submit(spec_of(run_ms=60_000))
    service.run(300)
    behind = World(service.store)
    picture = service.plane.store.picture(job.id)
    assert picture is not None
    assert picture.attempt is not None
    purge = ChangeSet(delete=(picture.job, picture.attempt, *picture.allocations))
    service.settle(service.store.apply(purge, service.plane.term))
    forget_changes(service)
    behind.catch_up()
    assert behind.job(job.id) is None
    assert not behind.allocations
    assert fields_of(behind) == fields_of(World(service.store))


def test_a_world_that_is_not_behind_has_nothing_to_bridge(service: Service) -> None:
    live_a_little(service)
    service.plane.world.catch_up()
    change = bridge(service.plane.world, service.store)
    assert change.put == ()
    released = {a.id for a in service.plane.world.allocations.values()} - {a.id for a in service.store.snapshot().allocations}
    assert {record.id for record in change.delete} == released


# --- the whole plane --------------------------------------------------------------------------------------------------------
def sleeping(service: Service) -> Plane:
    """A plane that sleeps while another one does its work. The one that works has the term."""
    asleep = service.plane
    service.plane = service._compose()
    return asleep


def wake_up(service: Service, asleep: Plane) -> None:
    """The one that slept goes on where the other one is; it has the term again."""
    forget_changes(service)
    service.plane.close()
    asleep.term = asleep.lanes._term = service.store.take_term("woken")
    service.plane = asleep


def test_a_plane_that_slept_goes_on_as_if_it_had_seen_all(service: Service) -> None:
    live_a_little(service)
    asleep = sleeping(service)
    live_a_little(service)
    limited = service.submit(spec_of(run_ms=600_000, time=Duration(3_000)))
    service.run(200)
    wake_up(service, asleep)
    for _ in range(3):
        service.run(200)
        assert check_plane(service.plane) == ()
    assert service.plane.schedule._board == Board.of(service.store.snapshot())
    service.run(5_000, each=service.check)
    assert service.job(limited).state is JobState.TIMEOUT
    assert service.plane.troubles == {}


def test_a_job_that_came_while_it_slept_starts_also_if_it_waits_for_one_that_ended_long_ago(service: Service) -> None:
    first = service.submit(spec_of())
    service.run_until_ended(first)
    asleep = sleeping(service)
    second = service.submit(spec_of(depends_on=(Dependency(job=str(first.number)),)))
    asleep.links.take_soiled()
    wake_up(service, asleep)
    asleep.schedule.step(service.clock.now_ms())
    assert service.job(second).state is JobState.STARTING


def test_orders_given_while_it_slept_are_delivered(service: Service) -> None:
    asleep = sleeping(service)
    for name in ("n1", "n2", "n3"):
        service.wire.cut[name] = None
    job = service.submit(spec_of(run_ms=300))
    service.round()
    assert service.job(job).state is JobState.STARTING
    wake_up(service, asleep)
    service.wire.cut.clear()
    service.run_until_ended(job)
    assert (service.job(job).state, service.job(job).attempt) == (JobState.SUCCEEDED, 1)


def test_devices_stay_dirty_and_samples_of_what_ended_go(service: Service) -> None:
    job = service.submit(spec_of(run_ms=60_000))
    service.run(300)
    (allocation,) = service.plane.world.allocations_of(job.id)
    service.plane.links.soil("n2", ("GPU-n2-0",))
    service.plane.schedule.queue_views()
    asleep = sleeping(service)
    sample = Sample(allocation=allocation.id, job=job.id, at_ms=1, cpu_ms=1, memory_bytes=1)
    asleep.samples.add(sample)
    service.cancel(job, CancelMode.FORCE)
    service.run_until_ended(job)
    wake_up(service, asleep)
    service.plane.schedule.queue_views()
    free = service.plane.schedule._board.columns.free_gpus
    assert free.tolist() == [4, 3, 4]
    assert asleep.samples.of(allocation.id)
    asleep.world.catch_up()
    assert not asleep.samples.of(allocation.id)

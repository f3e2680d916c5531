"""What agents say: order, epochs, repeats, strangers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from serving import ANNA, SYSTEM, Service, facts_of, spec_of
from shoal.base import limits
from shoal.base.errors import Conflict, Forbidden, NotFound, TooLarge
from shoal.control import jobs, nodes, secrets
from shoal.control.access import Caller
from shoal.model.attempt import AllocationState
from shoal.model.command import Prepare, Stop
from shoal.model.event import AllocationPrepared, AllocationReleased, AllocationStarted, AllocationUnkillable, TaskExited
from shoal.model.job import CancelMode, Job, JobState
from shoal.model.node import NodeState
from shoal.model.reason import Reason, ReasonCode
from shoal.model.wire import Join, LogChunk, Register, Sample, Upload, UploadReply

N1 = Caller(principal="node/n1", role="node")


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    for name in ("n1", "n2"):
        service.add_node(name, 1)
    service.run(100)
    yield service
    service.close()


def placed(service: Service) -> tuple[Job, str]:
    """A job placed on n1, whose agent has gone, so that the test speaks for it."""
    service.settle(nodes.drain_node(service.plane, SYSTEM, "n2"))
    service.fleet.crash("n1")
    job = service.submit(spec_of())
    service.round()
    (allocation,) = service.plane.world.allocations_of(job.id)
    assert allocation.node == "n1"
    return job, allocation.id


def upload(service: Service, *reports: object, first_seq: int = 0, node: str = "n1", **fields: object) -> UploadReply:
    epoch = service.plane.world.nodes[node].epoch
    body = Upload(**{"epoch": epoch, "boot_id": "boot-1", "first_seq": first_seq, "reports": reports, **fields})
    return service.settle(nodes.record_upload(service.plane, Caller(principal=f"node/{node}", role="node"), body))


def life_of(allocation: str) -> tuple[object, ...]:
    """A whole life in one upload."""
    ids = {"allocation": allocation, "attempt": 1}
    return (
        AllocationPrepared(**ids, address="n1", port=1),
        AllocationStarted(**ids, at_ms=0),
        TaskExited(**ids, rank=0, exit_code=5),
        AllocationReleased(**ids),
    )


def test_a_whole_life_in_one_upload_is_one_write(service: Service) -> None:
    job, allocation = placed(service)
    version = service.store.version()
    reply = upload(service, *life_of(allocation))
    assert (reply.recorded, reply.forget, reply.kill) == (4, (allocation,), ())
    assert service.store.version() == version + 1
    after = service.job(job)
    assert (after.state, after.attempt) == (JobState.FAILED, 1)
    assert after.outcome is not None
    assert after.outcome.exit_code == 5


def test_a_repeat_of_it_changes_nothing_and_is_answered_alike_also_after_a_restart(service: Service) -> None:
    job, allocation = placed(service)
    first = upload(service, *life_of(allocation))
    before, version = service.job(job), service.store.version()
    assert upload(service, *life_of(allocation)) == first
    service.restart()
    assert upload(service, *life_of(allocation)) == first
    assert service.job(job) == before
    assert service.store.version() == version


def test_a_gap_is_not_confirmed(service: Service) -> None:
    _, allocation = placed(service)
    prepared, started, exited, released = life_of(allocation)
    assert upload(service, prepared).recorded == 1
    assert upload(service, exited, released, first_seq=2).recorded == 1
    assert upload(service, prepared, started, exited, released).recorded == 4


def test_the_last_bytes_of_a_log_are_there_before_the_end_is(service: Service) -> None:
    job, allocation = placed(service)
    chunk = LogChunk(job=job.id, attempt=1, rank=0, offset=0, data=b"bye\n")
    seen: list[bytes] = []
    service.plane.world.on_change(lambda _change: seen.append(service.plane.logs.read(job.id, 1, 0, 0, 100)))
    reply = upload(service, *life_of(allocation), logs=(chunk,))
    assert seen
    assert all(text == b"bye\n" for text in seen)
    assert reply.log_offsets == ((job.id, 1, 0, 4),)


def test_bytes_of_a_job_that_is_not_the_nodes_count_as_taken_and_go_nowhere(service: Service) -> None:
    job, _ = placed(service)
    for rank, node in ((0, "n2"), (7, "n1")):
        chunk = LogChunk(job=job.id, attempt=1, rank=rank, offset=0, data=b"forged")
        assert upload(service, node=node, logs=(chunk,)).log_offsets == ((job.id, 1, rank, 6),)
        assert service.plane.logs.read(job.id, 1, rank, 0, 100) == b""


def test_reports_about_another_nodes_allocation_change_nothing(service: Service) -> None:
    job, allocation = placed(service)
    before = service.job(job)
    upload(service, *life_of(allocation), node="n2")
    assert service.job(job) == before


def test_an_upload_of_another_epoch_or_boot_is_refused(service: Service) -> None:
    for fields in ({"epoch": 99, "boot_id": "boot-1"}, {"epoch": 1, "boot_id": "boot-0"}):
        with pytest.raises(Conflict, match="register again"):
            nodes.record_upload(service.plane, N1, Upload(**fields))


def test_too_much_at_once_is_refused(service: Service) -> None:
    _, allocation = placed(service)
    many = (AllocationStarted(allocation=allocation, attempt=1, at_ms=0),) * (limits.REPORTS_PER_UPLOAD_MAX + 1)
    with pytest.raises(TooLarge):
        upload(service, *many)
    with pytest.raises(TooLarge):
        upload(service, logs=(LogChunk(job="j", attempt=1, rank=0, offset=0, data=bytes(limits.LOG_BYTES_PER_UPLOAD_MAX + 1)),))


def test_only_a_nodes_token_speaks_for_a_node(service: Service) -> None:
    for caller in (ANNA, SYSTEM):
        with pytest.raises(Forbidden):
            nodes.poll_commands(service.plane, caller, 0)
    with pytest.raises(NotFound, match="join again"):
        nodes.record_upload(service.plane, Caller(principal="node/n9", role="node"), Upload(epoch=1, boot_id="x"))


def test_a_sample_of_what_should_not_run_brings_a_kill_and_one_of_what_should_is_kept(service: Service) -> None:
    job, allocation = placed(service)
    mine = Sample(allocation=allocation, job=job.id, at_ms=1, cpu_ms=1, memory_bytes=1)
    stranger = Sample(allocation="who.1.0", job="who", at_ms=1, cpu_ms=1, memory_bytes=1)
    assert upload(service, samples=(mine, stranger)).kill == ("who.1.0",)
    assert service.plane.samples.of(allocation) == (mine,)
    upload(service, *life_of(allocation))
    service.plane.world.catch_up()
    assert service.plane.samples.of(allocation) == ()


def test_commands_come_in_order_until_they_are_confirmed_and_again_after_a_restart(service: Service) -> None:
    job, allocation = placed(service)
    first = nodes.poll_commands(service.plane, N1, 0)
    assert [type(row.body) for row in first.rows] == [Prepare]
    assert nodes.poll_commands(service.plane, N1, 0) == first
    service.cancel(job)
    service.restart()
    service.round()
    again = nodes.poll_commands(service.plane, N1, 0)
    assert [type(row.body) for row in again.rows] == [Prepare, Stop]
    last = nodes.poll_commands(service.plane, N1, again.last)
    assert (last.rows, last.last) == ((), again.last)
    while service.store.writer.step():
        pass
    assert not [row for row in service.store.commands_after("agents", 0, 10) if row.node == "n1"]
    assert {row.body.allocation for row in again.rows} == {allocation}


def test_commands_of_what_was_fenced_are_not_handed_out(service: Service) -> None:
    """The node comes back late: another attempt may run elsewhere by now."""
    job, allocation = placed(service)
    service.settle(nodes.resume_node(service.plane, SYSTEM, "n2"))
    service.wire.cut["n1"] = None
    service.run(360_000, tick_ms=1_000)
    assert service.plane.world.allocations.get(allocation) is None
    assert service.job(job).attempt == 2
    assert [type(row.body) for row in nodes.poll_commands(service.plane, N1, 0).rows] == [Stop]


def test_devices_found_broken_take_no_work_until_they_are_whole(service: Service) -> None:
    service.settle(nodes.drain_node(service.plane, SYSTEM, "n2"))
    (device,) = facts_of("n1", 1).devices
    reason = Reason(code=ReasonCode.UNHEALTHY, message="ECC")
    service.fleet.crash("n1")
    upload(service, broken=((device.uuid, reason),))
    job = service.submit(spec_of())
    service.run(500, each=service.check)
    assert service.job(job).state is JobState.QUEUED
    view = nodes.get_node(service.plane, SYSTEM, "n1")
    assert view.devices[0].state == "BROKEN"
    upload(service)
    service.run(300)
    assert service.job(job).state is JobState.STARTING


def test_a_dirty_device_takes_no_work_until_it_is_clean(service: Service) -> None:
    service.settle(nodes.drain_node(service.plane, SYSTEM, "n2"))
    service.fleet.crash("n1")
    (device,) = facts_of("n1", 1).devices
    upload(service, dirty=(device.uuid,))
    job = service.submit(spec_of())
    service.run(300, each=service.check)
    assert service.job(job).state is JobState.QUEUED
    assert nodes.get_node(service.plane, SYSTEM, "n1").devices[0].state == "DIRTY"
    upload(service)
    service.run(300)
    assert service.job(job).state is JobState.STARTING


def test_processes_that_outlive_a_kill_cordon_the_node(service: Service) -> None:
    _, allocation = placed(service)
    upload(service, AllocationUnkillable(allocation=allocation, attempt=1, pids=(7,)))
    assert service.plane.world.nodes["n1"].state is NodeState.CORDONED
    assert service.plane.world.allocations[allocation].stuck == (7,)


def test_a_node_that_joins_again_has_one_token_that_holds(service: Service) -> None:
    joiner = Caller(principal="service/join", role="join")
    first = service.settle(nodes.join_node(service.plane, joiner, Join(name="n3", facts=facts_of("n3"))))
    second = service.settle(nodes.join_node(service.plane, joiner, Join(name="n3", facts=facts_of("n3"))))
    from shoal.base.errors import Unauthenticated
    from shoal.control.access import authenticate

    assert authenticate(service.plane, second.token).node == "n3"
    with pytest.raises(Unauthenticated):
        authenticate(service.plane, first.token)
    with pytest.raises(Forbidden):
        nodes.join_node(service.plane, ANNA, Join(name="n4", facts=facts_of("n4")))


def test_secrets_open_for_the_node_that_holds_the_allocation_alone(service: Service) -> None:
    service.settle(secrets.set_secret(service.plane, ANNA, "default", "wandb", b"s3cret"))
    service.settle(nodes.drain_node(service.plane, SYSTEM, "n2"))
    job = service.submit(spec_of(run_ms=1_000, secrets={"token": "wandb"}))
    service.run(300)
    (allocation,) = service.plane.world.allocations_of(job.id)
    assert allocation.state is AllocationState.STARTED
    assert secrets.open_for_allocation(service.plane, N1, allocation.id) == {"token": b"s3cret"}
    with pytest.raises(NotFound):
        secrets.open_for_allocation(service.plane, Caller(principal="node/n2", role="node"), allocation.id)
    with pytest.raises(Forbidden):
        secrets.open_for_allocation(service.plane, SYSTEM, allocation.id)
    service.cancel(job, CancelMode.FORCE)
    service.run_until_ended(job)
    with pytest.raises(NotFound):
        secrets.open_for_allocation(service.plane, N1, allocation.id)


def test_two_members_that_end_at_the_same_moment_end_their_gang(service: Service) -> None:
    """
    1. Both members of a gang have done their work; each node uploads its last words.
    2. The second upload comes while the first one's write is on its way.
    3. Judged without each other, each would see the other still holding its devices, and the gang would never end.
    """
    for name in ("n1", "n2"):
        service.fleet.crash(name)
    job = service.submit(spec_of(nodes=2))
    service.round()
    for node, phase in (("n1", 0), ("n2", 0), ("n1", 1), ("n2", 1)):
        (mine,) = [a for a in service.plane.world.allocations_of(job.id) if a.node == node]
        rank = mine.tasks[0].rank
        prepared, started, _, _ = life_of(mine.id)
        upload(service, (prepared, started)[phase], node=node, first_seq=phase)
        assert rank in (0, 1)
    assert service.job(job).state is JobState.RUNNING
    asked = []
    for node in ("n1", "n2"):
        (mine,) = [a for a in service.plane.world.allocations_of(job.id) if a.node == node]
        ids = {"allocation": mine.id, "attempt": 1}
        last = (TaskExited(**ids, rank=mine.tasks[0].rank, exit_code=0), AllocationReleased(**ids))
        body = Upload(epoch=1, boot_id="boot-1", first_seq=2, reports=last)
        asked.append(nodes.record_upload(service.plane, Caller(principal=f"node/{node}", role="node"), body))
    for future in asked:
        assert service.settle(future).recorded == 4
    assert service.job(job).state is JobState.SUCCEEDED
    service.check()


def test_what_ran_unseen_before_a_reboot_does_not_run_again_as_the_same_attempt(service: Service) -> None:
    """The node obeyed its Prepare, lost every reply, and rebooted: its order is still in the outbox."""
    service.settle(nodes.drain_node(service.plane, SYSTEM, "n2"))
    job = service.submit(spec_of())
    service.wire.faults.lose_reply = 100
    service.round()
    machine = service.fleet.machines["n1"]
    machine.obey(nodes.poll_commands(service.plane, N1, 0).rows[0].body, service.clock.now_ms())
    machine.advance(service.clock.now_ms())
    assert machine.ran == [(job.id, 1)]
    service.fleet.reboot("n1", "boot-2")
    service.wire.faults.lose_reply = 0
    service.run_until_ended(job)
    assert service.fleet.machines["n1"].ran == [(job.id, 1), (job.id, 2)]


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_reboot_is_found_again_by_a_control_plane_that_died_while_it_took_note_of_it(service: Service, written: int) -> None:
    """
    1. The node obeyed its Prepare and ran the job, lost every reply, and rebooted.
    2. Its agent registers with the new boot id; the control plane dies after so many of the writes that this brings.
    3. The agent registers again, with a boot id that may be known by now.
    """
    service.settle(nodes.drain_node(service.plane, SYSTEM, "n2"))
    job = service.submit(spec_of())
    service.wire.faults.lose_reply = 100
    service.round()
    machine = service.fleet.machines["n1"]
    machine.obey(nodes.poll_commands(service.plane, N1, 0).rows[0].body, service.clock.now_ms())
    machine.advance(service.clock.now_ms())
    service.fleet.reboot("n1", "boot-2")
    service.fleet.crash("n1")
    agent = Register(facts=service.fleet.facts["n1"], store_id=service.store.store_id)
    nodes.register_node(service.plane, N1, agent)
    for _ in range(written):
        service.store.writer.step()
    service.restart()
    service.wire.faults.lose_reply = 0
    service.fleet.start("n1")
    service.run_until_ended(job)
    (_, first), (_, second) = service.fleet.machines["n1"].ran
    assert first == 1
    assert second > 1, "the attempt that had run is over"


def test_the_live_picture_keeps_no_members_of_attempts_that_are_over(service: Service) -> None:
    job = service.submit(spec_of(run_ms=60_000))
    service.run(300)
    for _ in range(3):
        service.settle(jobs.requeue_job(service.plane, ANNA, "default", job.id))
        service.run(500)
    assert [a.attempt for a in service.plane.world.allocations_of(job.id)] == [4]
    service.cancel(job, CancelMode.FORCE)
    service.run_until_ended(job)
    assert not service.plane.world.allocations
    assert not service.plane.world.attempts

"""Cases of the field (numbers of `docs/explanation` and the issue), at the level of the whole service with fake agents."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from serving import ANNA, SYSTEM, Service, spec_of
from shoal.base.errors import Conflict
from shoal.control import jobs, nodes, queues
from shoal.model.attempt import HOLDING
from shoal.model.change import ChangeSet
from shoal.model.event import JobUpdated
from shoal.model.job import CancelMode, JobState, OnDisconnect
from shoal.model.node import NodeState
from shoal.model.queue import QueueSpec, Quota
from shoal.model.reason import ReasonCode
from shoal.model.values import ArrayList, Duration
from shoal.model.wire import JobPatch


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


def with_nodes(service: Service, *names: str, gpus: int = 4, **fields: object) -> None:
    for name in names:
        service.add_node(name, gpus, **fields)
    service.run(100)


def test_case_1_a_gang_whose_member_cannot_prepare_is_given_up_whole_and_avoids_the_node(service: Service) -> None:
    """Platform case 1."""
    with_nodes(service, "n1", "n2")
    job = service.submit(spec_of(nodes=2, gpus=4, labels={"prepare": "fail"}))
    service.run(300, each=service.check)
    after = service.job(job)
    assert after.state is JobState.QUEUED
    assert (after.attempt, after.retries) == (1, 0)
    assert after.avoid
    assert service.free_gpus() == 8


def test_case_3_a_gang_of_two_goes_to_the_pool_with_two_hosts_and_never_half_starts_in_the_other(service: Service) -> None:
    """Platform case 3."""
    with_nodes(service, "a1", pool="small")
    with_nodes(service, "b1", "b2", pool="large")
    job = service.submit(spec_of(nodes=2, gpus=4, run_ms=1_000))
    service.run(500, each=service.check)
    assert {a.node for a in service.plane.world.allocations_of(job.id)} == {"b1", "b2"}
    service.run_until_ended(job)
    assert service.job(job).state is JobState.SUCCEEDED
    assert not service.fleet.machines["a1"].ran


def test_case_3_and_waits_while_no_pool_has_two(service: Service) -> None:
    """Platform case 3."""
    with_nodes(service, "a1", pool="small")
    with_nodes(service, "b1", pool="other")
    job = service.submit(spec_of(nodes=2, gpus=4))
    service.run(1_000, each=service.check)
    assert service.job(job).state is JobState.QUEUED
    assert service.free_gpus() == 8


def test_case_13_a_job_that_the_controller_has_forgotten_is_killed_and_its_device_free_in_one_heartbeat(service: Service) -> None:
    """Platform case 13."""
    with_nodes(service, "n1", gpus=1)
    job = service.submit(spec_of(run_ms=600_000))
    service.run(500)
    assert service.fleet.machines["n1"].running() == ((job.id, 1),)
    picture = service.plane.store.picture(job.id)
    assert picture is not None
    assert picture.attempt is not None
    purge = ChangeSet(delete=(picture.job, picture.attempt, *picture.allocations))
    service.settle(service.plane.store.apply(purge, service.plane.term))
    service.round()
    service.fleet.tick(service.started_ms + service.clock.boottime_ms())
    assert service.fleet.machines["n1"].running() == ()
    service.check()
    again = service.submit(spec_of())
    service.run_until_ended(again)
    assert service.job(again).state is JobState.SUCCEEDED


def test_case_13_an_agent_that_registers_with_it_is_told_to_kill(service: Service) -> None:
    """Platform case 13."""
    with_nodes(service, "n1", gpus=1)
    job = service.submit(spec_of(run_ms=600_000))
    service.run(500)
    service.fleet.crash("n1")
    service.cancel(job, CancelMode.FORCE)
    picture = service.plane.store.picture(job.id)
    assert picture is not None
    assert picture.attempt is not None
    purge = ChangeSet(delete=(picture.job, picture.attempt, *picture.allocations))
    service.settle(service.plane.store.apply(purge, service.plane.term))
    service.fleet.start("n1")
    service.round()
    assert service.fleet.machines["n1"].running() == ()


@pytest.mark.parametrize("label", ["0", "3"])
def test_case_22_cancel_of_a_job_that_has_ended_changes_nothing(service: Service, label: str) -> None:
    """Platform case 22."""
    with_nodes(service, "n1")
    job = service.submit(spec_of(labels={"exit": label}))
    service.run_until_ended(job)
    before = service.job(job)
    for mode in (CancelMode.GRACEFUL, CancelMode.FORCE):
        assert service.cancel(job, mode) == before
    service.run(300, each=service.check)
    assert service.job(job) == before


def test_case_22_for_each_other_end(service: Service) -> None:
    """Platform case 22."""
    with_nodes(service, "n1")
    cancelled = service.submit(spec_of(run_ms=60_000))
    over_time = service.submit(spec_of(run_ms=60_000, time=Duration(1_000)))
    service.run(300)
    service.cancel(cancelled)
    service.run_until_ended()
    assert service.job(cancelled).state is JobState.CANCELLED
    assert service.job(over_time).state is JobState.TIMEOUT
    for job in (cancelled, over_time):
        before = service.job(job)
        assert service.cancel(job, CancelMode.FORCE) == before


def test_case_27_cancel_the_first_and_the_second_starts(service: Service) -> None:
    """Platform case 27."""
    with_nodes(service, "n1", gpus=1)
    first, second, *_ = [service.submit(spec_of(run_ms=60_000)) for _ in range(4)]
    service.run(300)
    assert service.job(first).state is JobState.RUNNING
    service.cancel(first)
    service.run(300, each=service.check)
    assert service.job(first).state is JobState.CANCELLED
    assert service.job(second).state is JobState.RUNNING


def test_case_29_a_replayed_create_answers_with_the_job_as_it_is_now_and_its_exit_code(service: Service) -> None:
    """Platform case 29."""
    with_nodes(service, "n1")
    job = service.submit(spec_of(labels={"exit": "7"}), key="mine")
    service.run_until_ended(job)
    submission = jobs.Submission(project="default", spec=spec_of(labels={"exit": "7"}), key="mine", fingerprint="f")
    again = service.settle(jobs.submit_job(service.plane, ANNA, submission))
    assert again.replayed
    assert again.job.id == job.id
    assert again.job.state is JobState.FAILED
    assert again.job.outcome is not None
    assert again.job.outcome.exit_code == 7


def test_case_43_raise_the_priority_of_a_queued_job_and_the_order_changes_in_the_next_cycle(service: Service) -> None:
    """Platform case 43."""
    with_nodes(service, "n1", gpus=1)
    running = service.submit(spec_of(run_ms=2_000, preemptible=False))
    service.run(300)
    first, second = service.submit(spec_of(run_ms=2_000)), service.submit(spec_of(run_ms=2_000))
    updated = service.settle(jobs.update_job(service.plane, ANNA, "default", str(second.number), JobPatch(priority=10)))
    assert updated.priority == 10
    rows = service.store.events_after("default", 0, 1_000, subject=second.id)
    assert [row.body for row in rows if isinstance(row.body, JobUpdated)] == [JobUpdated(changed={"priority": (0, 10)})]
    service.run_until_ended(running)
    service.run(200, each=service.check)
    assert service.job(second).state is JobState.RUNNING
    assert service.job(first).state is JobState.QUEUED


def test_quota_of_a_queue_bounds_what_runs_and_comes_back_with_the_release(service: Service) -> None:
    with_nodes(service, "n1")
    spec = QueueSpec(quotas={"gpu": Quota(nominal=1_000, borrowing_limit=0)})
    service.settle(queues.set_queue(service.plane, SYSTEM, "small", spec))
    first, second = (service.submit(spec_of(run_ms=1_000, queue="small")) for _ in range(2))
    service.run(300, each=service.check)
    assert (service.job(first).state, service.job(second).state) == (JobState.RUNNING, JobState.QUEUED)
    service.run_until_ended()
    assert service.job(second).state is JobState.SUCCEEDED


def test_a_drained_node_empties_and_takes_no_work_until_it_is_resumed(service: Service) -> None:
    with_nodes(service, "n1")
    running = service.submit(spec_of(run_ms=1_000))
    service.run(300)
    view = service.settle(nodes.drain_node(service.plane, SYSTEM, "n1", "new memory"))
    assert view.node.state is NodeState.DRAINING
    assert view.node.reason is not None
    assert "new memory" in view.node.reason.message
    waiting = service.submit(spec_of())
    service.run_until_ended(running)
    service.run(500, each=service.check)
    assert service.job(running).state is JobState.SUCCEEDED
    assert service.job(waiting).state is JobState.QUEUED
    service.settle(nodes.resume_node(service.plane, SYSTEM, "n1"))
    service.run_until_ended(waiting)


def test_a_node_with_work_cannot_be_removed(service: Service) -> None:
    with_nodes(service, "n1")
    job = service.submit(spec_of(run_ms=1_000))
    service.run(300)
    with pytest.raises(Conflict, match="n1 has 1 allocations"):
        service.settle(nodes.remove_node(service.plane, SYSTEM, "n1"))
    service.run_until_ended(job)
    service.settle(nodes.remove_node(service.plane, SYSTEM, "n1"))
    assert not nodes.list_nodes(service.plane, SYSTEM)


def test_a_silent_node_is_lost_and_fenced_and_the_gang_starts_again_elsewhere_with_the_next_attempt(service: Service) -> None:
    with_nodes(service, "n1", "n2", gpus=2)
    job = service.submit(spec_of(gpus=2, run_ms=3_000, on_disconnect=OnDisconnect(stop_after=Duration(4_000))))
    service.run(300)
    (there,) = service.plane.world.allocations_of(job.id)
    service.wire.cut[there.node] = None
    service.run(4_000, each=service.check)
    assert service.plane.world.nodes[there.node].state is NodeState.UNREACHABLE
    assert service.job(job).attempt == 1
    service.run_until_ended(job, within_ms=60_000)
    after = service.job(job)
    assert (after.state, after.attempt) == (JobState.SUCCEEDED, 2)
    del service.wire.cut[there.node]
    service.run(1_000, each=service.check)
    assert service.plane.world.nodes[there.node].state is NodeState.READY
    assert not service.fleet.violations


def test_case_5_a_cut_within_stop_after_resumes_the_same_attempt_and_the_node_is_ready_again(service: Service) -> None:
    """Platform case 5."""
    with_nodes(service, "n1", gpus=1)
    job = service.submit(spec_of(run_ms=10_000))
    service.run(300)
    service.wire.cut["n1"] = None
    service.run(6_000, each=service.check)
    assert service.plane.world.nodes["n1"].state is NodeState.UNREACHABLE
    del service.wire.cut["n1"]
    service.run_until_ended(job)
    after = service.job(job)
    assert (after.state, after.attempt) == (JobState.SUCCEEDED, 1)
    assert service.plane.world.nodes["n1"].state is NodeState.READY
    assert len(service.fleet.machines["n1"].ran) == 1


def test_case_15_a_reboot_is_told_by_the_boot_id_and_starts_the_next_attempt_at_once(service: Service) -> None:
    """Platform case 15."""
    with_nodes(service, "n1", gpus=1)
    job = service.submit(spec_of(run_ms=2_000))
    service.run(300)
    service.fleet.reboot("n1", "boot-2")
    service.run(300, each=service.check)
    assert service.job(job).attempt == 2
    service.run_until_ended(job)
    assert service.job(job).state is JobState.SUCCEEDED


def test_a_restart_of_the_control_plane_takes_up_everything_where_it_was(service: Service) -> None:
    with_nodes(service, "n1", "n2")
    array = service.submit(spec_of(run_ms=700, array=ArrayList.parse("0-5%2")))
    gang = service.submit(spec_of(nodes=2, run_ms=1_500))
    for _ in range(40):
        service.run(100, each=service.check)
        service.restart()
        service.check()
    service.run_until_ended()
    assert service.job(gang).state is JobState.SUCCEEDED
    assert service.job(array).state is JobState.SUCCEEDED
    assert service.job(gang).attempt == 1


def test_nothing_is_held_by_what_has_ended(service: Service) -> None:
    with_nodes(service, "n1")
    for _ in range(6):
        service.submit(spec_of(run_ms=200))
    service.run_until_ended()
    snapshot = service.store.snapshot()
    assert not [a for a in snapshot.allocations if a.state in HOLDING]
    assert service.free_gpus() == 4


# --- a node that refuses every start ------------------------------------------------------------------------------------------
def test_case_11_a_node_that_prepares_nothing_is_cordoned_after_three_jobs_which_start_elsewhere(service: Service) -> None:
    """Platform case 11: one bad node, and no job pays for it with a retry."""
    with_nodes(service, "n1", "n2")
    service.fleet.machines["n1"].refuses = True
    states = []
    for _ in range(4):
        job = service.submit(spec_of(run_ms=500))
        service.run_until_ended(job)
        after = service.job(job)
        assert (after.state, after.retries) == (JobState.SUCCEEDED, 0)
        states.append((after.attempt, service.plane.world.nodes["n1"].state))
    ready, cordoned = NodeState.READY, NodeState.CORDONED
    assert states == [(2, ready), (2, ready), (2, cordoned), (1, cordoned)]
    reason = service.plane.world.nodes["n1"].reason
    assert reason is not None
    assert (reason.code, reason.message) == (
        ReasonCode.UNHEALTHY,
        "3 jobs in a row could not be prepared here; the last: the disk is full",
    )
    service.check()


def test_case_11_what_it_prepares_in_between_counts_for_it_and_a_person_gives_it_three_more(service: Service) -> None:
    """Platform case 11."""
    with_nodes(service, "n1", "n2")
    machine = service.fleet.machines["n1"]
    for refuses in (True, True, False, True, True):
        machine.refuses = refuses
        service.run_until_ended(service.submit(spec_of()))
    assert service.plane.world.nodes["n1"].state is NodeState.READY
    service.run_until_ended(service.submit(spec_of()))
    assert service.plane.world.nodes["n1"].state is NodeState.CORDONED
    service.settle(nodes.resume_node(service.plane, SYSTEM, "n1"))
    for wanted in (NodeState.READY, NodeState.READY, NodeState.CORDONED):
        service.run_until_ended(service.submit(spec_of()))
        assert service.plane.world.nodes["n1"].state is wanted


def test_case_11_jobs_that_fail_by_their_own_fault_and_a_bad_array_speak_against_no_node(service: Service) -> None:
    """Platform case 11, from the other side: who asks for what no node has cordons none."""
    with_nodes(service, "n1", "n2")
    for _ in range(4):
        service.submit(spec_of(labels={"prepare": "fail"}))
    service.run(3_000, each=service.check)
    assert {node.state for node in service.plane.world.nodes.values()} == {NodeState.READY}
    for machine in service.fleet.machines.values():
        machine.refuses = True
    service.submit(spec_of(array=ArrayList.parse("0-7")))
    service.run(3_000, each=service.check)
    assert {node.state for node in service.plane.world.nodes.values()} == {NodeState.READY}


def test_case_12_a_refused_start_leaves_nothing_counted(service: Service) -> None:
    """Platform case 12: free counts are equal before and after."""
    with_nodes(service, "n1")
    before = service.free_gpus(), service.plane.schedule.queue_views()[0].used
    service.fleet.machines["n1"].refuses = True
    job = service.submit(spec_of(gpus=2, cpus=4))
    service.run(400, each=service.check)
    assert service.job(job).attempt >= 1
    assert service.job(job).state is JobState.QUEUED
    assert (service.free_gpus(), service.plane.schedule.queue_views()[0].used) == before

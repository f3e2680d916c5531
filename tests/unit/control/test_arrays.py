"""Arrays: what is asked of one is asked of its elements, in bites, also across a restart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from serving import ANNA, Service, spec_of
from shoal.base import limits
from shoal.base.errors import Conflict
from shoal.control import jobs
from shoal.control.elements import births
from shoal.model.job import CancelMode, Dependency, Job, JobState
from shoal.model.values import ArrayList
from shoal.model.wire import JobPatch
from shoal.store.protocol import JobQuery


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    service.add_node("n1")
    service.run(100)
    yield service
    service.close()


def array(service: Service, text: str = "0-5", **fields: object) -> Job:
    return service.submit(spec_of(array=ArrayList.parse(text), **fields))


def states(service: Service, parent: Job) -> dict[str, int]:
    return jobs.view_job(service.plane, ANNA, "default", str(parent.number)).elements


def test_a_cancel_reaches_every_element_and_the_parent_ends_with_the_last(service: Service) -> None:
    parent = array(service, run_ms=60_000)
    service.run(300)
    assert states(service, parent) == {"QUEUED": 2, "RUNNING": 4}
    answer = service.cancel(parent)
    assert answer.cancel is CancelMode.GRACEFUL
    service.run_until_ended()
    assert states(service, parent) == {"CANCELLED": 6}
    assert service.job(parent).state is JobState.CANCELLED


def test_a_cancel_of_more_than_one_bite_goes_on_after_a_restart(service: Service) -> None:
    count = 2 * limits.ERRAND_JOBS_PER_STEP + 10
    parent = array(service, f"0-{count - 1}", run_ms=60_000)
    births(service.plane, parent.id, range(count))
    service.run(100)
    service.cancel(parent)
    service.plane.reconcile.step(service.clock.now_ms())
    done = states(service, parent).get("CANCELLED", 0)
    assert 0 < done < count
    service.restart()
    service.run_until_ended()
    assert states(service, parent) == {"CANCELLED": count}
    service.check()


def test_a_stronger_cancel_overtakes_a_weaker_one(service: Service) -> None:
    parent = array(service, run_ms=60_000, labels={"ignores": "term"})
    service.run(300)
    service.cancel(parent)
    service.run(500)
    assert states(service, parent)["CANCELLING"] == 4
    service.cancel(parent, CancelMode.FORCE)
    service.run(500, each=service.check)
    assert service.job(parent).state is JobState.CANCELLED


def test_hold_and_release_reach_the_elements_that_wait(service: Service) -> None:
    parent = array(service, "0-5%2", run_ms=1_000)
    service.run(300)
    asked = jobs.hold_job(service.plane, ANNA, "default", str(parent.number))
    service.run(200)
    assert asked.result().id == parent.id
    assert states(service, parent) == {"HELD": 4, "RUNNING": 2}
    service.run(3_000)
    assert states(service, parent) == {"HELD": 4, "SUCCEEDED": 2}
    jobs.release_job(service.plane, ANNA, "default", str(parent.number))
    service.run_until_ended()
    assert states(service, parent) == {"SUCCEEDED": 6}


def test_an_update_reaches_parent_and_elements(service: Service) -> None:
    parent = array(service, "0-7", run_ms=60_000)
    asked = jobs.update_job(service.plane, ANNA, "default", str(parent.number), JobPatch(priority=3))
    service.run(300)
    assert asked.result().priority == 3
    assert {service.plane.world.jobs[e].priority for e in service.plane.world.live_elements(parent.id)} == {3}


def test_the_parent_ends_with_the_worst_of_its_elements(service: Service) -> None:
    parent = array(service, "0-2", labels={"exit": "9"})
    service.run_until_ended()
    after = service.job(parent)
    assert after.state is JobState.FAILED
    assert after.outcome is not None
    assert after.outcome.exit_code == 9


def test_case_58_requeue_of_one_element_requeues_that_one_alone_and_brings_the_array_back(service: Service) -> None:
    """Platform case 58."""
    parent = array(service, "0-2")
    service.run_until_ended()
    service.restart()
    service.settle(jobs.requeue_job(service.plane, ANNA, "default", f"{parent.number}_2"))
    service.plane.reconcile.step(service.clock.now_ms())
    service.check()
    assert service.job(parent).state not in (JobState.SUCCEEDED, JobState.FAILED)
    service.run_until_ended()
    attempts = [jobs.get_job(service.plane, ANNA, "default", f"{parent.number}_{i}").attempt for i in range(3)]
    assert attempts == [1, 1, 2]
    assert service.job(parent).state is JobState.SUCCEEDED


def test_what_is_asked_of_an_array_that_has_ended_is_refused(service: Service) -> None:
    parent = array(service, "0-1")
    service.run_until_ended()
    with pytest.raises(Conflict, match="has ended"):
        jobs.hold_job(service.plane, ANNA, "default", str(parent.number))
    assert service.cancel(parent).state is JobState.SUCCEEDED


def test_an_array_of_ten_thousand_costs_one_record_until_its_elements_start(service: Service) -> None:
    parent = array(service, "0-9999", run_ms=60_000)
    service.run(300)
    assert states(service, parent) == {"QUEUED": 9_996, "RUNNING": 4}
    assert len(service.plane.store.list_jobs(JobQuery(project="default", array=parent.number, limit=100))) == 4
    service.cancel(parent)
    service.run_until_ended()
    assert states(service, parent) == {"CANCELLED": 10_000}
    assert len(service.plane.store.list_jobs(JobQuery(project="default", array=parent.number, limit=100))) == 4
    service.check()


def test_whatever_is_said_of_an_element_by_name_holds_before_it_has_a_record(service: Service) -> None:
    parent = array(service, "0-99", run_ms=1_000)
    service.run(300)
    before = jobs.get_job(service.plane, ANNA, "default", f"{parent.number}_50")
    assert (before.state, before.address, before.version) == (JobState.QUEUED, f"{parent.number}_50", 0)
    assert "waits behind" in jobs.why_job(service.plane, ANNA, "default", before.address).headline
    held = jobs.hold_job(service.plane, ANNA, "default", before.address)
    ended = jobs.cancel_job(service.plane, ANNA, "default", f"{parent.number}_60", jobs.CancelAsk())
    raised = jobs.update_job(service.plane, ANNA, "default", f"{parent.number}_70", JobPatch(priority=9))
    after = service.submit(spec_of(run_ms=1, depends_on=(Dependency(job=f"{parent.number}_80"),)))
    service.run(300)
    assert (held.result().state, held.result().id) == (JobState.HELD, before.id)
    assert (ended.result().state, raised.result().priority) == (JobState.CANCELLED, 9)
    service.run_until_ended(after)
    assert service.job(after).state is JobState.SUCCEEDED
    jobs.release_job(service.plane, ANNA, "default", before.address)
    service.run_until_ended()
    assert states(service, parent) == {"CANCELLED": 1, "SUCCEEDED": 99}
    service.check()


def test_an_element_of_a_cancelled_array_that_never_had_a_record_stays_so(service: Service) -> None:
    parent = array(service, "0-9", run_ms=60_000)
    service.run(300)
    service.cancel(parent)
    service.run_until_ended()
    asked = jobs.requeue_job(service.plane, ANNA, "default", f"{parent.number}_9")
    service.run(100)
    with pytest.raises(Conflict, match="was cancelled before the element was started"):
        asked.result()

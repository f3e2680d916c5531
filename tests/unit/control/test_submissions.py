"""Creates: keys, names resolved, everything refused that could not work, nothing written then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from serving import ANNA, SYSTEM, Service, facts_of, spec_of
from shoal.base.errors import Forbidden, Invalid, KeyReused, NotFound, Refused, ShoalError
from shoal.control import jobs, nodes, queues, secrets
from shoal.control.access import Caller
from shoal.control.key_cancel import cancel_by_key
from shoal.model.job import CancelMode, Dependency, Job, JobState, WorkDir
from shoal.model.queue import QueueSpec
from shoal.model.values import ArrayList
from shoal.model.wire import Join
from shoal.store.protocol import JobQuery


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    service.add_node("n1")
    service.run(100)
    yield service
    service.close()


def ask(service: Service, spec: Any, caller: Caller = ANNA, **fields: Any) -> jobs.Submitted:
    submission = jobs.Submission(**{"project": "default", "spec": spec, **fields})
    return service.settle(jobs.submit_job(service.plane, caller, submission))


def test_concurrent_creates_with_one_key_are_one_job(service: Service) -> None:
    submission = jobs.Submission(project="default", spec=spec_of(), key="k", fingerprint="f")
    asked = [jobs.submit_job(service.plane, ANNA, submission) for _ in range(5)]
    answers = [service.settle(future) for future in asked]
    assert len({answer.job.id for answer in answers}) == 1
    assert [answer.replayed for answer in answers] == [False, True, True, True, True]


def test_a_key_with_another_body_is_refused(service: Service) -> None:
    ask(service, spec_of(), key="k", fingerprint="one")
    with pytest.raises(KeyReused):
        ask(service, spec_of(run_ms=1), key="k", fingerprint="two")


def test_two_people_never_meet_in_one_key(service: Service) -> None:
    ben = Caller(principal="user/ben", project="default")
    assert ask(service, spec_of(), key="k", fingerprint="f").job.id != ask(service, spec_of(), ben, key="k", fingerprint="f").job.id


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"queue": "nowhere"}, "/queue"),
        ({"depends_on": (Dependency(job="4711"),)}, "/depends_on/0/job"),
        ({"secrets": {"token": "wandb"}}, "/secrets/token"),
        ({"workdir": WorkDir(blob="0" * 64)}, "/workdir/blob"),
        ({"priority": 10_000_000}, "/priority"),
    ],
)
def test_a_create_that_could_not_work_names_the_place_and_writes_nothing(service: Service, fields: dict[str, Any], pointer: str) -> None:
    version = service.store.version()
    with pytest.raises(Invalid) as caught:
        ask(service, spec_of(**fields))
    assert pointer in [fault.pointer for fault in caught.value.faults]
    assert service.store.version() == version


def test_every_fault_is_told_at_once(service: Service) -> None:
    with pytest.raises(Invalid) as caught:
        ask(service, spec_of(queue="nowhere", secrets={"a": "b"}, depends_on=(Dependency(job="4711"),)))
    assert len(caught.value.faults) >= 3


def test_a_secret_that_is_there_is_no_fault(service: Service) -> None:
    service.settle(secrets.set_secret(service.plane, ANNA, "default", "wandb", b"x"))
    assert ask(service, spec_of(secrets={"token": "wandb"})).job.state is JobState.QUEUED


def test_dependencies_are_stored_by_id_and_hold_the_job_back(service: Service) -> None:
    first = ask(service, spec_of(run_ms=1_000)).job
    second = ask(service, spec_of(depends_on=(Dependency(job=str(first.number)),))).job
    assert second.spec.depends_on == (Dependency(job=first.id),)
    service.run(500, each=service.check)
    assert service.job(second).state is JobState.QUEUED
    service.run_until_ended()
    assert service.job(second).state is JobState.SUCCEEDED


def test_a_dependency_that_ended_long_ago_is_met(service: Service) -> None:
    first = ask(service, spec_of()).job
    service.run_until_ended(first)
    service.restart()
    second = ask(service, spec_of(depends_on=(Dependency(job=str(first.number)),))).job
    service.run_until_ended(second)
    assert service.job(second).state is JobState.SUCCEEDED


def test_another_projects_job_is_an_unknown_dependency(service: Service) -> None:
    service.settle(queues.set_queue(service.plane, SYSTEM, "theirs", QueueSpec(project="other")))
    theirs = ask(service, spec_of(), SYSTEM, project="other").job
    assert theirs.queue == "theirs"
    with pytest.raises(Invalid, match="no job"):
        ask(service, spec_of(depends_on=(Dependency(job=theirs.id),)))


def test_a_project_that_the_caller_may_not_see_is_not_there(service: Service) -> None:
    service.settle(queues.set_queue(service.plane, SYSTEM, "theirs", QueueSpec(project="other")))
    messages = set()
    for project in ("other", "nowhere"):
        with pytest.raises(NotFound) as caught:
            ask(service, spec_of(), project=project)
        messages.add(caught.value.message.replace(project, "?"))
    assert len(messages) == 1


def test_an_array_is_a_parent_and_a_job_for_each_index(service: Service) -> None:
    parent = ask(service, spec_of(array=ArrayList.parse("1,3,5"))).job
    elements = [jobs.get_job(service.plane, ANNA, "default", f"{parent.number}_{i}") for i in (1, 3, 5)]
    assert [e.address for e in elements] == [f"{parent.number}_{i}" for i in (1, 3, 5)]
    assert len({parent.number, *(e.number for e in elements)}) == 4
    service.run_until_ended()
    assert service.job(parent).state is JobState.SUCCEEDED


def test_must_fit_refuses_what_the_fleet_could_never_hold_and_without_it_the_job_waits(service: Service) -> None:
    with pytest.raises(Refused, match="never hold"):
        ask(service, spec_of(nodes=2, gpus=4), must_fit=True)
    assert ask(service, spec_of(nodes=2, gpus=4)).job.state is JobState.QUEUED
    assert ask(service, spec_of(gpus=4), must_fit=True).job.state is JobState.QUEUED


def test_a_dry_run_checks_and_writes_nothing(service: Service) -> None:
    version = service.store.version()
    assert ask(service, spec_of(), dry_run=True).job.number == 0
    with pytest.raises(Invalid):
        ask(service, spec_of(queue="nowhere"), dry_run=True)
    assert service.store.version() == version


def test_tasks_run_as_the_callers_own_unix_user_and_nobody_elses(service: Service) -> None:
    ada = Caller(principal="user/ada", project="default", unix_user="ada")
    assert ask(service, spec_of(), ada).job.spec.user == "ada"
    with pytest.raises(Forbidden, match="root"):
        ask(service, spec_of(user="root"), ada)
    with pytest.raises(Forbidden):
        ask(service, spec_of(user="root"), ANNA)


def test_where_agents_are_root_only_an_administrator_may_go_without_a_unix_user(service: Service) -> None:
    facts = msgspec.structs.replace(facts_of("r1", 2), as_root=True)
    service.settle(nodes.join_node(service.plane, SYSTEM, Join(name="r1", facts=facts)))
    with pytest.raises(Forbidden, match=r"runs as root.*--unix-user"):
        ask(service, spec_of(), ANNA)
    ada = Caller(principal="user/ada", project="default", unix_user="ada")
    assert ask(service, spec_of(), ada).job.spec.user == "ada"
    admin = Caller(principal="user/admin", role="admin")
    assert ask(service, spec_of(), admin).job.spec.user is None


def test_a_batch_answers_for_each_item(service: Service) -> None:
    good = jobs.Submission(project="default", spec=spec_of(), key="a", fingerprint="f")
    bad = jobs.Submission(project="default", spec=spec_of(queue="nowhere"), key="b", fingerprint="f")
    first, second, third = jobs.submit_batch(service.plane, ANNA, [good, bad, good])
    assert not isinstance(first, ShoalError)
    assert isinstance(second, Invalid)
    assert not isinstance(third, ShoalError)
    assert service.settle(first).job.id == service.settle(third).job.id


def test_begin_holds_a_job_back_until_its_time(service: Service) -> None:
    job = ask(service, spec_of(begin="+3s")).job
    service.run(2_000)
    assert service.job(job).state is JobState.QUEUED
    service.run(2_000, each=service.check)
    assert service.job(job).state is JobState.SUCCEEDED


# --- cancel by key ---------------------------------------------------------------------------------------------------------------
def take_back(service: Service, key: str, caller: Caller = ANNA) -> Job | None:
    return service.settle(cancel_by_key(service.plane, caller, "default", key, jobs.CancelAsk(reason="no answer")))


def test_a_create_that_had_come_is_cancelled_by_its_key(service: Service) -> None:
    made = ask(service, spec_of(run_ms=60_000), key="k", fingerprint="f").job
    service.run(200)
    wished = take_back(service, "k")
    assert wished is not None
    assert (wished.id, wished.cancel) == (made.id, CancelMode.GRACEFUL)
    service.run_until_ended(made)
    again = take_back(service, "k")
    assert again is not None
    assert (again.id, again.state) == (made.id, JobState.CANCELLED)


@pytest.mark.parametrize("spec", [spec_of(run_ms=60_000), spec_of(array=ArrayList.parse("0-99"))], ids=["job", "array"])
def test_a_create_that_comes_after_its_cancel_is_born_cancelled(service: Service, spec: Any) -> None:
    assert take_back(service, "k") is take_back(service, "k") is None
    first, again = ask(service, spec, key="k", fingerprint="f"), ask(service, spec, key="k", fingerprint="f")
    assert (first.replayed, again.replayed, again.job.id) == (False, True, first.job.id)
    service.run_until_ended(first.job)
    assert service.job(first.job).state is JobState.CANCELLED
    found = take_back(service, "k")
    assert found is not None
    assert found.id == first.job.id
    with pytest.raises(KeyReused):
        ask(service, spec_of(run_ms=1), key="k", fingerprint="another")
    service.check()


def test_a_cancel_by_key_reaches_only_the_callers_own(service: Service) -> None:
    ben = Caller(principal="user/ben", project="default")
    made = ask(service, spec_of(run_ms=60_000), key="k", fingerprint="f").job
    assert take_back(service, "k", ben) is None
    service.run(200)
    assert service.job(made).state is JobState.RUNNING


def test_a_create_and_its_cancel_at_once_end_as_one_cancelled_job(service: Service) -> None:
    submission = jobs.Submission(project="default", spec=spec_of(run_ms=60_000), key="k", fingerprint="f")
    asked: list[Any] = []
    for _ in range(5):
        asked.append(jobs.submit_job(service.plane, ANNA, submission))
        asked.append(cancel_by_key(service.plane, ANNA, "default", "k", jobs.CancelAsk()))
    for future in asked:
        service.settle(future)
    service.run_until_ended()
    found = service.plane.store.list_jobs(JobQuery(project="default"))
    assert [job.state for job in found] == [JobState.CANCELLED]

"""Tokens, queues, visibility, views, events, terminals: what people and programs meet besides jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from serving import ANNA, SYSTEM, Service, spec_of
from shoal.base.errors import Conflict, Forbidden, Invalid, NotFound, Unauthenticated, VersionConflict
from shoal.control import events, jobs, nodes, queues, secrets, terminals, tokens
from shoal.control.access import Caller, authenticate, read_token_id
from shoal.model.job import JobState
from shoal.model.queue import QueueSpec, Quota
from shoal.model.wire import ExecRequest, TokenAsk
from shoal.store.protocol import JobQuery

BEN = Caller(principal="user/ben", project="other", role="member")


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    service.add_node("n1", 2)
    service.settle(queues.set_queue(service.plane, SYSTEM, "theirs", QueueSpec(project="other")))
    service.run(100)
    yield service
    service.close()


# --- tokens ---------------------------------------------------------------------------------------------------------------
def make(service: Service, caller: Caller = SYSTEM, **fields: Any) -> tuple[str, str]:
    made = service.settle(tokens.create_token(service.plane, caller, TokenAsk(**{"principal": "user/eve", **fields})))
    return made.token.id, made.text


def test_a_token_stands_for_its_caller_until_it_is_revoked(service: Service) -> None:
    token_id, text = make(service, role="member", project="default", unix_user="eve")
    caller = authenticate(service.plane, text)
    assert caller == Caller(principal="user/eve", project="default", role="member", unix_user="eve")
    service.settle(tokens.revoke_token(service.plane, SYSTEM, token_id))
    with pytest.raises(Unauthenticated):
        authenticate(service.plane, text)


def test_a_token_expires(service: Service) -> None:
    _, text = make(service, life="1h")
    authenticate(service.plane, text)
    service.clock.advance(3_600_000)
    with pytest.raises(Unauthenticated):
        authenticate(service.plane, text)


def test_no_other_text_is_a_token(service: Service) -> None:
    token_id, text = make(service)
    forged = text[:-9].replace(text.split("_")[2], "0" * 48) + text[-9:]
    for wrong in ("", "x", text + "0", text[:-1], forged, f"shoal_{token_id}_", "shoal_" + "é" * 8):
        with pytest.raises(Unauthenticated):
            authenticate(service.plane, wrong)
    assert read_token_id(text) == token_id


def test_the_store_holds_no_tokens_text(service: Service) -> None:
    _, text = make(service)
    assert all(text.split("_")[2] not in repr(token) for token in service.store.tokens())
    assert all("hash" not in view.__struct_fields__ for view in tokens.list_tokens(service.plane, SYSTEM))


def test_nobody_makes_a_token_for_more_than_it_has(service: Service) -> None:
    with pytest.raises(Forbidden):
        make(service, ANNA)
    bound = Caller(principal="user/boss", project="default", role="admin")
    make(service, bound, project="default")
    for more in ({}, {"project": "other"}, {"project": "default", "role": "node"}):
        with pytest.raises(Forbidden):
            make(service, bound, **more)


# --- visibility -----------------------------------------------------------------------------------------------------------
def test_another_projects_job_is_answered_like_one_that_is_not_there(service: Service) -> None:
    mine = service.submit(spec_of(run_ms=60_000))
    service.run(300)
    asks = [jobs.get_job, jobs.view_job, jobs.why_job, jobs.hold_job, jobs.requeue_job]
    for ref in (str(mine.number), mine.id, "4711"):
        for ask in asks:
            for caller, project in ((BEN, "default"), (BEN, "other"), (SYSTEM, "other")):
                with pytest.raises(NotFound, match="there is no job"):
                    ask(service.plane, caller, project, ref)
    with pytest.raises(NotFound, match="there is no project"):
        jobs.list_jobs(service.plane, BEN, JobQuery(project="default"))
    with pytest.raises(NotFound, match="there is no project"):
        events.read_events(service.plane, BEN, events.EventQuery(project="default"))
    with pytest.raises(NotFound, match="there is no project"):
        secrets.list_secrets(service.plane, BEN, "default")
    with pytest.raises(NotFound):
        queues.get_queue(service.plane, BEN, "default")


def test_a_nodes_view_tells_nothing_of_others_jobs_but_that_devices_are_taken(service: Service) -> None:
    mine = service.submit(spec_of(run_ms=60_000))
    service.run(300)
    (view,) = nodes.list_nodes(service.plane, BEN)
    assert [d.state for d in view.devices] == ["TAKEN", "FREE"]
    assert view.jobs == ()
    assert all(d.job is None and d.job_id is None for d in view.devices)
    (full,) = nodes.list_nodes(service.plane, ANNA)
    assert full.jobs == (mine.address,)
    assert full.devices[0].job_id == mine.id


def test_nodes_and_queues_are_changed_by_admins_of_everything_alone(service: Service) -> None:
    bound = Caller(principal="user/boss", project="default", role="admin")
    for caller in (ANNA, bound):
        with pytest.raises(Forbidden):
            nodes.drain_node(service.plane, caller, "n1")
        with pytest.raises(Forbidden):
            queues.set_queue(service.plane, caller, "q", QueueSpec())


# --- queues ---------------------------------------------------------------------------------------------------------------
def put(service: Service, name: str, **fields: Any) -> Any:
    if_version = fields.pop("if_version", None)
    return service.settle(queues.set_queue(service.plane, SYSTEM, name, QueueSpec(**fields), if_version=if_version))


def test_a_queue_changes_only_from_the_version_that_was_read(service: Service) -> None:
    first = put(service, "q", if_version=0)
    second = put(service, "q", weight=5, if_version=first.version)
    assert second.version > first.version
    for stale in (0, first.version):
        with pytest.raises(VersionConflict, match="read it again"):
            put(service, "q", weight=6, if_version=stale)
    assert put(service, "q", weight=5).version == second.version, "setting it to what it is writes nothing"


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("UPPER", {}),
        ("q", {"parent": "nowhere"}),
        ("q", {"parent": "q"}),
        ("default", {"parent": "under"}),
        ("q", {"weight": -1}),
        ("q", {"quotas": {"gpu": Quota(nominal=-1)}}),
        ("q", {"quotas": {"gpus": Quota()}}),
    ],
)
def test_a_queue_that_could_not_work_is_refused(service: Service, name: str, fields: dict[str, Any]) -> None:
    put(service, "under", parent="default")
    with pytest.raises(Invalid):
        put(service, name, **fields)


def test_a_queue_with_live_jobs_or_children_stays(service: Service) -> None:
    put(service, "top")
    put(service, "leaf", parent="top")
    job = service.submit(spec_of(queue="leaf", run_ms=1_000))
    with pytest.raises(Invalid, match="queues under it"):
        service.submit(spec_of(queue="top"))
    for name in ("top", "leaf"):
        with pytest.raises(Conflict):
            service.settle(queues.delete_queue(service.plane, SYSTEM, name))
    service.run_until_ended(job)
    for name in ("leaf", "top"):
        service.settle(queues.delete_queue(service.plane, SYSTEM, name))
    with pytest.raises(NotFound):
        queues.view_queue(service.plane, SYSTEM, "leaf")


def test_a_queues_numbers_follow_what_it_holds(service: Service) -> None:
    service.submit(spec_of(run_ms=60_000, gpus=2))
    service.submit(spec_of(run_ms=60_000, gpus=2))
    service.run(300)
    view = queues.view_queue(service.plane, ANNA, "default")
    assert view.used["gpu"] == 2_000
    assert (view.running_jobs, view.pending_jobs, view.pending_gpus) == (1, 1, 2)


# --- looking --------------------------------------------------------------------------------------------------------------
def test_status_and_why_of_a_job_at_each_stage(service: Service) -> None:
    first, second = service.submit(spec_of(run_ms=2_000, gpus=2)), service.submit(spec_of(gpus=2))
    service.run(300)
    running = jobs.view_job(service.plane, ANNA, "default", str(first.number))
    assert [(place[0], place[3]) for place in running.places] == [("n1", "STARTED")]
    assert running.samples
    waiting = jobs.why_job(service.plane, ANNA, "default", str(second.number))
    assert waiting.state == "QUEUED"
    assert waiting.reasons
    service.run_until_ended()
    ended = jobs.why_job(service.plane, ANNA, "default", str(second.number))
    assert "SUCCEEDED" in ended.headline


def test_pages_of_jobs_neither_skip_nor_repeat_while_new_ones_come(service: Service) -> None:
    made = [service.submit(spec_of(gpus=0)) for _ in range(10)]
    seen: list[int] = []
    page = jobs.list_jobs(service.plane, ANNA, JobQuery(project="default", limit=3))
    while True:
        seen.extend(job.number for job in page.items)
        service.submit(spec_of(gpus=0))
        if page.next is None:
            break
        query = JobQuery(project="default", limit=3, before=int(page.next), as_of=page.resource_version)
        page = jobs.list_jobs(service.plane, ANNA, query)
    assert seen == [job.number for job in reversed(made)]


def test_events_resume_without_loss_or_repeat(service: Service) -> None:
    job = service.submit(spec_of())
    service.run_until_ended(job)
    whole = events.read_events(service.plane, ANNA, events.EventQuery(project="default"))
    found, after = [], 0
    while True:
        page = events.read_events(service.plane, ANNA, events.EventQuery(project="default", after=after, limit=1))
        if not page.items:
            break
        found.extend(page.items)
        assert page.resource_version > after
        after = page.resource_version
    assert tuple(found) == whole.items


# --- terminals ------------------------------------------------------------------------------------------------------------
def test_a_terminal_is_called_for_once_and_taken_once_by_its_node(service: Service) -> None:
    job = service.submit(spec_of(run_ms=60_000))
    with pytest.raises(Conflict, match="does not run"):
        terminals.open_terminal(service.plane, ANNA, "default", str(job.number), ExecRequest(command=("sh",)))
    service.run(300)
    with pytest.raises(NotFound, match="tasks are 0 to 0"):
        terminals.open_terminal(service.plane, ANNA, "default", str(job.number), ExecRequest(rank=5))
    terminal = terminals.open_terminal(service.plane, ANNA, "default", str(job.number), ExecRequest(command=("sh",)))
    n1 = Caller(principal="node/n1", role="node")
    (call,) = nodes.poll_commands(service.plane, n1, 0).execs
    assert call == terminal.call
    assert nodes.poll_commands(service.plane, n1, 0).execs == ()
    with pytest.raises(NotFound):
        terminals.take_terminal(service.plane, Caller(principal="node/n2", role="node"), call.session)
    assert terminals.take_terminal(service.plane, n1, call.session) == terminal
    with pytest.raises(NotFound):
        terminals.take_terminal(service.plane, n1, call.session)


def test_a_terminal_that_nobody_takes_expires(service: Service) -> None:
    job = service.submit(spec_of(run_ms=600_000))
    service.run(300)
    terminal = terminals.open_terminal(service.plane, ANNA, "default", str(job.number), ExecRequest(command=("sh",)))
    service.clock.advance(120_000)
    with pytest.raises(NotFound):
        terminals.take_terminal(service.plane, Caller(principal="node/n1", role="node"), terminal.call.session)
    assert service.job(job).state is JobState.RUNNING

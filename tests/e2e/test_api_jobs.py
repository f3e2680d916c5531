"""Jobs over HTTP against a real server on a real store: create and its keys, pages, versions, wishes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from asking import BODY, JOBS, ask, problem
from live_server import HandAgent, Serving
from shoal.base.errors import (
    Conflict,
    Invalid,
    KeyReused,
    Malformed,
    NotFound,
    PageTokenMismatch,
    VersionConflict,
)
from shoal.client.api import Api
from shoal.model.job import CancelMode, JobSpec, JobState
from shoal.model.queue import QueueSpec
from shoal.model.wire import Batch, BatchItem, JobPatch


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("api") / "state") as serving:
        yield serving


@pytest.fixture
def api(server: Serving) -> Api:
    return server.api()


# --- create --------------------------------------------------------------------------------------------------------------------
def test_a_create_answers_201_with_its_place_and_version(server: Serving) -> None:
    made = ask(server, "POST", JOBS, BODY)
    assert made.status == 201
    assert made.headers["Location"] == f"{JOBS}/{made.json['id']}"
    assert made.headers["ETag"] == f'"{made.json["version"]}"'
    assert made.json["spec"]["gpus"] == {"count": 2}
    found = ask(server, "GET", made.headers["Location"])
    assert found.json["job"]["number"] == made.json["number"]


def test_a_repeat_with_the_same_key_gives_the_same_job(server: Serving) -> None:
    first = ask(server, "POST", JOBS, BODY, Idempotency_Key="key-1")
    again = ask(server, "POST", JOBS, '{"gpus":2,"run":"true"}', Idempotency_Key='"key-1"')
    assert (first.status, again.status) == (201, 201)
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.headers["Location"] == first.headers["Location"]
    assert again.json["id"] == first.json["id"]


def test_a_replay_answers_with_the_job_as_it_is_now(server: Serving, api: Api) -> None:
    job, _ = api.jobs.submit_body(b'{"run": "true"}', key="key-now")
    api.jobs.cancel(job.id)
    again, replayed = api.jobs.submit_body(b'{"run": "true"}', key="key-now")
    assert replayed
    assert again.state is JobState.CANCELLED


def test_a_key_with_another_body_is_refused_and_makes_nothing(server: Serving, api: Api) -> None:
    api.jobs.submit_body(b'{"run": "true"}', key="key-2")
    newest = api.jobs.list(limit=1).items[0].number
    with pytest.raises(KeyReused):
        api.jobs.submit_body(b'{"run": "false"}', key="key-2")
    assert api.jobs.list(limit=1).items[0].number == newest


def test_keys_are_each_principals_own(server: Serving, api: Api) -> None:
    other = server.api(server.token("member", principal="user/other"))
    mine, _ = api.jobs.submit_body(b'{"run": "true"}', key="key-3")
    theirs, replayed = other.jobs.submit_body(b'{"run": "false"}', key="key-3")
    assert not replayed
    assert mine.id != theirs.id


def test_concurrent_duplicates_make_one_job(server: Serving, api: Api) -> None:
    barrier = threading.Barrier(8)

    def create(_: int) -> tuple[str, bool]:
        barrier.wait()
        job, replayed = server.api().jobs.submit_body(b'{"run": "true"}', key="key-4")
        return job.id, replayed

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(create, range(8)))
    assert len({job_id for job_id, _ in answers}) == 1
    assert sorted(replayed for _, replayed in answers) == [False] + [True] * 7


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "\x07"])
def test_a_malformed_key_is_400_and_makes_nothing(server: Serving, api: Api, key: str) -> None:
    before = api.jobs.list(limit=1).items
    assert ask(server, "POST", JOBS, BODY, Idempotency_Key=key).status == 400
    assert api.jobs.list(limit=1).items == before


def test_a_dry_run_makes_nothing(server: Serving, api: Api) -> None:
    before = api.jobs.list(limit=1).items
    answer = ask(server, "POST", f"{JOBS}?dry_run=1", BODY)
    assert answer.status == 200
    assert "Location" not in answer.headers
    assert api.jobs.list(limit=1).items == before


def test_all_faults_of_a_spec_are_told_with_their_places(api: Api) -> None:
    with pytest.raises(Invalid) as caught:
        api.jobs.submit({"run": "true", "gpus": {"cuont": 2}, "nodez": 1, "memory": "64"})
    assert {fault.pointer for fault in caught.value.faults} >= {"/gpus/cuont", "/nodez", "/memory"}


def test_a_batch_answers_item_by_item(api: Api) -> None:
    good = BatchItem(key="batch-1", spec=JobSpec(run="true"))
    clash = BatchItem(key="batch-1", spec=JobSpec(run="false"))
    first, second, third = api.jobs.submit_batch(Batch(items=(good, good, clash)))
    assert first.job is not None
    assert second.job is not None
    assert (first.replayed, second.replayed, second.job.id) == (False, True, first.job.id)
    assert third.problem is not None
    assert (third.problem.status, third.problem.code) == (422, "idempotency-key-reused")


def test_one_broken_item_does_not_spoil_a_batch(server: Serving) -> None:
    items = [{"key": "b2-1", "spec": {"run": "true", "gpus": "h100:2"}}, {"key": "b2-2", "spec": {"runn": "true"}}]
    answer = ask(server, "POST", f"{JOBS}:batch", json.dumps({"items": items}))
    assert answer.status == 200
    assert answer.json[0]["job"]["spec"]["gpus"] == {"count": 2, "model": ["h100"]}
    assert answer.json[1]["problem"]["errors"][0]["pointer"] == "/runn"


def test_a_batch_item_and_a_single_create_share_their_key(api: Api) -> None:
    (batched,) = api.jobs.submit_batch(Batch(items=(BatchItem(key="b3", spec=JobSpec(run="true")),)))
    single, replayed = api.jobs.submit_body(b'{"run": "true"}', key="b3")
    assert batched.job is not None
    assert replayed
    assert single.id == batched.job.id


# --- pages ---------------------------------------------------------------------------------------------------------------------
def test_pages_neither_skip_nor_repeat_while_jobs_come_in(api: Api) -> None:
    """Platform case 35: equal times in all rows; every job of before is listed exactly once, none of those that came in between."""
    mine = [api.jobs.submit({"run": "true", "queue": "default", "name": f"page{i}"}).number for i in range(10)]
    seen: list[int] = []
    page = api.jobs.list(owner="user/admin", limit=3)
    while True:
        seen += [job.number for job in page.items]
        if page.next is None:
            break
        api.jobs.submit({"run": "true", "name": "late"})
        page = api.jobs.list(owner="user/admin", limit=3, cursor=page.next)
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == len(set(seen))
    assert set(mine) <= set(seen)
    assert max(seen) == max(mine)


def test_a_cursor_belongs_to_its_filters(server: Serving, api: Api) -> None:
    for _ in range(3):
        api.jobs.submit({"run": "true"})
    page = api.jobs.list(limit=1)
    assert page.next is not None
    with pytest.raises(PageTokenMismatch):
        api.jobs.list(limit=1, cursor=page.next, owner="user/other")
    assert api.jobs.list(limit=2, cursor=page.next).items[0].number == page.items[0].number - 1


def test_too_large_a_page_is_cut_down(server: Serving) -> None:
    assert ask(server, "GET", f"{JOBS}?limit=100000").status == 200


def test_states_may_be_listed_or_repeated(server: Serving, api: Api) -> None:
    api.jobs.cancel(api.jobs.submit({"run": "true"}).id)
    listed = ask(server, "GET", f"{JOBS}?state=CANCELLED,FAILED").json["items"]
    repeated = ask(server, "GET", f"{JOBS}?state=CANCELLED&state=FAILED").json["items"]
    assert listed == repeated
    assert {item["state"] for item in listed} == {"CANCELLED"}


# --- wishes --------------------------------------------------------------------------------------------------------------------
def test_hold_update_release_requeue_cancel(server: Serving, api: Api) -> None:
    job = api.jobs.submit({"run": "true", "gpus": 1})
    assert api.jobs.hold(job.number).state is JobState.HELD
    changed = api.jobs.update(job.number, JobPatch(priority=7, time="90m"))
    assert (changed.priority, changed.time_limit_ms) == (7, 5_400_000)
    assert api.jobs.release(job.number).state is JobState.QUEUED
    assert api.jobs.why(job.number).reasons
    answer = ask(server, "POST", f"{JOBS}/{job.number}:cancel", '{"reason": "enough"}')
    assert (answer.status, answer.json["state"]) == (200, "CANCELLED")
    assert api.jobs.cancel(job.number, mode=CancelMode.FORCE).state is JobState.CANCELLED
    with pytest.raises(Conflict):
        api.jobs.hold(job.number)


def test_a_cancel_of_a_running_job_is_202_and_a_wish(server: Serving, api: Api) -> None:
    agent = HandAgent(server.url, (server.state / "join.token").read_text().strip(), "cancel-node")
    job = api.jobs.submit({"run": "true", "gpus": {"count": 8, "model": ["h100"]}, "priority": 1000})
    prepare = agent.await_prepare()
    while prepare.job != job.id:
        agent.start(prepare)
        agent.finish(prepare)
        prepare = agent.await_prepare()
    agent.start(prepare)
    assert api.jobs.get(job.id).job.state is JobState.RUNNING
    answer = ask(server, "POST", f"{JOBS}/{job.number}:cancel")
    assert (answer.status, answer.json["state"], answer.json["cancel"]) == (202, "CANCELLING", "graceful")
    agent.finish(prepare, exit_code=143)
    assert api.jobs.wait(job.id, 10).state is JobState.CANCELLED
    api.nodes.cordon("cancel-node", "test is over")


def test_a_wait_ends_with_the_job_or_with_its_time(server: Serving, api: Api) -> None:
    job = api.jobs.submit({"run": "true", "gpus": 64})
    assert api.jobs.wait(job.id, 0.2).state is JobState.QUEUED
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.api().jobs.wait, job.id, 20)
        api.jobs.cancel(job.id)
        assert waiting.result(10).state is JobState.CANCELLED


# --- what is declared ----------------------------------------------------------------------------------------------------------
def test_a_queue_is_changed_on_the_version_that_was_read(api: Api) -> None:
    made = api.queues.set("q1", QueueSpec(weight=2_000), version=0)
    with pytest.raises(VersionConflict):
        api.queues.set("q1", QueueSpec(weight=3_000), version=0)
    changed = api.queues.set("q1", QueueSpec(weight=3_000), version=made.version)
    with pytest.raises(VersionConflict):
        api.queues.set("q1", QueueSpec(weight=4_000), version=made.version)
    assert api.queues.get("q1").spec.weight == 3_000
    with pytest.raises(VersionConflict):
        api.queues.delete("q1", version=made.version)
    api.queues.delete("q1", version=changed.version)
    with pytest.raises(NotFound):
        api.queues.get("q1")


def test_a_weak_or_listed_etag_is_malformed(server: Serving) -> None:
    assert ask(server, "PUT", "/v1/queues/q9", "{}", If_Match='W/"1"').status == 400


def test_secrets_go_in_and_never_come_out(server: Serving, api: Api) -> None:
    api.secrets.set("hf", b"s3cr3t-\x00-bytes")
    assert [secret.name for secret in api.secrets.list()] == ["hf"]
    assert b"s3cr3t" not in api.transport.request("GET", "/v1/projects/default/secrets").body
    assert ask(server, "GET", "/v1/projects/default/secrets/hf").status == 405
    api.secrets.delete("hf")
    assert api.secrets.list() == ()


def test_blobs_are_checked_and_sent_once(server: Serving, api: Api, tmp_path: Path) -> None:
    content = bytes(range(256)) * 20_000
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(content)
    name = api.blobs.put_file(source)
    assert api.blobs.has(name)
    api.blobs.get_to(name, target)
    assert target.read_bytes() == content
    path = f"/v1/projects/default/blobs/{name}"
    assert ask(server, "PUT", path, b"whatever", Content_Type="application/octet-stream").status == 200
    wrong = ask(server, "PUT", f"/v1/projects/default/blobs/{'0' * 64}", b"other bytes", Content_Type="application/octet-stream")
    problem(wrong, 422, "invalid")
    assert not api.blobs.has("0" * 64)
    with pytest.raises(NotFound):
        api.blobs.get_to("0" * 64, tmp_path / "nothing")
    with pytest.raises(Malformed):
        api.blobs.has("junk") or ask(server, "HEAD", "/v1/projects/default/blobs/junk")

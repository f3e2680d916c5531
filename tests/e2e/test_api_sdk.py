"""The Python SDK against a real server: the same nouns, the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from live_server import HandAgent, Serving
from shoal.base.errors import Invalid, KeyReused, NotFound, Unavailable
from shoal.model.job import GpuAsk, JobSpec, JobState
from shoal.sdk import Client, JobFailed, planning


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("sdk") / "state") as serving:
        yield serving


@pytest.fixture(scope="module")
def agent(server: Serving) -> HandAgent:
    return HandAgent(server.url, (server.state / "join.token").read_text().strip())


@pytest.fixture
def client(server: Serving, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client that finds the local server as a user's script would."""
    monkeypatch.setenv("SHOAL_STATE_DIR", str(server.state))
    for name in ("SHOAL_URL", "SHOAL_TOKEN", "SHOAL_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    found = Client()
    yield found
    found.close()


def test_submit_follow_wait(client: Client, agent: HandAgent) -> None:
    job = client.submit(run="python train.py", gpus=2, name="train")
    assert job.spec.gpus == GpuAsk(count=2)
    assert not job.ended
    assert job.exit_code is None
    prepare = agent.await_prepare()
    with ThreadPoolExecutor(1) as pool:
        lines = pool.submit(lambda: list(job.logs()))
        agent.start(prepare)
        agent.write(prepare, 0, b"epoch 1\nepo")
        agent.write(prepare, 11, b"ch 2\nno end")
        agent.finish(prepare)
        assert lines.result(10) == ["epoch 1", "epoch 2", "no end"]
    assert job.wait(10, check=True).state is JobState.SUCCEEDED
    assert job.exit_code == 0
    assert list(job.logs(follow=False)) == ["epoch 1", "epoch 2", "no end"]
    assert [task.bytes for task in job.tasks()] == [22]
    assert client.job(job.number).id == client.job(job.id).id == job.id
    assert next(client.jobs(count_max=1)).id == job.id


def test_a_failure_is_told_with_its_exit_code(client: Client, agent: HandAgent) -> None:
    job = client.submit(JobSpec(run="false"), gpus=1)
    prepare = agent.await_prepare()
    agent.start(prepare)
    agent.finish(prepare, exit_code=7)
    with pytest.raises(JobFailed, match="FAILED") as failed:
        job.wait(10, check=True)
    assert failed.value.job.exit_code == 7


def test_verbs_move_the_job_forward(client: Client) -> None:
    job = client.submit({"run": "true", "gpus": "h100:64"}, priority=1)
    assert job.hold().state is JobState.HELD
    assert job.update(priority=9).record.priority == 9
    assert job.release().state is JobState.QUEUED
    assert job.why().reasons
    assert job.cancel(reason="done looking").state is JobState.CANCELLED
    assert job.refresh().record.cancel_reason == "done looking"


def test_a_key_of_ones_own_makes_one_job_from_any_process(client: Client, server: Serving) -> None:
    first = client.submit(run="true", key="nightly-2026-11-30")
    again = Client(server.url, server.admin).submit(run="true", key="nightly-2026-11-30")
    assert again.id == first.id
    with pytest.raises(KeyReused):
        client.submit(run="false", key="nightly-2026-11-30")


def test_without_a_key_the_same_call_twice_is_two_jobs(client: Client, server: Serving) -> None:
    assert client.submit(run="true").id != client.submit(run="true").id
    assert list((server.state / "submissions").glob("*.json")) == [], "both were answered"


def test_faults_are_told_all_at_once(client: Client) -> None:
    with pytest.raises(Invalid) as caught:
        client.submit(run="true", gpuz=1, memory="lots")
    assert {fault.pointer for fault in caught.value.faults} == {"/gpuz", "/memory"}


def test_nodes_queues_and_events(client: Client, agent: HandAgent) -> None:
    assert [view.node.id for view in client.nodes()] == [agent.name]
    assert [queue.name for queue in client.queues()] == ["default"]
    events = client.events(after=0, kinds=("node",))
    assert next(events).subject == agent.name


def test_without_a_server_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHOAL_URL", "SHOAL_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Unavailable, match="shoal up"):
        Client(state_dir=tmp_path)


def test_a_server_answers_planning_questions_as_the_library_does(client: Client) -> None:
    inputs = {"mean_gap": "4 min", "keep_alive": {"value": 10, "unit": "min"}, "cold_latency": 30}
    assert client.api.planning.ask("keep_alive", inputs) == planning.keep_alive(**inputs)
    assert isinstance(client.api.planning.ask("keep_alive", {"mean_gap": "4 GB"}), planning.Refused)
    assert {topic.topic for topic in client.api.planning.topics()} >= {"spot_gang", "committed"}
    assert client.api.planning.topic("keep_alive") == planning.describe("keep_alive")
    with pytest.raises(NotFound, match="keep_alive"):
        client.api.planning.ask("keep_alife", {})

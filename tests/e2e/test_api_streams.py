"""Logs, events and terminals over HTTP: nothing lost, nothing twice, over broken connections and killed servers."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from live_server import HandAgent, ServerProcess, Serving, server_process, wait_until
from shoal.base.errors import Conflict, Forbidden, NotFound, Unauthenticated, Unavailable, VersionExpired
from shoal.client.api import Api
from shoal.client.terminal import read_exit
from shoal.model.codec import decode_json
from shoal.model.command import Prepare
from shoal.model.event import EventRow
from shoal.model.job import JobState
from shoal.model.wire import EventPage, ExecRequest, ExecStream
from shoal.store.logs import LogStore


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("streams") / "state") as serving:
        yield serving


@pytest.fixture
def api(server: Serving) -> Api:
    return server.api()


@pytest.fixture
def agent(server: Serving) -> Iterator[HandAgent]:
    """A node that is alone in taking work; each test has its own."""
    node = HandAgent(server.url, (server.state / "join.token").read_text().strip(), f"n{time.monotonic_ns()}")
    yield node
    server.api().nodes.cordon(node.name, "test is over")


def run_job(api: Api, agent: HandAgent, tasks: int = 1) -> Prepare:
    """A job that runs on `agent`."""
    job = api.jobs.submit({"run": "true", "gpus": tasks, "tasks_per_node": tasks})
    prepare = agent.await_prepare()
    assert prepare.job == job.id
    agent.start(prepare)
    return prepare


# --- logs ----------------------------------------------------------------------------------------------------------------------
def test_a_follower_sees_every_byte_once_and_the_end(api: Api, agent: HandAgent) -> None:
    prepare = run_job(api, agent)
    whole = b""
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(lambda: b"".join(piece.data for piece in api.logs.follow(prepare.job)))
        for number in range(30):
            line = f"line {number}\n".encode()
            agent.write(prepare, len(whole), line)
            whole += line
        agent.finish(prepare)
        assert following.result(20) == whole
    assert b"".join(piece.data for piece in api.logs.follow(prepare.job, after=40)) == whole[40:]
    read = api.logs.read(prepare.job, after=7, limit=6)
    assert (read.attempt, read.offset, read.data) == (1, 7, whole[7:13])


def test_a_follower_that_came_before_the_start_waits_for_it(api: Api, agent: HandAgent) -> None:
    job = api.jobs.submit({"run": "true", "gpus": 1})
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(lambda: [piece.data for piece in api.logs.follow(job.id)])
        prepare = agent.await_prepare()
        agent.start(prepare)
        agent.write(prepare, 0, b"hello\n")
        agent.finish(prepare)
        assert b"".join(following.result(20)) == b"hello\n"


def test_a_job_cancelled_before_its_start_has_an_empty_log_that_ends(api: Api) -> None:
    job = api.jobs.submit({"run": "true", "gpus": 64})
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(lambda: list(api.logs.follow(job.id)))
        api.jobs.cancel(job.id)
        assert following.result(10) == []


def test_each_attempt_and_task_has_a_log_of_its_own(api: Api, agent: HandAgent) -> None:
    prepare = run_job(api, agent, tasks=2)
    agent.write(prepare, 0, b"first\n")
    api.jobs.requeue(prepare.job)
    agent.finish(prepare, exit_code=143)
    second = agent.await_prepare()
    assert second.attempt == 2
    agent.start(second)
    agent.write(second, 0, b"second\n")
    agent.write(second, 0, b"other task\n", rank=1)
    agent.finish(second)
    tasks = [(task.attempt, task.rank, task.bytes) for task in api.logs.tasks(prepare.job)]
    assert tasks == [(1, 0, 6), (2, 0, 7), (2, 1, 11)]
    assert api.logs.read(prepare.job).data == b"second\n"
    assert [piece.data for piece in api.logs.follow(prepare.job, attempt=1)] == [b"first\n"]
    with pytest.raises(NotFound):
        api.logs.read(prepare.job, attempt=3)


def test_a_log_outlives_any_number_of_killed_servers(tmp_path: Path) -> None:
    """A follower, a writer and a server that is killed three times; the bytes that came out are those that went in."""
    whole = bytearray()
    with server_process(tmp_path / "state", "--log-level", "error") as server:
        agent = HandAgent(server.url, (server.state / "join.token").read_text().strip())
        prepare = run_job(server.api(), agent)
        with ThreadPoolExecutor(1) as pool:
            following = pool.submit(lambda: b"".join(piece.data for piece in server.api().logs.follow(prepare.job)))
            for round_ in range(3):
                write_lines(agent, prepare, whole, 40, f"round {round_}")
                server.kill()
                server.start()
                agent.connect(server.url)
            write_lines(agent, prepare, whole, 5, "last")
            agent.finish(prepare)
            assert following.result(30) == bytes(whole)
        assert server.api().jobs.wait(prepare.job, 10).state is JobState.SUCCEEDED


def write_lines(agent: HandAgent, prepare: Prepare, whole: bytearray, count: int, what: str) -> None:
    for number in range(count):
        line = f"{what} line {number}\n".encode()
        agent.write(prepare, len(whole), line)
        whole += line


def test_followers_hold_no_worker(server: Serving, api: Api, agent: HandAgent) -> None:
    """Platform case 32, small: 200 idle followers, and everything else answers as if they were not there."""
    prepare = run_job(api, agent)
    with idle_followers(server, prepare, 200):
        wait_until(lambda: api.health().watchers >= 200, "the followers to be seen")
        times = []
        for _ in range(40):
            begun = time.perf_counter()
            api.jobs.submit({"run": "true", "gpus": 64})
            api.jobs.list(limit=5)
            times.append(time.perf_counter() - begun)
        assert sorted(times)[-4] < 0.5
        agent.write(prepare, 0, b"to all\n")
        agent.finish(prepare)
    wait_until(lambda: api.health().watchers == 0, "the followers to be forgotten")


def test_followers_of_one_log_share_its_reads(server: Serving, api: Api, agent: HandAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read each would keep the file threads busy for everybody else at every line that a popular job writes."""
    prepare = run_job(api, agent)
    reads: list[int] = []
    read = LogStore.read
    monkeypatch.setattr(LogStore, "read", lambda self, *where: (reads.append(where[3]), read(self, *where))[1])
    with idle_followers(server, prepare, 100):
        wait_until(lambda: api.health().watchers >= 100, "the followers to be seen")
        agent.write(prepare, 0, b"to all\n")
        agent.finish(prepare)
    assert 1 <= len(reads) < 50


@contextmanager
def idle_followers(server: Serving, prepare: Prepare, count: int) -> Iterator[None]:
    """Connections that follow a log; at the end each must have got everything."""
    where = urlsplit(server.url)
    path = f"/v1/projects/default/jobs/{prepare.job}/logs/0?follow=1"
    open_: list[tuple[http.client.HTTPConnection, http.client.HTTPResponse]] = []
    for _ in range(count):
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=20)
        connection.request("GET", path, headers={"Authorization": f"Bearer {server.admin}"})
        open_.append((connection, connection.getresponse()))
    try:
        yield
        assert {response.read() for _, response in open_} == {b"to all\n"}
    finally:
        for connection, _ in open_:
            connection.close()


def test_a_follower_that_goes_is_forgotten(server: Serving, api: Api, agent: HandAgent) -> None:
    prepare = run_job(api, agent)
    before = api.health().watchers
    with api.transport.stream(f"/v1/projects/default/jobs/{prepare.job}/logs/0", query={"follow": 1}):
        wait_until(lambda: api.health().watchers == before + 1, "the follower to be seen")
    wait_until(lambda: api.health().watchers == before, "the follower to be forgotten")
    agent.finish(prepare)


# --- events --------------------------------------------------------------------------------------------------------------------
def names(rows: list[EventRow]) -> list[tuple[int, int, str]]:
    return [(row.version, row.ordinal, row.subject) for row in rows]


def collect(api: Api, count: int, **where: object) -> list[EventRow]:
    rows: list[EventRow] = []
    for row in api.events.watch(**where):  # type: ignore[arg-type]
        rows.append(row)
        if len(rows) == count:
            return rows
    raise AssertionError("a watch ended")


def test_a_watch_gives_each_event_once_in_commit_order(server: Serving, api: Api) -> None:
    start = api.events.read(limit=1_000).resource_version
    with ThreadPoolExecutor(4) as pool:
        watching = pool.submit(collect, server.api(), 40, after=start, kinds=("job",))
        list(pool.map(lambda _: server.api().jobs.submit({"run": "true", "gpus": 64}), range(40)))
        rows = watching.result(20)
    assert names(rows) == names(list(api.events.read(after=start, kinds=("job",)).items))
    assert names(rows) == sorted(names(rows))


def test_a_watch_from_now_on_begins_now(server: Serving, api: Api) -> None:
    api.jobs.submit({"run": "true", "gpus": 64})
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(collect, server.api(), 1)
        wait_until(lambda: api.health().watchers >= 1, "the watcher to be seen")
        job = api.jobs.submit({"run": "true", "gpus": 64})
        assert watching.result(10)[0].subject == job.id


def test_a_page_and_a_stream_resume_in_the_middle_of_a_version(server: Serving, api: Api, agent: HandAgent) -> None:
    """Broken off after each event in turn, also between two of one version: the rest comes, and nothing twice."""
    start = api.events.read(limit=1_000).resource_version
    api.jobs.submit({"run": "true", "gpus": 1})
    agent.blink(agent.await_prepare())
    whole = list(api.events.read(after=start).items)
    assert any(row.ordinal > 0 for row in whole), "starting and ending in one upload makes two events of one version"
    ids = stream_ids(api, start, len(whole))
    assert len(set(ids)) == len(ids)
    for at, event_id in enumerate(ids):
        rest = names(whole)[at + 1 :]
        page = api.transport.request("GET", "/v1/projects/default/events", query={"after": event_id})
        assert names(list(decode_json(page.body, EventPage).items)) == rest
        assert stream_ids(api, event_id, len(rest)) == ids[at + 1 :]


def stream_ids(api: Api, after: int | str, count: int) -> list[str]:
    """The ids of the next `count` events of a raw stream."""
    ids: list[str] = []
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
    with api.transport.stream("/v1/projects/default/events", headers=headers) as pieces:
        message: list[str] = []
        for line in pieces.lines():
            if line:
                message.append(line.decode())
                continue
            if "event: bookmark" not in message:
                ids.append(message[0].removeprefix("id: "))
            message = []
            if len(ids) == count:
                break
    return ids


def test_raw_stream_ids_resume(server: Serving, api: Api) -> None:
    """What EventSource in a browser does: `Last-Event-ID` with the id of the last message."""
    start = api.events.read(limit=1_000).resource_version
    jobs = [api.jobs.submit({"run": "true", "gpus": 64}).id for _ in range(3)]
    path = "/v1/projects/default/events"
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(start)}
    seen: list[str] = []
    with api.transport.stream(path, headers=headers) as pieces:
        lines = pieces.lines()
        ids = [line for line in (next(lines) for _ in range(8)) if line.startswith(b"id: ")]
    assert ids[0] == f"id: {start}".encode(), "the stream begins with a bookmark of where it is"
    headers["Last-Event-ID"] = ids[1].removeprefix(b"id: ").decode()
    with api.transport.stream(path, headers=headers) as pieces:
        for line in pieces.lines():
            seen += [job for job in jobs if job.encode() in line]
            if seen[-1:] == jobs[-1:]:
                break
    assert seen == jobs[1:]


def test_an_empty_page_is_held_back_until_something_happens(server: Serving, api: Api) -> None:
    start = api.events.read(limit=1_000).resource_version
    assert api.events.read(after=start, wait="100ms").items == ()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.api().events.read, after=start, wait="20s")
        job = api.jobs.submit({"run": "true", "gpus": 64})
        assert [row.subject for row in waiting.result(10).items] == [job.id]


def test_other_projects_events_are_not_there(server: Serving, api: Api) -> None:
    api.jobs.submit({"run": "true", "gpus": 64})
    with pytest.raises(NotFound):
        server.api(project="nowhere").events.read()
    with pytest.raises(VersionExpired):
        api.events.read(after=10**9)


def test_pages_of_any_size_lose_nothing(api: Api, agent: HandAgent) -> None:
    """A version with several events that a page's limit would split is left for the next page, and not passed by."""
    start = api.events.read(limit=1_000).resource_version
    for _ in range(3):
        api.jobs.submit({"run": "true", "gpus": 1})
        agent.blink(agent.await_prepare())
    whole = names(list(api.events.read(after=start).items))
    for limit in (1, 2, 3, 5):
        seen: list[tuple[int, int, str]] = []
        after = start
        while (page := api.events.read(after=after, limit=limit)).resource_version > after:
            seen += names(list(page.items))
            after = page.resource_version
        assert seen == whole, f"limit {limit}"


def test_nodes_are_everybodys_and_tokens_are_not(server: Serving, api: Api, agent: HandAgent) -> None:
    start = api.events.read(limit=1_000).resource_version
    api.nodes.cordon(agent.name, "fan is loud")
    viewer = server.api(server.token("viewer", principal="user/curious"))
    api.nodes.resume(agent.name)
    kinds = [row.kind for row in api.events.read(after=start).items]
    assert kinds == ["node", "access", "node"]
    assert [row.kind for row in viewer.events.read(after=start).items] == ["node", "node"]
    with ThreadPoolExecutor(2) as pool:
        mine = pool.submit(collect, server.api(), 3, after=start)
        theirs = pool.submit(collect, viewer, 2, after=start)
        assert [row.kind for row in mine.result(10)] == kinds
        assert [row.kind for row in theirs.result(10)] == ["node", "node"]


def test_a_watch_survives_killed_servers_without_loss_or_repeat(tmp_path: Path) -> None:
    with server_process(tmp_path / "state", "--log-level", "error") as server:
        api = server.api()
        start = api.events.read().resource_version
        with ThreadPoolExecutor(1) as pool:
            watching = pool.submit(collect, server.api(), 30, after=start, kinds=("job",))
            made = []
            for _ in range(3):
                made += [api.jobs.submit({"run": "true"}).id for _ in range(10)]
                server.kill()
                server.start()
            rows = watching.result(30)
        assert [row.subject for row in rows] == made


# --- terminals -----------------------------------------------------------------------------------------------------------------
def serve_echo(agent: HandAgent, seen: list[bytes]) -> None:
    """The agent's end: answers what is typed with the same on stdout, ends with exit code 3 when nothing more comes."""
    call = next(session for session in agent.poll(10_000).execs)
    with agent.api.terminals.serve(call.session) as terminal:
        terminal.send(ExecStream.STDERR, " ".join(call.request.command).encode())
        for stream, data in terminal.messages():
            seen.append(bytes([stream]) + data)
            if stream is ExecStream.STDIN:
                terminal.send(ExecStream.STDOUT, data)
            elif stream is ExecStream.STDIN_END:
                terminal.exit(3, "bye")


def test_a_terminal_carries_both_ways_and_ends_with_the_exit_code(api: Api, agent: HandAgent) -> None:
    prepare = run_job(api, agent)
    seen: list[bytes] = []
    got: list[tuple[ExecStream, bytes]] = []
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(serve_echo, agent, seen)
        with api.terminals.open(prepare.job, ExecRequest(command=("bash", "-l"), tty=True)) as terminal:
            terminal.resize(50, 132)
            big = bytes(range(256)) * 2_000
            terminal.send(ExecStream.STDIN, big)
            terminal.end_stdin()
            for stream, data in terminal.messages():
                got.append((stream, data))
                if stream is ExecStream.EXIT:
                    break
        serving.result(10)
    assert got[0] == (ExecStream.STDERR, b"bash -l")
    assert b"".join(data for stream, data in got if stream is ExecStream.STDOUT) == big
    assert read_exit(got[-1][1]).exit_code == 3
    assert seen[0][0] == ExecStream.RESIZE
    assert json.loads(seen[0][1:]) == {"rows": 50, "columns": 132}
    agent.finish(prepare)


def test_when_the_user_goes_the_agents_end_is_closed(api: Api, agent: HandAgent) -> None:
    prepare = run_job(api, agent)
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(serve_echo, agent, [])
        terminal = api.terminals.open(prepare.job, ExecRequest(command=("cat",)))
        assert next(terminal.messages())[0] is ExecStream.STDERR
        terminal.close()
        serving.result(10)
    agent.finish(prepare)


def test_when_the_agent_goes_the_users_end_is_closed(api: Api, agent: HandAgent) -> None:
    prepare = run_job(api, agent)

    def serve_and_go() -> None:
        call = agent.poll(10_000).execs[0]
        agent.api.terminals.serve(call.session).close()

    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(serve_and_go)
        with api.terminals.open(prepare.job, ExecRequest(command=("cat",))) as terminal:
            assert list(terminal.messages()) == []
        serving.result(10)
    agent.finish(prepare)


def test_refused_terminals_say_why(server: Serving, api: Api, agent: HandAgent) -> None:
    waiting = api.jobs.submit({"run": "true", "gpus": 64})
    with api.terminals.open(waiting.number, ExecRequest(command=("ls",))) as terminal, pytest.raises(Conflict, match="does not run"):
        list(terminal.messages())
    prepare = run_job(api, agent)
    with api.terminals.open(prepare.job, ExecRequest(command=("ls",), rank=9)) as terminal, pytest.raises(NotFound, match="task 9"):
        list(terminal.messages())
    with pytest.raises(NotFound, match="no terminal"), agent.api.terminals.serve("not-a-session") as terminal:
        list(terminal.messages())
    viewer = server.api(server.token("viewer"))
    with pytest.raises(Forbidden):
        viewer.terminals.open(prepare.job, ExecRequest(command=("ls",)))
    with pytest.raises(Unauthenticated):
        server.api("").terminals.open(prepare.job, ExecRequest(command=("ls",)))
    agent.finish(prepare)


def test_a_slow_reader_slows_its_writer(api: Api, agent: HandAgent) -> None:
    """Flow control: an agent that writes without end stands still while the user does not read, and nothing piles up between."""
    prepare = run_job(api, agent)
    sent = 0
    stop = threading.Event()

    def flood() -> None:
        nonlocal sent
        call = agent.poll(10_000).execs[0]
        with agent.api.terminals.serve(call.session) as terminal:
            while not stop.is_set():
                try:
                    terminal.send(ExecStream.STDOUT, b"x" * 65_536)
                except Unavailable:
                    return
                sent += 65_536

    flooding = threading.Thread(target=flood, daemon=True)
    flooding.start()
    terminal = api.terminals.open(prepare.job, ExecRequest(command=("yes",)))
    wait_until(lambda: sent > 0, "the flood to begin")
    last = -1
    while last != sent:
        last = sent
        time.sleep(0.3)
    assert sent < 64 << 20, "hundreds of megabytes mean that somebody buffers without bound"
    terminal.close()
    stop.set()
    flooding.join(10)
    assert not flooding.is_alive()
    agent.finish(prepare)


# --- the end -------------------------------------------------------------------------------------------------------------------
def test_a_server_that_stops_ends_its_streams_and_exits_cleanly(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "state", "--log-level", "error").start()
    api = server.api(patience_s=0)
    agent = HandAgent(server.url, (server.state / "join.token").read_text().strip())
    prepare = run_job(api, agent)
    with ThreadPoolExecutor(3) as pool:
        following = pool.submit(lambda: list(server.api(0).logs.follow(prepare.job)))
        watching = pool.submit(lambda: list(server.api(0).events.watch()))
        polling = pool.submit(agent.poll, 25_000)
        wait_until(lambda: api.health().watchers >= 2, "the streams to be open")
        begun = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begun < 4
        for stream in (following, watching):
            with pytest.raises(Unavailable):
                stream.result(10)
        assert polling.result(10).rows == ()
    assert not (server.state / "server.pid").exists()

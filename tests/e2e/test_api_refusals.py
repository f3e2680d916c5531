"""What the API refuses, over HTTP against a real server: every refusal a problem, and access by role, project and token."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from asking import BODY, JOBS, Answer, ask, problem
from live_server import HandAgent, Serving
from shoal.api import endpoint, protocol
from shoal.base.errors import (
    Forbidden,
    NotFound,
    Unauthenticated,
)
from shoal.client.api import Api
from shoal.model.job import JobSpec
from shoal.model.queue import QueueSpec


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("api") / "state") as serving:
        yield serving


@pytest.fixture
def api(server: Serving) -> Api:
    return server.api()


# --- errors --------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing/here", 404, "not-found"),
        ("GET", "/v1/projects/default/jobs/999999", 404, "not-found"),
        ("GET", "/v1/projects/default/jobs/12:nonsense", 404, "not-found"),
        ("GET", "/v1/projects/other/jobs", 404, "not-found"),
        ("DELETE", "/v1/meta", 405, "method-not-allowed"),
        ("GET", f"{JOBS}?limit=0", 400, "malformed"),
        ("GET", f"{JOBS}?limit=x", 422, "invalid"),
        ("GET", f"{JOBS}?stat=QUEUED", 422, "invalid"),
        ("GET", f"{JOBS}?array={1 << 63}", 400, "malformed"),
        ("GET", f"{JOBS}?array={'9' * 5_000}", 400, "malformed"),
        ("GET", f"{JOBS}/1/logs/{'9' * 5_000}", 404, "not-found"),
        ("GET", f"{JOBS}/{'9' * 5_000}", 404, "not-found"),
        ("GET", f"/v1/projects/default/events?after={'9' * 5_000}", 400, "malformed"),
        ("GET", "/v1/nodes/x?y=%00", 422, "invalid"),
        ("GET", f"{JOBS}?state=SLEEPING", 422, "invalid"),
        ("GET", f"{JOBS}?cursor=junk", 400, "page-token-mismatch"),
        ("GET", f"{JOBS}/1/logs/x", 404, "not-found"),
        ("GET", "/v1/projects/default/events?after=99999999", 410, "resource-version-expired"),
    ],
)
def test_every_refusal_is_a_problem(server: Serving, method: str, path: str, status: int, code: str) -> None:
    problem(ask(server, method, path), status, code)


def test_a_wrong_method_names_the_right_ones(server: Serving) -> None:
    assert ask(server, "PUT", JOBS, "{}").headers["Allow"] == "GET, POST"


@pytest.mark.parametrize(
    ("body", "media", "status", "code"),
    [
        ("{", "application/json", 400, "malformed"),
        ("", "application/json", 400, "malformed"),
        ("[]", "application/json", 422, "invalid"),
        ("\udcff", "application/json", 400, "malformed"),
        ("[" * 100_000 + "]" * 100_000, "application/json", 400, "malformed"),
        ('{"run":' * 50_000 + "1" + "}" * 50_000, "application/json", 400, "malformed"),
        (BODY, "text/plain", 415, "unsupported-media-type"),
        ('{"run": "' + "x" * (1 << 20) + '"}', "application/json", 413, "too-large"),
    ],
)
def test_bodies_that_cannot_be_taken(server: Serving, body: str, media: str, status: int, code: str) -> None:
    raw = body.encode("utf-8", "surrogateescape")
    problem(ask(server, "POST", JOBS, raw, Content_Type=media), status, code)


def test_a_body_without_a_length_is_cut_off_at_the_limit(server: Serving) -> None:
    """Chunked bodies announce nothing; the limit holds while they come in."""
    where = urlsplit(server.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=20)
    pieces = (b"x" * (256 << 10) for _ in range(8))
    headers = {"Authorization": f"Bearer {server.admin}", "Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    try:
        connection.request("POST", JOBS, body=pieces, headers=headers, encode_chunked=True)
    except ConnectionError:
        return  # The server had answered and closed before everything was sent.
    problem(Answer(connection.getresponse()), 413, "too-large")
    connection.close()


ENDLESS_HEADERS = b"GET / HTTP/1.1\r\n" + b"x-more: %b\r\n" % (b"y" * 1_000) * 80


@pytest.mark.parametrize("junk", [b"\x16\x03\x01 hello\r\n\r\n", ENDLESS_HEADERS], ids=["no HTTP", "headers without end"])
def test_what_is_no_http_is_told_so(server: Serving, junk: bytes) -> None:
    where = urlsplit(server.url)
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=10) as sock:
        sock.sendall(junk)
        answer = b""
        while piece := sock.recv(4096):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in answer


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"])
def test_who_begins_a_request_and_sends_no_more_is_cut_off(server: Serving, begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few hundred such sockets would use up the server's descriptors, and need no token for it."""
    for name in ("REQUEST_HEAD_S_MAX", "REQUEST_BODY_PAUSE_S_MAX"):
        monkeypatch.setattr(protocol, name, 0.3)
    where = urlsplit(server.url)
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=10) as sock:
        sock.sendall(begun)
        with suppress(ConnectionResetError):
            while sock.recv(4096):
                pass


def test_a_slow_answer_is_no_slow_client(server: Serving, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUEST_HEAD_S_MAX", "REQUEST_BODY_PAUSE_S_MAX"):
        monkeypatch.setattr(protocol, name, 0.1)
    job = api.jobs.submit(JobSpec(run="true"))
    waited = ask(server, "GET", f"{JOBS}/{job.number}/wait?timeout=500ms")
    assert waited.status == 200


def test_a_client_may_bring_the_request_id(server: Serving) -> None:
    assert ask(server, "GET", "/v1/meta", X_Request_Id="mine-17").headers["X-Request-Id"] == "mine-17"
    made = ask(server, "GET", "/v1/meta", X_Request_Id="no blanks allowed").headers["X-Request-Id"]
    assert made != "no blanks allowed"
    assert made


# --- access --------------------------------------------------------------------------------------------------------------------
def test_without_a_token_and_with_a_wrong_one(server: Serving) -> None:
    told = problem(ask(server, "GET", JOBS, Authorization=""), 401, "unauthenticated")
    assert "SHOAL_TOKEN" in told["detail"]
    changed = server.admin[:-12] + ("0" if server.admin[-12] != "0" else "1") + server.admin[-11:]
    answer = ask(server, "GET", JOBS, Authorization=f"Bearer {changed}")
    problem(answer, 401, "unauthenticated")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_a_role_too_small_names_the_permission(server: Serving) -> None:
    viewer = server.api(server.token("viewer"))
    assert viewer.jobs.list().items is not None
    with pytest.raises(Forbidden, match=r"jobs\.create"):
        viewer.jobs.submit({"run": "true"})
    with pytest.raises(Forbidden, match=r"nodes\.drain"):
        viewer.nodes.drain("n1")


@pytest.mark.parametrize("role", ["node", "join"])
def test_machines_tokens_open_nothing_of_peoples(server: Serving, role: str) -> None:
    with pytest.raises(Forbidden):
        server.api(server.token(role)).jobs.list()


def test_peoples_tokens_open_nothing_of_machines(api: Api) -> None:
    with pytest.raises(Forbidden):
        api.agent.commands(0, 0)


def test_a_token_of_another_project_sees_nothing_there(server: Serving, api: Api) -> None:
    api.queues.set("elsewhere", QueueSpec(project="elsewhere"))
    job = api.jobs.submit({"run": "true"})
    stranger = server.api(server.token("admin", project="elsewhere"))
    for look in (lambda: stranger.jobs.get(job.id), lambda: stranger.jobs.list(), lambda: stranger.jobs.cancel(job.number)):
        with pytest.raises(NotFound):
            look()
    at_home = server.api(stranger.transport.token, project="elsewhere")
    with pytest.raises(NotFound):
        at_home.jobs.get(job.id)
    assert at_home.jobs.list().items == ()


def test_a_revoked_token_is_dead_at_once(server: Serving, api: Api) -> None:
    from shoal.model.wire import TokenAsk

    made = api.tokens.create(TokenAsk(principal="user/gone", role="member"))
    holder = server.api(made.text)
    holder.jobs.list()
    api.tokens.revoke(made.token.id)
    with pytest.raises(Unauthenticated):
        holder.jobs.list()


def test_a_revoked_token_ends_what_it_follows(server: Serving, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "TOKEN_LOOK_S", 0.1)
    from shoal.model.wire import TokenAsk

    made = api.tokens.create(TokenAsk(principal="user/anna", role="viewer"))
    where = urlsplit(server.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=10)
    headers = {"Authorization": f"Bearer {made.text}", "Accept": "text/event-stream"}
    connection.request("GET", "/v1/projects/default/events", headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200
    api.tokens.revoke(made.token.id)
    with suppress(http.client.IncompleteRead):
        answer.read()  # ends, long before the socket's timeout
    connection.close()


def test_a_node_that_was_removed_gets_no_command_by_the_poll_that_it_left(tmp_path: Path) -> None:
    """
    1. An agent's poll waits; its node is removed.
    2. The poll ends at once, so that it cannot bring what a machine that joins under the name is to do.
    """
    with Serving(tmp_path / "state") as server, ThreadPoolExecutor(1) as aside:
        join_token = (server.state / "join.token").read_text().strip()
        old = HandAgent(server.url, join_token)
        waiting = aside.submit(old.poll, 8_000)
        time.sleep(0.3)  # until it waits there; were it later, it would be refused at once, as is right too
        server.api().nodes.remove("n1")
        with pytest.raises(Unauthenticated):
            waiting.result(5)
        HandAgent(server.url, join_token)


def test_token_texts_are_stored_nowhere(server: Serving, api: Api) -> None:
    text = server.token("member", principal="user/secretive")
    secret = text.split("_")[2]
    listed = api.transport.request("GET", "/v1/tokens").body
    assert secret.encode() not in listed
    for path in server.state.glob("shoal.db*"):
        assert secret.encode() not in path.read_bytes()

"""When a request is sent again and when it is not, against a server that breaks off at will: real sockets, scripted answers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from shoal.base.errors import Conflict, Malformed, NotFound, RateLimited, ShoalError, Unavailable
from shoal.client.transport import REPEATABLE, Transport

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Step = Callable[[socket.socket, bytes], None]


def answer(data: bytes) -> Step:
    return lambda sock, _request: sock.sendall(data)


def hang_up(_sock: socket.socket, _request: bytes) -> None:
    """Closes without a byte; the connection's loop sees to it."""
    raise ConnectionError


def problem(status: int, code: str, extra: str = "") -> Step:
    body = (
        f'{{"type":"urn:shoal:error:{code}","title":"t","status":{status},"detail":"words","code":"{code}","retryable":true{extra}}}'
    ).encode()
    return answer(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)


class Scripted:
    """Answers the nth request with the nth step; remembers requests and counts connections."""

    def __init__(self, steps: list[Step]) -> None:
        self._steps = steps
        self.requests: list[bytes] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            try:
                while request := read_request(sock):
                    self.requests.append(request)
                    self._steps[len(self.requests) - 1](sock, request)
            except (ConnectionError, IndexError):
                return

    def close(self) -> None:
        self._listener.close()


def read_request(sock: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65_536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0)
    while len(body) < length:
        body += sock.recv(65_536)
    return head + b"\r\n\r\n" + body


@contextmanager
def scripted(*steps: Step) -> Iterator[Scripted]:
    server = Scripted(list(steps))
    try:
        yield server
    finally:
        server.close()


def test_connections_are_kept() -> None:
    with scripted(*[answer(OK)] * 5) as server:
        transport = Transport(server.url, "token")
        for _ in range(5):
            assert transport.request("GET", "/x").body == b"ok"
        assert server.connections == 1
        assert b"Authorization: Bearer token" in server.requests[0]


def test_an_idle_connection_that_the_server_closed_costs_nothing_not_even_a_post() -> None:
    def answer_and_close(sock: socket.socket, request: bytes) -> None:
        sock.sendall(OK)
        raise ConnectionError

    with scripted(answer_and_close, answer(OK)) as server:
        transport = Transport(server.url, patience_s=0)
        transport.request("GET", "/x")
        time.sleep(0.05)
        assert transport.request("POST", "/x", body=b"once").body == b"ok"
        assert server.connections == 2


def cut_at(size: int) -> Step:
    """An answer of which only the first bytes come."""

    def step(sock: socket.socket, _request: bytes) -> None:
        sock.sendall(OK[:size])
        raise ConnectionError

    return step


@pytest.mark.parametrize("size", range(0, len(OK), 3))
def test_a_get_that_breaks_anywhere_is_sent_again(size: int) -> None:
    with scripted(cut_at(size), answer(OK)) as server:
        assert Transport(server.url, patience_s=5).request("GET", "/x").body == b"ok"
        assert len(server.requests) == 2


def test_a_post_that_breaks_is_sent_once() -> None:
    with scripted(hang_up, answer(OK)) as server, pytest.raises(Unavailable, match="broke"):
        Transport(server.url, patience_s=5).request("POST", "/x", body=b"pay me")
    assert len(server.requests) == 1


def test_a_post_with_a_key_is_sent_again_as_it_was() -> None:
    with scripted(hang_up, answer(OK)) as server:
        Transport(server.url, patience_s=5).request("POST", "/x", body=b"b", headers={"Idempotency-Key": "k"}, manner=REPEATABLE)
        assert server.requests[0] == server.requests[1]


@pytest.mark.parametrize(("status", "code"), [(503, "unavailable"), (429, "rate-limited")])
def test_a_server_that_asks_to_wait_is_obeyed(status: int, code: str) -> None:
    with scripted(problem(status, code, ',"retry_after_ms":300'), answer(OK)) as server:
        begun = time.monotonic()
        assert Transport(server.url, patience_s=5).request("POST", "/x", body=b"x").body == b"ok"
        assert time.monotonic() - begun >= 0.3


def test_a_server_that_is_killed_during_the_first_request_and_comes_back_is_waited_for() -> None:
    """A long poll that took longer than the whole patience, and then some tries to which nobody listened."""
    first = socket.create_server(("127.0.0.1", 0))
    port = first.getsockname()[1]

    def die_and_come_back() -> None:
        sock, _ = first.accept()
        with sock:
            first.close()
            read_request(sock)
            time.sleep(1.2)
        time.sleep(0.3)
        with socket.create_server(("127.0.0.1", port)) as second:
            again, _ = second.accept()
            with again:
                read_request(again)
                again.sendall(OK)

    threading.Thread(target=die_and_come_back, daemon=True).start()
    assert Transport(f"http://127.0.0.1:{port}", patience_s=1).request("GET", "/wait").body == b"ok"


def test_patience_has_an_end_and_the_last_words_are_the_servers() -> None:
    with scripted(*[problem(429, "rate-limited", ',"retry_after_ms":200')] * 9) as server:
        begun = time.monotonic()
        with pytest.raises(RateLimited, match="words"):
            Transport(server.url, patience_s=0.5).request("GET", "/x")
        assert time.monotonic() - begun < 2
        assert 2 <= len(server.requests) <= 3


@pytest.mark.parametrize(("status", "code", "kind"), [(404, "not-found", NotFound), (409, "conflict", Conflict)])
def test_refusals_are_raised_at_once(status: int, code: str, kind: type[ShoalError]) -> None:
    with scripted(problem(status, code)) as server, pytest.raises(kind, match="words"):
        Transport(server.url).request("GET", "/x")
    assert len(server.requests) == 1


def test_an_answer_of_something_else_on_the_way_is_told_by_its_status() -> None:
    page = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 13\r\n\r\n<h1>Oops</h1>"
    with scripted(answer(page)) as server, pytest.raises(Unavailable, match=r"502.*Oops"):
        Transport(server.url, patience_s=0).request("GET", "/x")


def test_a_body_that_comes_in_pieces_is_never_sent_twice() -> None:
    with scripted(hang_up, answer(OK)) as server, pytest.raises(Unavailable):
        Transport(server.url, patience_s=3).request("PUT", "/x", body=iter([b"a", b"b"]), headers={"Content-Length": "2"})
    assert len(server.requests) == 1


def test_lines_of_a_stream_that_breaks_off_are_whole_lines() -> None:
    def half(sock: socket.socket, _request: bytes) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n7\r\none\ntwo\r\n6\r\n\nthree\r\n")
        raise ConnectionError

    seen: list[bytes] = []
    with scripted(half) as server, pytest.raises(Unavailable):
        read_lines(server.url, seen)
    assert seen in ([], [b"one", b"two"])


def read_lines(url: str, seen: list[bytes]) -> None:
    with Transport(url).stream("/x") as pieces:
        for line in pieces.lines():
            seen.append(line)


@pytest.mark.parametrize("url", ["ftp://x", "localhost:80", "http://", ""])
def test_what_is_no_server_address_is_told(url: str) -> None:
    with pytest.raises(Malformed, match="http://HOST:PORT"):
        Transport(url)


def test_query_values_are_written_as_the_server_reads_them() -> None:
    target = Transport("http://h:1/base/").target("/p", {"a": None, "b": True, "c": ("x", "y"), "d": "", "e": "1 2"})
    assert target == "/base/p?b=1&c=x%2Cy&e=1+2"

"""
Requests over kept-alive connections of `http.client`, with the retries that the API makes safe.

One `Transport` per server and token; any thread may use it, each request takes a connection from the pool for itself. Turned down:
httpx, whose import alone costs 0.1 s of the 0.2 s of CPU that `shoal queue` may use (docs/adr/0003-http-stack.md).

When is a request sent again? When the server said to (503, 429, with its Retry-After), and when the connection broke and doing it twice
equals doing it once: every GET, PUT, DELETE, and each POST that says `repeatable` (it has an idempotency key, or is a wish such as
cancel). Everything ends `patience_s` after the first try that failed, however long that one waited for its answer; a server that does not
take the very first connection is told at once.
"""

from __future__ import annotations

import http.client
import select
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from typing import IO, Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from shoal import __version__
from shoal.base.errors import Malformed, ShoalError, Unavailable
from shoal.client.answers import raise_problem

CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 60.0
"""Over what any answer takes but a long poll, which brings its own."""
PAUSE_FIRST_S = 0.05
PAUSE_MAX_S = 2.0
IDLE_KEPT_MAX = 8
Body = bytes | IO[bytes] | Iterable[bytes] | None

_BROKEN = (http.client.HTTPException, OSError)


class Manner(NamedTuple):
    """How a request is sent. A POST or PATCH that is not `repeatable`, and a body that is no bytes, go out once only."""

    repeatable: bool = False
    timeout_s: float = ANSWER_TIMEOUT_S


USUAL = Manner()
REPEATABLE = Manner(repeatable=True)


class Reply:
    """A whole answer. `headers` are looked up in any case."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Message, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


class Transport:
    """See module. `patience_s` bounds the tries of one request after its first; 0 means a single try."""

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        patience_s: float = 15.0,
        ca_file: str | None = None,
        insecure: bool = False,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Malformed(f"server address {url!r}: use http://HOST:PORT or https://HOST:PORT")
        self.url = url.rstrip("/")
        self.token = token
        self.patience_s = patience_s
        self.ca_file = ca_file
        self.insecure = insecure
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port or (443 if self._secure else 80)
        self._prefix = parts.path.rstrip("/")
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._met = False
        """The server has taken a connection before: one that is refused is then one that is being restarted."""

    # --- requests ---------------------------------------------------------------------------------------------------------
    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Body = None,
        headers: Mapping[str, str] | None = None,
        manner: Manner = USUAL,
    ) -> Reply:
        """The whole answer. Raises the error that a problem of the server stands for; Unavailable when it cannot be reached."""
        target = self.target(path, query)
        again = manner.repeatable or method not in ("POST", "PATCH")
        again = again and (body is None or isinstance(body, bytes))
        patience: Patience | None = None
        while True:
            try:
                return self._once(method, target, body, headers, manner.timeout_s)
            except Unavailable as error:
                patience = patience or Patience(self.patience_s)
                patience.pause(error, wanted_s=error.retry_after_ms / 1_000)
            except _Unreached as broken:
                hopeless = not self._met if not broken.sent else not again
                if hopeless:
                    raise broken.told(self.url) from broken.cause
                patience = patience or Patience(self.patience_s)
                patience.pause(broken.told(self.url))

    def _once(self, method: str, target: str, body: Body, headers: Mapping[str, str] | None, timeout_s: float) -> Reply:
        connection = self._take()
        try:
            response = self._send(connection, method, target, body, headers, timeout_s)
            data = response.read()
        except _Unreached:
            connection.close()
            raise
        except _BROKEN as error:
            connection.close()
            raise _Unreached(error, sent=True) from error
        if response.will_close:
            connection.close()
        else:
            self._give(connection)
        if response.status >= 400:
            raise_problem(response.status, data)
        return Reply(response.status, response.headers, data)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: Body,
        headers: Mapping[str, str] | None,
        timeout_s: float,
    ) -> http.client.HTTPResponse:
        sent = False
        try:
            if connection.sock is None:
                connection.timeout = CONNECT_TIMEOUT_S
                connection.connect()
            connection.sock.settimeout(timeout_s)
            sent = self._met = True
            connection.request(method, target, body=body, headers={**self._headers(), **(headers or {})})
            response = connection.getresponse()
            if response.length is None and not response.chunked:
                # The library takes headers that break off for all there are, and the end of the connection for that of the body. This
                # server always says how long a body is, so an answer that does not was cut.
                raise http.client.IncompleteRead(b"")
            return response
        except _BROKEN as error:
            raise _Unreached(error, sent=sent) from error

    @contextmanager
    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> Iterator[Pieces]:
        """
        An answer to be read in pieces, on a connection of its own; `timeout_s` bounds the wait for each.

        Not retried: its reader knows from where to go on. Raises Unavailable when the server cannot be reached or breaks off.
        """
        connection = self._connect()
        try:
            response = self._send(connection, "GET", self.target(path, query), None, headers, timeout_s)
            if response.status >= 400:
                raise_problem(response.status, response.read())
            yield Pieces(response)
        except _Unreached as broken:
            raise broken.told(self.url) from broken.cause
        finally:
            connection.close()

    # --- connections ------------------------------------------------------------------------------------------------------
    def target(self, path: str, query: Mapping[str, Any] | None = None) -> str:
        """Path and query as they go on the request line; unset values are left out."""
        given = {name: _text(value) for name, value in (query or {}).items() if value is not None and value not in ("", ())}
        return self._prefix + path + ("?" + urlencode(given) if given else "")

    def tls(self) -> Any:
        """The TLS settings of this server's connections; None for plain HTTP."""
        if not self._secure:
            return None
        import ssl

        context = ssl.create_default_context(cafile=self.ca_file)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def close(self) -> None:
        """Closes the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(self._host, self._port, timeout=CONNECT_TIMEOUT_S, context=self.tls())
        return http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_TIMEOUT_S)

    def _take(self) -> http.client.HTTPConnection:
        """
        An idle connection that is still open, or a new one.

        Servers close idle connections. Looking first tells that apart from a request that broke, which may have been carried out.
        """
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connect()
            if connection.sock is not None and not _readable(connection.sock):
                return connection
            connection.close()

    def _give(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < IDLE_KEPT_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def _headers(self) -> dict[str, str]:
        headers = {"User-Agent": f"shoal/{__version__}", "Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers


class Pieces:
    """An answer in pieces, as `Transport.stream` gives it."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.headers: Message = response.headers
        self._response = response

    def read(self, size_max: int) -> bytes:
        """The next bytes as soon as there are any; empty at the end of a whole answer."""
        try:
            return self._response.read1(size_max)
        except _BROKEN as error:
            raise _Unreached(error, sent=True) from error

    def lines(self) -> Iterator[bytes]:
        """Whole lines without their ends. What stands after the last line end is dropped: it broke off."""
        rest = b""
        while piece := self.read(64 << 10):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield line.rstrip(b"\r")


class _Unreached(Exception):
    """No answer: the connection was refused or broke. `sent`: the request may have arrived."""

    def __init__(self, cause: BaseException, *, sent: bool) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.sent = sent

    def told(self, url: str) -> Unavailable:
        """The same for people."""
        if isinstance(self.cause, ConnectionRefusedError):
            return Unavailable(f"nothing listens at {url}; start a server with `shoal up`, or name another with --url or $SHOAL_URL")
        if isinstance(self.cause, TimeoutError):
            return Unavailable(f"{url} did not answer in time ({self.cause})")
        kind = type(self.cause)
        if kind.__module__ == "ssl":
            return Unavailable(f"{url}: no secure connection: {self.cause}")
        return Unavailable(f"the connection to {url} broke: {self.cause or kind.__name__}")


class Patience:
    """Pauses between tries: doubling from PAUSE_FIRST_S to PAUSE_MAX_S, or as the server asked; ends after `total_s`."""

    def __init__(self, total_s: float) -> None:
        self._total_s = total_s
        self.renew()

    def renew(self) -> None:
        """Something got through: the time runs anew."""
        self._until = time.monotonic() + self._total_s
        self._pause_s = PAUSE_FIRST_S

    def pause(self, error: ShoalError, wanted_s: float = 0.0) -> None:
        """Sleeps before the next try, or raises `error` when patience is at its end."""
        pause_s = max(self._pause_s, wanted_s)
        if time.monotonic() + pause_s > self._until:
            raise error
        time.sleep(pause_s)
        self._pause_s = min(self._pause_s * 2, PAUSE_MAX_S)


def _readable(sock: socket.socket) -> bool:
    """True when an idle connection has something to say, which can only be its end."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def segment(text: str) -> str:
    """One path segment, quoted."""
    return quote(text, safe="")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, list | tuple):
        return ",".join(str(part) for part in value)
    return str(value)

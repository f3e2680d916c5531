"""
Shoal's uvicorn: what is no HTTP is told as a problem too, and the WebSocket library is imported with the first WebSocket.

That library costs 0.04 s of CPU at import, a tenth of the server's start, and most servers never see a terminal before their first job.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shoal.api.problems import encode_problem, problem_headers, problem_of
from shoal.base.errors import Malformed
from shoal.base.limits import REQUEST_BODY_PAUSE_S_MAX, REQUEST_HEAD_BYTES_MAX, REQUEST_HEAD_S_MAX


class JoinedWrites:
    """
    A connection's transport that sends the head of an answer together with what follows it.

    uvicorn writes the two one after the other, and the event loop passes each on at once: two system calls and two packets for every
    small answer, a fifth of the server's time under load. A stream must write something (if only nothing) to get its head sent.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._write = transport.write
        self._close = transport.close
        self._head = b""
        self.get_extra_info = transport.get_extra_info
        self.is_closing = transport.is_closing
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def write(self, data: bytes) -> None:
        """Holds back a head; sends anything else, after the head that waits for it."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 1"):
            self._head = data
            return
        self._write(data)

    def flush(self) -> None:
        """Sends what was held back: an answer that is a head alone."""
        if self._head:
            data, self._head = self._head, b""
            self._write(data)

    def close(self) -> None:
        """Sends what was held back, then closes."""
        self.flush()
        self._close()


class HttpProtocol(HttpToolsProtocol):
    """One connection. uvicorn is configured with `ws="none"`; this knows better."""

    _head_bytes = 0
    _bare: asyncio.Transport
    _due_s: float | None = None
    """When the client must have sent more of a request (loop time); None while nothing is awaited of it."""
    _alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert hasattr(transport, "write")
        self._bare = transport  # type: ignore[assignment]
        self._joined = JoinedWrites(self._bare)
        super().connection_made(self._joined)  # type: ignore[arg-type]
        self._await_more(REQUEST_HEAD_S_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        super().connection_lost(exc)

    # --- clients that send no more ----------------------------------------------------------------------------------------------
    def _await_more(self, within_s: float) -> None:
        """One timer per connection, looked at when it rings: setting one per request would cost more than all that it guards."""
        self._due_s = self.loop.time() + within_s
        if self._alarm is None:
            self._alarm = self.loop.call_later(within_s, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self._due_s is None:
            return
        if self.flow.read_paused:  # it is us who do not read
            self._await_more(REQUEST_BODY_PAUSE_S_MAX)
        elif (left_s := self._due_s - self.loop.time()) > 0:
            self._alarm = self.loop.call_later(left_s, self._ring)
        else:
            self._bare.abort()

    def on_headers_complete(self) -> None:
        self._await_more(REQUEST_BODY_PAUSE_S_MAX)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._await_more(REQUEST_BODY_PAUSE_S_MAX)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._due_s = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._joined.flush()
        super().on_response_complete()

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        self._await_more(REQUEST_HEAD_S_MAX)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value))
        super().on_header(name, value)

    def _count_head(self, size: int) -> None:
        """The parser itself has no bound. What is raised here ends the connection with a 400."""
        self._head_bytes += size
        if self._head_bytes > REQUEST_HEAD_BYTES_MAX:
            raise ValueError(f"the request's line and headers have more than {REQUEST_HEAD_BYTES_MAX} bytes")

    def handle_websocket_upgrade(self) -> None:
        from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

        self._due_s = None
        self.ws_protocol_class = WebSocketsSansIOProtocol
        self.transport = self._bare
        super().handle_websocket_upgrade()

    def _should_upgrade_to_ws(self) -> bool:
        return True

    def send_400_response(self, msg: str) -> None:
        what = f"{msg.rstrip('.')}: what came is no HTTP/1.1 request, or its headers are over {REQUEST_HEAD_BYTES_MAX} bytes"
        problem = problem_of(Malformed(what), request_id="")
        body = encode_problem(problem)
        headers: list[Any] = [*problem_headers(problem), (b"content-length", str(len(body)).encode()), (b"connection", b"close")]
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        self._bare.write(b"HTTP/1.1 400 Bad Request\r\n" + lines + b"\r\n" + body)
        self.transport.close()

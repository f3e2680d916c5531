"""
Shoal's uvicorn: what is no HTTP is told as a problem too, and the WebSocket library is imported with the first WebSocket.

That library costs 0.04 s of CPU at import, a tenth of the server's start, and most servers never see a terminal before their first job.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shoal.api.problems import encode_problem, problem_headers, problem_of
from shoal.base.errors import Malformed


class HttpProtocol(HttpToolsProtocol):
    """One connection. uvicorn is configured with `ws="none"`; this knows better."""

    def handle_websocket_upgrade(self) -> None:
        from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

        self.ws_protocol_class = WebSocketsSansIOProtocol
        super().handle_websocket_upgrade()

    def _should_upgrade_to_ws(self) -> bool:
        return True

    def send_400_response(self, msg: str) -> None:
        problem = problem_of(Malformed(f"{msg.rstrip('.')}: what came is no HTTP/1.1 request"), request_id="")
        body = encode_problem(problem)
        headers: list[Any] = [*problem_headers(problem), (b"content-length", str(len(body)).encode()), (b"connection", b"close")]
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + lines + b"\r\n" + body)
        self.transport.close()

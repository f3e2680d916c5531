"""
A terminal beside a running task, over a WebSocket through the server: both ends, the user's and the agent's.

Binary messages, the first byte says which stream (`model.wire.ExecStream`). Sending waits while the other side does not read, so a
`cat` of a large file fills no memory. Lost connections are not resumed: the command on the node is stopped with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from shoal.base.errors import Unavailable
from shoal.client.answers import error_of, raise_problem
from shoal.client.transport import CONNECT_TIMEOUT_S, segment
from shoal.model.codec import decode_json, encode_json
from shoal.model.problem import Problem
from shoal.model.wire import ExecExit, ExecRequest, ExecResize, ExecStream

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

    from shoal.client.api import Api

MESSAGE_BYTES_MAX = 1 << 20
CLOSE_TIMEOUT_S = 2.0
"""How long the other side gets to say good-bye; one that floods us does not hear it."""
PIECE_BYTES = 32 << 10
"""Data per message: small enough that a key press does not wait long behind output."""


class Terminals:
    """`api.terminals`."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def open(self, ref: str | int, request: ExecRequest) -> Terminal:
        """Asks for the request's command beside the job's task. A refusal comes with the first of `messages`."""
        path = f"/v1/projects/{segment(self._api.project)}/jobs/{segment(str(ref))}/exec"
        terminal = self._dial(path)
        terminal.send_text(encode_json(request).decode())
        return terminal

    def serve(self, session: str) -> Terminal:
        """The agent's end of a session that it found among its commands."""
        return self._dial(f"/v1/agent/exec/{segment(session)}")

    def _dial(self, path: str) -> Terminal:
        from websockets.exceptions import InvalidHandshake, InvalidStatus
        from websockets.sync.client import connect

        transport = self._api.transport
        opened = ExitStack()
        try:
            dial = connect(
                "ws" + transport.url.removeprefix("http") + path,
                additional_headers={"Authorization": f"Bearer {transport.token}"},
                ssl=transport.tls(),
                proxy=None,
                open_timeout=CONNECT_TIMEOUT_S,
                close_timeout=CLOSE_TIMEOUT_S,
                max_size=MESSAGE_BYTES_MAX,
                compression=None,
            )
            return Terminal(opened.enter_context(dial), opened)
        except InvalidStatus as error:
            raise_problem(error.response.status_code, bytes(error.response.body or b""))
        except (InvalidHandshake, OSError) as error:
            raise Unavailable(f"no terminal at {transport.url}: {error}") from error


class Terminal:
    """One end of a terminal. One thread may send while another reads."""

    def __init__(self, connection: ClientConnection, opened: ExitStack) -> None:
        self._connection = connection
        self._opened = opened

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def send(self, stream: ExecStream, data: bytes) -> None:
        """Sends bytes of a stream, in pieces. Raises Unavailable when the other side has gone."""
        from websockets.exceptions import ConnectionClosed

        head = bytes([stream])
        try:
            for at in range(0, max(len(data), 1), PIECE_BYTES):
                self._connection.send(head + data[at : at + PIECE_BYTES])
        except ConnectionClosed as error:
            raise Unavailable("the other side of the terminal has gone") from error

    def send_text(self, text: str) -> None:
        """Sends the opening message of a user."""
        self._connection.send(text)

    def resize(self, rows: int, columns: int) -> None:
        self.send(ExecStream.RESIZE, encode_json(ExecResize(rows=rows, columns=columns)))

    def end_stdin(self) -> None:
        """Nothing more comes from the user."""
        self.send(ExecStream.STDIN_END, b"")

    def exit(self, exit_code: int, message: str = "") -> None:
        """The agent's last word."""
        self.send(ExecStream.EXIT, encode_json(ExecExit(exit_code=exit_code, message=message)))

    def messages(self) -> Iterator[tuple[ExecStream, bytes]]:
        """
        What comes, until the other side closes. A stream that this version does not know is skipped.

        Raises the error of a refusal by the server, and Unavailable when the connection breaks.
        """
        from websockets.exceptions import ConnectionClosed

        try:
            for message in self._connection:
                if isinstance(message, str):
                    raise error_of(decode_json(message, Problem))
                if isinstance(message, bytes) and message and message[0] in ExecStream.__members__.values():
                    yield ExecStream(message[0]), message[1:]
        except ConnectionClosed as error:
            raise Unavailable(f"the terminal was cut: {error}") from error

    def close(self) -> None:
        """Idempotent; the other side sees it."""
        self._opened.close()


def read_exit(data: bytes) -> ExecExit:
    """The data of an EXIT message."""
    return decode_json(data, ExecExit)

"""
What an operation of the API is: one record per method and path, from which its route, its checks and its OpenAPI entry all follow.

`table` lists them; `endpoint` carries them out; `openapi` prints them. A handler is `async def f(call: Call) -> Answer | Stream`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from shoal.base.limits import REQUEST_BYTES_MAX
from shoal.model.access import Role

if TYPE_CHECKING:
    from shoal.api.service import Service
    from shoal.control.access import Caller

Need = Literal["open", "viewer", "member", "maintainer", "admin", "node", "join"]
"""The least role for an operation. `open` needs no token; `node` and `join` are roles of their own, outside the order."""
Media = Literal["json", "pack", "bytes", "none"]

RANK: dict[Role, int] = {"viewer": 1, "member": 2, "maintainer": 3, "admin": 4}


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operation without query parameters: any is a mistake and told as one."""


Headers = tuple[tuple[str, str], ...]


@dataclass(slots=True, frozen=True)
class Answer:
    """A whole answer: `body` is written as the operation's media says (bytes stay bytes, None is no body)."""

    body: Any = None
    status: int = 0
    """0: the operation's own."""
    headers: Headers = ()


@dataclass(slots=True, frozen=True)
class Stream:
    """An answer that comes in pieces. The iterator is closed when the client goes, the server closes, or it ends."""

    chunks: AsyncGenerator[bytes, None]
    media_type: str = "application/octet-stream"
    headers: Headers = ()


Handler = Callable[["Call"], Awaitable[Answer | Stream]]


@dataclass(slots=True, kw_only=True, frozen=True)
class Operation:
    """One method on one path. `summary` and `description` go into the OpenAPI document; the first is also the error's word for it."""

    id: str
    """`jobs.create`: also the name of the permission."""
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    handler: Handler
    need: Need
    summary: str
    description: str = ""
    query: type[msgspec.Struct] = NoQuery
    body: Any = None
    """The type of the request body; None where there is none."""
    takes: Media = "none"
    decode: Callable[[bytes], Any] | None = None
    """How the body is read, where that is more than decoding `body`: short forms of a job."""
    answer: Any = None
    gives: Media = "json"
    media_type: str = ""
    """The media type of an answer in bytes; `gives` says the others."""
    status: int = 200
    other_answers: dict[int, str] = field(default_factory=dict)
    """Statuses besides `status` that are no error, with their meaning."""
    request_headers: dict[str, str] = field(default_factory=dict)
    """Headers that the operation reads, with their meaning."""
    answer_headers: dict[str, str] = field(default_factory=dict)
    body_bytes_max: int = REQUEST_BYTES_MAX
    streams_body: bool = False
    """The handler reads the body itself, in pieces (`Call.pieces`)."""
    optional_body: bool = False


@dataclass(slots=True)
class Call:
    """One request on its way through: what the handler needs, decoded and allowed."""

    service: Service
    operation: Operation
    path: dict[str, str]
    headers: dict[bytes, bytes]
    request_id: str
    target: str
    """The path as asked for."""
    pieces: Callable[[], AsyncIterator[bytes]]
    """The body in pieces, for operations that stream it."""
    bearer: str = ""
    query: Any = None
    body: Any = None
    raw: bytes = b""
    """The body as it came, for fingerprints."""
    known: Caller | None = None

    @property
    def caller(self) -> Caller:
        """Who asks. Only for operations that need a token."""
        assert self.known is not None, f"{self.operation.id} is open and has no caller"
        return self.known

    @property
    def project(self) -> str:
        """The project in the path."""
        return self.path["project"]

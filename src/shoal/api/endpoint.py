"""
What happens around every handler: request id, size limit, token, role, decoding, the answer, and every error told the same way.

`PathEndpoint` is an ASGI application for one path; it picks the operation by method and carries it out. Errors end here: whatever a
handler raises becomes a problem (`problems`), and only what is a fault of the server is logged, with its trace and the request id.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec

from shoal.api.operations import RANK, Answer, Call, Headers, Operation, Stream
from shoal.api.problems import encode_problem, problem_headers, problem_of
from shoal.base.errors import (
    Fault,
    Forbidden,
    Invalid,
    Malformed,
    NotFound,
    TooLarge,
    Unauthenticated,
    WrongMedia,
    WrongMethod,
)
from shoal.base.limits import INT64_MAX
from shoal.control.access import Caller, authenticate
from shoal.model.codec import decode_json, decode_pack, encode_json, encode_pack, invalid_from

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from shoal.api.service import Service

log = logging.getLogger("shoal.api")

JSON = b"application/json"
PACK = b"application/msgpack"
TOKEN_LOOK_S = 5.0
"""How long a stream goes on after its token was revoked."""
_REQUEST_ID = re.compile(rb"[!-~]{1,128}")
_RawHeaders = list[tuple[bytes, bytes]]


class PathEndpoint:
    """The operations of one path, as an ASGI application."""

    def __init__(self, service: Service, operations: tuple[Operation, ...]) -> None:
        self._service = service
        self._operations = {operation.method: operation for operation in operations}
        self._allowed = ", ".join(sorted(self._operations))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = request_id_of(headers, self._service)
        operation = self._operations.get(scope["method"])
        if operation is None:
            wrong = WrongMethod(f"{scope['path']} does not take {scope['method']}; it takes {self._allowed}")
            await send_problem(send, wrong, request_id, scope["path"], ((b"allow", self._allowed.encode()),))
            return
        call = Call(
            service=self._service,
            operation=operation,
            path=scope["path_params"],
            headers=headers,
            request_id=request_id,
            target=scope["path"],
            pieces=lambda: body_pieces(receive, operation),
        )
        await _carry_out(call, scope, receive, send)


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """The answer for a path that is no operation's; of a WebSocket that nobody serves, the refusal of the handshake."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 4404, "reason": "no such path"})
        return
    error = NotFound(f"no such path: {scope['path']}; GET /openapi.json lists what there is")
    await send_problem(send, error, request_id_of(dict(scope["headers"]), scope.get("shoal.service")), scope["path"])


async def _carry_out(call: Call, scope: Scope, receive: Receive, send: Send) -> None:
    operation = call.operation
    started = False
    try:
        admit(call)
        call.query = decode_query(scope["query_string"], operation.query)
        if operation.takes != "none" and not operation.streams_body:
            call.raw = await _read_body(call)
            call.body = _decode_body(call)
        answer = await operation.handler(call)
        started = True
        if isinstance(answer, Stream):
            await _send_stream(call, answer, receive, send)
        else:
            await _send_answer(call, answer, send)
    except asyncio.CancelledError:
        raise
    except Exception as error:
        problem = problem_of(error, request_id=call.request_id, instance=call.target)
        if problem.status >= 500 and problem.code != "unavailable":
            log.exception("%s failed", operation.id, extra={"request_id": call.request_id, "path": call.target})
        if started:
            # The status line has gone. Ending without a last chunk makes the server cut the connection, which says that the rest is
            # missing; there is no better word for it any more.
            return
        await _send_encoded(send, call.request_id, problem.status, problem_headers(problem), encode_problem(problem))


# --- who asks, and may they ----------------------------------------------------------------------------------------------------
def admit(call: Call) -> None:
    """Sets the caller. Raises Unauthenticated, Forbidden (naming the permission) or NotFound for another project's things."""
    need = call.operation.need
    if need == "open":
        return
    call.bearer = bearer_of(call.headers)
    call.known = authenticate(call.service.plane, call.bearer)
    check_role(call.known, call.operation, call.path)


def still_holds(call: Call) -> None:
    """Raises Unauthenticated when the token has been revoked or has expired since the request came in. For answers that take long."""
    if call.bearer:
        call.known = authenticate(call.service.plane, call.bearer)


def bearer_of(headers: Mapping[bytes, bytes]) -> str:
    """The token in `Authorization: Bearer ...`. Raises Unauthenticated when there is none."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"bearer" or not token.strip():
        raise Unauthenticated("no token: send Authorization: Bearer TOKEN (the CLI reads it from $SHOAL_TOKEN or the state directory)")
    return token.strip().decode("latin-1")


def check_role(caller: Caller, operation: Operation, path: Mapping[str, str]) -> None:
    """
    Raises NotFound for a project that the caller may not see (whether it exists is not told), Forbidden for a role too small.

    What a token of one project may do to the installation's own things (nodes, queues) is the use case's to say.
    """
    project = path.get("project")
    if project is not None and caller.project is not None and caller.project != project:
        raise NotFound(f"no project {project}")
    need = operation.need
    if need in ("node", "join"):
        if caller.role != need and not (need == "join" and caller.role == "admin"):
            raise Forbidden(f"{operation.id} is for {need} tokens; this one is a {caller.role}'s")
        return
    if RANK.get(caller.role, 0) < RANK[need]:  # type: ignore[index]
        where = f" in project {project}" if project else ""
        raise Forbidden(f"permission {operation.id}{where} is missing: it takes the role {need}, {caller.principal} has {caller.role}")


def request_id_of(headers: Mapping[bytes, bytes], service: Service | None) -> str:
    """The client's X-Request-Id if it is 1-128 visible ASCII, else a new one."""
    given = headers.get(b"x-request-id")
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given.decode("ascii")
    return service.new_request_id() if service is not None else ""


# --- in ------------------------------------------------------------------------------------------------------------------------
async def body_pieces(receive: Receive, operation: Operation) -> AsyncIterator[bytes]:
    """The request body as it comes in. Raises TooLarge over the operation's limit, and Malformed when the client breaks off."""
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Malformed(f"the body broke off after {size} bytes")
        piece: bytes = message.get("body", b"")
        size += len(piece)
        check_size(size, operation)
        if piece:
            yield piece
        if not message.get("more_body", False):
            return


def check_size(size: int, operation: Operation) -> None:
    """Raises TooLarge over the operation's limit."""
    if size > operation.body_bytes_max:
        raise TooLarge(f"the body of {operation.id} has {size} bytes or more; at most {operation.body_bytes_max} are read")


async def _read_body(call: Call) -> bytes:
    declared = call.headers.get(b"content-length")
    if declared is not None and declared.isdigit():
        check_size(int(declared), call.operation)
    pieces = [piece async for piece in call.pieces()]
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _decode_body(call: Call) -> Any:
    operation = call.operation
    if not call.raw:
        if operation.optional_body:
            return operation.body()
        raise Malformed(f"{operation.id} needs a body")
    wanted = PACK if operation.takes == "pack" else JSON
    media = call.headers.get(b"content-type", wanted).partition(b";")[0].strip().lower()
    if media != wanted:
        raise WrongMedia(f"{operation.id} reads {wanted.decode()}, not {media.decode('latin-1')}")
    if operation.decode is not None:
        return operation.decode(call.raw)
    return (decode_pack if operation.takes == "pack" else decode_json)(call.raw, operation.body)


def decode_query(raw: bytes, kind: type[msgspec.Struct]) -> Any:
    """The query string as a record of `kind`: tuples from repeated or comma-separated values, numbers and flags from text."""
    if not raw:
        return kind()
    lists = _tuple_fields(kind)
    values: dict[str, Any] = {}
    for name, text in parse_qsl(raw.decode("latin-1"), keep_blank_values=True):
        if name in lists:
            values.setdefault(name, []).extend(part for part in text.split(",") if part)
        elif name in values:
            raise Invalid(f"query parameter {name} is given twice", (Fault("given twice", f"/{name}"),))
        else:
            values[name] = text
    try:
        query = msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        fault = invalid_from(error).faults[0]
        raise Invalid(f"query parameters: {fault.message} at {fault.pointer or '/'}", (fault,)) from error
    for name in values:
        number = getattr(query, name, None)
        if isinstance(number, int) and abs(number) > INT64_MAX:
            raise Invalid(f"query parameters: {name} is beyond 64 bits", (Fault("beyond 64 bits", f"/{name}"),))
    return query


_tuples: dict[type, frozenset[str]] = {}


def _tuple_fields(kind: type[msgspec.Struct]) -> frozenset[str]:
    known = _tuples.get(kind)
    if known is None:
        fields = msgspec.structs.fields(kind)
        known = frozenset(f.encode_name for f in fields if isinstance(f.default, tuple))
        _tuples[kind] = known
    return known


# --- out -----------------------------------------------------------------------------------------------------------------------
async def _send_answer(call: Call, answer: Answer, send: Send) -> None:
    operation = call.operation
    status = answer.status or operation.status
    headers: _RawHeaders = []
    if answer.body is None:
        body = b""
    elif operation.gives == "bytes":
        body = answer.body
        headers.append((b"content-type", (operation.media_type or "application/octet-stream").encode()))
    elif operation.gives == "pack":
        body = encode_pack(answer.body)
        headers.append((b"content-type", PACK))
    else:
        body = encode_json(answer.body)
        headers.append((b"content-type", JSON))
    headers.extend(_raw(answer.headers))
    await _send_encoded(send, call.request_id, status, headers, body)


async def _send_encoded(send: Send, request_id: str, status: int, headers: _RawHeaders, body: bytes) -> None:
    headers.append((b"x-request-id", request_id.encode("latin-1")))
    if status not in (204, 304) and not any(name == b"content-length" for name, _ in headers):
        headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_problem(send: Send, error: Exception, request_id: str, instance: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    """Answers with an error, outside of any operation."""
    problem = problem_of(error, request_id=request_id, instance=instance)
    await _send_encoded(send, request_id, problem.status, [*problem_headers(problem), *headers], encode_problem(problem))


async def _send_stream(call: Call, stream: Stream, receive: Receive, send: Send) -> None:
    """
    Sends the pieces until they end or the client goes.

    The client's going is only seen by asking `receive`, so a second task does that: an idle follower would stay for ever otherwise.
    A token that is revoked meanwhile ends the stream, which else could run on for days.
    """
    headers = [(b"content-type", stream.media_type.encode()), (b"cache-control", b"no-store"), *_raw(stream.headers)]
    headers.append((b"x-request-id", call.request_id.encode("latin-1")))
    await send({"type": "http.response.start", "status": call.operation.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": True})  # Sends the head: the first piece may be long in coming.
    pump = asyncio.ensure_future(_pump(stream.chunks, send))
    gone = asyncio.ensure_future(_gone(receive))
    try:
        while not (pump.done() or gone.done()):
            await asyncio.wait((pump, gone), timeout=TOKEN_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            still_holds(call)
        if pump.done():
            pump.result()
            await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()
        pump.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await pump


async def _pump(chunks: AsyncGenerator[bytes, None], send: Send) -> None:
    async with aclosing(chunks):
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _raw(headers: Headers) -> _RawHeaders:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]

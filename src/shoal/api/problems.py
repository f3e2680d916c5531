"""
Errors to RFC 9457 problems: the only place that knows which error is which HTTP status.

Called by `endpoint` (and `protocol` for what never became a request). What is no ShoalError is told as `internal`, without its text:
that is for the operator's log, under the same request id.
"""

from __future__ import annotations

import math

from shoal.base.errors import (
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    InvariantViolated,
    KeyReused,
    Malformed,
    NotFound,
    PreconditionNeeded,
    RateLimited,
    Refused,
    RequestError,
    ShoalError,
    TooLarge,
    Unauthenticated,
    Unavailable,
    VersionConflict,
    WrongMedia,
    WrongMethod,
)
from shoal.base.limits import FAULTS_SHOWN_MAX
from shoal.model.codec import encode_json
from shoal.model.problem import Problem, ProblemFault

MEDIA_TYPE = b"application/problem+json"

STATUS: dict[type[ShoalError], int] = {
    Malformed: 400,
    Unauthenticated: 401,
    Forbidden: 403,
    NotFound: 404,
    WrongMethod: 405,
    Conflict: 409,
    Refused: 409,
    Expired: 410,
    VersionConflict: 412,
    TooLarge: 413,
    WrongMedia: 415,
    Invalid: 422,
    KeyReused: 422,
    PreconditionNeeded: 428,
    RateLimited: 429,
    RequestError: 400,
    InvariantViolated: 500,
    Unavailable: 503,
    ShoalError: 500,
}
"""Status by class; a class without a row has its nearest ancestor's."""

TITLES = {
    400: "The request cannot be read",
    401: "No valid token",
    403: "Not permitted",
    404: "Not found",
    405: "Method not allowed",
    409: "In conflict with the present state",
    410: "Gone",
    412: "Changed since it was read",
    413: "Too large",
    415: "Media type not read here",
    422: "The request breaks a rule",
    428: "A precondition is needed",
    429: "Too many requests",
    500: "A fault of the server",
    503: "Not available now",
}
INTERNAL = "internal"


def status_of(error: ShoalError) -> int:
    """The HTTP status of an error, by its nearest ancestor in `STATUS`."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def problem_of(error: Exception, *, request_id: str, instance: str = "") -> Problem:
    """What the user is told. A foreign error and a broken invariant are told without their text."""
    told = isinstance(error, ShoalError) and not isinstance(error, InvariantViolated)
    silence = f"A fault of the server, not of your request. Its log has the details under request id {request_id}."
    shown = error if isinstance(error, ShoalError) and told else ShoalError(silence)
    code = error.code if isinstance(error, ShoalError) else INTERNAL
    status = status_of(shown)
    faults = shown.faults[:FAULTS_SHOWN_MAX] if isinstance(shown, Invalid) else ()
    return Problem(
        type=f"urn:shoal:error:{code}",
        title=TITLES.get(status, "Error"),
        status=status,
        detail=shown.message,
        code=code,
        retryable=shown.retryable,
        instance=instance,
        request_id=request_id,
        errors=tuple(ProblemFault(message=f.message, pointer=f.pointer, line=f.line, column=f.column, allowed=f.allowed) for f in faults),
        retry_after_ms=shown.retry_after_ms if isinstance(shown, Unavailable) else None,
    )


def problem_headers(problem: Problem) -> list[tuple[bytes, bytes]]:
    """The headers that go with a problem, without its length."""
    headers = [(b"content-type", MEDIA_TYPE), (b"cache-control", b"no-store")]
    if problem.retry_after_ms is not None:
        headers.append((b"retry-after", str(math.ceil(problem.retry_after_ms / 1_000)).encode()))
    if problem.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="shoal"'))
    return headers


def encode_problem(problem: Problem) -> bytes:
    """The body of the answer."""
    return encode_json(problem)

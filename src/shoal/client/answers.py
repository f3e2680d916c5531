"""Problems of the server back to errors of `base.errors`: the same class by its code, with the server's words."""

from __future__ import annotations

from typing import NoReturn

import msgspec

from shoal.base import errors
from shoal.base.errors import Fault, Invalid, ShoalError, Unavailable
from shoal.model.problem import Problem

_decoder = msgspec.json.Decoder(Problem)


_BY_CODE = {kind.code: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ShoalError)}
"""Those of `base.errors` alone: whoever derives one for himself keeps its code, and must not be taken for it."""
_BY_STATUS: dict[int, type[ShoalError]] = {
    400: errors.Malformed,
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    405: errors.WrongMethod,
    409: errors.Conflict,
    410: errors.Expired,
    412: errors.VersionConflict,
    413: errors.TooLarge,
    415: errors.WrongMedia,
    422: errors.Invalid,
    428: errors.PreconditionNeeded,
    429: errors.RateLimited,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Unavailable,
}
"""For answers of another server on the way (a proxy), and for codes that this client does not know yet."""


def error_of(problem: Problem) -> ShoalError:
    """The error that a problem stands for. A code from a newer server is read by its status."""
    kind = _BY_CODE.get(problem.code) or _BY_STATUS.get(problem.status) or ShoalError
    internal = f"request id {problem.request_id}"
    if issubclass(kind, Unavailable):
        return kind(problem.detail, retry_after_ms=problem.retry_after_ms or 1_000, internal=internal)
    if issubclass(kind, Invalid):
        faults = tuple(Fault(f.message, f.pointer, f.line, f.column, f.allowed) for f in problem.errors)
        return kind(problem.detail, faults, internal=internal)
    return kind(problem.detail, internal=internal)


def raise_problem(status: int, body: bytes) -> NoReturn:
    """Raises the error that an answer of 400 or more stands for."""
    try:
        problem = _decoder.decode(body)
    except msgspec.MsgspecError:
        text = body[:200].decode("utf-8", "replace").strip()
        kind = _BY_STATUS.get(status, ShoalError)
        raise kind(f"the server answered {status}{': ' + text if text else ''}") from None
    raise error_of(problem)

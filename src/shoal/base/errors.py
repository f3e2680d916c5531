"""
The error tree: what went wrong, told by who can do something about it.

    ShoalError
    |-- RequestError          the caller can fix it
    |   |-- Malformed             cannot be read at all                              400
    |   |   `-- PageTokenMismatch     a cursor came with other filters               400
    |   |-- Unauthenticated       no token, or one that does not hold                401
    |   |-- Forbidden             the token lacks a permission (named)               403
    |   |-- NotFound              no such thing, or not yours to see                 404
    |   |-- WrongMethod           the path exists, not with this method              405
    |   |-- Expired               was there and is gone for good                     410
    |   |   |-- PageTokenExpired      list again from the start
    |   |   `-- VersionExpired        a watch starts before what is kept
    |   |-- TooLarge              over a size limit (named, with the actual size)    413
    |   |-- WrongMedia            a body of another media type than is read here     415
    |   |-- PreconditionNeeded    a change that must name the version it was made on 428
    |   `-- Invalid               readable, but breaks a rule; has `faults`          422
    |-- Conflict              the world moved, or is not in the state asked for      409
    |   |-- VersionConflict       a record changed since it was read                 412
    |   `-- KeyReused             an idempotency key came with another body          422
    |-- Unavailable           waiting helps; carries `retry_after_ms`                503
    |   `-- RateLimited                                                              429
    |-- Refused               waiting does not help                                  409
    `-- InvariantViolated     a bug; caught only at a step's edge                    500

Not errors, because they are answers: unschedulable, quota full, preempted, job failed.
Foreign errors are translated at one place per dependency, with the original as cause.
Every message names the thing, the limit and the actual value, and says what to do. HTTP comes last: `api.errors` owns
the mapping to status codes; `code` is stable, documented in `docs/reference/errors.md` and tested against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Fault:
    """One broken rule in a request: where it stands (`pointer` as JSON Pointer, `line` from 1 where known) and what is allowed."""

    message: str
    pointer: str = ""
    line: int | None = None
    column: int | None = None
    allowed: tuple[str, ...] = ()


class ShoalError(Exception):
    """Root of every error that Shoal raises on purpose. `internal` is for the operator's log and never reaches a user."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, internal: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.internal = internal


class RequestError(ShoalError):
    code = "request"


class Malformed(RequestError):
    code = "malformed"


class Unauthenticated(RequestError):
    code = "unauthenticated"


class Forbidden(RequestError):
    code = "forbidden"


class NotFound(RequestError):
    code = "not-found"


class PageTokenMismatch(Malformed):
    code = "page-token-mismatch"


class WrongMethod(RequestError):
    code = "method-not-allowed"


class Expired(RequestError):
    code = "expired"


class PageTokenExpired(Expired):
    code = "page-token-expired"


class VersionExpired(Expired):
    code = "resource-version-expired"


class TooLarge(RequestError):
    code = "too-large"


class WrongMedia(RequestError):
    code = "unsupported-media-type"


class PreconditionNeeded(RequestError):
    code = "precondition-required"


class Invalid(RequestError):
    """A request that can be read but breaks rules; `faults` lists each with its place."""

    code = "invalid"

    def __init__(self, message: str, faults: tuple[Fault, ...] = (), *, internal: str = "") -> None:
        super().__init__(message, internal=internal)
        self.faults = faults


class Conflict(ShoalError):
    code = "conflict"


class VersionConflict(Conflict):
    """A record to be written was changed by somebody else after it was read. Read again, judge again."""

    code = "version-conflict"
    retryable = True


class KeyReused(Conflict):
    code = "idempotency-key-reused"


class Unavailable(ShoalError):
    """Waiting helps: the same request may succeed after `retry_after_ms`."""

    code = "unavailable"
    retryable = True

    def __init__(self, message: str, *, retry_after_ms: int = 1_000, internal: str = "") -> None:
        super().__init__(message, internal=internal)
        self.retry_after_ms = retry_after_ms


class RateLimited(Unavailable):
    code = "rate-limited"


class Refused(ShoalError):
    code = "refused"


class InvariantViolated(ShoalError):
    code = "invariant-violated"

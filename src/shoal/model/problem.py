"""
An error on the wire (RFC 9457, application/problem+json): the one shape in which every refusal of the API is told.

Written by `api.problems`, read by `client.answers`. `code` is stable; `title` and `detail` are for people and may change.
"""

from __future__ import annotations

import msgspec


class ProblemFault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One broken rule: where (JSON Pointer into the body, line and column from 1 where known), and what is allowed."""

    message: str
    pointer: str = ""
    line: int | None = None
    column: int | None = None
    allowed: tuple[str, ...] = ()


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """See module. `retry_after_ms` is set exactly when the same request may be sent again after that time."""

    type: str
    """`urn:shoal:error:<code>`"""
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    instance: str = ""
    """The path asked for."""
    request_id: str = ""
    errors: tuple[ProblemFault, ...] = ()
    retry_after_ms: int | None = None

"""With which code the program ends. `wait`, `run` and `exec` end with the job's own instead."""

from __future__ import annotations

from typing import Final

from shoal.base.errors import Forbidden, KeyReused, NotFound, RequestError, ShoalError, Unauthenticated, Unavailable

DONE: Final = 0
FAILED: Final = 1
BAD_INPUT: Final = 2
NOT_FOUND: Final = 3
NO_ACCESS: Final = 4
NO_SERVER: Final = 5
TIMED_OUT: Final = 124
"""As timeout(1) does."""
INTERRUPTED: Final = 130
"""128 + SIGINT."""

MEANINGS: Final[dict[int, str]] = {
    DONE: "done",
    FAILED: "failed: the server refused, or the thing is not in a state for it",
    BAD_INPUT: "bad input: wrong usage, a file with faults, a rule broken; nothing was created or changed",
    NOT_FOUND: "there is no such thing",
    NO_ACCESS: "no token, or one that does not allow it",
    NO_SERVER: "no Shoal answers, or it is too busy",
    TIMED_OUT: "`wait --timeout` ran out",
    INTERRUPTED: "interrupted (Ctrl-C)",
}


def code_of(error: ShoalError) -> int:
    """The exit code for an error that ends a command."""
    if isinstance(error, NotFound):
        return NOT_FOUND
    if isinstance(error, Unauthenticated | Forbidden):
        return NO_ACCESS
    if isinstance(error, RequestError | KeyReused):
        return BAD_INPUT
    return NO_SERVER if isinstance(error, Unavailable) else FAILED

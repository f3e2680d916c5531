"""Why an allocation cannot be prepared here, as a value that becomes a PrepareFailed report."""

from __future__ import annotations

import errno

from shoal.model.reason import Reason, ReasonCode


class Unprepared(Exception):
    """`fatal`: it would fail anywhere, so trying elsewhere is idle. `of_node`: any job would fail here."""

    def __init__(self, message: str, *, fatal: bool = False, of_node: bool = False) -> None:
        super().__init__(message)
        self.reason = Reason(code=ReasonCode.PREPARE_FAILED, message=message)
        self.fatal = fatal
        self.of_node = of_node


def from_os_error(error: OSError, what: str) -> Unprepared:
    """The operating system's no in words: a full disk here need not be full elsewhere."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Unprepared(f"{what}: no space is left on the node's disk ({error.filename or 'state directory'})", of_node=True)
    where = f" ({error.filename})" if error.filename else ""
    return Unprepared(f"{what}: {error.strerror or error}{where}", of_node=True)

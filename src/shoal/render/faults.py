"""Errors for people: each fault on its own line as `file:line:column`, one screen at most, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.base.errors import Fault, Invalid, ShoalError
from shoal.base.limits import FAULTS_SHOWN_MAX
from shoal.render.look import Look, clean, wrap

_ALLOWED_SHOWN_MAX = 8


def fault_lines(source: str, faults: Sequence[Fault], look: Look) -> list[str]:
    """One fault after the other, in the order of the file; past FAULTS_SHOWN_MAX only their count."""
    ordered = sorted(faults, key=lambda fault: (fault.line is None, fault.line or 0, fault.column or 0))
    lines: list[str] = []
    for fault in ordered[:FAULTS_SHOWN_MAX]:
        place = ":".join([source, *(str(part) for part in (fault.line, fault.column) if part is not None)])
        where = f"{fault.pointer}: " if fault.pointer else ""
        lines.extend(wrap(f"{where}{fault.message}{_allowed(fault)}", look, "    ", f"{look.paint(clean(place), 'bold')}: "))
    if len(faults) > FAULTS_SHOWN_MAX:
        lines.append(f"... and {len(faults) - FAULTS_SHOWN_MAX} more faults")
    return lines


def _allowed(fault: Fault) -> str:
    """The choice, unless the message has it or it is too long to help."""
    if not fault.allowed or len(fault.allowed) > _ALLOWED_SHOWN_MAX or all(word in fault.message for word in fault.allowed):
        return ""
    return f" (allowed: {', '.join(fault.allowed)})"


def _says_it(error: Invalid) -> bool:
    """True if the message has the words of the only fault."""
    return len(error.faults) == 1 and error.faults[0].message in error.message and not _allowed(error.faults[0])


def error_lines(error: ShoalError, source: str, look: Look, so: str = "nothing was created") -> list[str]:
    """An error as the CLI prints it: `error: what`, then the faults if it has some."""
    mark = look.paint("error:", "red")
    if isinstance(error, Invalid) and error.faults and not (not source and _says_it(error)):
        count = len(error.faults)
        head = f"{mark} {clean(source)} has {count} fault{'s' if count > 1 else ''}; {so}" if source else f"{mark} {clean(error.message)}"
        return [head, *fault_lines(source or "request", error.faults, look)]
    return wrap(error.message, look, "       ", f"{mark} ")

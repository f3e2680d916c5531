"""The form of names that people give: of queues, projects, pools, secrets, groups and labels. Used by rules and use cases alike."""

from __future__ import annotations

import re

from shoal.base import limits
from shoal.base.errors import Fault

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
NAME_FORM = f"letters, digits, '.', '_' and '-', at most {limits.NAME_CHARS_MAX} of them, a letter or digit first"


def is_name(text: str) -> bool:
    return len(text) <= limits.NAME_CHARS_MAX and _NAME.fullmatch(text) is not None


def name_faults(what: str, text: str, pointer: str) -> tuple[Fault, ...]:
    """A fault if `text` is no name: it names the thing, and the form."""
    return () if is_name(text) else (Fault(f"{what} {shortened(text)} is no name; use {NAME_FORM}", pointer),)


def shortened(text: str) -> str:
    """The text as it stands in a message: quoted, and cut where it is long."""
    return repr(text if len(text) <= 60 else text[:57] + "...")

"""docs/reference/policy.md: every field of the scheduler's policy, from the struct that the cycle gets."""

from __future__ import annotations

import typing
from typing import Literal

import msgspec
from docs_source import cell, words_of_class

from shoal.scheduling.policy import Policy

INTRO = """\
# The scheduler's policy

Printed from `shoal.scheduling.policy` by `tools/docs_policy.py` (`make docs`); change the code, not this page.

What an operator may decide about the cycle. `shoal simulate LOG --policy NAME:FIELD=VALUE,FIELD=VALUE` plays a trace under it
([how to compare](../howto/simulate.md)), a [scenario](scenario.md) has it under `policy`. Names that end in `_ms` are milliseconds.

| Field | Takes | Unless said | |
|---|---|---|---|
"""


def policy_page() -> str:
    """The page's text."""
    words = words_of_class(Policy)
    rows = [
        f"| `{field.name}` | {_takes(field)} | `{_text(field.default)}` | {cell(words[field.name])} |"
        for field in msgspec.structs.fields(Policy)
    ]
    return INTRO + "\n".join(rows) + "\n"


def _takes(field: msgspec.structs.FieldInfo) -> str:
    if typing.get_origin(field.type) is Literal:
        return ", ".join(f"`{one}`" for one in typing.get_args(field.type))
    return {bool: "true or false", int: "number"}.get(field.type, "a table")


def _text(value: object) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

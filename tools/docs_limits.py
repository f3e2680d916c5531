"""docs/reference/limits.md: every bound with its reason, from `shoal.base.limits`."""

from __future__ import annotations

from docs_source import cell, words_of_module

from shoal.base import limits

INTRO = """\
# Limits

Printed from `shoal.base.limits` by `tools/docs_limits.py` (`make docs`); change the code, not this page. Whatever comes from outside and
whatever grows has a bound here. Those that a client should know are also in the answer of `GET /v1/meta`.

| Limit | Value | Why |
|---|---|---|
"""


def limits_page() -> str:
    """The page's text. A limit without words of its own shares those under it."""
    rows: list[str] = []
    waiting: list[str] = []
    for name, words in words_of_module(limits).items():
        waiting.append(name)
        if not words:
            continue
        rows += [f"| `{each}` | {_value(each)} | {cell(words) if each == waiting[-1] else 'see the next line'} |" for each in waiting]
        waiting = []
    rows += [f"| `{each}` | {_value(each)} | |" for each in waiting]
    return INTRO + "\n".join(rows) + "\n"


def _value(name: str) -> str:
    value = getattr(limits, name)
    if "_BYTES" in name:
        for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value % size == 0:
                return f"{value // size:,} {unit}"
    if "_MS" in name:
        for unit, size in (("days", 86_400_000), ("minutes", 60_000), ("s", 1_000)):
            if value % size == 0:
                return f"{value // size:,} {unit}"
        return f"{value:,} ms"
    return f"{value:,}"

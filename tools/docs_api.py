"""docs/reference/http-api.md: every operation, from the table that the routes are made of."""

from __future__ import annotations

import re
from typing import get_args, get_origin

from docs_source import cell

from shoal.api.operations import Operation
from shoal.api.table import OPERATIONS

INTRO = """\
# HTTP API

Printed from `shoal.api.table` by `tools/docs_api.py` (`make docs`); change the code, not this page. The same table gives
`GET /openapi.json`, which has every field of every body and answer.

- JSON, unless a row says otherwise. Times are milliseconds since 1970 (`*_ms`); enumerations may grow, so cope with values you do not know.
- `Authorization: Bearer TOKEN`. *Needs* is the least role: viewer, member, maintainer, admin; `node` and `join` are what machines have.
  A member changes the jobs that it owns; a maintainer, everybody's of the project.
- Errors are problem documents: [errors.md](errors.md). An unknown field in a request is one of them.
- Creates take `Idempotency-Key`: the same key gives what its first request made, with `Idempotency-Replayed: true`.
- `ETag` and `If-Match` guard what people declare (queues).
- Lists give `next`, an opaque cursor: `?cursor=`. Pages neither skip nor repeat what is there from the first to the last of them.
- `GET .../events` as `text/event-stream` resumes by `Last-Event-ID`; logs resume by `after=` in bytes. Both lose and double nothing.
  [Streams](streams.md) says what each of their messages is.
- A bad wish about a job that has ended is no error: cancel answers 200 and changes nothing.
"""


def api_page() -> str:
    """The page's text, by the noun of each operation."""
    nouns: dict[str, list[Operation]] = {}
    for operation in OPERATIONS:
        nouns.setdefault(operation.id.split(".")[0], []).append(operation)
    parts = [INTRO]
    for noun, operations in nouns.items():
        rows = [_row(operation) for operation in sorted(operations, key=lambda one: (one.path, one.method))]
        parts.append(f"## {noun}\n\n| | Needs | Body | Answer | |\n|---|---|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _row(operation: Operation) -> str:
    path = re.sub(r"\{(\w+):\w+\}", r"{\1}", operation.path)
    query = "&".join(f"{name}=" for name in getattr(operation.query, "__struct_fields__", ()))
    asked = f"`{operation.method} {path}`" + (f"<br>`?{query}`" if query else "")
    body = {"json": _name(operation.body), "pack": f"{_name(operation.body)} as MessagePack", "bytes": "bytes", "none": ""}
    gives = {"json": _name(operation.answer), "pack": f"{_name(operation.answer)} as MessagePack", "bytes": "bytes", "none": ""}
    answer = f"{operation.status} {gives[operation.gives]}".strip()
    return f"| {asked} | {operation.need} | {cell(body[operation.takes])} | {cell(answer)} | {cell(operation.summary)} |"


def _name(kind: object) -> str:
    """The type's own name; of a list, that of its items."""
    if kind is None:
        return ""
    if get_origin(kind) is tuple:
        return f"list of {_name(get_args(kind)[0])}"
    return f"`{kind.__name__}`" if isinstance(kind, type) else f"`{kind}`"

"""
docs/reference/dependencies.md: what the core installs, who asks for it, and why each direct dependency earns its place.

Read from requirements/core.txt, whose comments say who asks for what, so that it is the same on every machine. Run alone it prints the
tree.
"""

from __future__ import annotations

import re
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements" / "core.txt"
ROOT_NAME = "shoal (pyproject.toml)"
WHY = {
    "alembic": "Migrations of the state, for SQLite and PostgreSQL from one history. Loaded only when a schema is old.",
    "click": "The command line. Typer was tried and dropped: its import takes 59 ms of CPU time, click 39, and it brings pydantic.",
    "cryptography": "Seals secrets (AES-256-GCM) and makes certificates. Not a thing to write oneself.",
    "httptools": "Reads HTTP requests in C, under uvicorn; its other reader, h11, is Python.",
    "msgspec": "Records to JSON and MessagePack and back, checked while decoding; also the source of the OpenAPI document.",
    "numpy": "The board of the scheduler is columnar: free devices of 10,000 nodes are one array.",
    "nvidia-ml-py": "NVIDIA's own binding to the driver's management library: probes of real GPUs. Pure Python, loaded by agents only.",
    "pyyaml": "Reads and writes job files, behind one module that refuses aliases and tags.",
    "sqlalchemy": "Core only, no ORM: one text of each statement for SQLite and PostgreSQL. Loaded by the server only.",
    "starlette": "The application interface under the API: requests, answers, WebSockets. The router and checks are Shoal's own.",
    "uvicorn": "Serves HTTP and WebSockets. See [ADR 3](../adr/0003-http-stack.md) for what else was measured.",
    "uvloop": "The event loop in C, under the server.",
    "websockets": "Terminals (`shoal exec`): server side in uvicorn, client side in CLI and agent.",
}
INTRO = """\
# Dependencies

Printed by `tools/dependency_tree.py` (`make docs`) from `requirements/core.txt`. The core installs {count} packages; 40 is the bound, and a
test holds it. A dependency that nothing imports fails a test too.

| Direct | Why it is here |
|---|---|
{rows}

Not here on purpose: an HTTP client (the standard library's does, and starts faster), an ORM, SciPy (only tests compare with it), rich and
psutil (a table and a look into /proc are short).

## The tree

```
{tree}
```

## Extras

`requirements/EXTRA.txt` holds the core and one extra, with the same versions, so adding an extra moves nothing:
`pip install --require-hashes -r requirements/postgres.txt`.

| Extra | Brings |
|---|---|
| `postgres` | psycopg, for state in PostgreSQL |
| `plots` | matplotlib, for plots of planning and simulation |
| `tui` | textual, for the live view |
| `kubernetes` | kubernetes-asyncio and grpcio, for pods and device plugins |
| `ray` | ray, to test against the real thing |
| `otel` | OpenTelemetry, to send traces and metrics |
"""


def asked_by() -> dict[str, list[str]]:
    """By package, who asks for it."""
    found: dict[str, list[str]] = {}
    for block in re.split(r"^(?=[A-Za-z0-9])", LOCK.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        via = block.partition("# via")[2]
        found[block.split("==")[0]] = [who for line in via.splitlines() if (who := line.strip(" #"))]
    return found


def tree_lines() -> list[str]:
    """The tree, one package a line. What stands in two places is opened at the first."""
    askers = asked_by()
    opened: set[str] = set()

    def below(name: str, depth: int) -> list[str]:
        lines = []
        for child in sorted(package for package, who in askers.items() if name in who):
            again = child in opened and any(child in who for who in askers.values())
            lines.append(f"{'    ' * depth}{child}{' (see above)' if again else ''}")
            if child not in opened:
                opened.add(child)
                lines += below(child, depth + 1)
        return lines

    return ["shoal", *below(ROOT_NAME, 1)]


def dependencies_page() -> str:
    """The page's text."""
    rows = "\n".join(f"| `{name}` | {why} |" for name, why in WHY.items())
    return INTRO.format(count=len(asked_by()), rows=rows, tree="\n".join(tree_lines()))


if __name__ == "__main__":
    print("\n".join(tree_lines()))
    print(f"{len(asked_by())} packages")

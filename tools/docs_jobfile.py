"""docs/reference/jobfile.md: every key of a job file, from the structs that read it."""

from __future__ import annotations

import types
import typing
from typing import Any, Literal

import msgspec
from docs_source import cell, words_of_class

from shoal.lifecycle.spec_rules import check_spec
from shoal.model import codec, job
from shoal.model.values import ArrayList, CountRange, Duration, Memory, MemoryRange

SECTIONS: tuple[tuple[type, str], ...] = (
    (job.JobSpec, "The file"),
    (job.GpuAsk, "gpus"),
    (job.GroupSpec, "groups"),
    (job.Resources, "any_of and ordered"),
    (job.Topology, "topology"),
    (job.Slice, "slice"),
    (job.WorkDir, "workdir"),
    (job.Mount, "mounts"),
    (job.Dependency, "depends_on"),
    (job.Retry, "retry"),
    (job.Elastic, "elastic"),
    (job.Stop, "stop"),
    (job.Checkpoint, "checkpoint"),
    (job.OnDisconnect, "on_disconnect"),
)
TITLES = dict(SECTIONS)
TAKES: dict[Any, str] = {
    str: "text",
    int: "number",
    bool: "true or false",
    CountRange: "`4` or `2..4`",
    Memory: "`64GiB`",
    MemoryRange: "`80GB..` or `24GB..40GB`",
    Duration: "`2h30m`",
    ArrayList: "`0-15%4`",
}
INTRO = """\
# The job file

Printed from `shoal.model.job` by `tools/docs_jobfile.py` (`make docs`); change the code, not this page.

YAML, strict: an unknown key is an error that names its line and the key you may have meant. Several jobs stand in one file, separated by
`---`. The same fields are the body of `POST .../jobs`, and `shoal get JOB` prints them back as a file. What one *node* gives is said
everywhere: `cpus`, `memory` and `gpus` are per node.

Numbers with a meaning carry a unit: `GiB` is 2^30 and `GB` is 10^9 bytes; times take `ms`, `s`, `m`, `h`, `d`, `w`. A bare number there is
an error, not a guess.

## Short forms

| Written | Means |
|---|---|
| `gpus: 8` | `gpus: {count: 8}` |
| `gpus: h100` | `gpus: {count: 1, model: [h100]}` |
| `gpus: h100:8`, `gpus: h100,h200:8` | eight of that model, or of either, the same for all nodes |
| `gpus: h100:80GB..:8` | eight with at least 80 GB each |
| `model: h100` | `model: [h100]` |
| `depends_on: 12`, `depends_on: afterany:12` | `depends_on: [{job: "12", condition: afterany}]`; `afterok` where nothing is said |
| `workdir: .` | `workdir: {path: .}` |
| `topology: rack` | `topology: {level: rack}` |
| `elastic: true`, `elastic: in_place` | `elastic: {how: restart}`, `elastic: {how: in_place}` |
| `retry: 3` | `retry: {limit: 3}` |
| `secrets: [token]` | `secrets: {token: token}` |
| `mounts: [/data:/data:ro]` | `mounts: [{source: /data, target: /data, read_only: true}]` |
| `array: [1, 2, 3]` | `array: "1,2,3"` |
"""
UNDONE = (
    ("isolation", {"isolation": "sandbox"}),
    ("image", {"image": "x"}),
    ("checkpoint", {"checkpoint": {"signal": "USR1"}}),
    ("gpus.mig", {"gpus": {"count": 1, "mig": "1g.10gb"}}),
    ("gpus.share", {"gpus": {"share": 500}}),
)


def jobfile_page() -> str:
    """The page's text."""
    parts = [INTRO, *(_section(kind, title) for kind, title in SECTIONS), _not_yet()]
    return "\n".join(parts)


def _section(kind: type, title: str) -> str:
    words = words_of_class(kind)
    heading = title if kind is job.JobSpec else ", ".join(f"`{name}`" for name in title.split(" and "))
    lines = [f"## {heading}\n", *_words(kind), "| Key | Takes | Unless said | |", "|---|---|---|---|"]
    for field in msgspec.structs.fields(kind):
        if kind is job.WorkDir and field.name == "blob":
            continue
        lines.append(f"| `{field.name}` | {cell(_takes(field.type))} | {_default(field)} | {cell(words.get(field.name, ''))} |")
    return "\n".join(lines) + "\n"


def _words(kind: type) -> list[str]:
    """What the struct says of itself; the file as a whole has the introduction."""
    return [] if kind is job.JobSpec else [" ".join((kind.__doc__ or "").split()) + "\n"]


def _takes(kind: Any) -> str:
    """What may be written for a type, in words."""
    if kind in TAKES:
        return TAKES[kind]
    if kind in TITLES:
        return f"see [{TITLES[kind]}](#{TITLES[kind].replace(' and ', '-')})"
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_takes(one) for one in arguments if one is not type(None))
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in arguments)
    if origin is tuple:
        return f"list: {_takes(arguments[0])}"
    if origin is dict:
        return f"{_takes(arguments[0])}: {_takes(arguments[1])}"
    raise TypeError(f"no words for {kind}; add them to TAKES")


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "must be said"
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    plain = codec.to_plain(value)
    if plain in (None, [], {}, ()) or isinstance(plain, dict):
        return ""
    return f"`{str(plain).lower() if isinstance(plain, bool) else plain}`"


def _not_yet() -> str:
    """The keys that this version refuses, found by asking it."""
    refused = []
    for name, raw in UNDONE:
        spec = codec.convert({"run": "true", **raw}, job.JobSpec)
        if any("not available in this version" in fault.message for fault in check_spec(spec)):
            refused.append(f"`{name}`")
    return f"## Not in this version\n\nRefused with a sentence that says what to do instead: {', '.join(refused)}.\n"

"""
The short forms that people write, opened to the one form that `model.JobSpec` has: `gpus: h100:8` to `{count: 8, model: [h100]}`.

Total and idempotent: what is not understood stays as it is, for `shape` to tell with its place. Numbers become text only where text
is the only thing possible (values of `env` and `labels`, parts of a command in list form, numbers of jobs, a name), and then as they
were written: `0800` in a file stays `0800`, and `run: true` runs true. On the wire there is no writing to keep, so there only whole
numbers become text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from shoal.formats.yaml import step

_GPUS = re.compile(
    r"(?P<model>[A-Za-z][\w.-]*(?:,[A-Za-z][\w.-]*)*)"
    r"(?::(?P<memory>\d+(?:\.\d+)?[KMGT]i?B(?:\.\.(?:\d+(?:\.\d+)?[KMGT]i?B)?)?))?"
    r"(?::(?P<count>\d{1,9}))?"
)
_JOB = r"(?:\d+(?:_\d+)?|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
_DEPENDENCY = re.compile(rf"(?:(?P<condition>[a-z]+):)?(?P<jobs>{_JOB}(?::{_JOB})*)")
_GROUPED = ("groups", "any_of", "ordered")


def expand(raw: Any, written: Mapping[str, str] | None = None) -> Any:
    """
    `raw`, a job as a file or the wire has it, with every short form opened. `written` is `yaml.Document.written` of a file.

    A new tree; `raw` is left as it was.
    """
    if not isinstance(raw, dict):
        return raw
    opened = _resources(raw, "", written)
    for key, open_value in _OPENERS.items():
        if key in opened:
            opened[key] = open_value(opened[key])
    for key in ("name", "run", "setup"):
        if written is not None and f"/{key}" in written and opened.get(key) is not None:
            opened[key] = written[f"/{key}"]
    if "labels" in opened:
        opened["labels"] = _texts(opened["labels"], "/labels", written)
    for key in _GROUPED:
        if isinstance(opened.get(key), list):
            opened[key] = [_resources(part, step(f"/{key}", at), written) for at, part in enumerate(opened[key])]
    return opened


def _resources(raw: Any, pointer: str, written: Mapping[str, str] | None) -> Any:
    """A mapping of what one node gives, with `env` and `run` where the mapping is a group or the job itself."""
    if not isinstance(raw, dict):
        return raw
    opened = dict(raw)
    if "gpus" in opened:
        opened["gpus"] = _gpus(opened["gpus"])
    for key in ("env", "run"):
        if key in opened:
            opened[key] = _texts(opened[key], f"{pointer}/{key}", written)
    return opened


def _texts(raw: Any, pointer: str, written: Mapping[str, str] | None) -> Any:
    if isinstance(raw, dict):
        return {key: _text(value, step(pointer, key), written) for key, value in raw.items()}
    if isinstance(raw, list):
        return [_text(value, step(pointer, at), written) for at, value in enumerate(raw)]
    return raw


def _text(raw: Any, pointer: str, written: Mapping[str, str] | None) -> Any:
    if isinstance(raw, str) or raw is None:
        return raw
    if written is not None and pointer in written:
        return written[pointer]
    return str(raw) if isinstance(raw, int) and not isinstance(raw, bool) else raw


def _gpus(raw: Any) -> Any:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, int) or (isinstance(raw, str) and raw.isdecimal()):
        return {"count": int(raw)}
    if isinstance(raw, str):
        match = _GPUS.fullmatch(raw.strip())
        if match is None:
            return raw
        found = {"count": int(match["count"] or 1), "model": match["model"].lower().split(",")}
        return {**found, "memory": match["memory"]} if match["memory"] else found
    if not isinstance(raw, dict):
        return raw
    opened = dict(raw)
    if isinstance(opened.get("model"), str):
        opened["model"] = [name.strip().lower() for name in opened["model"].split(",")]
    elif isinstance(opened.get("model"), list):
        opened["model"] = [name.lower() if isinstance(name, str) else name for name in opened["model"]]
    # Who names a model or a profile wants a GPU of it, not none.
    if not {"count", "share", "share_memory"} & opened.keys() and {"model", "memory", "mig"} & opened.keys():
        opened["count"] = 1
    return opened


def _depends_on(raw: Any) -> Any:
    parts = raw if isinstance(raw, list) else [raw]
    opened: list[Any] = []
    for part in parts:
        many = _dependencies(part)
        if many is None:
            return raw
        opened.extend(many)
    return opened


def _dependencies(part: Any) -> list[Any] | None:
    """The dependencies that one text, number or mapping stands for; None where it is none of the short forms."""
    if isinstance(part, int) and not isinstance(part, bool):
        return [{"job": str(part)}]
    if isinstance(part, dict):
        job = part.get("job")
        return [{**part, "job": str(job)}] if isinstance(job, int) and not isinstance(job, bool) else [part]
    if not isinstance(part, str):
        return None
    found: list[Any] = []
    for piece in part.replace(" ", "").split(","):
        match = _DEPENDENCY.fullmatch(piece)
        if match is None:
            return None
        condition = {"condition": match["condition"]} if match["condition"] else {}
        found.extend({"job": job, **condition} for job in match["jobs"].split(":"))
    return found


def _secrets(raw: Any) -> Any:
    return {name: name for name in raw} if isinstance(raw, list) and all(isinstance(name, str) for name in raw) else raw


def _array(raw: Any) -> Any:
    """A list of indices is as good as the text for it."""
    if isinstance(raw, list) and raw and all(isinstance(index, int) and not isinstance(index, bool) for index in raw):
        return ",".join(map(str, raw))
    return raw


def _mounts(raw: Any) -> Any:
    return [_mount(part) for part in raw] if isinstance(raw, list) else raw


def _mount(raw: Any) -> Any:
    match = re.fullmatch(r"(/[^:]*):(/[^:]*)(:ro|:rw)?", raw) if isinstance(raw, str) else None
    if match is None:
        return raw
    opened = {"source": match[1], "target": match[2]}
    return {**opened, "read_only": True} if match[3] == ":ro" else opened


def _elastic(raw: Any) -> Any:
    """`true` is by restart, a word is how; `false` is as if it were not there."""
    if isinstance(raw, bool):
        return {} if raw else None
    return {"how": raw.replace("-", "_")} if isinstance(raw, str) else raw


def _key_of(key: str, kind: type) -> Callable[[Any], Any]:
    """Opens a bare value of type `kind` to a mapping with that one key."""
    return lambda raw: {key: raw} if isinstance(raw, kind) and not isinstance(raw, bool) else raw


_OPENERS: dict[str, Callable[[Any], Any]] = {
    "depends_on": _depends_on,
    "workdir": _key_of("path", str),
    "elastic": _elastic,
    "topology": _key_of("level", str),
    "retry": _key_of("limit", int),
    "secrets": _secrets,
    "mounts": _mounts,
    "array": _array,
}

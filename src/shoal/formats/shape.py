"""
Every way in which a plain tree does not have the shape of a record, each with its place and with what is wanted there.

`msgspec.convert` stops at the first fault; a person with five wants to read five. So the tree is walked against the record's fields
first, and converted when nothing was found. Called by `jobfile`, for files and for the wire.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from msgspec import inspect

from shoal.base.errors import Fault
from shoal.base.words import did_you_mean
from shoal.formats.yaml import step
from shoal.model.job import Dependency, GpuAsk, Mount, Resources, Retry, Topology, WorkDir
from shoal.model.values import Value

_WANTED: dict[type, str] = {
    GpuAsk: "a count, h100:8, or a mapping such as {count: 8, model: h100}",
    Dependency: "the number of a job that exists (12, afterany:12 or {job: 12, condition: afterany})",
    Mount: "/from:/to, /from:/to:ro, or {source: /from, target: /to}",
    WorkDir: "a directory such as '.', or {path: ., ignore: [...]}",
    Topology: "a level such as rack, or {level: rack, required: true}",
    Retry: "a count, or a mapping such as {limit: 3, exit_codes: [75]}",
    Resources: "a mapping such as {gpus: h100:8}",
}
"""What to write for a record that has short forms."""

_FOREIGN = {
    "accelerators": "gpus",
    "account": "queue",
    "begin_time": "begin",
    "command": "run",
    "commands": "run",
    "cpu": "cpus",
    "cwd": "workdir",
    "dependencies": "depends_on",
    "dependency": "depends_on",
    "entrypoint": "run",
    "environment": "env",
    "gpu": "gpus",
    "max_duration": "time",
    "mem": "memory",
    "node": "nodes",
    "ntasks_per_node": "tasks_per_node",
    "num_gpus": "gpus",
    "num_nodes": "nodes",
    "partition": "queue",
    "restart": "retry",
    "script": "run",
    "tasks": "tasks_per_node",
    "time_limit": "time",
    "timeout": "time",
    "type": "model",
    "volumes": "mounts",
    "walltime": "time",
    "working_dir": "workdir",
}
"""Words of other tools for the same thing."""


@lru_cache(maxsize=16)
def _type_of(kind: type) -> inspect.Type:
    return inspect.type_info(kind)


def shape_faults(raw: Any, kind: type, pointer: str = "") -> tuple[Fault, ...]:
    """All faults of `raw` against the record type `kind`, in the order of the tree; empty means that it converts."""
    return tuple(_faults(raw, _type_of(kind), pointer))


def _key_meant(word: str, known: tuple[str, ...]) -> str:
    """As `did_you_mean`, with the words of other tools first."""
    foreign = _FOREIGN.get(word.lower())
    return f"; did you mean {foreign!r}?" if foreign in known else did_you_mean(word, known)


def _faults(raw: Any, kind: inspect.Type, pointer: str) -> Iterator[Fault]:
    if isinstance(kind, inspect.UnionType):
        yield from _union_faults(raw, kind, pointer)
    elif isinstance(kind, inspect.StructType):
        yield from _record_faults(raw, kind, pointer)
    elif isinstance(kind, inspect.DictType):
        if not isinstance(raw, dict):
            yield _wrong(raw, _words(kind), pointer)
        else:
            for key, value in raw.items():
                yield from _faults(value, kind.value_type, step(pointer, key))
    elif isinstance(kind, inspect.VarTupleType | inspect.ListType):
        if not isinstance(raw, list | tuple):
            yield _wrong(raw, _words(kind), pointer)
        else:
            for index, value in enumerate(raw):
                yield from _faults(value, kind.item_type, step(pointer, index))
    else:
        yield from _leaf_faults(raw, kind, pointer)


def _union_faults(raw: Any, kind: inspect.UnionType, pointer: str) -> Iterator[Fault]:
    members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
    if raw is None and len(members) < len(kind.types):
        return
    lists = [member for member in members if isinstance(member, inspect.VarTupleType | inspect.ListType)]
    if len(members) == 1 or (lists and isinstance(raw, list | tuple)):
        yield from _faults(raw, lists[0] if len(members) > 1 else members[0], pointer)
    elif all(any(True for _ in _faults(raw, member, pointer)) for member in members):
        yield _wrong(raw, " or ".join(_words(member) for member in members), pointer)


def _record_faults(raw: Any, kind: inspect.StructType, pointer: str) -> Iterator[Fault]:
    if not isinstance(raw, dict):
        yield _wrong(raw, _words(kind), pointer)
        return
    fields = {field.encode_name: field for field in kind.fields}
    for key, value in raw.items():
        place = step(pointer, key)
        if key in fields:
            yield from _faults(value, fields[key].type, place)
        else:
            known = tuple(sorted(fields))
            yield Fault(f"unknown key {str(key)[:60]!r}{_key_meant(str(key), known)}", place, allowed=known)
    for name, field in fields.items():
        if field.required and name not in raw:
            yield Fault(f"the key {name!r} is missing", pointer)


def _leaf_faults(raw: Any, kind: inspect.Type, pointer: str) -> Iterator[Fault]:
    if isinstance(kind, inspect.CustomType):
        yield from _value_faults(raw, kind.cls, pointer)
    elif isinstance(kind, inspect.LiteralType):
        allowed = tuple(str(value) for value in kind.values)
        if raw not in kind.values:
            yield Fault(f"{_told(raw)} is not one of {', '.join(allowed)}{did_you_mean(str(raw), allowed)}", pointer, allowed=allowed)
    elif isinstance(kind, inspect.BoolType):
        if not isinstance(raw, bool):
            yield _wrong(raw, "true or false", pointer)
    elif isinstance(kind, inspect.IntType):
        if not isinstance(raw, int) or isinstance(raw, bool):
            yield _wrong(raw, "a whole number", pointer)
    elif isinstance(kind, inspect.StrType) and not isinstance(raw, str):
        wrong = _wrong(raw, "text", pointer)
        yield replace(wrong, message=f"{wrong.message}; put it in quotes to make it text") if isinstance(raw, int | float) else wrong


def _value_faults(raw: Any, kind: type, pointer: str) -> Iterator[Fault]:
    if not issubclass(kind, Value):
        raise TypeError(f"a field of a record has the type {kind.__name__}, which cannot come from a file")
    if raw is None:
        yield Fault("has no value; leave the key out or give one", pointer)
        return
    try:
        kind.parse(raw)
    except ValueError as error:
        yield Fault(str(error), pointer)


def _wrong(raw: Any, wanted: str, pointer: str) -> Fault:
    if raw is None:
        return Fault(f"has no value; leave the key out or give {wanted}", pointer)
    return Fault(f"expected {wanted}, got {_told(raw)}", pointer)


def _words(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.StructType):
        return _WANTED.get(kind.cls, "a mapping with keys such as " + ", ".join(field.encode_name for field in kind.fields[:4]))
    if isinstance(kind, inspect.DictType):
        return "a mapping of names to " + ("whole numbers" if isinstance(kind.value_type, inspect.IntType) else "text")
    if isinstance(kind, inspect.VarTupleType):
        return _WANTED.get(kind.item_type.cls, "a list") if isinstance(kind.item_type, inspect.StructType) else "a list"
    return "text" if isinstance(kind, inspect.StrType) else "another value"


def _told(raw: Any) -> str:
    """A value as a message shows it: its kind, and itself where it is short."""
    if isinstance(raw, dict):
        return "a mapping"
    if isinstance(raw, list | tuple):
        return "a list"
    if isinstance(raw, bool):
        return str(raw).lower()
    if isinstance(raw, str):
        return f"the text {raw[:60]!r}" + ("..." if len(raw) > 60 else "")
    return f"the number {raw}"

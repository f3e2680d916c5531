"""
The one door for the YAML parser: text that people write, to plain values with the place of each, and back.

What is taken is the part of YAML 1.2 that JSON can say, read strictly. A repeated key, an alias, an anchor or a tag is a fault; plain
scalars follow the 1.2 core schema, so that `no`, `12:30` and `12_3` are text and not false, 750 and 123. Size, depth and count of
nodes are bounded before anything is built, and without aliases nothing can grow while it is read.

Built from the parser's events rather than with its constructor: the constructor keeps no places, and takes repeated keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import yaml

from shoal.base import limits
from shoal.base.errors import Fault, Invalid, Malformed, TooLarge

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml where the wheel has it: 1 MiB takes 0.1 s with it and 5 s without."""

_NULL = re.compile(r"null|Null|NULL|~|")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+")
_OCT = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_OTHER_BREAKS = re.compile("[\r\x85\u2028\u2029\ufeff]")
_INT_MAX = (1 << 63) - 1
_BOMS = ((b"\xff\xfe\x00\x00", "UTF-32"), (b"\x00\x00\xfe\xff", "UTF-32"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))
_MAGIC = ((b"\x1f\x8b", "a gzip archive"), (b"PK\x03\x04", "a zip archive"), (b"\x7fELF", "a program"), (b"%PDF", "a PDF"))


class Place(NamedTuple):
    """Where a value stands, and where its key does (the same for an item of a list). Lines and columns count from 1."""

    line: int
    column: int
    key_line: int
    key_column: int


@dataclass(frozen=True, slots=True)
class Document:
    """
    One document of a file: dicts, lists, text, numbers, booleans and None.

    `places` is keyed by JSON Pointer. `written` has, for scalars that became something other than text, the text that stood there, so
    that `0800` can stay `0800` where text is wanted.
    """

    value: Any
    places: dict[str, Place] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)


def parse(data: bytes | str, source: str) -> tuple[Document, ...]:
    """
    The documents of a file; `source` names it in messages.

    Raises: TooLarge over limits.JOB_FILE_BYTES_MAX; Malformed for what is not UTF-8 text; Invalid for broken YAML, repeated keys,
    aliases, tags and whatever passes the limits on depth and count.
    """
    text = decode_text(data, source)
    reader = _Reader(source)
    try:
        documents = tuple(reader.documents(yaml.parse(text, Loader=_LOADER)))
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, source) from error
    except yaml.YAMLError as error:
        raise Malformed(f"{source}: not valid YAML: {error}") from error
    if reader.faults:
        raise Invalid(f"{source}: not taken", tuple(reader.faults))
    return documents


def parse_value(text: str) -> Any:
    """The plain value that `text` would be after `key: ` in a file: for settings given on a command line."""
    documents = parse(text, "value")
    return documents[0].value if documents else None


def dump(value: Any) -> str:
    """YAML text that `parse` reads back as an equal value: keys in their order, scripts as blocks, doubtful text in quotes."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 30, default_flow_style=False)
    return text


def decode_text(data: bytes | str, source: str) -> str:
    """The text of a file in UTF-8; what else it may be is named in the error."""
    if len(data) > limits.JOB_FILE_BYTES_MAX:
        raise TooLarge(
            f"{source} has {len(data):,} bytes; a job file may have {limits.JOB_FILE_BYTES_MAX:,}. Put data in a file of the working "
            "directory or on a mount"
        )
    text = _decode_bytes(data, source) if isinstance(data, bytes) else data
    odd = _UNPRINTABLE.search(text)
    if odd is not None:
        line, column = _line_of(text, odd.start())
        what = f"the character U+{ord(odd[0]):04X} cannot be part of YAML; is this a binary file?"
        raise Malformed(f"{source} line {line}, column {column}: {what}")
    return text


def _decode_bytes(data: bytes, source: str) -> str:
    for mark, name in _BOMS:
        if data.startswith(mark):
            raise Malformed(f"{source} is {name} text; save it as UTF-8")
    for mark, name in _MAGIC:
        if data.startswith(mark):
            raise Malformed(f"{source} is {name}, not a job file")
    if b"\0" in data:
        raise Malformed(f"{source} is binary (a zero byte at offset {data.index(0):,}), not a job file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Malformed(f"{source} line {line}: byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8") from error


def _line_of(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1


def _syntax_error(error: yaml.MarkedYAMLError, text: str, source: str) -> Invalid:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    problem = error.problem or "cannot be read"
    since = error.context_mark
    if error.context and since is not None and since.line + 1 != line:
        problem += f" ({error.context} that began in line {since.line + 1})"
    return Invalid(f"{source}: not valid YAML", (Fault(f"not valid YAML: {problem}{_syntax_hint(problem, text, line)}", "", line, column),))


def _syntax_hint(problem: str, text: str, line: int) -> str:
    rows = text.split("\n")
    row = rows[line - 1] if line <= len(rows) else ""
    if "\t" in row[: len(row) - len(row.lstrip())]:
        return "; indent with spaces, not tabs"
    return "; text with ': ' in it needs quotes" if "mapping values" in problem else ""


def resolve_plain(text: str) -> Any:
    """What an unquoted scalar means in the YAML 1.2 core schema. ValueError for a whole number beyond 64 bits."""
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text) or _FALSE.fullmatch(text):
        return text[0] in "tT"
    for pattern, base in ((_INT, 10), (_OCT, 8), (_HEX, 16)):
        if pattern.fullmatch(text):
            return _whole(text, base)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _SPECIAL.fullmatch(text):
        return float(text.replace(".", "", 1))
    return text


def _whole(text: str, base: int) -> int:
    digits = text.lstrip("+-") if base == 10 else text[2:]
    value = int(digits, base) if len(digits) <= 32 else _INT_MAX + 1
    if value > _INT_MAX:
        raise ValueError(f"the number {text[:24]}{'...' if len(text) > 24 else ''} does not fit 64 bits")
    return -value if text.startswith("-") else value


def step(pointer: str, key: str | int) -> str:
    """`pointer` one key or index further (RFC 6901)."""
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


class _Reader:
    """Events to documents. Faults that do not stop the reading are collected."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.faults: list[Fault] = []
        self.nodes = 0
        self.places: dict[str, Place] = {}
        self.written: dict[str, str] = {}

    def documents(self, events: Iterator[Any]) -> Iterator[Document]:
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                self.places, self.written = {}, {}
                root = next(events)
                value = self._node(events, root, "", root, 1)
                yield Document(value, self.places, self.written)

    def _fault(self, message: str, pointer: str, event: Any) -> None:
        self.faults.append(Fault(message, pointer, event.start_mark.line + 1, event.start_mark.column + 1))

    def _node(self, events: Iterator[Any], event: Any, pointer: str, key: Any, depth: int) -> Any:
        self._count(event, depth)
        at, of_key = event.start_mark, key.start_mark
        self.places[pointer] = Place(at.line + 1, at.column + 1, of_key.line + 1, of_key.column + 1)
        if isinstance(event, yaml.AliasEvent):
            self._fault(f"aliases such as *{event.anchor} are not taken; write the value out", pointer, event)
            return None
        if event.anchor is not None:
            self._fault(f"anchors such as &{event.anchor} are not taken; write the value out where it is used", pointer, event)
        if event.tag not in (None, "!"):
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._fault(f"tags such as {tag} are not taken; write plain values, text in quotes", pointer, event)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(events, pointer, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(events, pointer, depth)
        return self._scalar(event, pointer)

    def _count(self, event: Any, depth: int) -> None:
        self.nodes += 1
        if depth > limits.YAML_DEPTH_MAX or self.nodes > limits.YAML_NODES_MAX:
            deep = depth > limits.YAML_DEPTH_MAX
            over = f"more than {limits.YAML_DEPTH_MAX} levels deep" if deep else f"more than {limits.YAML_NODES_MAX:,} values"
            # A pointer of 32 steps helps nobody; line and column do.
            self._fault(f"{over}; a job needs far fewer", "", event)
            raise Invalid(f"{self.source}: too large", tuple(self.faults[-1:]))

    def _mapping(self, events: Iterator[Any], pointer: str, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            if not isinstance(event, yaml.ScalarEvent):
                self._fault("a key must be plain text, not a list, a mapping or an alias", pointer, event)
                raise Invalid(f"{self.source}: not taken", tuple(self.faults))
            place = step(pointer, event.value)
            if event.value in found:
                self._fault(f"the key {event.value!r} stands here a second time; first in line {self.places[place].key_line}", place, event)
            found[event.value] = self._node(events, next(events), place, event, depth + 1)
        return found

    def _sequence(self, events: Iterator[Any], pointer: str, depth: int) -> list[Any]:
        found: list[Any] = []
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            found.append(self._node(events, event, step(pointer, len(found)), event, depth + 1))
        return found

    def _scalar(self, event: Any, pointer: str) -> Any:
        if not event.implicit[0]:
            return event.value
        try:
            value = resolve_plain(event.value)
        except ValueError as error:
            self._fault(str(error), pointer, event)
            return 0
        if not isinstance(value, str):
            self.written[pointer] = event.value
        return value


class _Dumper(yaml.SafeDumper):
    """Lists indented under their key, no aliases, and quotes around text that either version of YAML would take for something else."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  the parent's signature
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002  the parent's signature
        super().increase_indent(flow, False)


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # YAML 1.1 breaks lines at characters that 1.2 does not, so what holds one goes into double quotes, escaped. A block is only a
    # wish: the emitter falls back to double quotes where a block would not keep the text.
    style = '"' if _OTHER_BREAKS.search(text) else "|" if "\n" in text else "'" if _would_change(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _would_change(text: str) -> bool:
    try:
        return not isinstance(resolve_plain(text), str)
    except ValueError:
        return True


_Dumper.add_representer(str, _write_text)

"""
Inputs of a question: fields with units, read from text, JSON records, lists and tables into one record in coherent units.

A field is `Annotated[float, Ask(unit, words)]`. Its default is an assumption and reported as one; a field that may be None is optional.
Numbers are matched to fields by name and unit: what does not fit becomes a Refusal, what was converted a note.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from shoal.base.words import did_you_mean
from shoal.planning import quantity
from shoal.planning.answer import Assumed, Refusal, Value, shown
from shoal.planning.quantity import BadQuantity

ROWS_MAX = 100_000
"""Rows of one table: a week of a busy cluster's jobs. Longer traces belong to the simulator."""
INTEGER_MAX = 10**12
_UNITLESS_KINDS = (str, bool)


class Ask(NamedTuple):
    """What a field wants. Bounds are in `unit`; `above` excludes `least` itself. For text, `unit` names the form."""

    unit: str
    words: str
    least: float = 0.0
    most: float = math.inf
    above: bool = False
    choices: tuple[str, ...] = ()


class Field(NamedTuple):
    """One input of a question. `kind` is float, int, bool, str or a row record; `many` of them make a list or table."""

    name: str
    ask: Ask
    kind: type
    many: bool
    default: Any
    required: bool

    @property
    def optional(self) -> bool:
        return not self.required and self.default in (None, ())


class Reading(NamedTuple):
    """`value` is None where `refusals` says why."""

    value: Any
    refusals: tuple[Refusal, ...]
    notes: tuple[str, ...]
    assumed: tuple[Assumed, ...]


def assumed(text: str) -> Any:
    """A default written with its unit, as the coherent number: `assumed("62.5 MB/s")`."""
    number, _, unit = text.partition(" ")
    return float(number) * quantity.unit_of(unit or "1").scale


@lru_cache
def fields_of(record: type[msgspec.Struct]) -> tuple[Field, ...]:
    """The inputs of a question, in order."""
    hints = get_type_hints(record, include_extras=True)
    return tuple(_field(info, hints[info.name]) for info in msgspec.structs.fields(record))


def _field(info: msgspec.structs.FieldInfo, hint: Any) -> Field:
    inner, ask = get_args(hint)
    if get_origin(inner) in (Union, UnionType):
        (inner,) = (arg for arg in get_args(inner) if arg is not NoneType)
    many = get_origin(inner) is tuple
    kind = get_args(inner)[0] if many else inner
    required = info.default is msgspec.NODEFAULT
    return Field(info.name, ask, kind, many, None if required else info.default, required)


def read(record: type[msgspec.Struct], given: Mapping[str, Any]) -> Reading:
    """The record of `given` (text, numbers, `{value, unit}`, lists, rows by input name), with what was refused, converted, assumed."""
    fields = {field.name: field for field in fields_of(record)}
    refusals = [_unknown(name, fields) for name in given if name not in fields]
    values: dict[str, Any] = {}
    notes: list[str] = []
    for name, field in fields.items():
        if name not in given:
            if field.required:
                refusals.append(Refusal("missing_input", f"{name} is needed: {field.ask.words}; for example {sample(field)}", name))
            continue
        try:
            values[name] = _read(field, given[name], notes)
        except BadQuantity as error:
            refusals.append(Refusal(error.code, f"{name}: {error}", name))
    left = tuple(
        Assumed(field.name, default, _unit(field))
        for field in fields.values()
        if field.name not in given and (default := default_of(field)) is not None
    )
    value = None if refusals else record(**values)
    return Reading(value, tuple(refusals), tuple(notes), left)


def _unknown(name: str, fields: Mapping[str, Field]) -> Refusal:
    hint = did_you_mean(name, fields) or f"; there are {', '.join(fields)}"
    return Refusal("unknown_input", f"there is no input {name!r} here{hint}", name)


def default_of(field: Field) -> Value | None:
    """What is assumed when nobody says, in the field's unit; None where it is needed or may be missing."""
    return None if field.required or field.optional else _in_unit(field, field.default)


def _in_unit(field: Field, value: Any) -> Value:
    return tuple(str(item) for item in value) if field.many and isinstance(field.kind, msgspec.StructMeta) else shown(value, _unit(field))


def _unit(field: Field) -> str:
    return "1" if field.kind in _UNITLESS_KINDS or isinstance(field.kind, msgspec.StructMeta) else field.ask.unit


def sample(field: Field) -> str:
    """A value as one would write it for this field."""
    if field.ask.choices:
        return field.ask.choices[0]
    if field.kind is bool:
        return "yes"
    if field.kind is str:
        return f"a {field.ask.unit}"
    if isinstance(field.kind, msgspec.StructMeta):
        return f"rows of {', '.join(column.name for column in fields_of(field.kind))}"
    if field.ask.most <= 1:
        return "[0, 1]" if field.many else "50%" if field.ask.unit == "1" else f"0.5 {field.ask.unit}"
    return f"[1, 2] {field.ask.unit}" if field.many else quantity.example(field.ask.unit)


def _read(field: Field, raw: Any, notes: list[str]) -> Any:
    unit = None
    if isinstance(raw, Mapping) and raw.keys() <= {"value", "unit"} and "value" in raw:
        raw, unit = raw["value"], raw.get("unit")
    if isinstance(field.kind, msgspec.StructMeta):
        return _rows(field, raw, unit, notes)
    if field.many:
        return _list(field, raw, unit, notes)
    return _one(field, raw, unit, notes)


def _list(field: Field, raw: Any, unit: str | None, notes: list[str]) -> tuple[Any, ...]:
    if isinstance(raw, str):
        raw = raw.strip()
        if raw.startswith("["):
            body, _, tail = raw[1:].partition("]")
            raw, unit = body.split(","), tail.strip() or unit
        else:
            raw = raw.split(",")
            unit = unit or _last_unit(field, raw)
    if not isinstance(raw, Sequence):
        raise BadQuantity("not_a_list", f"{raw!r} is no list; for example {sample(field)}")
    if len(raw) > ROWS_MAX:
        raise BadQuantity("too_many_rows", f"{len(raw)} values: at most {ROWS_MAX}")
    found: list[str] = []
    values = tuple(_one(field, item.strip() if isinstance(item, str) else item, unit, found) for item in raw)
    notes.extend(found[:1])
    return values


def _last_unit(field: Field, items: list[str]) -> str | None:
    """The unit behind the last of `1, 2, 3 GB`, if it is the only one: it speaks for all."""
    if field.kind in _UNITLESS_KINDS:
        return None
    split = [quantity.AMOUNT.fullmatch(item.strip()) for item in items]
    units = [match[2] for match in split if match is not None and match[2]]
    last = split[-1]
    if len(units) == 1 and last is not None and last[2]:
        items[-1] = last[1]
        return units[0]
    return None


def _rows(field: Field, raw: Any, unit: str | None, notes: list[str]) -> tuple[Any, ...]:
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        raise BadQuantity("not_a_table", f"rows are due: {sample(field)}")
    if len(raw) > ROWS_MAX:
        raise BadQuantity("too_many_rows", f"{len(raw)} rows: at most {ROWS_MAX}")
    columns = fields_of(field.kind)
    rows, found = [], list[str]()
    for at, row in enumerate(raw):
        try:
            rows.append(_row(field, columns, row, unit, found))
        except BadQuantity as error:
            raise BadQuantity(error.code, f"row {at + 1}: {error}") from error
    notes.extend(found[:1])
    return tuple(rows)


def _row(field: Field, columns: tuple[Field, ...], row: Any, unit: str | None, notes: list[str]) -> Any:
    if isinstance(row, Sequence) and not isinstance(row, str):
        if len(row) > len(columns):
            raise BadQuantity("wrong_columns", f"{len(row)} values for {len(columns)} columns ({', '.join(c.name for c in columns)})")
        row = {column.name: value for column, value in zip(columns, row, strict=False)}
    if not isinstance(row, Mapping):
        raise BadQuantity("not_a_table", f"{row!r} is no row")
    units = {key.partition("[")[0].strip(): key.partition("[")[2].rstrip("] ") for key in row}
    cells = {key.partition("[")[0].strip(): value for key, value in row.items()}
    known = {column.name for column in columns}
    for name in cells:
        if name not in known:
            raise BadQuantity(
                "wrong_columns", f"there is no column {name!r}{did_you_mean(name, known) or '; there are ' + ', '.join(sorted(known))}"
            )
    values = {}
    for column in columns:
        if column.name in cells:
            values[column.name] = _one(column, cells[column.name], units[column.name] or _column_unit(field, column, unit), notes)
        elif column.required:
            raise BadQuantity("wrong_columns", f"column {column.name} is missing: {column.ask.words}")
    return field.kind(**values)


def _column_unit(field: Field, column: Field, unit: str | None) -> str:
    """The unit of bare numbers in a column: the table's where it fits the column, else the column's own."""
    if unit is None or unit == field.ask.unit or unit == "list" or column.kind in _UNITLESS_KINDS:
        return column.ask.unit
    one = quantity.unit_of(unit)
    return unit if one.dims and quantity.fits(one, quantity.unit_of(column.ask.unit)) else column.ask.unit


def _one(field: Field, raw: Any, unit: str | None, notes: list[str]) -> Any:
    if isinstance(raw, Mapping) and raw.keys() <= {"value", "unit"} and "value" in raw:
        raw, unit = raw["value"], raw.get("unit", unit)
    if field.kind is bool:
        return _boolean(raw)
    if field.kind is str:
        return _text(field, raw, unit)
    value, note = _amount(field, raw, unit)
    if note:
        notes.append(f"{field.name}: {note}")
    _check_bounds(field, value)
    return _whole(field, value) if field.kind is int else value


def _amount(field: Field, raw: Any, unit: str | None) -> tuple[float, str]:
    if isinstance(raw, str):
        bare = quantity.AMOUNT.fullmatch(raw.strip())
        text = f"{raw} {unit}" if unit and bare is not None and not bare[2] else raw
        return quantity.parse_amount(text, field.ask.unit)
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise BadQuantity("not_a_number", f"{raw!r} is no number; for example {sample(field)}")
    if unit is None:
        return quantity.bare(float(raw), field.ask.unit), ""
    if not math.isfinite(raw):
        raise BadQuantity("not_a_number", f"{raw} is not finite")
    return quantity.coherent(float(raw), unit, field.ask.unit)


def _boolean(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.lower() in ("yes", "true", "no", "false"):
        return raw.lower() in ("yes", "true")
    raise BadQuantity("not_a_boolean", f"{raw!r}: write yes or no")


def _text(field: Field, raw: Any, unit: str | None) -> str:
    if not isinstance(raw, str):
        raise BadQuantity("not_text", f"{raw!r}: text is due, for example {sample(field)} (quoted, so that 12.10 stays 12.10)")
    if unit is not None and unit not in (field.ask.unit, field.ask.unit.rstrip("s"), f"{field.ask.unit}s"):
        raise BadQuantity("wrong_dimension", f"{unit} given where a {field.ask.unit} is due")
    if field.ask.choices and raw not in field.ask.choices:
        raise BadQuantity("unknown_word", f"{raw!r} is none of {', '.join(field.ask.choices)}{did_you_mean(raw, field.ask.choices)}")
    return raw


def _check_bounds(field: Field, coherent: float) -> None:
    ask = field.ask
    scale = quantity.unit_of(ask.unit).scale
    value = coherent / scale if scale != 1 else coherent
    if value < ask.least or (ask.above and value <= ask.least):
        word = "above" if ask.above else "at least"
        raise BadQuantity(
            "out_of_range", f"{quantity.in_words(value, ask.unit)} given, {word} {quantity.in_words(ask.least, ask.unit)} is due"
        )
    if value > ask.most:
        percent = f"; write {value:g}% if percent are meant" if ask.most == 1 and value <= 100 and ask.unit == "1" else ""
        raise BadQuantity(
            "out_of_range", f"{quantity.in_words(value, ask.unit)} given, at most {quantity.in_words(ask.most, ask.unit)} is due{percent}"
        )


def _whole(field: Field, value: float) -> int:
    nearest = round(value)
    if abs(value - nearest) > 1e-9 * max(1.0, abs(value)):
        raise BadQuantity("not_whole", f"{quantity.in_words(value, field.ask.unit)} given, a whole number is due")
    if abs(nearest) > INTEGER_MAX:
        raise BadQuantity("out_of_range", f"{nearest} given, at most {INTEGER_MAX} is counted")
    return nearest


def default_words(field: Field) -> str:
    """What a field's help says after its words: needed, the assumption, the choices."""
    choices = f"; one of {', '.join(field.ask.choices)}" if field.ask.choices else ""
    if field.required:
        return f"{choices} (needed)"
    value = default_of(field)
    if value is None:
        return choices
    if isinstance(value, bool | str):
        return f"{choices}; {quantity.figure(value) if isinstance(value, bool) else value} by default"
    return f"; {quantity.in_words(float(value), _unit(field))} is assumed" if not isinstance(value, tuple) else choices

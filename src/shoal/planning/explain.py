"""How an answer came about: each formula with its numbers filled in, as text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from shoal.planning import special
from shoal.planning.answer import Answer, Number, Value
from shoal.planning.inputs import Field, fields_of
from shoal.planning.quantity import figure, in_words, unit_of
from shoal.planning.topic import Topic

_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "exp": math.exp, "ln": math.log, "sqrt": math.sqrt, "ceil": math.ceil, "floor": math.floor, "max": max, "min": min, "sum": sum,
    "cos": math.cos, "acos": math.acos, "sin": math.sin, "abs": abs, "comb": math.comb, "count": len,
    "erlang_b": special.erlang_b, "erlang_c": special.erlang_c, "poisson_tail": special.poisson_tail, "harmonic": special.harmonic,
    "normal_quantile": special.normal_quantile, "normal_cdf": special.normal_cdf, "normal_pdf": special.normal_pdf,
    "lambert_w": special.lambert_w,
}  # fmt: skip
"""Words that formulas may use beside inputs, earlier results, `pi`, and Python's operators."""


def value_words(value: Value, unit: str) -> str:
    """A value as a person reads it."""
    if isinstance(value, tuple):
        inside = ", ".join(item if isinstance(item, str) else figure(item) for item in value)
        return f"[{inside}]" + ("" if unit == "1" or not value or isinstance(value[0], str) else f" {unit}")
    if isinstance(value, str):
        return value
    return figure(value) if isinstance(value, bool) else in_words(value, unit)


def words_of_inputs(topic: Topic, inputs: Any) -> dict[str, str]:
    """What stands for each input in a filled formula."""
    return {field.name: _input_words(field, getattr(inputs, field.name)) for field in fields_of(topic.inputs)}


def _input_words(field: Field, value: Any) -> str:
    if value is None or (field.many and field.kind not in (float, int, str)):
        return field.name
    if field.kind in (str, bool):
        return value_words(value, "1")
    scale = unit_of(field.ask.unit).scale
    return value_words(tuple(item / scale for item in value) if field.many else value / scale, field.ask.unit)


def filled(number: Number, words: Mapping[str, str]) -> str:
    """A formula with numbers in place of names."""
    return _NAME.sub(lambda match: words.get(match[0], match[0]) if match[0] not in FUNCTIONS else match[0], number.formula)


def derivation(topic: Topic, inputs: Any, answer: Answer) -> list[tuple[Number, str]]:
    """Each result with its filled formula, in order; words of a search as they are, nothing where there is no formula."""
    words = words_of_inputs(topic, inputs)
    lines = []
    for number in answer.numbers:
        lines.append((number, number.formula if number.searched else filled(number, words)))
        words[number.name] = value_words(number.value, number.unit)
    return lines

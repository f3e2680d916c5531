"""
One question answered: inputs read, refusals gathered, the function called, assumptions and sensitivity added.

Called by the CLI and the SDK. Generic over all questions: it knows a `Topic` and nothing of any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from shoal.planning.answer import Answer, Movement, Number, Refusal, Refused
from shoal.planning.catalogue import topic_named
from shoal.planning.inputs import Field, Reading, fields_of, read
from shoal.planning.quantity import unit_of
from shoal.planning.topic import Topic

SENSITIVITY_STEP: Final = 0.1
"""Inputs are moved by a tenth: far enough to carry a rounded-up count over its step, near enough to be an error of measurement."""
SWEEP_POINTS_MAX: Final = 1_000
MOVEMENTS_MAX: Final = 40


class Point(NamedTuple):
    """One place on a curve: the input in its own unit, and what was answered there."""

    at: float
    answer: Answer | Refused


def plan(word: str, given: Mapping[str, Any], *, sensitivity: bool = True) -> Answer | Refused:
    """The answer to the question `word` for inputs by name, or why there is none. Raises NotFound for an unknown word."""
    topic = topic_named(word)
    reading = read(topic.inputs, given)
    if reading.value is None:
        return Refused(word, reading.refusals, unread=True)
    answer = answer_of(word, topic, reading)
    if isinstance(answer, Answer) and sensitivity:
        return msgspec.structs.replace(answer, sensitivity=movements(topic, reading.value, answer.headline))
    return answer


def answer_of(word: str, topic: Topic, reading: Reading) -> Answer | Refused:
    """The answer for inputs that could be read, without sensitivity."""
    outcome = compute(topic, reading.value)
    if isinstance(outcome, tuple):
        return Refused(word, outcome)
    return msgspec.structs.replace(outcome, topic=word, assumed=reading.assumed, notes=(*reading.notes, *outcome.notes))


def compute(topic: Topic, inputs: Any) -> Answer | tuple[Refusal, ...]:
    """
    The answer for a record, or refusals.

    Numbers beyond the reach of a float (an interval of a thousand lifetimes) are a refusal too: nothing else is caught here.
    """
    refusals = topic.validate(inputs)
    if refusals:
        return refusals
    try:
        return topic.answer(inputs)
    except OverflowError:
        return (Refusal("out_of_reach", "the result is larger than any number that can be told; an input is far from life"),)


def movements(topic: Topic, inputs: Any, headline: Number) -> tuple[Movement, ...]:
    """How the headline moves with each number given or assumed, the weightiest first; equal weights keep the order of inputs."""
    if isinstance(headline.value, bool | str | tuple):
        return ()
    now = float(headline.value)
    found = [moved for field in fields_of(topic.inputs)[:MOVEMENTS_MAX] if (moved := _movement(topic, inputs, field, headline.name))]
    return tuple(sorted(found, key=lambda moved: -_weight(moved, now)))


def _weight(moved: Movement, now: float) -> float:
    ends = [end for end in (moved.low, moved.high) if end is not None]
    return max((abs(end - now) for end in ends), default=0.0)


def _movement(topic: Topic, inputs: Any, field: Field, headline: str) -> Movement | None:
    value = getattr(inputs, field.name)
    if field.many or field.kind not in (float, int) or not value:
        return None
    step = max(1, round(value * SENSITIVITY_STEP)) if field.kind is int else value * SENSITIVITY_STEP
    scale = unit_of(field.ask.unit).scale
    low, high = (_moved_to(topic, inputs, field, value + change, headline) for change in (-step, step))
    return Movement(field.name, field.ask.unit, (value - step) / scale, (value + step) / scale, low, high)


def _moved_to(topic: Topic, inputs: Any, field: Field, value: float, headline: str) -> float | None:
    scale = unit_of(field.ask.unit).scale
    if not field.ask.least <= value / scale <= field.ask.most or (field.ask.above and value / scale <= field.ask.least):
        return None
    outcome = compute(topic, msgspec.structs.replace(inputs, **{field.name: value}))
    if isinstance(outcome, tuple):
        return None
    moved = next((number.value for number in outcome.numbers if number.name == headline), None)
    return None if moved is None or isinstance(moved, str | tuple | bool) else float(moved)


def sweep(word: str, given: Mapping[str, Any], input: str, values: Sequence[float]) -> tuple[Point, ...]:
    """Answers along one input, whose `values` are in its own unit. At most SWEEP_POINTS_MAX."""
    unit = field_named(topic_named(word), input).ask.unit
    return tuple(
        Point(value, plan(word, {**given, input: {"value": value, "unit": unit}}, sensitivity=False)) for value in values[:SWEEP_POINTS_MAX]
    )


def field_named(topic: Topic, name: str) -> Field:
    """The input called `name`. Raises NotFound."""
    from shoal.base.errors import NotFound
    from shoal.base.words import did_you_mean

    fields = {field.name: field for field in fields_of(topic.inputs)}
    if name not in fields:
        raise NotFound(f"there is no input {name!r}{did_you_mean(name, fields) or '; there are ' + ', '.join(fields)}")
    return fields[name]

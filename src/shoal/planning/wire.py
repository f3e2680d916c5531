"""What asks a question over HTTP and what comes back: records of `api.planning`, read again by `client.planning`."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from shoal.planning.answer import Answer, Refused, Value
from shoal.planning.catalogue import CATALOGUE, Entry, topic_named
from shoal.planning.inputs import Field, default_of, fields_of


class PlanningAsk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`inputs` by name: text with a unit ("10 min"), numbers in the input's own unit, {value, unit}, lists, rows."""

    inputs: dict[str, Any] = {}
    sensitivity: bool = True
    """Whether to tell how the headline moves with each input; answers come several times as quick without."""


class PlanningReply(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two is there: numbers, or why there are none. A refusal is an answer, and no error."""

    answer: Answer | None = None
    refused: Refused | None = None


class TopicInput(msgspec.Struct, frozen=True, kw_only=True):
    """One input of a question. Bounds are in `unit`; `most` is left out where there is none. `columns` are those of rows."""

    name: str
    unit: str
    words: str
    kind: str
    """number, whole number, yes or no, text, or rows."""
    required: bool
    many: bool
    least: float
    most: float | None = None
    choices: tuple[str, ...] = ()
    assumed: Value | None = None
    columns: tuple[TopicInput, ...] = ()


class TopicSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A question that can be asked."""

    topic: str
    group: str
    question: str


class TopicView(TopicSummary, frozen=True, kw_only=True):
    """A question with what it wants to know."""

    inputs: tuple[TopicInput, ...]


_KINDS = {int: "whole number", float: "number", bool: "yes or no", str: "text"}


def topic_summaries() -> tuple[TopicSummary, ...]:
    """All questions, in the order of their groups."""
    return tuple(_summary(word, entry) for word, entry in CATALOGUE.items())


def _summary(word: str, entry: Entry) -> TopicSummary:
    return TopicSummary(topic=word, group=entry.group, question=entry.question)


def topic_view(word: str) -> TopicView:
    """One question with its inputs. Raises NotFound for an unknown word."""
    topic = topic_named(word)
    name = word.replace("-", "_")
    entry = CATALOGUE[name]
    return TopicView(topic=name, group=entry.group, question=entry.question, inputs=_inputs_of(topic.inputs))


def _inputs_of(record: type[msgspec.Struct]) -> tuple[TopicInput, ...]:
    return tuple(_input(field) for field in fields_of(record))


def _input(field: Field) -> TopicInput:
    rows = isinstance(field.kind, msgspec.StructMeta)
    return TopicInput(
        name=field.name,
        unit=field.ask.unit,
        words=field.ask.words,
        kind="rows" if rows else _KINDS[field.kind],
        required=field.required,
        many=field.many,
        least=field.ask.least,
        most=None if field.ask.most == math.inf else field.ask.most,
        choices=field.ask.choices,
        assumed=default_of(field),
        columns=_inputs_of(field.kind) if rows else (),
    )

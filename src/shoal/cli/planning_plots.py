"""What `shoal plan --plot` draws: a curve along one input, or an answer along the input that its topic varies, with what moves it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.base.errors import Invalid
from shoal.cli.session import Session

if TYPE_CHECKING:
    from shoal.planning.answer import Answer
    from shoal.planning.plan import Point
    from shoal.planning.topic import Topic

POINTS = 41
RANGE = 4.0
"""An answer is drawn from a quarter to four times the input given, by factors."""


def draw_sweep(session: Session, file: Path, word: str, input: str, unit: str, points: Sequence[Point]) -> None:
    """Draws a curve that was computed."""
    from shoal.planning.catalogue import CATALOGUE, topic_named
    from shoal.render.plots import Curve, draw

    draw(file, Curve(CATALOGUE[word].question, input, unit, tuple(points), None, topic_named(word).beside), ())
    session.note(f"drawn: {file}")


def draw_answer(session: Session, file: Path, word: str, topic: Topic, inputs: dict[str, Any], answer: Answer) -> None:
    """Draws the headline along the topic's input, and the inputs that move it most."""
    from shoal.planning.catalogue import CATALOGUE
    from shoal.planning.inputs import fields_of, read
    from shoal.planning.plan import sweep
    from shoal.planning.quantity import unit_of
    from shoal.render.plots import Curve, draw, draw_layers

    layers = next((table for table in answer.tables if table.name == "layers"), None)
    if layers is not None and layers.rows:
        draw_layers(file, CATALOGUE[word].question, layers)
        session.note(f"drawn: {file}")
        return
    field = next((field for field in fields_of(topic.inputs) if field.name == topic.vary), None)
    now = getattr(read(topic.inputs, inputs).value, topic.vary) if field is not None else None
    if field is None or not now:
        raise Invalid(f"--plot: {word} has no input to draw along here; give --sweep NAME=LOW..HIGH")
    at = now / unit_of(field.ask.unit).scale
    low = max(at / RANGE, field.ask.least)
    high = min(at * RANGE, field.ask.most)
    values = [low * (high / low) ** (step / (POINTS - 1)) if low > 0 else high * step / (POINTS - 1) for step in range(POINTS)]
    if field.kind is int:
        values = list(dict.fromkeys(float(round(value)) for value in values))
    curve = Curve(CATALOGUE[word].question, field.name, field.ask.unit, sweep(word, inputs, field.name, values), at, topic.beside)
    draw(file, curve, answer.sensitivity)
    session.note(f"drawn: {file}")

"""Every topic answers its worked example; its formulas give its numbers; what it assumes, it says."""

from __future__ import annotations

import math
from typing import Any

import pytest

from planning_examples import EXAMPLES
from shoal.planning.answer import Answer
from shoal.planning.catalogue import CATALOGUE, topic_named
from shoal.planning.explain import FUNCTIONS, derivation
from shoal.planning.inputs import fields_of, read
from shoal.planning.plan import plan
from shoal.planning.quantity import unit_of


def answer_of(word: str) -> Answer:
    answer = plan(word, EXAMPLES[word].inputs)
    assert isinstance(answer, Answer), answer
    return answer


def test_every_topic_has_an_example() -> None:
    assert set(EXAMPLES) == set(CATALOGUE)


@pytest.mark.parametrize("word", EXAMPLES)
def test_the_example_comes_out_right(word: str) -> None:
    answer = answer_of(word)
    for name, want in EXAMPLES[word].want.items():
        got = answer.number(name).value
        assert got == (want if isinstance(want, bool | str | tuple) else pytest.approx(want, rel=1e-3)), name


def coherent(value: Any, unit: str) -> Any:
    if isinstance(value, tuple):
        return tuple(coherent(item, unit) for item in value)
    return value if isinstance(value, bool | str) else value * unit_of(unit).scale


@pytest.mark.parametrize("word", EXAMPLES)
def test_each_formula_gives_the_number_beside_it(word: str) -> None:
    """An explanation that was written apart from the code must not lie: formulas are evaluated over inputs and earlier results."""
    topic = topic_named(word)
    inputs = read(topic.inputs, EXAMPLES[word].inputs).value
    names: dict[str, Any] = {field.name: getattr(inputs, field.name) for field in fields_of(topic.inputs)}
    names |= {**FUNCTIONS, "pi": math.pi, "__builtins__": {}}
    for number in answer_of(word).numbers:
        value = coherent(number.value, number.unit)
        if number.formula and not number.searched:
            assert eval(number.formula, names) == pytest.approx(value, rel=1e-9), number.name
        names[number.name] = value


@pytest.mark.parametrize("word", EXAMPLES)
def test_an_answer_says_what_it_rests_on(word: str) -> None:
    answer = answer_of(word)
    topic = topic_named(word)
    assert answer.topic == word
    assert answer.model
    assert answer.holds
    given = EXAMPLES[word].inputs
    defaults = [field.name for field in fields_of(topic.inputs) if field.name not in given and not field.required and not field.optional]
    assert [one.input for one in answer.assumed] == defaults
    assert all(field.ask.words for field in fields_of(topic.inputs))
    assert all(number.formula or number.words for number in answer.numbers)
    assert len({number.name for number in answer.numbers}) == len(answer.numbers)
    assert not topic.vary or topic.vary in {field.name for field in fields_of(topic.inputs)}


def test_a_derivation_has_the_numbers_filled_in() -> None:
    topic = topic_named("image_pull_fleet")
    inputs = read(topic.inputs, EXAMPLES["image_pull_fleet"].inputs).value
    lines = {number.name: filled for number, filled in derivation(topic, inputs, answer_of("image_pull_fleet"))}
    assert lines["client_server"] == "max(64 * 15 GB / 1.25 GB/s, 15 GB / 3.125 GB/s)"
    assert lines["speed_up"] == "768 s / 12 s"


def test_sensitivity_names_the_input_that_moves_the_answer_most() -> None:
    moved = answer_of("cold_start").sensitivity
    assert {one.input for one in moved[:3]} == {"image_compressed", "connection_bandwidth", "image_read"}
    by = {one.input: one for one in moved}
    assert by["warmup"].high == pytest.approx(367.56 + 0.2)
    assert by["image_read"].high is None  # More than all of an image cannot be read.


def test_whole_numbers_move_by_at_least_one() -> None:
    by = {one.input: one for one in answer_of("ray_placement_group").sensitivity}
    assert (by["ready"].low_input, by["ready"].high_input) == (2, 4)
    assert by["ready"].low == pytest.approx(8 / 3)


def test_overlap_says_which_path_is_critical_and_what_deleting_a_hidden_link_saves() -> None:
    answer = plan("cold_start", {**EXAMPLES["cold_start"].inputs, "overlap": "yes", "weights_bandwidth": "40 MB/s"})
    assert isinstance(answer, Answer)
    assert answer.value("total") == pytest.approx(367.56 - 70 + 350 - 254)
    assert any("critical: weights, 350.0 s; image and imports hide behind with 254.0 s" in note for note in answer.notes)
    saved = {row[0]: row[2] for row in answer.tables[0].rows}
    assert saved["image"] == pytest.approx(0, abs=1e-9)
    assert saved["weights"] == pytest.approx(350 - 254)

"""Planning questions as Python functions: the same records that the command prints."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from shoal.base.errors import NotFound
from shoal.cli.main import shoal
from shoal.model.codec import decode_json, encode_json
from shoal.planning.answer import Answer, Refused
from shoal.planning.catalogue import CATALOGUE, topic_named
from shoal.planning.inputs import fields_of
from shoal.planning.wire import PlanningReply, topic_view
from shoal.sdk import planning

KEEP = {"mean_gap": "4 min", "keep_alive": "10 min", "cold_latency": "30 s"}


def test_a_question_is_a_function_and_answers_as_the_command_does() -> None:
    answer = planning.keep_alive(**KEEP)
    assert isinstance(answer, Answer)
    flags = [part for name, value in KEEP.items() for part in (f"--{name.replace('_', '-')}", value)]
    printed = CliRunner().invoke(shoal, ["plan", "keep_alive", *flags, "--json"])
    assert json.loads(printed.stdout) == json.loads(encode_json(answer))
    assert planning.ask("keep-alive", **KEEP) == answer


def test_a_refusal_is_a_value() -> None:
    refused = planning.keep_alive(mean_gap="4 GB", keep_alive="10 min", cold_latency="30 s")
    assert isinstance(refused, Refused)
    assert refused.unread
    assert refused.refusals[0].input == "mean_gap"


def test_what_is_no_question_is_no_attribute() -> None:
    assert not hasattr(planning, "how_long")
    with pytest.raises(NotFound, match="keep_alive"):
        planning.ask("keep_alife")
    assert set(CATALOGUE) <= set(dir(planning))


@pytest.mark.parametrize("word", CATALOGUE)
def test_every_question_says_what_it_wants_to_know(word: str) -> None:
    view = planning.describe(word)
    assert [item.name for item in view.inputs] == [field.name for field in fields_of(topic_named(word).inputs)]
    assert all(item.words and item.unit for item in view.inputs)
    assert all(item.assumed is None for item in view.inputs if item.required)
    assert decode_json(encode_json(view), type(view)) == topic_view(word)


def test_replies_survive_the_wire() -> None:
    answer = planning.keep_alive(**KEEP)
    assert isinstance(answer, Answer)
    assert decode_json(encode_json(PlanningReply(answer=answer)), PlanningReply).answer == answer

"""Inputs by name: lists, tables, bounds, what is missing or unknown, and that it is all told at once."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest

from shoal.planning.catalogue import CATALOGUE, topic_named
from shoal.planning.inputs import Ask, Reading, assumed, fields_of, read, sample


class Row(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, Ask("name", "its name")]
    wait: Annotated[float, Ask("s", "how long")]
    share: Annotated[float, Ask("1", "how much", most=1)] = 0.5


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    size: Annotated[float, Ask("GB", "size", above=True)]
    rate: Annotated[float, Ask("MB/s", "rate")] = assumed("62.5 MB/s")
    count: Annotated[int, Ask("nodes", "nodes", least=1, most=100)] = 3
    share: Annotated[float, Ask("1", "share", most=1)] = 0.5
    parts: Annotated[tuple[float, ...], Ask("GB", "parts")] = ()
    words: Annotated[tuple[str, ...] | None, Ask("profiles", "words")] = None
    rows: Annotated[tuple[Row, ...], Ask("rows", "rows")] = ()
    kind: Annotated[str, Ask("kind", "kind", choices=("hot", "cold"))] = "hot"
    late: Annotated[bool, Ask("bool", "late")] = False
    limit: Annotated[float | None, Ask("s", "limit")] = None


def codes(reading: Reading) -> list[str]:
    return [refusal.code for refusal in reading.refusals]


def value_of(**given: Any) -> Any:
    reading = read(Inputs, {"size": "1GB", **given})
    assert reading.value is not None, reading.refusals
    return reading.value


def test_defaults_are_reported_as_assumed_and_optional_ones_are_not() -> None:
    reading = read(Inputs, {"size": "15 GB", "count": 4})
    assert reading.value.size == 15e9
    assert {(one.input, one.value, one.unit) for one in reading.assumed} >= {
        ("rate", 62.5, "MB/s"),
        ("share", 0.5, "1"),
        ("kind", "hot", "1"),
    }
    assert not {one.input for one in reading.assumed} & {"size", "count", "limit", "words"}


def test_all_faults_are_told_at_once() -> None:
    reading = read(Inputs, {"sise": "15 GB", "rate": "5 Gb/s", "count": 0, "share": 60})
    assert reading.value is None
    assert sorted(codes(reading)) == ["ambiguous_unit", "missing_input", "out_of_range", "out_of_range", "unknown_input"]
    said = " ".join(refusal.message for refusal in reading.refusals)
    assert "did you mean 'size'?" in said
    assert "size is needed: size; for example 4 GB" in said
    assert "write 60% if percent are meant" in said


@pytest.mark.parametrize(
    "raw", ["1, 2.5, 3 GB", "[1, 2.5, 3] GB", ["1GB", "2.5GB", "3GB"], {"value": [1, 2.5, 3], "unit": "GB"}, "1GB,2500MB,3GB"]
)
def test_lists(raw: Any) -> None:
    assert value_of(parts=raw).parts == pytest.approx((1e9, 2.5e9, 3e9))


def test_a_list_without_a_unit_is_refused() -> None:
    assert codes(read(Inputs, {"size": "1GB", "parts": "1, 2"})) == ["unit_needed"]
    assert codes(read(Inputs, {"size": "1GB", "parts": "1 GB, 2"})) == ["unit_needed"]
    assert codes(read(Inputs, {"size": "1GB", "parts": 5})) == ["not_a_list"]


def test_rows_by_name_by_order_and_with_units_in_their_headings() -> None:
    want = (Row(name="a", wait=60.0, share=0.25), Row(name="b", wait=120.0))
    assert value_of(rows=[{"name": "a", "wait": "1min", "share": "25%"}, {"name": "b", "wait": "2min"}]).rows == want
    assert value_of(rows=[["a", "1min", 0.25], ["b", "2min"]]).rows == want
    assert value_of(rows=[{"name": "a", "wait [min]": "1", "share": "0.25"}, {"name": "b", "wait [min]": 2}]).rows == want
    assert value_of(rows={"value": [["a", 1, 0.25], ["b", 2]], "unit": "min"}).rows == want


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([{"name": "a", "weight": 1}], "wrong_columns"),
        ([{"name": "a"}], "wrong_columns"),
        ([["a", "1s", 0.5, 7]], "wrong_columns"),
        ([["a", "1GB"]], "wrong_dimension"),
        (["a"], "not_a_table"),
        ("a, b", "not_a_table"),
    ],
)
def test_rows_that_are_refused(rows: Any, code: str) -> None:
    reading = read(Inputs, {"size": "1GB", "rows": rows})
    assert codes(reading) == [code]


def test_a_refused_row_is_named() -> None:
    reading = read(Inputs, {"size": "1GB", "rows": [["a", "1s"], ["b", "1GB"]]})
    assert "row 2: " in reading.refusals[0].message


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"size": 0}, "unit_needed"),
        ({"size": "0 GB"}, "out_of_range"),
        ({"rate": "-1 MB/s"}, "out_of_range"),
        ({"count": 2.5}, "not_whole"),
        ({"count": True}, "not_a_number"),
        ({"count": 101}, "out_of_range"),
        ({"kind": "warm"}, "unknown_word"),
        ({"kind": 7}, "not_text"),
        ({"kind": {"value": "hot", "unit": "GB"}}, "wrong_dimension"),
        ({"late": "perhaps"}, "not_a_boolean"),
        ({"limit": float("nan")}, "not_a_number"),
        ({"limit": {"value": float("inf"), "unit": "s"}}, "not_a_number"),
    ],
)
def test_values_that_are_refused(given: dict[str, Any], code: str) -> None:
    assert codes(read(Inputs, {"size": "1GB", **given})) == [code]


def test_text_and_booleans() -> None:
    value = value_of(kind={"value": "cold", "unit": "kind"}, late="yes", words="a, b", limit="5s")
    assert (value.kind, value.late, value.words, value.limit) == ("cold", True, ("a", "b"), 5.0)


@pytest.mark.parametrize("word", CATALOGUE)
def test_what_help_gives_as_an_example_can_be_read(word: str) -> None:
    fields = [field for field in fields_of(topic_named(word).inputs) if field.kind in (float, int, bool)]
    reading = read(topic_named(word).inputs, {field.name: sample(field) for field in fields})
    named = {field.name for field in fields}
    assert not [refusal for refusal in reading.refusals if refusal.input in named]


def test_fields_know_what_they_want() -> None:
    by = {field.name: field for field in fields_of(Inputs)}
    assert by["size"].required
    assert by["limit"].optional
    assert by["rows"].many
    assert by["rows"].kind is Row
    assert not by["rate"].required

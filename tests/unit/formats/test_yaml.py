"""The strict reader: what is text and what is not, where things stand, what is refused and in which words."""

from __future__ import annotations

import pytest

from shoal.base import limits
from shoal.base.errors import Invalid, Malformed, TooLarge
from shoal.formats import yaml


@pytest.mark.parametrize(
    ("written", "want"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("off", "off"),
        ("NO", "NO"),
        ("12:30", "12:30"),
        ("1:00:00", "1:00:00"),
        ("12_3", "12_3"),
        ("2026-11-01", "2026-11-01"),
        ("2..4", "2..4"),
        ("0800", 800),
        ("0o17", 15),
        ("0x1F", 31),
        ("-7", -7),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'12'", "12"),
        ('"true"', "true"),
    ],
)
def test_plain_scalars_follow_the_1_2_core_schema(written: str, want: object) -> None:
    (document,) = yaml.parse(f"key: {written}\n", "f")
    assert document.value == {"key": want}
    assert type(document.value["key"]) is type(want)


def test_places_are_kept_for_keys_values_and_items() -> None:
    (document,) = yaml.parse("a:\n  b/c: 1\n  list: [x, 0800]\n", "f")
    assert document.places["/a/b~1c"] == yaml.Place(2, 8, 2, 3)
    assert document.places["/a/list/1"].column == 13
    assert document.written == {"/a/b~1c": "1", "/a/list/1": "0800"}


def test_documents_are_told_apart_and_count_lines_over_the_whole_file() -> None:
    first, second = yaml.parse("a: 1\n---\nb: 2\n", "f")
    assert (first.value, second.value) == ({"a": 1}, {"b": 2})
    assert second.places["/b"].line == 3


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\na: 2\n", 2, "the key 'a' stands here a second time; first in line 1"),
        ("a: &x 1\n", 1, "anchors such as &x are not taken"),
        ("a: 1\nb: *a\n", 2, "aliases such as *a are not taken"),
        ("a: !!python/object/apply:os.system [id]\n", 1, "tags such as !!python/object/apply:os.system are not taken"),
        ("a: 99999999999999999999\n", 1, "does not fit 64 bits"),
        ("? [a, b]\n: 1\n", 1, "a key must be plain text"),
        ("a: [1,\nb: 2\n", 3, "not valid YAML: did not find expected ',' or ']'"),
        ("run: echo: hello\n", 1, "text with ': ' in it needs quotes"),
        ("a:\n\tb: 1\n", 2, "indent with spaces, not tabs"),
        ("a: " + "[" * 40 + "]" * 40, 1, f"more than {limits.YAML_DEPTH_MAX} levels deep"),
        ("- 1\n" * (limits.YAML_NODES_MAX + 1), limits.YAML_NODES_MAX, "more than 50,000 values"),
    ],
)
def test_a_refusal_names_the_line_and_the_cause(text: str, line: int, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        yaml.parse(text, "f")
    assert [fault.line for fault in caught.value.faults] == [line]
    assert words in caught.value.faults[0].message


def test_faults_that_do_not_stop_the_reading_are_told_together() -> None:
    with pytest.raises(Invalid) as caught:
        yaml.parse("a: 1\na: 2\nb: &x 3\nc: *x\n", "f")
    assert [fault.line for fault in caught.value.faults] == [2, 3, 4]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x7fELF\x02\x01", "is a program, not a job file"),
        (b"\x1f\x8b\x08\x00", "is a gzip archive"),
        (b"name: a\0b", "is binary (a zero byte at offset 7)"),
        ("name: x".encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
        ("name: x".encode("utf-32"), "is UTF-32 text; save it as UTF-8"),
        ("a: 1\nname: café".encode("latin-1"), "line 2: byte 0xe9 is not UTF-8"),
        (b"name: a\x07b", "line 1, column 8: the character U+0007"),
    ],
)
def test_bytes_that_are_no_text_are_told_for_what_they_are(data: bytes, words: str) -> None:
    with pytest.raises(Malformed, match=r"^job\.yaml") as caught:
        yaml.parse(data, "job.yaml")
    assert words in caught.value.message


def test_a_file_over_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(TooLarge, match=r"has 1,048,577 bytes; a job file may have 1,048,576"):
        yaml.parse(b"#" * (limits.JOB_FILE_BYTES_MAX + 1), "f")


def test_a_byte_order_mark_of_utf8_is_no_fault() -> None:
    assert yaml.parse("name: x".encode("utf-8-sig"), "f")[0].value == {"name": "x"}


def test_dump_writes_scripts_as_blocks_and_quotes_what_would_change() -> None:
    assert yaml.dump({"run": "set -e\necho hi\n", "env": {"A": "no", "B": "0o17", "C": "12:30"}, "args": ["1", "x"]}) == (
        "run: |\n  set -e\n  echo hi\nenv:\n  A: 'no'\n  B: '0o17'\n  C: '12:30'\nargs:\n  - '1'\n  - x\n"
    )

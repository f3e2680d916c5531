"""Idempotency keys and fingerprints (rules of 3.1 of the API's semantics)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.api.idempotency import canonical_json, fingerprint, parse_key
from shoal.base.errors import Malformed

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("header", "want"),
    [
        (None, None),
        (b"abc", "abc"),
        (b'"abc"', "abc"),
        (b'  "abc" ', "abc"),
        (b"!~", "!~"),
        (b'"', '"'),
        (b"a" * 255, "a" * 255),
        (b'"' + b"a" * 255 + b'"', "a" * 255),
    ],
)
def test_a_key_is_read_with_or_without_quotes(header: bytes | None, want: str | None) -> None:
    assert parse_key(header) == want


@pytest.mark.parametrize("header", [b"", b'""', b"a" * 256, b"a b", b"a\x7f", "ä".encode(), b"a\tb"])
def test_a_malformed_key_is_refused(header: bytes) -> None:
    with pytest.raises(Malformed):
        parse_key(header)


def test_spelling_of_the_same_body_does_not_count() -> None:
    first = fingerprint(b'{"run": "x", "gpus": 8}', path="/p")
    for other in (b'{"gpus":8,"run":"x"}', b'{"gpus": 8.0, "run": "x"}', b'{"gpus": 0.8e1, "run": "\\u0078"}'):
        assert fingerprint(other, path="/p") == first


@pytest.mark.parametrize(
    "other",
    [(b'{"run":"y"}', "/p", "application/json"), (b'{"run":"x"}', "/q", "application/json"), (b'{"run":"x"}', "/p", "application/yaml")],
)
def test_another_body_path_or_media_type_is_another_request(other: tuple[bytes, str, str]) -> None:
    raw, path, media = other
    assert fingerprint(raw, path=path, media_type=media) != fingerprint(b'{"run":"x"}', path="/p")


def test_a_default_written_out_is_another_body() -> None:
    """Fingerprints are of what was sent: a server with other defaults must not turn a retry into a conflict, nor the reverse."""
    assert fingerprint(b'{"run":"x","priority":0}', path="/p") != fingerprint(b'{"run":"x"}', path="/p")


@given(PLAIN)
def test_canonical_form_does_not_depend_on_key_order(value: object) -> None:
    def turned(part: object) -> object:
        if isinstance(part, dict):
            return {key: turned(part[key]) for key in reversed(part)}
        return [turned(item) for item in part] if isinstance(part, list) else part

    assert canonical_json(json.dumps(turned(value)).encode()) == canonical_json(json.dumps(value, indent=1).encode())

"""ETag and If-Match."""

from __future__ import annotations

import pytest

from shoal.api.etags import etag, parse_if_match
from shoal.base.errors import Malformed


@pytest.mark.parametrize(("header", "want"), [(None, None), (b"*", None), (b'"17"', 17), (b' "0" ', 0)])
def test_if_match_names_a_version(header: bytes | None, want: int | None) -> None:
    assert parse_if_match(header) == want


def test_an_etag_reads_back() -> None:
    assert parse_if_match(etag(23).encode()) == 23


@pytest.mark.parametrize("header", [b"17", b'W/"17"', b'"1", "2"', b'""', b'"x"', b'"-1"', '"\u0661"'.encode()])
def test_what_is_no_etag_of_ours_is_malformed(header: bytes) -> None:
    with pytest.raises(Malformed):
        parse_if_match(header)

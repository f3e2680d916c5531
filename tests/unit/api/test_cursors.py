"""Page tokens: they open only for the list, the filters and the time they were made for."""

from __future__ import annotations

import base64

import pytest

from shoal.api.cursors import LIFE_MS, Cursors
from shoal.base.errors import PageTokenExpired, PageTokenMismatch

NOW = 1_700_000_000_000
FILTERS = ["default", ["QUEUED"], None]


def seal(cursors: Cursors) -> str:
    return cursors.seal("jobs.list", FILTERS, last=17, as_of=99, now_ms=NOW)


def test_what_was_sealed_opens_also_after_a_restart() -> None:
    place = Cursors(b"key").open(seal(Cursors(b"key")), "jobs.list", FILTERS, now_ms=NOW + 1)
    assert (place.last, place.as_of) == (17, 99)


@pytest.mark.parametrize(
    ("route", "filters"),
    [("jobs.list", ["default", ["RUNNING"], None]), ("jobs.list", ["other", ["QUEUED"], None]), ("nodes.list", FILTERS)],
)
def test_other_filters_or_another_list_are_a_mismatch(route: str, filters: list[object]) -> None:
    with pytest.raises(PageTokenMismatch):
        Cursors(b"key").open(seal(Cursors(b"key")), route, filters, now_ms=NOW)


def test_a_token_of_another_installation_is_a_mismatch() -> None:
    with pytest.raises(PageTokenMismatch):
        Cursors(b"other").open(seal(Cursors(b"key")), "jobs.list", FILTERS, now_ms=NOW)


def test_no_byte_of_a_token_can_be_changed() -> None:
    cursors = Cursors(b"key")
    raw = bytearray(base64.urlsafe_b64decode(seal(cursors) + "=="))
    for at in range(len(raw)):
        changed = raw.copy()
        changed[at] ^= 1
        text = base64.urlsafe_b64encode(changed).rstrip(b"=").decode()
        with pytest.raises(PageTokenMismatch):
            cursors.open(text, "jobs.list", FILTERS, now_ms=NOW)


@pytest.mark.parametrize("text", ["", "x", "!!!", "AAAA" * 20, "ä"])
def test_junk_is_a_mismatch(text: str) -> None:
    with pytest.raises(PageTokenMismatch):
        Cursors(b"key").open(text, "jobs.list", FILTERS, now_ms=NOW)


def test_an_old_token_is_expired() -> None:
    cursors = Cursors(b"key")
    with pytest.raises(PageTokenExpired):
        cursors.open(seal(cursors), "jobs.list", FILTERS, now_ms=NOW + LIFE_MS)

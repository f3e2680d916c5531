"""Cron expressions: what they say, when they come next, and what summer time does to them. Held against minutes counted one by one."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.formats.cron import Cron, next_time, parse_cron, zone_of

UTC = timezone.utc  # noqa: UP017
BERLIN = ZoneInfo("Europe/Berlin")


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


def times(text: str, zone: str, after: str, count: int) -> list[str]:
    """The next times as a clock in that zone shows them."""
    cron, where, at = parse_cron(text), zone_of(zone), ms(after)
    found = []
    for _ in range(count):
        following = next_time(cron, where, at)
        assert following is not None
        at = following
        found.append(datetime.fromtimestamp(at / 1_000, where).isoformat(timespec="minutes"))
    return found


@pytest.mark.parametrize(
    ("text", "after", "want"),
    [
        pytest.param("30 2 * * *", "2026-12-01T02:30+00:00", "2026-12-02T02:30+00:00", id="after means after"),
        pytest.param("*/15 * * * *", "2026-12-01T02:31+00:00", "2026-12-01T02:45+00:00", id="steps"),
        pytest.param("0 9-17/4 * * *", "2026-12-01T10:00+00:00", "2026-12-01T13:00+00:00", id="ranges with steps"),
        pytest.param("0 0 * * mon-fri", "2026-12-04T12:00+00:00", "2026-12-07T00:00+00:00", id="days of the week by name"),
        pytest.param("0 0 * * 7", "2026-12-04T12:00+00:00", "2026-12-06T00:00+00:00", id="7 is Sunday too"),
        pytest.param("0 0 13 * fri", "2026-12-01T00:00+00:00", "2026-12-04T00:00+00:00", id="either day is enough where both are said"),
        pytest.param("0 0 31 * *", "2026-04-01T00:00+00:00", "2026-05-31T00:00+00:00", id="months without a 31st are passed over"),
        pytest.param("0 0 29 feb *", "2096-03-01T00:00+00:00", "2104-02-29T00:00+00:00", id="eight years between leap days"),
        pytest.param("@monthly", "2026-12-01T00:00+00:00", "2027-01-01T00:00+00:00", id="a name for the usual"),
        pytest.param("5,10 1 * jan,dec *", "2026-12-31T01:06+00:00", "2026-12-31T01:10+00:00", id="lists"),
        pytest.param("50/4 0 * * *", "2026-12-01T00:50+00:00", "2026-12-01T00:54+00:00", id="a step from a number goes to the end"),
    ],
)
def test_the_next_time(text, after, want):
    assert times(text, "UTC", after, 1) == [want]


def test_a_time_is_the_wall_clock_of_its_zone():
    assert times("0 8 * * *", "Europe/Berlin", "2026-03-27T12:00+00:00", 3) == [
        "2026-03-28T08:00+01:00", "2026-03-29T08:00+02:00", "2026-03-30T08:00+02:00",
    ]  # fmt: skip


def test_a_fixed_time_that_is_left_out_comes_later_and_one_that_comes_twice_is_once():
    assert times("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00+00:00", 2) == ["2026-03-29T03:30+02:00", "2026-03-30T02:30+02:00"]
    assert times("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00+00:00", 2) == ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]


def test_every_hour_follows_the_clock_on_the_wall():
    assert times("30 * * * *", "Europe/Berlin", "2026-03-29T00:00+00:00", 2) == ["2026-03-29T01:30+01:00", "2026-03-29T03:30+02:00"]
    assert times("30 * * * *", "Europe/Berlin", "2026-10-25T00:00+00:00", 3) == [
        "2026-10-25T02:30+02:00", "2026-10-25T02:30+01:00", "2026-10-25T03:30+01:00",
    ]  # fmt: skip
    assert times("0 * * * *", "Australia/Lord_Howe", "2026-10-03T14:00+00:00", 2) == ["2026-10-04T01:00+10:30", "2026-10-04T03:00+11:00"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has 0 fields, five are due"),
        ("* * * *", "has 4 fields"),
        ("60 * * * *", "minute '60': a number from 0 to 59"),
        ("* 24 * * *", "hour '24'"),
        ("* * 0 * *", "day '0'"),
        ("* * * 13 *", "month '13'"),
        ("* * * * 8", "weekday '8'"),
        ("*/0 * * * *", "minute '0': a number from 1"),
        ("5-1 * * * *", "ends before it begins"),
        ("* * * * fun", "weekday 'fun'"),
        ("1,,2 * * * *", "minute ''"),
        ("٣ * * * *", "minute"),
        ("0 0 30 feb *", "no such day in any year"),
        ("@often", "has 1 fields"),
    ],
)
def test_what_is_no_schedule_is_told_by_its_field(text, says):
    with pytest.raises(ValueError, match=says):
        parse_cron(text)


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc/passwd", "Europe", "/etc/localtime"])
def test_a_zone_that_is_none_is_refused(name):
    with pytest.raises(ValueError, match="there is no time zone"):
        zone_of(name)


fields = st.tuples(
    st.sampled_from(["*", "0", "30", "*/20", "5,35"]), st.sampled_from(["*", "2", "1-3", "*/6", "2,23"]),
    st.sampled_from(["*", "1", "25-31", "29"]), st.sampled_from(["*", "3", "10", "3,10"]), st.sampled_from(["*", "0", "1-5", "sun"]),
)  # fmt: skip


def by_the_minute(cron: Cron, after_ms: int) -> int:
    """The first minute after it whose wall clock in Berlin matches."""
    at = datetime.fromtimestamp(after_ms / 1_000, UTC).replace(second=0, microsecond=0)
    while True:
        at += timedelta(minutes=1)
        local = at.astimezone(BERLIN)
        if local.minute in cron.minutes and local.hour in cron.hours and cron.has(local.date()):
            return round(at.timestamp() * 1_000)


@settings(max_examples=60, deadline=None)
@given(fields, st.integers(ms("2026-01-01T00:00+00:00"), ms("2027-12-31T00:00+00:00")))
def test_it_is_the_first_minute_that_matches(words, after_ms):
    """Where the clock is not moved; what it does then is above."""
    cron = parse_cron(" ".join(words))
    found = next_time(cron, BERLIN, after_ms)
    assert found is not None
    assert found > after_ms
    want = by_the_minute(cron, after_ms) if found - after_ms < 20 * 86_400_000 else found
    moved = any(_moves(at) for at in (found, want, after_ms))
    assert found == want or moved


def _moves(at_ms: int) -> bool:
    """True if Berlin's clock is moved within two hours of it."""
    at = datetime.fromtimestamp(at_ms / 1_000, BERLIN)
    return any((at + timedelta(hours=h)).astimezone(UTC).astimezone(BERLIN).utcoffset() != at.utcoffset() for h in (-3, 3))

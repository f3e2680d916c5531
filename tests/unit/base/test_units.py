"""Amounts that people write: what is read, what is refused, and that nothing costs more than its length."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.base import units


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("64GiB", 64 << 30),
        ("80GB", 80 * 10**9),
        ("1.5 GiB", 3 << 29),
        ("0.1GB", 10**8),
        ("1kB", 1_000),
        ("0B", 0),
        (" 7MiB ", 7 << 20),
    ],
)
def test_memory_is_read(text: str, want: int) -> None:
    assert units.parse_memory(text) == want


@pytest.mark.parametrize("text", ["64", "64G", "-1GiB", "GiB", "1e3GiB", "٣GiB", "1..2GiB", "", "9" * 5_000 + "GiB", "9000000PiB"])
def test_memory_that_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="memory") as refused:
        units.parse_memory(text)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("90s", 90_000),
        ("2h30m", 9_000_000),
        ("1d 12h", 129_600_000),
        ("0.1s", 100),
        ("1.5h", 5_400_000),
        ("250ms", 250),
        ("2w", 1_209_600_000),
    ],
)
def test_durations_are_read(text: str, want: int) -> None:
    assert units.parse_duration_ms(text) == want


@pytest.mark.parametrize("text", ["90", "", "-5m", "2h30", "h", "1e9s", "٣h", "9" * 5_000 + "h", "99999999h"])
def test_durations_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration") as refused:
        units.parse_duration_ms(text)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(("text", "want"), [("4", (4, 4)), ("2..4", (2, 4)), (" 3 ", (3, 3))])
def test_counts_are_read(text: str, want: tuple[int, int]) -> None:
    assert units.parse_count_range(text) == want


@pytest.mark.parametrize("text", ["0", "-1", "4..2", "1_000", "²", "1.5", "2..", "..", "9" * 5_000])
def test_counts_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="count"):
        units.parse_count_range(text)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0-15:4", ((0, 4, 8, 12), None)),
        ("1,3,5-7", ((1, 3, 5, 6, 7), None)),
        ("100,200,300", ((100, 200, 300), None)),
        ("0-15%4", (tuple(range(16)), 4)),
        ("3,1,1-2", ((1, 2, 3), None)),
    ],
)
def test_arrays_are_read(text: str, want: tuple[tuple[int, ...], int | None]) -> None:
    assert units.parse_array(text, 1_000) == want


@pytest.mark.parametrize("text", ["5-1", "0-3:0", "1,,2", "a", "0-3%0", "0-3%²", "0-3%", "-1", "0-1000", "9" * 5_000])
def test_arrays_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="array"):
        units.parse_array(text, 1_000)


def test_a_megabyte_of_overlapping_ranges_costs_no_more_than_its_length() -> None:
    before = time.process_time()
    with pytest.raises(ValueError, match="more than 10000 tasks"):
        units.parse_array(",".join(["0-4999"] * 150_000), 10_000)
    assert time.process_time() - before < 0.5


@given(st.integers(0, units.MEMORY_MAX))
def test_memory_reads_back_exactly(size_bytes: int) -> None:
    assert units.parse_memory(units.format_memory(size_bytes)) == size_bytes


@given(st.integers(0, units.DURATION_MS_MAX))
def test_durations_read_back_exactly(value_ms: int) -> None:
    assert units.parse_duration_ms(units.format_duration_ms(value_ms)) == value_ms


@given(st.text(max_size=30))
def test_no_text_gives_anything_but_an_amount_or_a_value_error(text: str) -> None:
    for read in (units.parse_memory, units.parse_duration_ms, units.parse_count_range, units.parse_memory_range):
        with suppress(ValueError):
            read(text)
    with suppress(ValueError):
        units.parse_array(text, 1_000)

"""Widths, cuts, times: the small functions that every screen stands on."""

from __future__ import annotations

import pytest

from shoal.model.job import GpuAsk, JobSpec, Resources
from shoal.model.values import CountRange, Memory, MemoryRange
from shoal.render.amounts import asks_text, bytes_text, resource_text
from shoal.render.look import Look, clean, cut, span, width_of, wrap

LOOK = Look(now_ms=1_700_000_000_000)


@pytest.mark.parametrize(
    ("length_ms", "want"),
    [
        (0, "0s"),
        (59_999, "59s"),
        (60_000, "1m"),
        (200_000, "3m20s"),
        (659_000, "10m"),
        (3_600_000, "1h"),
        (7_500_000, "2h5m"),
        (273_600_000, "3d4h"),
    ],
)
def test_spans_have_two_units_at_most(length_ms: int, want: str) -> None:
    assert span(length_ms) == want


def test_times_are_told_from_now_and_in_the_zone_of_the_reader() -> None:
    assert LOOK.ago(LOOK.now_ms - 180_000) == "3m ago"
    assert LOOK.ago(LOOK.now_ms + 7_200_000) == "in 2h"
    assert LOOK.ago(LOOK.now_ms) == "now"
    assert LOOK.ago(None) == "-"
    assert LOOK.clock(LOOK.now_ms) == "2023-11-14 22:13:20Z"
    assert Look(utc_offset_minutes=-90).clock(LOOK.now_ms) == "2023-11-14 20:43:20"


def test_text_of_users_cannot_steer_the_terminal() -> None:
    assert clean("a\x1b[2Jb\nc\u202ed") == "a\\x1b[2Jb c\\x202ed"


def test_widths_count_columns_and_cuts_keep_to_them() -> None:
    assert width_of("\x1b[31mab\x1b[0m") == 2
    assert width_of("漢字") == 4
    assert cut("漢字漢字", 5, LOOK) == "漢字…"
    assert cut("abcdef", 4, Look(unicode=False)) == "abc~"
    assert wrap("one two three", Look(width=8), "  ") == ["  one", "  two", "  three"]


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        (JobSpec(), "1 node"),
        (JobSpec(nodes=CountRange(2, 4)), "2..4 nodes"),
        (JobSpec(cpus=4), "4 cpu"),
        (JobSpec(memory=Memory(2 << 30)), "2GiB"),
        (JobSpec(nodes=CountRange(2, 2), gpus=GpuAsk(count=8, model=("h100", "h200"))), "2 x 8 h100|h200"),
        (JobSpec(gpus=GpuAsk(count=1, memory=MemoryRange(80 * 10**9))), "1 gpu 80GB.."),
        (JobSpec(gpus=GpuAsk(share=250)), "0.25 gpu"),
        (JobSpec(gpus=GpuAsk(count=2, mig="1g.10gb")), "2 mig 1g.10gb"),
        (JobSpec(nodes=CountRange(2, 2), any_of=(Resources(gpus=GpuAsk(count=4)), Resources(cpus=8))), "2 x 4 gpu | 2 x 8 cpu"),
    ],
)
def test_asks_in_few_words(spec: JobSpec, want: str) -> None:
    assert asks_text(spec) == want


def test_amounts_of_resources() -> None:
    assert [resource_text("gpu/h100", 8_000), resource_text("gpu", 250), resource_text("memory", 3 << 29)] == ["8", "0.25", "1.5GiB"]
    assert [bytes_text(0), bytes_text(1 << 40), bytes_text(1500)] == ["0B", "1TiB", "1.5KiB"]

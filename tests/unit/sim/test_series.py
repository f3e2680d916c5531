"""What is kept of the course of time: integrals per span, joined when time outgrows them."""

from __future__ import annotations

import random

import pytest

from shoal.sim.series import SPANS, SeriesRecord


def test_means_over_spans_are_by_time() -> None:
    record = SeriesRecord()
    record.add(0, 500, (4_000, 8_000, 1_000, 0))
    record.add(500, 2_250, (8_000, 8_000, 0, 3))
    series = record.series()
    assert (series.span_s, series.held, series.owned) == (1.0, (6.0, 8.0, 8.0), (8.0, 8.0, 8.0))
    assert (series.stranded, series.waiting) == ((0.5, 0.0, 0.0), (1.5, 3.0, 3.0))


def test_nothing_is_lost_when_spans_are_joined() -> None:
    rng, record, whole, at = random.Random(1), SeriesRecord(), 0, 0
    for _ in range(3_000):
        later, held = at + rng.randrange(1, 9_000), rng.randrange(9)
        record.add(at, later, (1_000 * held, 8_000, 0, 0))
        whole, at = whole + held * (later - at), later
    series = record.series()
    assert len(series.held) <= SPANS
    last_s = at / 1_000 - series.span_s * (len(series.held) - 1)
    kept = sum(series.held[:-1]) * series.span_s + series.held[-1] * last_s
    assert kept * 1_000 == pytest.approx(whole, rel=1e-5)


def test_no_time_is_no_series() -> None:
    assert SeriesRecord().series().held == ()

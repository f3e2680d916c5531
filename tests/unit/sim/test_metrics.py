"""Figures of three jobs on two GPUs, worked out by hand."""

from __future__ import annotations

import msgspec
import pytest

from shoal.formats.workload import NodeKind, TraceJob, ask_of, node_of
from shoal.sim.metrics import Metrics, metrics_of
from shoal.sim.replay import Course, Replay


@pytest.fixture(scope="module")
def metrics() -> Metrics:
    """A holds both GPUs for 100 s. B wants one at 10 s and waits 90 s. C needs no GPU. D can never run."""
    jobs = [
        TraceJob(submit_ms=0, run_ms=100_000, spec=ask_of(2, 2), owner="x"),
        TraceJob(submit_ms=10_000, run_ms=50_000, spec=ask_of(1, 2), owner="y"),
        TraceJob(submit_ms=20_000, run_ms=30_000, spec=ask_of(0, 2), owner="y"),
        TraceJob(submit_ms=20_000, run_ms=30_000, spec=ask_of(3, 8), owner="z"),
    ]
    replay = Replay([node_of("n0", NodeKind(gpus=2))], (), jobs, Course())
    replay.run()
    return metrics_of(replay.record, 2, {"QUEUED": len(replay.world.jobs)})


def test_waits_slowdowns_and_completion_times(metrics: Metrics) -> None:
    assert (metrics.wait_s.mean, metrics.wait_s.p50, metrics.wait_s.most) == (30.0, 0.0, 90.0)
    assert metrics.wait_s.p95 == 81.0  # between 0 and 90, nine tenths of the way from the second to the third
    assert metrics.bounded_slowdown.mean == 1.6
    assert metrics.jct_s.mean == 90.0


def test_use_of_the_fleet(metrics: Metrics) -> None:
    assert metrics.makespan_s == 150.0
    assert metrics.utilisation == metrics.allocation == pytest.approx(250 / 300, abs=1e-6)
    assert metrics.utilisation_steady == 1.0
    assert (metrics.gpus, metrics.gpus_held_most) == (2, 2)
    assert metrics.waiting_most == 2


def test_fairness_is_of_owners_by_gpu_time(metrics: Metrics) -> None:
    x, y = 1.0, 80 / 170
    assert metrics.fairness == pytest.approx((x + y) ** 2 / (2 * (x * x + y * y)), abs=1e-6)


def test_classes_and_states_count_every_job(metrics: Metrics) -> None:
    assert [(one.gpus, one.jobs) for one in metrics.by_size] == [("no GPU", 1), ("1", 1), ("2-8", 1)]
    assert metrics.states == {"QUEUED": 1, "SUCCEEDED": 3}
    assert (metrics.jobs, metrics.attempts) == (3, 3)


def test_a_replay_of_nothing_has_figures_too() -> None:
    replay = Replay([node_of("n0", NodeKind(gpus=2))], (), [], Course())
    replay.run()
    nothing = metrics_of(replay.record, 2, {})
    assert (nothing.jobs, nothing.utilisation, nothing.wait_s.mean, nothing.fairness) == (0, 0.0, 0.0, 1.0)


def test_free_gpus_beside_held_ones_are_fragmented_and_work_done_twice_is_waste() -> None:
    """One of two GPUs is held for 60 s. Then both, for 40 s of work that somebody of a higher priority throws away, and again for 100 s."""
    both = ask_of(2, 2)
    jobs = [
        TraceJob(submit_ms=0, run_ms=60_000, spec=ask_of(1, 2)),
        TraceJob(submit_ms=60_000, run_ms=100_000, spec=both),
        TraceJob(submit_ms=100_000, run_ms=50_000, spec=msgspec.structs.replace(both, priority=5)),
    ]
    replay = Replay([node_of("n0", NodeKind(gpus=2))], (), jobs, Course())
    replay.run()
    metrics = metrics_of(replay.record, 2, {})
    assert (metrics.jobs, replay.evictions, metrics.makespan_s) == (3, 1, 250.0)
    assert metrics.fragmentation == 1.0  # the only free GPU was the one beside the held one
    assert metrics.waste == pytest.approx(80 / 440, abs=1e-6)
    assert metrics.allocation == pytest.approx(440 / 500, abs=1e-6)

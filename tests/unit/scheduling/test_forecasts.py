"""How good earliest starts were: the first one of a job counts, the last starts of a queue speak, and `why` and figures tell it."""

from __future__ import annotations

from shoal.base import limits
from shoal.formats.workload import NodeKind, TraceJob, node_of
from shoal.model.job import GpuAsk, JobSpec
from shoal.model.plan import Place, Plan, Reserve
from shoal.model.queue import Queue, QueueSpec
from shoal.model.wire import Explanation
from shoal.render.look import Look
from shoal.render.why import explanation_screen
from shoal.scheduling.forecasts import Forecasts, Missed
from shoal.sim.metrics import metrics_of
from shoal.sim.replay import Course, Replay


def started(job: str, at_ms: int) -> Plan:
    return Plan(version=1, decisions=(Place(job=job, members=()),), at_ms=at_ms)


def test_the_first_forecast_of_a_job_counts_and_only_once() -> None:
    forecasts = Forecasts()
    forecasts.tell("a", "q", 1_000)
    forecasts.tell("a", "q", 9_000)
    assert forecasts.follow(started("a", 700), {}) == [Missed("a", "q", -300)]
    assert forecasts.follow(started("a", 800), {}) == []
    assert forecasts.follow(Plan(version=1, decisions=(Reserve(job="b", members=(), start_ms=5),)), {}) == [], "a job that is gone"


def test_the_track_is_of_the_queues_last_starts_and_silent_while_they_are_few() -> None:
    forecasts = Forecasts()
    for at in range(limits.FORECASTS_KEPT + 30):
        assert (forecasts.track("q") is None) is (at < limits.FORECASTS_LEAST)
        forecasts.tell(f"j{at}", "q", 0)
        forecasts.follow(started(f"j{at}", 1_000 * at), {})
    track = forecasts.track("q")
    assert track is not None
    assert (track.told, track.within_ms, track.late_ms) == (50, 69_000, 54_000)
    assert forecasts.track("other") is None


def test_open_forecasts_are_bounded() -> None:
    forecasts = Forecasts()
    for at in range(limits.FORECASTS_OPEN_MAX + 5):
        forecasts.tell(f"j{at}", "q", 0)
    assert forecasts.follow(started("j4", 1), {}) == []
    assert forecasts.follow(started("j5", 1), {}) == [Missed("j5", "q", 1)]


def test_why_tells_it_under_the_earliest_start() -> None:
    why = Explanation(job="3", state="QUEUED", headline="waits", earliest_start_ms=60_000, as_of_ms=1)
    assert not any("forecasts" in line for line in explanation_screen(why, Look()))
    told = Explanation(
        job="3",
        state="QUEUED",
        headline="waits",
        earliest_start_ms=60_000,
        forecasts=50,
        forecast_within_ms=720_000,
        forecast_late_ms=-60_000,
    )
    (line,) = [line for line in explanation_screen(told, Look()) if "forecasts" in line]
    assert (
        line.strip()
        == "of the last 50 such forecasts here, four in five were right within 12m, and half started 1m earlier than told or sooner"
    )


def test_a_replay_measures_what_jobs_were_told() -> None:
    """The first of two whole-node jobs ends after half its limit: the second was told the limit, and starts that much before it."""
    ask = JobSpec(run="true", gpus=GpuAsk(count=8))
    jobs = [TraceJob(submit_ms=at, run_ms=50_000, limit_ms=100_000, spec=ask) for at in (0, 1_000)]
    replay = Replay((node_of("n1", NodeKind()),), (Queue(id="default", spec=QueueSpec()),), jobs, Course())
    replay.run()
    metrics = metrics_of(replay.record, 8, {})
    assert list(replay.record.forecast_error) == [-50_000]
    assert (metrics.forecasts, metrics.forecast_error_s.p50) == (1, 50.0)

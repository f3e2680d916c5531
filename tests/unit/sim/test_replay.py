"""A replay is the live system on virtual time: the same answers as an independent simulator, as step by step, and as itself again."""

from __future__ import annotations

import pytest

from shoal.base.errors import InvariantViolated
from shoal.base.rng import Rng
from shoal.formats.workload import NodeKind, TraceJob, ask_of, node_of
from shoal.model.attempt import Allocation
from shoal.model.change import ChangeSet
from shoal.model.codec import encode_json
from shoal.model.queue import Queue, QueueSpec
from shoal.planning.backfill import ListedJob, run_list
from shoal.sim.generate import LogPlan, generate_swf
from shoal.sim.metrics import metrics_of
from shoal.sim.policies import named_policy
from shoal.sim.replay import BASE_MS, Course, Replay
from shoal.sim.simulate import Setting, fleet_for, read_trace, simulate

TOY = (
    (0, 100, 32, 100),
    (0, 60, 16, 60),
    (5, 50, 64, 50),
    (6, 90, 16, 90),
    (7, 120, 8, 120),
    (8, 40, 8, 40),
    (70, 4, 16, 10),
    (80, 20, 24, 20),
)
"""Submit, run, processors, requested time: the toy on 64 processors that planning has worked out by hand."""


def a_job(submit_s: int, run_s: int, gpus: int, limit_s: int | None = None, per_node: int = 64) -> TraceJob:
    limit_ms = None if limit_s is None else limit_s * 1_000
    return TraceJob(submit_ms=submit_s * 1_000, run_ms=run_s * 1_000, spec=ask_of(gpus, per_node), limit_ms=limit_ms)


def played(jobs: list[TraceJob], *, nodes: int = 1, per_node: int = 64, order: str = "best-effort", **course: object) -> Replay:
    fleet = [node_of(f"n{at}", NodeKind(gpus=per_node)) for at in range(nodes)]
    queue = Queue(id="default", spec=QueueSpec(order=order))  # type: ignore[arg-type]
    replay = Replay(fleet, (queue,), jobs, Course(**course))  # type: ignore[arg-type]
    replay.run()
    return replay


def starts_of(replay: Replay) -> dict[int, int]:
    """Start in seconds, by number."""
    record = replay.record
    return {number: (start - BASE_MS) // 1_000 for number, start in zip(record.number, record.start, strict=True)}


def random_jobs(seed: int, count: int = 40, most: int = 64) -> list[TraceJob]:
    rng = Rng(seed)
    at, jobs = 0, []
    for _ in range(count):
        at += rng.below(20)
        run = rng.below(60)
        jobs.append(a_job(at, run, 1 + rng.below(most), run + 1 + rng.below(30)))
    return jobs


def test_the_toy_of_eight_jobs_comes_out_as_worked_out_by_hand() -> None:
    replay = played([a_job(*row) for row in TOY], order="strict")
    assert [starts_of(replay)[number] for number in range(1, 9)] == [0, 0, 100, 150, 150, 150, 150, 154]
    metrics = metrics_of(replay.record, 64, {})
    assert metrics.wait_s.mean == 84.75
    assert metrics.bounded_slowdown.mean == pytest.approx(3.4177, abs=1e-4)
    assert (metrics.makespan_s, metrics.utilisation) == (270.0, pytest.approx(0.614815, abs=1e-6))


@pytest.mark.parametrize("seed", range(6))
def test_a_strict_queue_starts_jobs_when_first_come_first_served_does(seed: int) -> None:
    jobs = random_jobs(seed)
    listed = tuple(
        ListedJob(
            job=at,
            submit=job.submit_ms / 1_000,
            run=(job.run_ms or 0) / 1_000,
            processors=job.spec.gpus.count,
            requested=job.limit_ms / 1_000,
        )  # type: ignore[union-attr, operator]
        for at, job in enumerate(jobs)
    )
    want = run_list(64, listed, easy=False)
    starts = starts_of(played(jobs, order="strict"))
    assert [starts[number] for number in range(1, len(jobs) + 1)] == want


@pytest.mark.parametrize("seed", range(4))
def test_what_is_written_together_comes_out_as_step_by_step(seed: int) -> None:
    jobs = [
        TraceJob(submit_ms=job.submit_ms, run_ms=job.run_ms, spec=ask_of(at % 40 + 1, 8), limit_ms=job.limit_ms, exit_code=at % 7 // 6)
        for at, job in enumerate(random_jobs(seed))
    ]
    joined, stepped = (played(jobs, nodes=6, per_node=8, check=check) for check in (False, True))
    for name in ("number", "submit", "start", "end", "gpu_milli", "nodes", "attempts", "state"):
        by_number = [dict(zip(r.record.number, getattr(r.record, name), strict=True)) for r in (joined, stepped)]
        assert by_number[0] == by_number[1], name
    assert joined.record.held_gpu_us == stepped.record.held_gpu_us
    assert len(joined.record) == len(jobs)


def test_the_same_trace_gives_the_same_bytes() -> None:
    lines = list(generate_swf(LogPlan(jobs=120, processors=128, largest=64)))
    workload = read_trace(lines, "log", 8)
    setting = Setting(nodes=fleet_for(workload), policies=(named_policy("fcfs:order=strict"), named_policy("default")))
    first, again = (encode_json(simulate(workload, "log", setting)) for _ in range(2))
    assert first == again
    assert simulate(workload, "log", setting).runs[0].metrics != simulate(workload, "log", setting).runs[1].metrics


def test_a_run_of_no_time_ends_in_the_instant_in_which_it_starts() -> None:
    replay = played([a_job(5, 0, 64), a_job(5, 0, 64), a_job(6, 1, 64)])
    assert starts_of(replay) == {1: 5, 2: 5, 3: 6}


def test_a_job_past_its_limit_is_stopped_there_and_frees_its_room() -> None:
    replay = played([a_job(0, 100, 64, 30), a_job(1, 10, 64)])
    assert list(replay.record.state) == ["TIMEOUT", "SUCCEEDED"]
    assert starts_of(replay) == {1: 0, 2: 30}


def test_a_limit_that_is_not_reached_does_not_make_time_go_on() -> None:
    replay = played([a_job(0, 10, 64, 10_000)], check=True)
    assert replay.record.passed_ms == 10_000


def test_what_can_never_start_is_left_when_all_else_is_over() -> None:
    replay = played([a_job(0, 10, 65, per_node=65), a_job(1, 10, 8)])
    assert starts_of(replay) == {2: 1}
    assert [str(job.state) for job in replay.world.jobs.values()] == ["QUEUED"]


def test_a_broken_invariant_ends_the_replay_with_its_name() -> None:
    """Somebody writes an allocation of a GPU that is held."""
    replay = Replay([node_of("n0", NodeKind(gpus=1))], (), [a_job(0, 10, 1)], Course(check=True))

    def double(play: Replay) -> None:
        (held,) = play.world.board.allocations.values()
        twin = Allocation(
            id="twin", job=held.job, job_number=1, project="x", queue=held.queue, attempt=1, node="n0", node_rank=1, devices=held.devices
        )
        play.write(ChangeSet(put=(twin,)))

    replay.plan_deed(5_000, double)
    with pytest.raises(InvariantViolated, match=r"at 5000 ms: device n0-0 of n0 is in 2 live allocations"):
        replay.run()

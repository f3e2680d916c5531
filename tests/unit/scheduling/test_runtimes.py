"""Planning with what past runs took: which ends tell, how long a job is taken to run, what of that a cycle uses, and what it gains."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shoal.base import limits
from shoal.base.rng import Rng
from shoal.model.job import GpuAsk, Job, JobSpec, JobState
from shoal.scheduling.board import Board
from shoal.scheduling.policy import Policy
from shoal.scheduling.runtimes import RunTimes
from shoal.sim.generate import LogPlan, generate_swf
from shoal.sim.policies import named_policy
from shoal.sim.simulate import Setting, fleet_for, read_trace, simulate
from shoal.testing.clusters import Cluster, a_host, a_reservation, places_of, reserves_of

HISTORY = Policy(preempt=False, estimate="history")
SPEC = JobSpec(run="true", name="train", gpus=GpuAsk(count=8))


def ended(ran_ms: int, state: JobState = JobState.SUCCEEDED, owner: str = "ada", spec: JobSpec = SPEC) -> Job:
    born = {"id": "j", "number": 1, "project": "p", "owner": owner, "queue": "q", "spec": spec, "created_ms": 0, "queued_ms": 0}
    return Job(**born, state=state, started_ms=1_000, ended_ms=1_000 + ran_ms)


def test_the_mean_of_the_last_two_runs_of_a_kind() -> None:
    times = RunTimes()
    assert times.expected_ms("p", "ada", SPEC) is None
    for ran_ms, expected_ms in ((60_000, 60_000), (20_000, 40_000), (10_000, 15_000)):
        times.note(ended(ran_ms))
        assert times.expected_ms("p", "ada", SPEC) == expected_ms
    assert times.expected_ms("p", "bob", SPEC) is None
    assert times.expected_ms("p", "ada", replace(SPEC, gpus=GpuAsk(count=4))) is None
    assert times.expected_ms("p", "ada", replace(SPEC, name="eval")) is None


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.NODE_LOST])
def test_a_run_that_others_ended_says_nothing(state: JobState) -> None:
    times = RunTimes()
    times.note(ended(5_000, state))
    assert times.expected_ms("p", "ada", SPEC) is None


def test_kinds_are_bounded() -> None:
    times = RunTimes()
    for at in range(limits.RUN_KINDS_KEPT + 1):
        times.note(ended(1_000, owner=f"u{at}"))
    assert times.expected_ms("p", "u0", SPEC) is None
    assert times.expected_ms("p", "u1", SPEC) == 1_000


def test_a_job_is_taken_to_end_when_its_kind_did_and_twice_as_late_once_it_has_not() -> None:
    cluster = Cluster(a_host("n0"), policy=HISTORY)
    runs = cluster.submit(8, limit_s=1_000, expected_ms=100_000)
    cluster.cycle()
    waits = cluster.submit(8, limit_s=1_000)
    began_ms = cluster.jobs[runs].started_ms or cluster.now_ms
    for passed_s, end_s in ((0, 100), (60, 100), (100, 200), (150, 200), (399, 400), (700, 800), (900, 1_000)):
        cluster.now_ms = began_ms + passed_s * 1_000
        plan = cluster.cycle()
        assert reserves_of(plan)[waits].start_ms - began_ms == end_s * 1_000
        anew = Board.of(cluster.snapshot())
        anew.use_policy(HISTORY)
        anew.begin_cycle(cluster.now_ms)
        assert anew.horizon.end_of == cluster.board.horizon.end_of


def test_who_is_expected_to_end_in_time_goes_before_the_start_that_is_kept() -> None:
    """By limits the small job would run into the gang's start; by its kind's last runs it will not."""
    for policy, starts in ((Policy(preempt=False), False), (HISTORY, True)):
        cluster = Cluster(a_host("n0"), a_host("n1"), policy=policy)
        cluster.submit(8, limit_s=100)
        cluster.cycle()
        cluster.submit(8, nodes=2, limit_s=1_000)
        small = cluster.submit(8, limit_s=1_000, expected_ms=50_000)
        assert (small in places_of(cluster.cycle())) is starts


def test_windows_go_by_limits_whatever_is_expected() -> None:
    cluster = Cluster(a_host("n0"), a_reservation("firmware", 200, 300, nodes=("n0",)), policy=HISTORY)
    cluster.submit(8, limit_s=1_000, expected_ms=10_000)
    short = cluster.submit(8, limit_s=100, expected_ms=10_000)
    assert places_of(cluster.cycle()).keys() == {short}


def test_starts_are_forecast_better_by_history_where_people_repeat_themselves() -> None:
    """People ask for up to five times what they run, and run about as long as last time: as in the archive's logs."""
    workload = read_trace(generate_swf(LogPlan(jobs=600, processors=64, largest=32, load=0.95, longest_s=7_200, seed=3)), "log", 8)
    rng, habits = Rng(7), dict[tuple[str, int], int]()
    jobs = []
    for job in workload.jobs:
        habit = habits.setdefault((job.owner, id(job.spec)), job.run_ms or 1)
        run_ms = max(1_000, habit * (80 + rng.below(40)) // 100)
        jobs.append(replace(job, run_ms=run_ms, limit_ms=run_ms * (1 + rng.below(5)) + 60_000))
    policies = (named_policy("limit"), named_policy("history:estimate=history"))
    played = simulate(replace(workload, jobs=tuple(jobs)), "log", Setting(nodes=fleet_for(workload), policies=policies))
    limit, history = (run.metrics for run in played.runs)
    assert history.forecast_error_s.p50 < 0.6 * limit.forecast_error_s.p50

"""Cases of the field about work that waits, through the whole service: who passes whom, what is counted, and what `why` says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from serving import ANNA, SYSTEM, Service, spec_of
from shoal.control import jobs, queues
from shoal.control.access import Caller
from shoal.model.attempt import HOLDING
from shoal.model.job import CancelMode, Job, JobState
from shoal.model.queue import QueueLimits, QueueSpec, Quota
from shoal.model.reason import ReasonCode
from shoal.model.values import Duration
from shoal.model.wire import Explanation
from shoal.scheduling.policy import Policy

RED = Caller(principal="user/red", project="red")
BLUE = Caller(principal="user/blue", project="blue")


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service(policy=Policy(preempt=True))
    yield service
    service.close()


def with_nodes(service: Service, *names: str, gpus: int = 4) -> None:
    for name in names:
        service.add_node(name, gpus)
    service.run(100)


def set_queue(service: Service, name: str, **fields: object) -> None:
    service.settle(queues.set_queue(service.plane, SYSTEM, name, QueueSpec(**fields)))  # type: ignore[arg-type]


def why(service: Service, job: Job, caller: Caller = ANNA) -> Explanation:
    return jobs.why_job(service.plane, caller, caller.project or "default", str(job.number))


# --- case 9 -----------------------------------------------------------------------------------------------------------------
def test_case_9_a_small_low_job_passes_two_hundred_high_ones_and_tries_do_not_grow(service: Service) -> None:
    """Platform case 9 (slurm-bridge#45): blocked high-priority work is tried so often that lower work that fits never runs."""
    with_nodes(service, "n1", "n2")
    long = [service.submit(spec_of(gpus=1, nodes=2, run_ms=600_000, preemptible=False))]
    service.run(300)
    high = [service.submit(spec_of(gpus=4, nodes=2, cpus=1 + at % 20, priority=1_000)) for at in range(200)]
    small = service.submit(spec_of(gpus=1, priority=-1, run_ms=300))
    plans = []
    for _ in range(2):
        service.round()
        plans.append(service.plane.schedule.last)
    assert service.job(small).attempt == 1, "placed within two cycles"
    tries = []
    for _ in range(30):  # small jobs come and go, so that the world moves in every cycle
        service.submit(spec_of(gpus=1, priority=-1, run_ms=100))
        service.run(400)
        last = service.plane.schedule.last
        assert last is not None
        tries.append(last.counters["attempts"])
    assert service.job(small).state is JobState.SUCCEEDED
    assert max(tries) <= 21, "one for each of the twenty blocked shapes and the small one, not for each of two hundred jobs"
    assert sum(tries[15:]) <= sum(tries[:15]), "a retry costs no more than the one before"
    service.submit(spec_of(gpus=0, priority=-1, run_ms=10_000))
    service.round()
    assert service.plane.schedule.last is not None
    assert service.plane.schedule.last.counters["attempts"] == 1, "where no node may take more, nobody who was blocked is tried again"
    assert {service.job(job).state for job in high} == {JobState.QUEUED}
    assert {service.job(job).state for job in long} == {JobState.RUNNING}


# --- case 23 ----------------------------------------------------------------------------------------------------------------
def live_by_queue(service: Service) -> dict[str, int]:
    """Thousandths of GPUs by queue, from the stored allocations alone."""
    held: dict[str, int] = {}
    for allocation in service.store.snapshot().allocations:
        if allocation.state in HOLDING:
            held[allocation.queue] = held.get(allocation.queue, 0) + 1_000 * len(allocation.devices)
    return held


def counts_agree(service: Service) -> None:
    service.check()
    views = {view.name: view.used["gpu"] for view in queues.list_queues(service.plane, SYSTEM) if view.used.get("gpu")}
    assert views.pop("all", 0) == sum(views.values())
    assert views == live_by_queue(service)


def test_case_23_quota_is_held_by_live_allocations_alone_at_every_step(service: Service) -> None:
    """Platform case 23 (kueue#14811): evicted, yet quota stays reserved for hours."""
    with_nodes(service, "n1", "n2", "n3")
    set_queue(service, "all")
    for name in ("a", "b"):
        set_queue(service, name, parent="all", quotas={"gpu": Quota(nominal=6_000)})
    lent = [service.submit(spec_of(gpus=2, run_ms=60_000, queue="a")) for _ in range(6)]
    service.run(500, each=lambda: counts_agree(service))
    assert live_by_queue(service) == {"a": 12_000}, "all of it, half of it borrowed"

    owed = [service.submit(spec_of(gpus=2, run_ms=5_000, queue="b")) for _ in range(3)]
    refused = service.submit(spec_of(gpus=1, labels={"prepare": "fail"}, queue="b"))
    service.run(3_000, each=lambda: counts_agree(service))
    assert live_by_queue(service) == {"a": 6_000, "b": 6_000}, "what was evicted holds nothing while it waits"
    evicted = [job for job in lent if service.job(job).state is JobState.QUEUED]
    assert len(evicted) == 3

    service.cancel(owed[0])
    service.cancel(evicted[0])
    service.wire.cut["n3"] = None  # and a node is lost, with all that it held
    service.run(15_000, each=lambda: counts_agree(service))
    service.wire.cut.clear()
    service.cancel(refused)
    service.run(2_000, each=lambda: counts_agree(service))
    for job in lent:
        service.cancel(job, CancelMode.FORCE)
    service.run_until_ended()
    assert live_by_queue(service) == {}
    counts_agree(service)


# --- case 38 ----------------------------------------------------------------------------------------------------------------
def test_case_38_why_has_the_position_who_holds_what_and_when_it_will_run_with_the_basis(service: Service) -> None:
    """Platform case 38 (kueue#2833): who is before me, who holds what, when do I run."""
    with_nodes(service, "n1", gpus=8)
    for project in ("red", "blue"):
        set_queue(service, project, project=project)
    red = service.submit(spec_of(gpus=5, run_ms=600_000, time=Duration(7_200_000), queue="red"), RED, project="red")
    blue = service.submit(spec_of(gpus=3, run_ms=600_000, time=Duration(3_600_000), queue="blue"), BLUE, project="blue")
    service.run(300)
    assert {service.plane.world.jobs[job.id].state for job in (red, blue)} == {JobState.RUNNING}
    first = service.submit(spec_of(gpus=4, time=Duration(60_000)))
    mine = service.submit(spec_of(gpus=8, time=Duration(60_000)))
    service.run(300)
    told = why(service, mine)
    assert (told.position, told.ahead) == (2, (first.address,))
    holders = {(holder.project, holder.gpus) for reason in told.reasons for holder in reason.holders}
    assert {("red", 5), ("blue", 3)} <= holders
    started_ms = service.plane.world.jobs[red.id].started_ms
    assert started_ms is not None
    (basis,) = [reason for reason in told.reasons if reason.code is ReasonCode.EXPECTED]
    assert told.earliest_start_ms == basis.until_ms == started_ms + 7_200_000 + 60_000, "after red's limit, and the job ahead"
    assert "time limit" in basis.message


# --- case 39 ----------------------------------------------------------------------------------------------------------------
def test_case_39_sixteen_free_and_a_job_of_sixteen_waits_is_fragmentation_by_node_with_what_would_free_it(service: Service) -> None:
    """Platform case 39 (KAI-Scheduler#2058): 16 free over 4 nodes with 4 each, the job wants 2x8."""
    with_nodes(service, "n1", "n2", "n3", "n4", gpus=8)
    halves = [service.submit(spec_of(gpus=4, run_ms=600_000)) for _ in range(8)]
    service.run(300)
    on = {job.id: service.plane.world.allocations_of(job.id)[0].node for job in halves}
    kept = [next(job for job in halves if on[job.id] == node) for node in ("n1", "n2", "n3", "n4")]
    for job in halves:
        if job not in kept:
            service.cancel(job, CancelMode.FORCE)
    service.run(1_000)
    assert service.free_gpus() == 16
    mine = service.submit(spec_of(gpus=8, nodes=2))
    service.run(300)
    told = why(service, mine)
    reason = told.reasons[0]
    assert reason.code is ReasonCode.FRAGMENTATION
    assert (reason.asked, reason.free, reason.nodes_asked, reason.nodes_fitting, reason.largest_free) == (16, 16, 2, 0, 4)
    assert all(node in reason.message for node in ("n1", "n2", "n3", "n4"))
    assert len(told.blockers) == 2
    assert set(told.blockers) <= {job.address for job in kept}
    assert any(all(address in hint for address in told.blockers) for hint in told.hints), "what would free it"
    for job in kept:
        if job.address in told.blockers:
            service.cancel(job, CancelMode.FORCE)
    service.run_until_ended(mine)
    assert service.job(mine).state is JobState.SUCCEEDED, "what was named was enough"


# --- case 40 ----------------------------------------------------------------------------------------------------------------
LIMITS = [
    ("running_jobs", 2, ReasonCode.QUEUE_JOBS_LIMIT),
    ("running_jobs_per_user", 2, ReasonCode.USER_JOBS_LIMIT),
    ("gpus_per_user", 2, ReasonCode.USER_GPUS_LIMIT),
    ("priority_budget", 20, ReasonCode.QUEUE_BUDGET),
    ("priority_budget_per_user", 20, ReasonCode.USER_BUDGET),
]


@pytest.mark.parametrize(("name", "most", "code"), LIMITS)
def test_case_40_every_limit_on_what_runs_is_a_reason_with_its_name_and_holders(
    service: Service, name: str, most: int, code: ReasonCode
) -> None:
    """Platform case 40 (dagster#21297, prefect#9500): blocked by a limit, and nothing says so."""
    with_nodes(service, "n1", "n2")
    set_queue(service, "default", limits=QueueLimits(**{name: most}))
    urgent = {"priority": 10} if "budget" in name else {}
    held = [service.submit(spec_of(run_ms=60_000, **urgent)) for _ in range(2)]
    mine = service.submit(spec_of(run_ms=100, **urgent))
    service.run(500)
    assert service.job(mine).state is JobState.QUEUED
    told = why(service, mine)
    reason = told.reasons[0]
    assert reason.code is code
    assert str(code).startswith("limit.")
    assert name in reason.message
    assert reason.queue == "default"
    assert reason.capacity == most
    assert reason.blockers == tuple(job.address for job in held)
    assert [(holder.project, holder.jobs, holder.gpus) for holder in reason.holders] == [("default", 2, 2)]
    service.cancel(held[0], CancelMode.FORCE)
    service.run_until_ended(mine)
    assert service.job(mine).state is JobState.SUCCEEDED

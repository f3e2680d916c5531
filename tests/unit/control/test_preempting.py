"""Preemption in life: claims before evictions, the freed room to the preemptor, across a restart, and claims that nobody needs any more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from serving import Service, spec_of
from shoal.lifecycle.claims import stale_claims
from shoal.model.job import Job, JobState
from shoal.model.reason import ReasonCode


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    service.add_node("n1")
    service.add_node("n2")
    service.run(100)
    yield service
    service.close()


def a_preemption(service: Service) -> tuple[list[Job], Job]:
    """Two jobs fill the nodes and take a second to stop; one of higher priority comes."""
    lows = [service.submit(spec_of(gpus=4, run_ms=600_000, labels={"stop_ms": "1000"})) for _ in range(2)]
    service.run(1_000)
    assert [service.job(low).state for low in lows] == [JobState.RUNNING] * 2
    return lows, service.submit(spec_of(gpus=4, run_ms=600_000, priority=5))


def test_a_higher_priority_stops_one_job_and_starts_in_its_room(service: Service) -> None:
    lows, high = a_preemption(service)
    service.run(20_000, each=service.check)
    states = [service.job(low).state for low in lows]
    assert service.job(high).state is JobState.RUNNING
    assert sorted(states) == [JobState.QUEUED, JobState.RUNNING]
    stopped = next(low for low in lows if service.job(low).state is JobState.QUEUED)
    reason = service.job(stopped).reason
    assert reason is not None
    assert reason.code is ReasonCode.PREEMPTED
    assert not service.plane.world.claims
    assert service.job(stopped).queued_ms == stopped.queued_ms, "who was preempted keeps its place"


def test_a_claim_survives_a_restart_of_the_control_plane(service: Service) -> None:
    _, high = a_preemption(service)
    while not service.plane.world.claims:
        service.round()
        service.plane.world.catch_up()
    service.restart()
    assert {claim.job for claim in service.plane.world.claims.values()} == {high.id}
    other = service.submit(spec_of(gpus=4, run_ms=600_000, priority=5))
    service.run(20_000, each=service.check)
    assert service.job(high).state is JobState.RUNNING
    assert not service.plane.world.claims or all(claim.job == other.id for claim in service.plane.world.claims.values())


def test_a_claim_goes_with_the_job_that_it_is_for(service: Service) -> None:
    _, high = a_preemption(service)
    while not service.plane.world.claims:
        service.round()
        service.plane.world.catch_up()
    service.cancel(high)
    service.run(20_000, each=service.check)
    assert not service.plane.world.claims
    assert service.free_gpus() == 0, "who was stopped for nothing runs again"


def test_claims_are_stale_after_their_time_and_without_their_job(service: Service) -> None:
    _, high = a_preemption(service)
    while not service.plane.world.claims:
        service.round()
        service.plane.world.catch_up()
    claims = tuple(service.plane.world.claims.values())
    now_ms = service.clock.now_ms()
    assert not stale_claims(claims, {high.id: service.job(high)}, now_ms)
    assert stale_claims(claims, {}, now_ms) == claims
    assert stale_claims(claims, {high.id: service.job(high)}, claims[0].expires_ms) == claims

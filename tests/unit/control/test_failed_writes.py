"""What the reconcile step owes is owed until its write has succeeded: a full disk at the wrong moment loses no deadline."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from serving import Service, spec_of
from shoal.base.errors import Unavailable
from shoal.model.job import CancelMode, JobState
from shoal.model.values import ArrayList, Duration


@pytest.fixture
def service():
    service = Service()
    service.add_node("n1")
    service.run(100)
    yield service
    service.close()


def refused(*_: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(Unavailable("the disk is full", retry_after_ms=100))
    return future


def test_a_deadline_whose_write_failed_comes_true_once_writes_go_through(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    job = service.submit(spec_of(run_ms=3_600_000, time=Duration(1_000)))
    service.run(500)
    assert service.job(job).state is JobState.RUNNING
    with monkeypatch.context() as full:
        full.setattr(service.plane.lanes, "ask", refused)
        for _ in range(20):
            service.plane.step_all(service.clock.now_ms())
            service.clock.advance(100)
    service.run_until_ended(job, within_ms=10_000)
    assert service.job(job).state is JobState.TIMEOUT


def test_an_arrays_cancel_reaches_the_elements_whose_write_failed(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    array = service.submit(spec_of(run_ms=3_600_000, array=ArrayList.parse("0-3")))
    service.run(1_000)
    service.cancel(array, CancelMode.FORCE)
    with monkeypatch.context() as full:
        full.setattr(service.plane.lanes, "ask", refused)
        for _ in range(5):
            service.plane.step_all(service.clock.now_ms())
            service.clock.advance(100)
    service.run(10_000)
    assert service.job(array).state is JobState.CANCELLED

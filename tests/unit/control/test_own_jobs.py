"""A member changes what is his own; another's job needs a maintainer, and is told so with its owner. Looking is free to both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from serving import ANNA, Service, spec_of
from shoal.base.errors import Forbidden
from shoal.control import jobs
from shoal.control.access import Caller
from shoal.control.jobs import CancelAsk
from shoal.control.terminals import open_terminal
from shoal.model.job import CancelMode, JobState
from shoal.model.wire import ExecRequest, JobPatch

BEN = Caller(principal="user/ben", project="default", role="member")
CHIEF = Caller(principal="user/chief", project="default", role="maintainer")
Verb = Callable[[Service, Caller, str], Future[Any] | Any]

VERBS: dict[str, Verb] = {
    "cancelling": lambda s, who, ref: jobs.cancel_job(s.plane, who, "default", ref, CancelAsk(mode=CancelMode.GRACEFUL)),
    "holding": lambda s, who, ref: jobs.hold_job(s.plane, who, "default", ref),
    "releasing": lambda s, who, ref: jobs.release_job(s.plane, who, "default", ref),
    "requeueing": lambda s, who, ref: jobs.requeue_job(s.plane, who, "default", ref),
    "resizing": lambda s, who, ref: jobs.resize_job(s.plane, who, "default", ref, 1),
    "changing": lambda s, who, ref: jobs.update_job(s.plane, who, "default", ref, JobPatch(priority=3)),
    "opening a terminal in": lambda s, who, ref: open_terminal(s.plane, who, "default", ref, ExecRequest(command=("true",))),
}


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    service.add_node("n1")
    service.run(100)
    yield service
    service.close()


@pytest.mark.parametrize("what", VERBS)
def test_anothers_job_is_left_alone(service: Service, what: str) -> None:
    job = service.submit(spec_of(run_ms=60_000))
    service.run(500)
    before = service.store.version()
    with pytest.raises(Forbidden, match=f"{what} job {job.address} of user/anna needs the role maintainer; user/ben has member"):
        VERBS[what](service, BEN, job.id)
    assert service.store.version() == before
    assert service.job(job).state is JobState.RUNNING
    assert jobs.get_job(service.plane, BEN, "default", job.id).id == job.id
    jobs.why_job(service.plane, BEN, "default", job.id)


def test_a_maintainer_and_the_owner_may(service: Service) -> None:
    for who in (CHIEF, ANNA):
        job = service.submit(spec_of(run_ms=60_000))
        service.run(500)
        assert service.settle(VERBS["changing"](service, who, job.id)).priority == 3
        service.settle(VERBS["cancelling"](service, who, job.id))
        service.run_until_ended(job)

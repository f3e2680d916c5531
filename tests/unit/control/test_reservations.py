"""Reservations as people meet them through the plane: rights, rules, overlaps, what the scheduler makes of them, what nodes show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from serving import ANNA, SYSTEM, Service, spec_of
from shoal.base.errors import Conflict, Forbidden, Invalid, NotFound, VersionConflict
from shoal.control import jobs, nodes, reservations
from shoal.model.job import JobState
from shoal.model.reason import ReasonCode
from shoal.model.reservation import ReservationSpec
from shoal.model.values import Duration
from shoal.model.wire import ReservationView

HOUR_MS = 3_600_000


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    service.add_node("n1", 2)
    service.run(100)
    yield service
    service.close()


def make(service: Service, name: str = "firmware", *, hours: tuple[int, int] = (1, 3), **fields: Any) -> ReservationView:
    now_ms, caller = service.clock.now_ms(), fields.pop("caller", SYSTEM)
    where = {} if fields.keys() & {"pool", "domain", "nodes"} else {"nodes": ("n1",)}
    spec = ReservationSpec(start_ms=now_ms + hours[0] * HOUR_MS, end_ms=now_ms + hours[1] * HOUR_MS, **where, **fields)
    view: ReservationView = service.settle(reservations.set_reservation(service.plane, caller, name, spec))
    return view


def test_who_would_run_into_it_waits_until_it_is_deleted(service: Service) -> None:
    make(service, reason="new firmware")
    long = service.submit(spec_of(gpus=1, time=Duration(2 * HOUR_MS)))
    service.run(1_000)
    assert service.job(long).state is JobState.QUEUED
    why = jobs.why_job(service.plane, ANNA, "default", str(service.job(long).number))
    assert why.reasons[0].code is ReasonCode.MAINTENANCE
    (window,) = nodes.get_node(service.plane, ANNA, "n1").reservations
    assert (window.name, window.reason, window.end_ms - window.start_ms) == ("firmware", "new firmware", 2 * HOUR_MS)
    service.settle(reservations.delete_reservation(service.plane, SYSTEM, "firmware"))
    service.run(1_000)
    assert service.job(long).state is not JobState.QUEUED


def test_it_is_there_again_after_a_restart_of_the_plane(service: Service) -> None:
    made = make(service)
    service.restart()
    assert service.plane.store.snapshot().reservations[0].id == made.name
    assert [view.name for view in reservations.list_reservations(service.plane)] == ["firmware"]


def test_overlapping_ones_are_refused_and_the_message_names_the_other_and_the_node(service: Service) -> None:
    make(service)
    with pytest.raises(Conflict, match="reservation 'firmware' has n1 in an overlapping window"):
        make(service, "again", hours=(2, 4), pool="default")
    with pytest.raises(Conflict, match=r"has n1 in an overlapping window, 20\d\d-\d\d-\d\dT\d\d:\d\dZ to 20"):
        make(service, "again", hours=(2, 4), pool="default")
    (firmware,) = reservations.list_reservations(service.plane)
    with pytest.raises(VersionConflict, match="there is a reservation 'firmware' already, 20"):
        service.settle(reservations.set_reservation(service.plane, SYSTEM, "firmware", firmware.spec, if_version=0))
    make(service, "later", hours=(3, 4))
    with pytest.raises(Conflict, match="'firmware'"):
        make(service, "nightly", hours=(-22, -20), repeat="daily")
    make(service, "elsewhere", hours=(1, 3), domain="rack=none")
    with pytest.raises(Conflict, match="these nodes"):
        make(service, "there-too", hours=(1, 3), domain="rack=none")


def test_what_could_not_work_is_refused_with_each_rule(service: Service) -> None:
    for fields, words in (
        ({"nodes": ("n9",)}, "there is no node n9"),
        ({"nodes": ()}, "exactly one of nodes, pool and domain"),
        ({"domain": "rack"}, "level=name"),
        ({"hours": (3, 1)}, "ends before it begins"),
        ({"hours": (-3, -1)}, "has passed already"),
        ({"hours": (1, 25), "repeat": "daily"}, "shorter than its period"),
    ):
        with pytest.raises(Invalid, match=words):
            make(service, **fields)
    with pytest.raises(Invalid, match="lower-case letters"):
        make(service, "No Name")


def test_only_an_admin_of_everything_may_and_a_change_says_what_it_was_made_on(service: Service) -> None:
    with pytest.raises(Forbidden):
        make(service, caller=ANNA)
    made = make(service)
    with pytest.raises(VersionConflict):
        service.settle(reservations.set_reservation(service.plane, SYSTEM, "firmware", made.spec, if_version=0))
    with pytest.raises(VersionConflict):
        service.settle(reservations.delete_reservation(service.plane, SYSTEM, "firmware", if_version=made.version + 1))
    with pytest.raises(NotFound):
        service.settle(reservations.delete_reservation(service.plane, SYSTEM, "other"))


def test_nodes_on_which_somebody_works_are_named(service: Service) -> None:
    running = service.submit(spec_of(gpus=1, run_ms=60_000))
    service.run(1_000)
    assert service.job(running).state is JobState.RUNNING
    assert make(service).busy == ("n1",)

"""Reservations of nodes: their operations, which `table` takes in, and their handlers."""

from __future__ import annotations

from shoal.api.operations import Answer, Call, Operation
from shoal.api.parts import etag_headers, if_match_of
from shoal.control import reservations
from shoal.model.reservation import ReservationSpec
from shoal.model.wire import ReservationView

_VERSIONED = {"If-Match": "The ETag of the version that was read.", "If-None-Match": "`*`: it must not exist yet."}
_ETAG = {"ETag": "The record's version."}


async def list_reservations(call: Call) -> Answer:
    return Answer(reservations.list_reservations(call.service.plane))


async def get_reservation(call: Call) -> Answer:
    view = reservations.get_reservation(call.service.plane, call.path["name"])
    return Answer(view, headers=etag_headers(view.version))


async def set_reservation(call: Call) -> Answer:
    wanted = if_match_of(call)
    future = reservations.set_reservation(call.service.plane, call.caller, call.path["name"], call.body, if_version=wanted)
    view: ReservationView = await call.service.settle(future)
    return Answer(view, headers=etag_headers(view.version))


async def delete_reservation(call: Call) -> Answer:
    wanted = if_match_of(call)
    await call.service.settle(reservations.delete_reservation(call.service.plane, call.caller, call.path["name"], if_version=wanted))
    return Answer()


RESERVATIONS = (
    Operation(
        id="reservations.list",
        method="GET",
        path="/v1/reservations",
        handler=list_reservations,
        need="viewer",
        summary="List reservations of nodes with their next windows",
        answer=tuple[ReservationView, ...],
    ),
    Operation(
        id="reservations.get",
        method="GET",
        path="/v1/reservations/{name:name}",
        handler=get_reservation,
        need="viewer",
        summary="One reservation",
        answer=ReservationView,
        answer_headers=_ETAG,
    ),
    Operation(
        id="reservations.set",
        method="PUT",
        path="/v1/reservations/{name:name}",
        handler=set_reservation,
        need="admin",
        summary="Make or change a reservation",
        description="No job starts on its nodes that would still run when a window begins, unless the reservation is for it. What runs "
        "already is not stopped. One that overlaps another on a node is refused with a conflict.",
        body=ReservationSpec,
        takes="json",
        answer=ReservationView,
        request_headers=_VERSIONED,
        answer_headers=_ETAG,
    ),
    Operation(
        id="reservations.delete",
        method="DELETE",
        path="/v1/reservations/{name:name}",
        handler=delete_reservation,
        need="admin",
        summary="Delete a reservation: its nodes are everybody's again",
        gives="none",
        status=204,
        request_headers={"If-Match": _VERSIONED["If-Match"]},
    ),
)

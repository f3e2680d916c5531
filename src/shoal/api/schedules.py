"""Schedules of a project: their operations, which `table` takes in, and their handlers."""

from __future__ import annotations

from shoal.api.operations import Answer, Call, Operation
from shoal.api.parts import etag_headers, if_match_of
from shoal.control import schedules
from shoal.model.schedule import Schedule, ScheduleSpec

_PATH = "/v1/projects/{project:name}/schedules"
_VERSIONED = {"If-Match": "The ETag of the version that was read.", "If-None-Match": "`*`: it must not exist yet."}
_ETAG = {"ETag": "The record's version; every run moves it."}


async def list_schedules(call: Call) -> Answer:
    return Answer(schedules.list_schedules(call.service.plane, call.caller, call.project))


async def get_schedule(call: Call) -> Answer:
    found = schedules.get_schedule(call.service.plane, call.caller, call.project, call.path["name"])
    return Answer(found, headers=etag_headers(found.version))


async def set_schedule(call: Call) -> Answer:
    wanted = if_match_of(call)
    plane, name = call.service.plane, call.path["name"]
    made: Schedule = await call.service.settle(schedules.set_schedule(plane, call.caller, call.project, name, call.body, if_version=wanted))
    return Answer(made, headers=etag_headers(made.version))


async def delete_schedule(call: Call) -> Answer:
    wanted = if_match_of(call)
    plane, name = call.service.plane, call.path["name"]
    await call.service.settle(schedules.delete_schedule(plane, call.caller, call.project, name, if_version=wanted))
    return Answer()


SCHEDULES = (
    Operation(
        id="schedules.list",
        method="GET",
        path=_PATH,
        handler=list_schedules,
        need="viewer",
        summary="List jobs that are submitted again and again, with their last runs",
        answer=tuple[Schedule, ...],
    ),
    Operation(
        id="schedules.get",
        method="GET",
        path=_PATH + "/{name:name}",
        handler=get_schedule,
        need="viewer",
        summary="One schedule",
        answer=Schedule,
        answer_headers=_ETAG,
    ),
    Operation(
        id="schedules.set",
        method="PUT",
        path=_PATH + "/{name:name}",
        handler=set_schedule,
        need="member",
        summary="Make or change a schedule; pause and resume it",
        description="The job is checked as if it were submitted now, and is submitted as the caller at each time. A time is submitted "
        "once, whatever fails in between; one that is too late is written down as missed.",
        body=ScheduleSpec,
        takes="json",
        answer=Schedule,
        request_headers=_VERSIONED,
        answer_headers=_ETAG,
    ),
    Operation(
        id="schedules.delete",
        method="DELETE",
        path=_PATH + "/{name:name}",
        handler=delete_schedule,
        need="member",
        summary="Delete a schedule; its jobs stay",
        gives="none",
        status=204,
        request_headers={"If-Match": _VERSIONED["If-Match"]},
    ),
)

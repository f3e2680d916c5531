"""
Jobs by what people type: a number (`12`), an array element (`12_3`) or an id. The world first, the store for what has left it; an
element that has no record yet is shown as it will be born.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.control.access import Caller, need, see_job
from shoal.control.elements import unborn_element
from shoal.model.job import Job

if TYPE_CHECKING:
    from shoal.control.plane import Plane


def find_job(plane: Plane, caller: Caller, project: str, ref: str) -> Job:
    """The job `ref` of a project that the caller may see. Raises NotFound, in the same words for what is not there and not theirs."""
    return see_job(caller, _look_up(plane, project, ref), project, ref)


def find_job_to_change(plane: Plane, caller: Caller, project: str, ref: str, what: str) -> Job:
    """As `find_job`, for `what` ("cancelling"): one's own job, or anybody's for a maintainer. Raises Forbidden for another's."""
    job = find_job(plane, caller, project, ref)
    if job.owner != caller.principal:
        need(caller, "maintainer", f"{what} job {job.address} of {job.owner}")
    return job


def _look_up(plane: Plane, project: str, ref: str) -> Job | None:
    plane.world.catch_up()
    known = plane.world.job_numbered(int(ref)) if ref.isascii() and ref.isdigit() and len(ref) < 19 else plane.world.job(ref)
    if known is not None:
        return known if known.project == project else None
    return plane.store.find_job(project, ref) or unborn_element(plane, project, ref)

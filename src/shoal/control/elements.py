"""
Elements of arrays that have no record yet (`model.array`): found by name, and brought to birth when something happens to them.

Births of one array go through its parent's lane, so an element is born once, whoever asks: a plan that starts it, a person who cancels
or holds it by name, a job that depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from shoal.base.errors import Conflict
from shoal.base.units import parse_whole
from shoal.control.answers import then
from shoal.control.lanes import JobSubject
from shoal.lifecycle.array import bear
from shoal.model.array import element_of, is_unborn, place_in_array, position_of
from shoal.model.change import ChangeSet
from shoal.model.job import CancelMode, Job
from shoal.model.snapshot import Picture

if TYPE_CHECKING:
    from shoal.control.plane import Plane


def unborn_element(plane: Plane, project: str, ref: str) -> Job | None:
    """The element that `ref` (`12_3`) names, as it will be born; None if it is none, or has a record."""
    number, _, index = (parse_whole(part) for part in _parts(ref))
    if number is None or index is None:
        return None
    parent = plane.world.job_numbered(number) or plane.store.find_job(project, str(number))
    position = position_of(parent, index) if parent is not None and parent.project == project else None
    if parent is None or position is None or not is_unborn(parent, position):
        return None
    return element_of(parent, position)


def _parts(ref: str) -> tuple[str, str, str]:
    number, mark, index = ref.partition("_")
    return number, mark, index if len(ref) < 40 else ""


def bring_to_birth(plane: Plane, element: Job) -> Future[Job]:
    """The element, once it has a record. Raises, by the future, Conflict where its array is cancelled: then it never will have one."""
    array_id, position = place_in_array(element)
    return then(births(plane, array_id, (position,)), partial(_as_born, element))


def births(plane: Plane, array_id: str, positions: Iterable[int]) -> Future[Picture | None]:
    """The array once these of its elements have records, all in one write."""
    wanted = tuple(positions)
    return plane.lanes.ask(JobSubject(plane.world, plane.store, array_id), lambda picture: _judge(picture, wanted))


def _judge(picture: Picture | None, positions: tuple[int, ...]) -> ChangeSet:
    if picture is None or picture.job.cancel is not CancelMode.NONE:
        return ChangeSet()
    return bear(picture.job, positions)


def _as_born(element: Job, array: Picture | None) -> Job:
    if array is None or is_unborn(array.job, place_in_array(element)[1]):
        raise Conflict(f"the array of element {element.address} was cancelled before the element was started; submit it again")
    return element

"""Pictures moved on by ChangeSets, and ChangeSets joined: how several events become one write."""

from __future__ import annotations

from typing import Any

from shoal.model.attempt import Allocation, Attempt
from shoal.model.change import ChangeSet, Record
from shoal.model.job import Job
from shoal.model.snapshot import Picture


def moved(picture: Picture, changes: ChangeSet) -> Picture:
    """
    The picture as it will be when `changes` are written, still at the versions read. Records of other jobs are passed over.

    Allocations of an older attempt than the job's leave it.
    """
    if changes.empty:
        return picture
    job, attempt, members = picture.job, picture.attempt, {a.id: a for a in picture.allocations}
    for record in changes.put:
        if isinstance(record, Job) and record.id == job.id:
            job = record
        elif isinstance(record, Attempt) and record.job == job.id:
            attempt = record
        elif isinstance(record, Allocation) and record.job == job.id:
            members[record.id] = record
    current = tuple(sorted((a for a in members.values() if a.attempt == job.attempt), key=lambda a: a.node_rank))
    return Picture(job=job, attempt=attempt, allocations=current)


def merged(first: ChangeSet, second: ChangeSet) -> ChangeSet:
    """
    Both as one set: of a record written twice the later form counts, at the version that both were read at.

    Only for a `second` that was judged on the picture `moved` by `first`. At most one of them may carry an idempotency key.
    """
    if first.empty or second.empty:
        return second if first.empty else first
    assert first.key is None or second.key is None
    put: dict[tuple[type, str], Record] = {_place(record): record for record in first.put}
    put.update({_place(record): record for record in second.put})
    gone = {_place(record): record for record in (*first.delete, *second.delete)}
    return ChangeSet(
        put=tuple(record for place, record in put.items() if place not in gone),
        delete=tuple(gone.values()),
        events=(*first.events, *second.events),
        commands=(*first.commands, *second.commands),
        key=first.key or second.key,
    )


def _place(record: Any) -> tuple[type, str]:
    return type(record), record.id

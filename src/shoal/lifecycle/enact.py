"""
Carries a plan's decision into records and commands: the step from "should" to "is to be".

`enact_place` raises the attempt's number in the same ChangeSet that claims the devices, so that the number is a fencing token: whatever
an older attempt's member says or does from then on is told apart. The job goes in with the version it was read at; if anything has
happened to it since, the store refuses the whole set and nothing is half-placed.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from shoal.base.errors import Conflict, InvariantViolated
from shoal.lifecycle.job import advance_job
from shoal.lifecycle.layout import GroupLayout, chosen, layout, ranked, task_places
from shoal.lifecycle.resize import join, leave
from shoal.lifecycle.states import JOB, OfJob
from shoal.lifecycle.turn import Turn, job_row
from shoal.model.attempt import HOLDING, Allocation, Attempt
from shoal.model.change import ChangeSet
from shoal.model.command import CommandRow, Prepare
from shoal.model.event import JobEvicted, JobPlaced, JobResized
from shoal.model.job import Job, JobState
from shoal.model.node import Node
from shoal.model.plan import Evict, Move, Place, PlacedMember, Resize
from shoal.model.reason import Reason, ReasonCode
from shoal.model.snapshot import Picture
from shoal.model.wire import LeaseTerms


def enact_place(
    place: Place, job: Job, nodes: Mapping[str, Node], now_ms: int, terms: LeaseTerms, unix_user: str | None = None
) -> ChangeSet:
    """
    The ChangeSet that starts a gang where the plan put it: job STARTING with the next attempt, claims, a Prepare to each node.

    `unix_user` is the one that the owner is mapped to; the job's own `user` wins. The set's size is linear in the gang's nodes: each
    gets its own part and the spec, 2 kB for a node of 8 tasks.
    Raises: Conflict if the job is not QUEUED any more or a node is gone.
    """
    state = JOB.asked(OfJob.PLACE, job.state, job.address)
    missing = [m.node for m in place.members if m.node not in nodes]
    if missing:
        raise Conflict(f"job {job.address} was placed on {', '.join(missing)}, which is gone")
    number = job.attempt + 1
    claims = _claims(place, job, nodes, number, now_ms)
    attempt = Attempt(
        id=f"{job.id}.{number}",
        job=job.id,
        number=number,
        members=tuple(claim.id for claim in claims),
        prepare_by_ms=now_ms + terms.start_deadline_ms,
        predicted=place.predicted,
    )
    message = f"preparing on {len(claims)} nodes"
    preparing = Reason(code=ReasonCode.PREPARING, message=message, since_ms=now_ms, until_ms=attempt.prepare_by_ms)
    started = replace(job, state=state, attempt=number, reason=preparing, started_ms=None, ending=None, outcome=None)
    gpus = sum(len(claim.gpus_touched) for claim in claims)
    placed = JobPlaced(attempt=number, nodes=tuple(claim.node for claim in claims), gpus=gpus, predicted=place.predicted)
    return ChangeSet(
        put=(started, attempt, *claims),
        events=(job_row(job, placed, now_ms, "shoal"),),
        commands=_prepares(started, claims, job.spec.user or unix_user),
    )


def _claims(place: Place, job: Job, nodes: Mapping[str, Node], number: int, now_ms: int) -> tuple[Allocation, ...]:
    groups = {group.name: group for group in layout(job.spec, chosen(job.spec, place))}
    claims: list[Allocation] = []
    rank, group_ranks = 0, dict.fromkeys(groups, 0)
    for node_rank, member in enumerate(place.members):
        if member.group not in groups:
            raise InvariantViolated(f"job {job.address}: placed group {member.group!r} is none of {sorted(groups)}")
        tasks = groups[member.group].tasks_per_node
        claims.append(
            Allocation(
                id=f"{job.id}.{number}.{node_rank}",
                job=job.id,
                job_number=job.number,
                project=job.project,
                queue=job.queue,
                attempt=number,
                node=member.node,
                backend=nodes[member.node].backend,
                node_rank=node_rank,
                group=member.group,
                group_rank=group_ranks[member.group],
                devices=member.devices,
                parts=member.parts,
                gpu_model=place.gpu_model,
                cpu_milli=member.cpu_milli,
                memory_bytes=member.memory_bytes,
                tasks=task_places(rank, tasks, member.devices, member.parts),
                claimed_ms=now_ms,
            )
        )
        rank += tasks
        group_ranks[member.group] += 1
    return tuple(claims)


def _prepares(job: Job, claims: tuple[Allocation, ...], unix_user: str | None, world_size: int | None = None) -> tuple[CommandRow, ...]:
    """A Prepare for each; `world_size` where they join others."""
    joining = world_size is not None
    world_size = world_size if world_size is not None else sum(len(claim.tasks) for claim in claims)
    spec = ranked(job.spec)
    rows = []
    for claim in claims:
        body = Prepare(
            allocation=claim.id,
            job=job.id,
            attempt=job.attempt,
            claim=claim,
            spec=spec,
            address=job.address,
            owner=job.owner,
            unix_user=unix_user,
            world_size=world_size,
            array_index=job.array.index if job.array else None,
            array_count=job.array.count if job.array else None,
            restarts=job.attempt - 1,
            commit_at_once=len(claims) == 1 and not joining,
        )
        rows.append(CommandRow(node=claim.node, backend=claim.backend, body=body))
    return tuple(rows)


def enact_resize(resize: Resize, picture: Picture, nodes: Mapping[str, Node], now_ms: int, terms: LeaseTerms) -> ChangeSet:
    """
    The ChangeSet that gives a running elastic gang these members; empty if it does not run, or has them.

    In place: new members are claimed and told to prepare, those on nodes that are not among `resize.members` are told to stop. By restart:
    it is evicted, and room is kept for it elsewhere (`lifecycle.claims`). `nodes` has those that join.
    Raises: Conflict if a node is gone.
    """
    job, attempt = picture.job, picture.attempt
    if job.state is not JobState.RUNNING or job.spec.elastic is None or attempt is None:
        return ChangeSet()
    if not job.in_place:
        return advance_job(picture, JobEvicted(attempt=job.attempt, reason=resize.reason), now_ms, terms)
    turn = Turn(picture, now_ms, "shoal")
    before = turn.staying
    wanted = {member.node for member in resize.members}
    leaving = [member for member in before if member.node not in wanted]
    if leaving:
        leave(turn, leaving, resize.reason)
    held = {member.node for member in turn.members.values() if member.state in HOLDING}
    coming = tuple(member for member in resize.members if member.node not in held)
    if coming:
        _grow(turn, coming, resize, nodes, terms)
    return turn.changes()


def _grow(turn: Turn, coming: tuple[PlacedMember, ...], resize: Resize, nodes: Mapping[str, Node], terms: LeaseTerms) -> None:
    job, attempt = turn.job, turn.attempt
    assert attempt is not None
    missing = [m.node for m in coming if m.node not in nodes]
    if missing:
        raise Conflict(f"job {job.address} was to grow onto {', '.join(missing)}, which is gone")
    (group,) = layout(job.spec)
    before = len(turn.staying)
    first = attempt.ranks or len(turn.members)
    claims = tuple(_claim(turn, resize, group, member, nodes[member.node].backend, first + at) for at, member in enumerate(coming))
    world_size = (before + len(claims)) * group.tasks_per_node
    join(turn, claims, _prepares(job, claims, job.spec.user, world_size), turn.now_ms + terms.start_deadline_ms)
    turn.say(JobResized(attempt=job.attempt, before=before, after=before + len(claims), reason=resize.reason))


def _claim(turn: Turn, resize: Resize, group: GroupLayout, member: PlacedMember, backend: str, rank: int) -> Allocation:
    """The part of a gang of one group on a node that joins it: node rank and group rank are the same."""
    job = turn.job
    return Allocation(
        id=f"{job.id}.{job.attempt}.{rank}",
        job=job.id,
        job_number=job.number,
        project=job.project,
        queue=job.queue,
        attempt=job.attempt,
        node=member.node,
        backend=backend,
        node_rank=rank,
        group=member.group,
        group_rank=rank,
        devices=member.devices,
        gpu_model=resize.gpu_model,
        cpu_milli=member.cpu_milli,
        memory_bytes=member.memory_bytes,
        tasks=task_places(rank * group.tasks_per_node, group.tasks_per_node, member.devices),
        claimed_ms=turn.now_ms,
        joined=True,
    )


def enact_evict(evict: Evict | Move, picture: Picture, now_ms: int, terms: LeaseTerms) -> ChangeSet:
    """
    The ChangeSet that tells a running gang to give its room to another; empty if it is on its way out already.

    One that is moved is stopped and queued like any other; that it goes on at its new place is the work of its claims (`claims`).
    """
    return advance_job(picture, JobEvicted(attempt=picture.job.attempt, reason=evict.reason), now_ms, terms)

"""
What is wrong with the part of a plan that takes room from others, and with whoever takes room that is kept: for `check`.

    who goes      runs, may be stopped, and goes for somebody who waits and is kept room for; who is moved would start again, keeps as many
                  GPUs as it has, and never are more GPUs moved than the gang gets
    kept room     exists, is kept once, and is free or held by somebody who goes or is going
    claimed room  is given to nobody but the one that it is claimed for
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from shoal.model.attempt import AllocationState
from shoal.model.job import JobState
from shoal.model.node import NodeState
from shoal.model.plan import Evict, Move, Place, PlacedMember, Plan, Reserve, Resize

if TYPE_CHECKING:
    from shoal.scheduling.check import Records

_RUNNING = (JobState.STARTING, JobState.RUNNING)


def clearing_faults(records: Records, plan: Plan) -> Iterator[str]:
    """See module. Costs what the plan touches, and the claims that stand."""
    going = [decision for decision in plan.decisions if isinstance(decision, Evict | Move)]
    shrinking = [decision for decision in plan.decisions if isinstance(decision, Resize) and decision.beneficiary is not None]
    gainers = {decision.beneficiary for decision in (*going, *shrinking)}
    kept = {d.job: d for d in plan.decisions if isinstance(d, Reserve) and d.job in gainers}
    for decision in going:
        yield from _going_faults(records, decision, kept)
    for resize in shrinking:
        gainer = records.jobs.get(resize.beneficiary or "")
        if gainer is None or gainer.state is not JobState.QUEUED or resize.beneficiary not in kept:
            yield f"job {resize.job} is to shrink for {resize.beneficiary}, which is kept no room"
    yield from _move_faults(records, [d for d in going if isinstance(d, Move)], kept)
    yield from _room_faults(records, plan, [*kept.values(), *(d for d in going if isinstance(d, Move))])


def _going_faults(records: Records, decision: Evict | Move, kept: dict[str, Reserve]) -> Iterator[str]:
    job, gainer = records.jobs.get(decision.job), records.jobs.get(decision.beneficiary)
    if job is None or job.state not in _RUNNING:
        yield f"job {decision.job} is to be stopped and does not run"
    elif not job.spec.preemptible:
        yield f"job {job.address} is not preemptible and is to be stopped"
    if gainer is None or gainer.state is not JobState.QUEUED or decision.beneficiary not in kept:
        yield f"job {decision.job} is to be stopped for {decision.beneficiary}, which is kept no room"


def _move_faults(records: Records, moves: list[Move], kept: dict[str, Reserve]) -> Iterator[str]:
    moved: dict[str, int] = {}
    for move in moves:
        job = records.jobs.get(move.job)
        if job is not None and job.spec.interactive:
            yield f"job {job.address} is interactive and is to be moved: it would not start again"
        held = sum(len(allocation.devices) for allocation in records.held_by(move.job))
        if held != _gpus(move.members):
            yield f"job {move.job} holds {held} GPUs and would go on with {_gpus(move.members)}"
        moved[move.beneficiary] = moved.get(move.beneficiary, 0) + held
    for gainer, gpus in moved.items():
        gets = _gpus(kept[gainer].members) if gainer in kept else 0
        if gpus > gets:
            yield f"{gpus} GPUs are moved for job {gainer}, which gets {gets}"


def _room_faults(records: Records, plan: Plan, kept: list[Reserve | Move]) -> Iterator[str]:
    taken: dict[tuple[str, str], str] = {}
    gone = {decision.job for decision in plan.decisions if isinstance(decision, Evict | Move | Resize)}
    placed = [decision for decision in plan.decisions if isinstance(decision, Place)]
    starting = {place.job for place in placed}  # Their claims go with their start, wherever that is.
    standing = [claim for claim in records.claims.values() if claim.job not in starting]
    claimed = {(claim.node, uuid): claim.job for claim in standing for uuid in claim.devices}
    for decision in (*placed, *kept):
        for member in decision.members:
            yield from _device_faults(records, decision, member, gone)
            for uuid in member.devices:
                other = claimed.get((member.node, uuid), decision.job)
                if other != decision.job:
                    yield f"device {uuid} of {member.node} is claimed for job {other}, and would be job {decision.job}'s"
                first = taken.setdefault((member.node, uuid), decision.job)
                if first != decision.job and not (decision.job in starting and first in starting):
                    yield f"device {uuid} of {member.node} is given to job {first} and kept for job {decision.job}"


def _device_faults(records: Records, decision: Place | Reserve | Move, member: PlacedMember, gone: set[str]) -> Iterator[str]:
    """Of kept room: it exists, and who holds it is on the way out. What is placed is looked at by `check` itself."""
    if isinstance(decision, Place):
        return
    node = records.node(member.node)
    if node is None or node.state is not NodeState.READY:
        yield f"node {member.node} takes no work, and room on it is kept for job {decision.job}"
        return
    usable = {device.uuid for device in node.facts.devices if device.broken is None}
    yield from (f"device {uuid} of {node.id} is not there or broken, and is kept" for uuid in member.devices if uuid not in usable)
    for held in records.held_on(member.node):
        holder = records.jobs.get(held.job)
        leaving = held.state is AllocationState.STOPPING  # A member that an elastic gang gives up: the others run on.
        stays = held.job not in gone and not leaving and holder is not None and holder.state in _RUNNING
        for uuid in set(held.devices) & set(member.devices) if stays else ():
            yield f"device {uuid} of {node.id} is kept for job {decision.job}, and job {held.job} holds it and stays"


def _gpus(members: tuple[PlacedMember, ...]) -> int:
    return sum(len(member.devices) for member in members)

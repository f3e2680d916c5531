"""Orders as the control plane gives them, for the agent's tests."""

from __future__ import annotations

from typing import Any

from shoal.agent.environment import Login, Meeting, Places
from shoal.model.attempt import Allocation, TaskPlace
from shoal.model.command import Member, Prepare
from shoal.model.job import JobSpec
from shoal.model.part import DevicePart

JOB = "0198c0de-0000-7000-8000-000000000001"
GPUS = tuple(f"GPU-{i:08x}-0000-0000-0000-000000000000" for i in range(8))


def prepare(spec: JobSpec | None = None, *, nodes: int = 1, node_rank: int = 0, tasks: int = 1, gpus: int = 0, **fields: Any) -> Prepare:
    """A Prepare for one node of a gang; GPUs are split evenly over the node's tasks, as are `parts`."""
    parts: tuple[DevicePart, ...] = fields.pop("parts", ())
    each, pieces = (gpus // tasks, len(parts) // tasks) if tasks else (0, 0)
    places = tuple(
        TaskPlace(
            rank=node_rank * tasks + i,
            local_rank=i,
            devices=GPUS[i * each : (i + 1) * each],
            parts=parts[i * pieces : (i + 1) * pieces],
        )
        for i in range(tasks)
    )
    job = fields.pop("job", JOB)
    claim = Allocation(
        id=f"{job}.1.{node_rank}",
        job=job,
        job_number=12,
        project="default",
        queue="research",
        attempt=1,
        node=f"gpu{node_rank + 1:02d}",
        node_rank=node_rank,
        devices=GPUS[:gpus],
        parts=parts,
        tasks=places,
        cpu_milli=fields.pop("cpu_milli", 0),
        group=fields.pop("group", ""),
    )
    return Prepare(
        allocation=claim.id,
        job=job,
        attempt=1,
        claim=claim,
        spec=spec or JobSpec(name="train", run="true"),
        address=fields.pop("address", "12"),
        owner="user/anna",
        unix_user=fields.pop("unix_user", None),
        world_size=nodes * tasks,
        commit_at_once=nodes == 1,
        **fields,
    )


def members(nodes: int, tasks: int) -> tuple[Member, ...]:
    return tuple(Member(node=f"gpu{i + 1:02d}", tasks=tasks, address=f"10.0.0.{i + 1}") for i in range(nodes))


MEETING = Meeting("10.0.0.1", 23456, members(2, 2))
PLACES = Places("/job/w", "/job", "/h/hosts", "/run/s")
LOGIN = Login("anna", "/home/anna", "/bin/bash", {})

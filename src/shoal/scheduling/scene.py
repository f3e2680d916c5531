"""
All that one cycle judges, as one value: a cycle that can be run again, elsewhere and later, with the same plan to the byte.

What cannot move a plan is left out or masked: attempts, and the texts of jobs (`masked`). Used by what-if questions and by
`shoal debug snapshot` and `replay`.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from shoal.model.job import Job
from shoal.model.snapshot import Snapshot
from shoal.scheduling.board import Board
from shoal.scheduling.policy import Policy

SCENE_FORM: Final = 1
"""Raised when a file of before would be read as something else."""
MASK: Final = "***"


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """See module. `dirty` has the devices by node that somebody gone is still on; `seed` is that of the cycle's random stream."""

    form: int = SCENE_FORM
    shoal: str = ""
    """The version of Shoal that wrote it."""
    now_ms: int
    seed: int = 0
    policy: Policy = Policy()
    dirty: dict[str, tuple[str, ...]] = {}
    snapshot: Snapshot


def board_of(scene: Scene) -> Board:
    """A board of its own, built anew. Cost: all records."""
    board = Board.of(scene.snapshot)
    for node, devices in sorted(scene.dirty.items()):
        board.mark_dirty(node, devices)
    board.use_policy(scene.policy)
    return board


def masked(scene: Scene) -> Scene:
    """The same without what no cycle looks at: attempts, what jobs run, values of their variables and labels, names of their secrets."""
    jobs = tuple(_masked(job) for job in scene.snapshot.jobs)
    return replace(scene, snapshot=replace(scene.snapshot, jobs=jobs, attempts=()))


def _masked(job: Job) -> Job:
    spec = job.spec
    return replace(
        job,
        spec=replace(
            spec,
            run=MASK if spec.run is not None else None,
            setup=MASK if spec.setup is not None else None,
            groups=tuple(
                replace(group, run=MASK if group.run is not None else None, env=dict.fromkeys(group.env, MASK)) for group in spec.groups
            ),
            env=dict.fromkeys(spec.env, MASK),
            labels=dict.fromkeys(spec.labels, MASK),
            secrets=dict.fromkeys(spec.secrets, MASK),
        ),
    )

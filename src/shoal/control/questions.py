"""
What-if questions, and the picture of a cycle as a file: both look at records alone and write nothing.

Called by `api`, off its loop. One at a time: each reads the whole store and builds boards of its own.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shoal.base import limits
from shoal.base.errors import Invalid
from shoal.control.access import Caller, need, need_all_projects, see_project
from shoal.control.finding import find_job
from shoal.control.nodes import get_node
from shoal.control.queues import get_queue
from shoal.control.submissions import Submission, submit_job
from shoal.model.codec import encode_json
from shoal.model.job import Job, JobSpec
from shoal.model.what_if import WhatIf, WhatIfAsk
from shoal.scheduling.scene import masked
from shoal.scheduling.what_if import Supposed, what_if

if TYPE_CHECKING:
    from shoal.control.plane import Plane

_one_at_a_time = threading.BoundedSemaphore(limits.WHAT_IF_AT_ONCE)


def ask_what_if(plane: Plane, caller: Caller, project: str, ask: WhatIfAsk) -> WhatIf:
    """
    What would go otherwise now if all of `ask` held. The caller hears of jobs that he sees; others are counted.

    Raises: NotFound for a job, queue or node that is not there or not his; Invalid for a job that could not be submitted, and for more
    than limits.WHAT_IF_JOBS_MAX of a kind.
    """
    see_project(plane, caller, project)
    for kind, count in (("jobs", len(ask.submit)), ("cancels", len(ask.cancel)), ("queues", len(ask.quotas))):
        _bound(kind, count)
    _bound("nodes", len(ask.drain) + len(ask.back))
    submit = tuple(_submitted(plane, caller, project, spec, at) for at, spec in enumerate(ask.submit))
    for name in ask.quotas:
        get_queue(plane, caller, name)
    for node in (*ask.drain, *ask.back):
        get_node(plane, caller, node)
    supposed = Supposed(
        submit=submit,
        cancel=frozenset(find_job(plane, caller, project, ref).id for ref in ask.cancel),
        quotas=ask.quotas,
        drain=frozenset(ask.drain),
        back=frozenset(ask.back),
    )
    with _one_at_a_time:
        scene = plane.schedule.scene(plane.clock.now_ms())
        first = 1 + max((job.number for job in scene.snapshot.jobs), default=0)
        numbered = tuple(replace(job, number=first + at) for at, job in enumerate(supposed.submit))
        return what_if(scene, supposed._replace(submit=numbered), lambda job: caller.project in (None, job.project))


def _bound(kind: str, count: int) -> None:
    if count > limits.WHAT_IF_JOBS_MAX:
        raise Invalid(f"{count} {kind} in one question, at most {limits.WHAT_IF_JOBS_MAX} are taken; play a scenario: shoal simulate")


def _submitted(plane: Plane, caller: Caller, project: str, spec: JobSpec, at: int) -> Job:
    """The record that a submit would write; its number comes later."""
    if spec.depends_on:
        raise Invalid("a job that depends on others would wait for them, whatever else holds; ask without depends_on")
    checked = submit_job(plane, caller, Submission(project=project, spec=spec, dry_run=True)).result(0)
    return replace(checked.job, id=f"what-if-{at:03}")


def debug_snapshot(plane: Plane, caller: Caller) -> bytes:
    """All that a cycle would judge now (`scheduling.scene`), as JSON; what jobs run and their variables and secrets are masked."""
    need(caller, "admin", "reading a snapshot of everybody's jobs")
    need_all_projects(caller, "reading a snapshot of everybody's jobs")
    with _one_at_a_time:
        return encode_json(masked(plane.schedule.scene(plane.clock.now_ms())))

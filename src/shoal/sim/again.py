"""
A cycle run again from a file that `shoal debug snapshot` wrote: the same plan to the byte, by the same functions, without a server.

Beside the plan it can be asked what `shoal why` would have said of a job, and what the same cycle decides under another policy.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from shoal.base.errors import Invalid, NotFound
from shoal.base.rng import Rng
from shoal.model.codec import decode_json, decode_plain
from shoal.model.plan import Plan, Wait
from shoal.model.wire import Explanation
from shoal.scheduling.check import check_plan
from shoal.scheduling.cycle import schedule
from shoal.scheduling.explain import explain_job
from shoal.scheduling.policy import Policy
from shoal.scheduling.scene import SCENE_FORM, Scene, board_of


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """One decision in a line."""

    job: str
    """As people name it: project/number."""
    what: str
    """place, reserve, evict, resize, move or wait."""
    where: tuple[str, ...] = ()
    """Nodes, each once."""
    start_ms: int | None = None
    """Of a reservation."""
    words: str = ""


class Rerun(msgspec.Struct, frozen=True, kw_only=True):
    """A cycle that was run again. `faults` are rules that its plan breaks: there should be none, ever."""

    shoal: str
    """The version that took the snapshot."""
    at_ms: int
    version: int
    nodes: int
    pending: int
    running: int
    decided: tuple[Decided, ...]
    plan: Plan
    why: tuple[Explanation, ...] = ()
    faults: tuple[str, ...] = ()


def read_scene(raw: bytes, source: str) -> Scene:
    """What a file holds. Raises Invalid for one that is no snapshot, or of a form that this version does not read."""
    plain = decode_plain(raw)
    if not isinstance(plain, dict) or "snapshot" not in plain:
        raise Invalid(f"{source} is no snapshot of a cycle; `shoal debug snapshot {source}` writes one")
    if plain.get("form") != SCENE_FORM:
        written = plain.get("shoal") or "another version"
        raise Invalid(f"{source} has form {plain.get('form')!r}, written by Shoal {written}; this version reads form {SCENE_FORM}")
    return decode_json(raw, Scene)


def run_again(scene: Scene, policy: Policy | None = None, why: tuple[str, ...] = ()) -> Rerun:
    """
    The cycle of a scene, and why the jobs `why` wait (by address, number or id). Raises NotFound for a job that the scene has not.

    Cost: a board built anew, a cycle, and an explanation per job.
    """
    played = scene if policy is None else replace(scene, policy=policy)
    board = board_of(played)
    asked = [_find(scene, ref) for ref in why]
    plan = schedule(board, played.policy, played.now_ms, Rng(played.seed))
    faults = check_plan(board.records, plan)
    told = [explain_job(board, played.policy, job_id, played.now_ms) for job_id in asked]
    return Rerun(
        shoal=scene.shoal,
        at_ms=scene.now_ms,
        version=scene.snapshot.version,
        nodes=len(scene.snapshot.nodes),
        pending=len(board.pending),
        running=len(board.held_by),
        decided=_decided(scene, plan),
        plan=plan,
        why=tuple(answer for answer in told if answer is not None),
        faults=tuple(faults),
    )


def _find(scene: Scene, ref: str) -> str:
    found = [job.id for job in scene.snapshot.jobs if ref in (job.id, job.address, str(job.number))]
    if not found:
        raise NotFound(f"the snapshot has no job {ref!r} that had not ended; it has {len(scene.snapshot.jobs)} jobs")
    if len(found) > 1:
        raise Invalid(f"{len(found)} projects have a job {ref}; write project/{ref}")
    return found[0]


def _decided(scene: Scene, plan: Plan) -> tuple[Decided, ...]:
    names = {job.id: job.address for job in scene.snapshot.jobs}
    rows = []
    for decision in plan.decisions:
        reason = getattr(decision, "reason", None)
        beneficiary = getattr(decision, "beneficiary", None)
        words = reason.message if reason is not None else ""
        if beneficiary:
            words = f"for job {names.get(beneficiary, beneficiary)}{': ' + words if words else ''}"
        rows.append(
            Decided(
                job=names.get(decision.job, decision.job),
                what="wait" if isinstance(decision, Wait) else type(decision).__name__.lower(),
                where=tuple(dict.fromkeys(member.node for member in getattr(decision, "members", ()))),
                start_ms=getattr(decision, "start_ms", None),
                words=words,
            )
        )
    return tuple(rows)

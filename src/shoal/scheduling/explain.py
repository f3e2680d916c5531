"""
`shoal why`: the answer for one job, from the same picture and by the same steps as the cycle, so that it cannot disagree with it.

A job that waits gets every cause that keeps it, the first one as headline: what keeps it from being looked at at all (held, times,
dependencies), then limits and quota, then room, then only its place in the queue. Each cause is a `Reason` with numbers; holders,
blockers and hints are added here and nowhere else, because they cost more than a cycle should pay.
"""

from __future__ import annotations

import heapq
from itertools import islice

from msgspec.structs import replace

from shoal.base import limits
from shoal.base.errors import NotFound
from shoal.base.units import format_duration_ms
from shoal.model.attempt import Allocation, AllocationState
from shoal.model.job import LIVE, Job, JobState
from shoal.model.reason import Reason, ReasonCode
from shoal.model.wire import Explanation
from shoal.scheduling.admit import Gate, dependency_met
from shoal.scheduling.asks import shape_of
from shoal.scheduling.blockers import addresses, holders_of, listed, tree_of
from shoal.scheduling.board import Board
from shoal.scheduling.brief import time_reasons
from shoal.scheduling.counterfactual import Changes, changes_for, hints_of, over_before
from shoal.scheduling.cycle import Ahead, Forecast, look_ahead
from shoal.scheduling.expected import expected_reason, unknown_hint
from shoal.scheduling.limited import limit_reasons
from shoal.scheduling.maintenance import window_reason
from shoal.scheduling.options import Option, options_for
from shoal.scheduling.order import Candidate
from shoal.scheduling.pending import Filed
from shoal.scheduling.policy import Policy
from shoal.scheduling.shortfall import nearest, never_reason, quota_reason, room_reason, unknown_queue_reason
from shoal.scheduling.slowdown import predict
from shoal.scheduling.standing import is_closed
from shoal.scheduling.unstoppable import patience_hints, unstoppable_hints

_WITHOUT_FORECAST = frozenset(
    {
        ReasonCode.UNKNOWN_QUEUE,
        ReasonCode.QUEUE_CLOSED,
        ReasonCode.ARRAY_LIMIT,
        ReasonCode.QUEUE_JOBS_LIMIT,
        ReasonCode.USER_JOBS_LIMIT,
        ReasonCode.USER_GPUS_LIMIT,
        ReasonCode.QUEUE_BUDGET,
        ReasonCode.USER_BUDGET,
        ReasonCode.QUOTA_NEVER,
        ReasonCode.FLEET_NEVER,
    }
)
"""Causes that no end of another job that is known takes away."""
_LIMIT_CODES = frozenset(
    {
        *(ReasonCode.ARRAY_LIMIT, ReasonCode.QUEUE_JOBS_LIMIT, ReasonCode.USER_JOBS_LIMIT, ReasonCode.USER_GPUS_LIMIT),
        *(ReasonCode.QUEUE_BUDGET, ReasonCode.USER_BUDGET),
    }
)
"""Causes beside which no change of room or quota would start it."""
_ROOM_CODES = frozenset({ReasonCode.RESOURCES, ReasonCode.FRAGMENTATION, ReasonCode.TOPOLOGY, ReasonCode.AVOIDED})


def explain_job(board: Board, policy: Policy, job_id: str, now_ms: int) -> Explanation:
    """
    Where a live job is, or why it waits and what would start it.

    Raises: NotFound for a job that is not live; how one ended is its own record's to say.
    """
    job = board.jobs.get(job_id)
    if job is None:
        raise NotFound(f"job {job_id} is not among the live ones")
    board.begin_cycle(now_ms)
    if job.is_array:
        return _explain_array(board, policy, job, now_ms)
    if job.state in LIVE:
        return _explain_live(board, job, now_ms)
    return _explain_waiting(board, policy, job, now_ms)


def _answer(job: Job, headline: str, now_ms: int, reasons: tuple[Reason, ...] = ()) -> Explanation:
    hints = tuple(dict.fromkeys(hint for reason in reasons for hint in reason.hints))
    return Explanation(job=job.address, state=job.state, headline=headline, reasons=reasons, queue=job.queue, hints=hints, as_of_ms=now_ms)


# --- jobs that have started ---------------------------------------------------------------------------------------------------
def _explain_live(board: Board, job: Job, now_ms: int) -> Explanation:
    held = [board.allocations[held] for held in board.held_by.get(job.id, ())]
    gpus, parts = sum(len(allocation.devices) for allocation in held), sum(len(allocation.parts) for allocation in held)
    nodes = list(dict.fromkeys(allocation.node for allocation in sorted(held, key=lambda a: a.node_rank)))
    where = f" with {gpus} GPU{'' if gpus == 1 else 's'}" if gpus else ""
    where += f" with {parts} part{'' if parts == 1 else 's'} of GPUs" if parts else ""
    verb = {JobState.STARTING: "is being started", JobState.RUNNING: "runs"}.get(job.state, "is ending")
    if _is_saving(job):
        verb = "gives its room away and is left time to save,"
    place = f"{verb} on {listed(nodes)}{where}" if nodes else f"{verb}, and holds nothing any more"
    headline = f"attempt {job.attempt} {place}{_saved(job, now_ms)}"
    answer = _answer(job, headline, now_ms, (job.reason,) if job.reason else ())
    predicted = _predicted(board, job, held)
    return replace(answer, headline=f"{headline}; {predicted}") if predicted else answer


def _is_saving(job: Job) -> bool:
    """Its reason says until when it may (`lifecycle.saving`)."""
    return job.state is JobState.PREEMPTING and job.reason is not None and job.reason.until_ms is not None


def _saved(job: Job, now_ms: int) -> str:
    """What a stop now would lose, as far as the job has said it; empty for one that says nothing."""
    if job.checkpointed_ms is None or job.started_ms is None:
        return ""
    if job.checkpointed_ms < job.started_ms:
        return "; nothing saved in this attempt yet"
    return f"; saved {format_duration_ms(max(0, now_ms - job.checkpointed_ms) // 1_000 * 1_000)} ago"


def _predicted(board: Board, job: Job, held: list[Allocation]) -> str:
    """What its place costs a mesh; empty where that is nothing, or a member's node is not there any more."""
    mesh = job.spec.topology.mesh if job.spec.topology is not None else {}
    columns = board.columns
    if not mesh or any(allocation.node not in columns.row for allocation in held):
        return ""
    members = []
    for allocation in sorted(held, key=lambda a: a.node_rank):
        row = columns.row[allocation.node]
        members.append((row, columns.layouts[row].in_order(columns.mask_of(row, allocation.devices))))
    return predict(columns, mesh.get("tp", 1), held[0].gpu_model, members).text if members else ""


def _explain_array(board: Board, policy: Policy, job: Job, now_ms: int) -> Explanation:
    """An array is answered by its elements: how many run, and why the first of those that wait does."""
    mine = sorted((e.array.index, e.id) for e in board.jobs.values() if e.array is not None and e.array.array_id == job.id)
    waiting = [element for _, element in mine if board.jobs[element].state not in LIVE]
    behind = board.unborn_behind(job.id)
    running = len(mine) - len(waiting)
    headline = f"{running} of {len(mine) + behind} elements that have not ended are running, {len(waiting) + behind} wait"
    if not waiting:
        return _answer(job, headline, now_ms)
    first = explain_job(board, policy, waiting[0], now_ms)
    return replace(first, job=job.address, state=job.state, headline=f"{headline}; {first.job}: {first.headline}")


# --- jobs that wait -----------------------------------------------------------------------------------------------------------
def _explain_waiting(board: Board, policy: Policy, job: Job, now_ms: int) -> Explanation:
    gated = _gate_reasons(board, job, now_ms)
    if gated:
        return _answer(job, gated[0].message, now_ms, gated)
    filed = board.pending.filed(job.id)
    if filed is None:
        return _answer(job, "is being cancelled", now_ms)
    position, before = _place_in_queue(board, filed)
    if job.id in board.claims_by:
        freeing = (_claimed_reason(board, job, now_ms),)
        return replace(_answer(job, freeing[0].message, now_ms, freeing), position=position, ahead=before)
    reasons = _pending_reasons(board, policy, job)
    if any(reason.code is ReasonCode.ARRAY_LIMIT for reason in reasons):
        return replace(_answer(job, reasons[0].message, now_ms, reasons), position=position, ahead=before)
    if any(reason.code in _WITHOUT_FORECAST for reason in reasons):
        with look_ahead(board, policy, now_ms) as ahead:
            changes = _changes(ahead, filed, ahead.forecast(job.id), now_ms)
        hints = hints_of(board, policy, now_ms, job.id, changes)
        answer = _with_changes(_answer(job, reasons[0].message, now_ms, reasons), board, changes, hints)
        return replace(answer, position=position, ahead=before)
    with look_ahead(board, policy, now_ms) as ahead:
        told = ahead.forecast(job.id)
        passed = () if reasons or told.placed else _passed_by(ahead, filed, told, now_ms)
        patient = patience_hints(ahead, filed, told, now_ms)
        limited = any(reason.code in _LIMIT_CODES for reason in reasons)
        changes = Changes(()) if limited else _changes(ahead, filed, told, now_ms)
    hints = hints_of(board, policy, now_ms, job.id, changes)
    if not reasons:
        window = None if told.placed else window_reason(board, policy, filed.lane, now_ms)
        reasons = (window or _passed_reason(board, passed) or _kept_reason(board, told) or _behind_reason(board, job, position),)
    headline, starts_ms = reasons[0].message, now_ms if told.placed else None
    if told.reserved is not None:
        reasons = (*reasons, expected_reason(board, told.reserved, now_ms))
        starts_ms = max(told.reserved.start_ms, now_ms)
    answer = _with_changes(_answer(job, headline, now_ms, reasons), board, changes, hints)
    if policy.preempt and any(reason.code in _ROOM_CODES for reason in reasons):
        unstoppable = unstoppable_hints(board, job, options_for(shape_of(job), board.columns))
        answer = replace(answer, hints=(*answer.hints, *patient, *unstoppable))
    if starts_ms is None:
        answer = replace(answer, hints=(*answer.hints, unknown_hint(board, policy, shape_of(job))))
    return replace(answer, position=position, ahead=before, earliest_start_ms=starts_ms)


def _changes(ahead: Ahead, filed: Filed, told: Forecast, now_ms: int) -> Changes:
    """What would start it; nothing for one that would start anyhow."""
    vertex = ahead.board.quota.vertices.get(filed.queue)
    if told.placed or vertex is None or is_closed(vertex):
        return Changes(())
    return changes_for(ahead, Candidate(filed.queue, filed.key, filed.lane), told.others, now_ms)


def _with_changes(answer: Explanation, board: Board, changes: Changes, hints: tuple[str, ...]) -> Explanation:
    found = changes.in_the_way
    blockers = addresses(board, found.jobs) if found is not None else ()
    smallest = found.smallest if found is not None else None
    return replace(answer, hints=(*answer.hints, *hints), blockers=blockers, blockers_smallest=smallest)


def _gate_reasons(board: Board, job: Job, now_ms: int) -> tuple[Reason, ...]:
    """What keeps a job from being looked at; empty for one that may be."""
    gate = board.gates.get(job.id)
    if gate is Gate.HELD:
        held = job.reason or Reason(code=ReasonCode.HELD, message="held")
        return (replace(held, code=ReasonCode.HELD, hints=(f"shoal release {job.address}",)),)
    if gate in (Gate.DEPENDENCY, Gate.DEPENDENCY_NEVER):
        return _dependency_reasons(board, job)
    if gate is Gate.FREEING:
        return (_freeing_reason(board, job),)
    if board.pending.waits_for_time(job.id):
        return time_reasons(job, now_ms)
    return ()


def _dependency_reasons(board: Board, job: Job) -> tuple[Reason, ...]:
    found = []
    for dependency in job.spec.depends_on:
        met = dependency_met(dependency, board.jobs, board.ended)
        if met:
            continue
        other = board.jobs.get(dependency.job)
        name = other.address if other is not None else dependency.job
        state = other.state if other is not None else board.ended.get(dependency.job)
        if met is None:
            message = f"waits for {dependency.condition} of job {name}, which ended as {state}: that cannot come any more"
            hints = (f"shoal cancel {job.address}, and submit it again without the dependency",)
            found.append(Reason(code=ReasonCode.DEPENDENCY_NEVER, message=message, blockers=(name,), hints=hints))
        else:
            message = f"waits for {dependency.condition} of job {name}, which is {state or 'not known yet'}"
            found.append(Reason(code=ReasonCode.DEPENDENCY, message=message, blockers=(name,)))
    found.sort(key=lambda reason: reason.code is not ReasonCode.DEPENDENCY_NEVER)
    return tuple(found)


def _freeing_reason(board: Board, job: Job) -> Reason:
    held = [board.allocations[held] for held in board.held_by[job.id]]
    nodes = tuple(dict.fromkeys(allocation.node for allocation in held))[: limits.HOLDERS_SHOWN_MAX]
    lost = any(allocation.state is AllocationState.LOST for allocation in held)
    why = "its node is silent, and it may still run there" if lost else "it is being stopped there"
    message = f"an earlier attempt still holds room on {', '.join(nodes)}: {why}"
    return Reason(code=ReasonCode.FREEING, message=message, blockers=nodes)


def _claimed_reason(board: Board, job: Job, now_ms: int) -> Reason:
    nodes = tuple(dict.fromkeys(board.claims[claim].node for claim in board.claims_by[job.id]))
    if any(board.claims[claim].term == 0 for claim in board.claims_by[job.id]):
        return _held_on_failure(board, job, nodes)
    held = (board.allocations[held] for node in nodes for held in board.held_on.get(node, ()))
    stopping = dict.fromkeys(a.job for a in held if board.jobs.get(a.job) is None or board.jobs[a.job].state is JobState.PREEMPTING)
    names = addresses(board, stopping)
    whose = f"{'job' if len(names) == 1 else 'jobs'} {listed(names)}" if names else "what is there"
    message = f"room is kept for it on {listed(nodes)}; it starts when {whose} has been stopped"
    saving = [board.jobs[one] for one in stopping if one in board.jobs and _is_saving(board.jobs[one])]
    if saving:
        until_ms = max(one.reason.until_ms or 0 for one in saving if one.reason is not None)
        left = format_duration_ms(max(0, until_ms - now_ms) // 1_000 * 1_000)
        message += f"; {listed([one.address for one in saving])} may save first, for up to {left}"
    return Reason(code=ReasonCode.FREEING, message=message, blockers=names[: limits.HOLDERS_SHOWN_MAX])


def _held_on_failure(board: Board, job: Job, nodes: tuple[str, ...]) -> Reason:
    until_ms = max(board.claims[claim].expires_ms for claim in board.claims_by[job.id])
    missing = tuple(node for node in nodes if not _takes_work(board, node))
    what = f"it starts when {listed(missing)} takes work again" if missing else "it starts there once what is left is free"
    message = f"its room on {listed(nodes)} is kept for it after a failure; {what}"
    return Reason(code=ReasonCode.HOLD_ON_FAILURE, message=message, until_ms=until_ms, blockers=missing[: limits.HOLDERS_SHOWN_MAX])


def _takes_work(board: Board, node_id: str) -> bool:
    row = board.columns.row.get(node_id)
    return row is not None and bool(board.columns.open[row]) and not any(d.broken for d in board.columns.nodes[row].facts.devices)


def _pending_reasons(board: Board, policy: Policy, job: Job) -> tuple[Reason, ...]:
    """Causes that lie in limits, quota and room; none where it only has to be its turn."""
    vertex = board.quota.vertices.get(job.queue)
    if vertex is None:
        return (unknown_queue_reason(job.queue),)
    found = []
    if is_closed(vertex):
        hint = f"open queue {job.queue}, or move the job to another"
        message = f"queue {job.queue} takes jobs but starts none"
        found.append(Reason(code=ReasonCode.QUEUE_CLOSED, message=message, queue=job.queue, hints=(hint,)))
    filed = board.pending.filed(job.id)
    found.extend(_array_reasons(board, filed.lane.array if filed is not None else ""))
    found.extend(limit_reasons(board, job))
    found.extend(_capacity_reasons(board, policy, job))
    return tuple(found)


def _array_reasons(board: Board, array: str) -> tuple[Reason, ...]:
    at_once, running = board.at_once(array), board.array_live.get(array, 0)
    if at_once is None or running < at_once:
        return ()
    message = f"array {board.jobs[array].address} runs {at_once} elements at once, and {running} are running"
    hint = f"starts when an element of {board.jobs[array].address} ends"
    return (Reason(code=ReasonCode.ARRAY_LIMIT, message=message, asked=1, free=0, capacity=at_once, hints=(hint,)),)


def _capacity_reasons(board: Board, policy: Policy, job: Job) -> tuple[Reason, ...]:
    """Quota and room, both where both are short; `.never` alone where it will never be."""
    shape = shape_of(job)
    never = never_reason(board.emptied(), job.queue, shape, policy)
    if never is not None:
        return (never,)
    options = options_for(shape, board.columns)
    found = []
    quota = quota_reason(board.quota, job.queue, options)
    if quota is not None:
        found.append(_with_holders(board, quota, tree_of(board, job.queue)))
    room = room_reason(board, shape, options, policy)
    if room is not None:
        found.append(_with_holders(board, room, None, _asked_of(board, options)))
    return tuple(found)


def _asked_of(board: Board, options: tuple[Option, ...]) -> tuple[str, str | None]:
    """The pool and, where parts of GPUs are asked for, the model of the option that a reason about room speaks of."""
    need = nearest(board, options)[0].need if options else None
    return ("", None) if need is None else (need.member.pool, need.model if need.member.pieces else None)


def _with_holders(board: Board, reason: Reason, queues: frozenset[str] | None, asked: tuple[str, str | None] = ("", None)) -> Reason:
    pool, model = asked[0], asked[1] or (reason.resource or "").partition("/")[2] or None
    capacity = reason.capacity
    if capacity is None and reason.resource is not None and reason.code in _ROOM_CODES and asked[1] is None:
        whole = board.columns.capacity_in(pool, reason.resource)
        capacity = whole // 1_000 if reason.resource.startswith("gpu") else whole
    return replace(reason, holders=holders_of(board, model, queues, pool), capacity=capacity)


def _passed_by(ahead: Ahead, filed: Filed, told: Forecast, now_ms: int) -> tuple[str, ...]:
    """Jobs that the cycle starts in the room there is, where that and not what is kept leaves none for this one."""
    candidate = Candidate(filed.queue, filed.key, filed.lane)
    soon = over_before(candidate, told.others, now_ms) or candidate
    return ahead.placed if ahead.found(soon) is None else ()


def _passed_reason(board: Board, passed: tuple[str, ...]) -> Reason | None:
    """There is room, and others start there first."""
    if not passed:
        return None
    names = addresses(board, passed)
    message = f"the room there is goes to {'job' if len(names) == 1 else 'jobs'} {listed(names)} first"
    return Reason(code=ReasonCode.BEHIND, message=message, blockers=names[: limits.HOLDERS_SHOWN_MAX])


def _kept_reason(board: Board, told: Forecast) -> Reason | None:
    """There is room, but it is kept for others at the time at which this job would still need it."""
    if told.placed or told.reserved is None or not told.others:
        return None
    names = addresses(board, (other.job_id for other in told.others))
    message = f"the room there is is kept for {'job' if len(names) == 1 else 'jobs'} {listed(names)}, and it would still run by then"
    return Reason(code=ReasonCode.RESERVED, message=message, blockers=names[: limits.HOLDERS_SHOWN_MAX])


def _behind_reason(board: Board, job: Job, position: int) -> Reason:
    """There is room: it only has to be its turn."""
    if position == 1:
        return Reason(code=ReasonCode.BEHIND, message="there is room for it: it is next in its queue", queue=job.queue)
    strict = board.quota.vertices[job.queue].spec.order == "strict"
    how = "and it is strict: nobody passes a job whose GPUs it could use" if strict else "and the room there is goes to them first"
    message = f"{position - 1} job{'' if position == 2 else 's'} of queue {job.queue} come before it, {how}"
    return Reason(code=ReasonCode.BEHIND, message=message, queue=job.queue, asked=position)


def _place_in_queue(board: Board, filed: Filed) -> tuple[int, tuple[str, ...]]:
    """1 for the next of its queue; and the first of those before it."""
    line = board.pending.lines[filed.queue]
    ahead = line.rank(filed.key)
    merged = heapq.merge(*(lane.keys for lane in line.lanes.values()))
    first = islice(merged, min(ahead, limits.HOLDERS_SHOWN_MAX))
    behind = sum(board.unborn_behind(array_id) for array_id, front_id in board.fronts.items() if _is_before(board, front_id, filed))
    return ahead + behind + 1, addresses(board, (key[3] for key in first))


def _is_before(board: Board, job_id: str, filed: Filed) -> bool:
    """True for a pending job of the same queue whose turn comes earlier."""
    other = board.pending.filed(job_id)
    return other is not None and other.queue == filed.queue and other.key < filed.key

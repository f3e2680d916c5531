"""
What agents say: they join, register at each start, poll for commands, and upload reports, log bytes and samples.

Called by `api` with the node's own token. An upload is also the renewal of the node's lease. Order inside one upload: log bytes are in
the log store before the reports are recorded, so that no job is seen ended before its last bytes can be read. Reports of one job become
one ChangeSet, those of many are written as a group and awaited together. Delivery is at least once: what was recorded is dropped by its
number, what slips through (a restart forgets the numbers) is no news to `lifecycle`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shoal.base import limits
from shoal.base.errors import Conflict, Fault, Forbidden, Invalid, InvariantViolated, NotFound, TooLarge
from shoal.base.units import parse_whole
from shoal.control.access import Caller
from shoal.control.answers import chain, done, gather, then
from shoal.control.lanes import JobSubject, RecordSubject
from shoal.control.links import Link
from shoal.control.tokens import new_token, revoke_tokens_of
from shoal.lifecycle import node as lifecycle
from shoal.lifecycle.job import advance_all
from shoal.lifecycle.names import name_faults
from shoal.lifecycle.orders import is_wanted, with_members
from shoal.model.attempt import HOLDING, Allocation
from shoal.model.change import ChangeSet
from shoal.model.command import CommandRow, Commit, Regroup
from shoal.model.event import AllocationPrepared, AllocationReleased, AllocationUnkillable, Event, PrepareFailed, Report, TaskExited
from shoal.model.node import Node, NodeState
from shoal.model.snapshot import Picture
from shoal.model.wire import Commands, Join, Joined, LogChunk, Register, Registered, Sample, TokenAsk, Upload, UploadReply

if TYPE_CHECKING:
    from shoal.control.plane import Plane

log = logging.getLogger("shoal.control")
_NODE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_LAST_WORDS = (AllocationReleased, PrepareFailed)


# --- joining and registering ----------------------------------------------------------------------------------------------
def join_node(plane: Plane, caller: Caller, join: Join) -> Future[Joined]:
    """
    The node, known from now on, with the token that it speaks with. Joining again makes the tokens of before invalid.

    Raises: Forbidden without a join token; Invalid for a name (the node's, its pool's) that is none; by the future, Conflict for a name
    that lives elsewhere, Unavailable for one whose agent lives or whose work may still run.
    """
    if caller.role not in ("join", "admin"):
        raise Forbidden(f"joining needs a join token; {caller.principal} has the role {caller.role}")
    if not _NODE_NAME.fullmatch(join.name) or len(join.name) > limits.NAME_CHARS_MAX:
        rule = "letters, digits, dots, dashes and underscores, with a letter or digit at both ends"
        raise Invalid(f"a node's name has {rule}; got {join.name!r}", (Fault(f"a node's name has {rule}", "/name"),))
    if faults := name_faults("pool", join.pool, "/pool"):
        raise Invalid(faults[0].message, faults)
    token, text = new_token(plane, TokenAsk(principal=f"node/{join.name}", role="node", note="made when the node joined"))

    def judge(known: Node | None) -> ChangeSet:
        on_node, alive = plane.world.live_on(join.name), known is not None and _is_alive(plane, known)
        changes = lifecycle.join(join, known, plane.clock.now_ms(), caller.principal, on_node=on_node, alive=alive)
        revoked = revoke_tokens_of(plane, token.principal)
        return ChangeSet(put=(*changes.put, token, *revoked), events=changes.events)

    asked = plane.lanes.ask(_node_subject(plane, join.name), judge)
    return then(asked, lambda node: Joined(node=_known(node, join.name), token=text, store_id=plane.store.store_id))


def _is_alive(plane: Plane, node: Node) -> bool:
    """An agent of that name has registered and was heard within its lease; only what this process heard itself counts."""
    link = plane.links.link(node.id)
    silent_ms = plane.clock.monotonic_ms() - link.heard_ms
    return node.epoch > 0 and link.seen_ms is not None and silent_ms < plane.terms.ttl_ms


def register_node(plane: Plane, caller: Caller, register: Register) -> Future[Registered]:
    """
    The agent's new epoch, and what of that which it holds it keeps or kills (rule 6). What it should hold and does not is fenced.

    The answer comes when all of it is durable. The fences are written before the node's new boot id: a control plane that dies in
    between finds the reboot again when the agent asks again. (What is not fenced any more is not prepared either: `poll_commands`.)
    """
    node_id = _speaker(caller)
    plane.world.catch_up()
    made = [_registration(plane, node_id, plane.world.nodes.get(node_id), register)]

    def judge(node: Node | None) -> ChangeSet:
        made[:] = [_registration(plane, node_id, node, register)]
        return made[0].changes

    def answer(_node: Node | None) -> Future[Registered]:
        plane.links.begin(node_id)
        plane.links.hear(node_id, plane.clock.monotonic_ms(), plane.clock.now_ms())
        found = made[0]
        told = Registered(epoch=found.node.epoch, store_id=plane.store.store_id, keep=found.keep, kill=found.kill, lease=plane.terms)
        return then(_fence_all(plane, node_id, found), lambda _: told)

    return chain(_fence_all(plane, node_id, made[0]), lambda _: chain(plane.lanes.ask(_node_subject(plane, node_id), judge), answer))


def _registration(plane: Plane, node_id: str, node: Node | None, register: Register) -> lifecycle.Registration:
    on_node = plane.world.live_on(node_id)
    return lifecycle.register(_known(node, node_id), register, on_node, plane.store.store_id, plane.clock.now_ms())


def _fence_all(plane: Plane, node_id: str, found: lifecycle.Registration) -> Future[None]:
    """What the registration says is over; said twice it is no news."""
    return then(gather([_record(plane, node_id, job, (event,)) for job, event in found.events]), _raise_first)


def _raise_first(ended: tuple[Future[None], ...]) -> None:
    for future in ended:
        future.result()


# --- commands -------------------------------------------------------------------------------------------------------------
def poll_commands(plane: Plane, caller: Caller, after: int) -> Commands:
    """
    What the node has to do beyond `after`, at once; what lies up to `after` is confirmed. `api` waits by `plane.agents.on_mail`.

    What an allocation that was given back or fenced meanwhile should have done is not handed out, and a Commit gets the members of its
    gang here (`lifecycle.orders`).
    """
    node_id = _speaker(caller)
    plane.world.catch_up()
    if plane.agents.confirm(node_id, after):
        plane.store.confirm_commands(node_id, after)
    taken = plane.agents.take(node_id, after, lambda row: is_wanted(row.body, plane.world.allocations.get(row.body.allocation)))
    return replace(taken, rows=tuple(_as_handed_out(plane, row) for row in taken.rows))


def _as_handed_out(plane: Plane, row: CommandRow) -> CommandRow:
    if not isinstance(row.body, Commit | Regroup):
        return row
    picture = plane.world.picture(row.body.job) or plane.store.picture(row.body.job)
    return row if picture is None else replace(row, body=with_members(row.body, picture))


# --- uploads --------------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Reading:
    """What one upload comes to, while it is worked through."""

    node: Node
    offsets: list[tuple[str, int, int, int]] = field(default_factory=list)
    kill: dict[str, None] = field(default_factory=dict)
    forget: dict[str, None] = field(default_factory=dict)
    synced: list[Future[None]] = field(default_factory=list)


def record_upload(plane: Plane, caller: Caller, upload: Upload) -> Future[UploadReply]:
    """
    The reply, once every report of the upload is durable.

    Raises: Conflict for another epoch or boot than the registered one (the agent registers again); TooLarge over the limits; by the
    future, Unavailable, after which the agent sends the same again.
    """
    node_id = _speaker(caller)
    plane.world.catch_up()
    node = _known(plane.world.nodes.get(node_id), node_id)
    _check(node, upload)
    link = plane.links.hear(node_id, plane.clock.monotonic_ms(), plane.clock.now_ms())
    reading = _Reading(node)
    for chunk in upload.logs:
        _append(plane, reading, chunk)
    for sample in upload.samples:
        _keep_sample(plane, reading, sample)
    news = upload.reports[max(0, (link.recorded or 0) - upload.first_seq) :] if link.recorded is not None else upload.reports
    written = [*_record_all(plane, reading, news), *_record_findings(plane, node, link, upload)]
    for report in upload.reports:
        _read_last_words(plane, reading, report)
    return then(gather([*written, *reading.synced]), partial(_reply, plane, reading, upload))


def _check(node: Node, upload: Upload) -> None:
    if upload.epoch != node.epoch or upload.boot_id != node.facts.boot_id:
        raise Conflict(
            f"node {node.id} is registered with epoch {node.epoch} and boot {node.facts.boot_id!r}; this came from epoch {upload.epoch}, "
            f"boot {upload.boot_id!r}: register again"
        )
    if len(upload.reports) > limits.REPORTS_PER_UPLOAD_MAX:
        raise TooLarge(
            f"{len(upload.reports)} reports in one upload, at most {limits.REPORTS_PER_UPLOAD_MAX} are taken; send the rest later"
        )
    size = sum(len(chunk.data) for chunk in upload.logs)
    if size > limits.LOG_BYTES_PER_UPLOAD_MAX:
        raise TooLarge(f"{size} log bytes in one upload, at most {limits.LOG_BYTES_PER_UPLOAD_MAX} are taken; send the rest later")


def _reply(plane: Plane, reading: _Reading, upload: Upload, written: tuple[Future[None], ...]) -> UploadReply:
    _raise_first(written)
    recorded = plane.links.record(reading.node.id, upload.first_seq, len(upload.reports))
    return UploadReply(
        recorded=recorded,
        log_offsets=tuple(reading.offsets),
        forget=tuple(reading.forget),
        kill=tuple(name for name in reading.kill if name not in reading.forget),
    )


# --- logs and samples -----------------------------------------------------------------------------------------------------
def _append(plane: Plane, reading: _Reading, chunk: LogChunk) -> None:
    """Bytes of a task that this node runs. Bytes of what nobody knows count as taken, so that the agent does not send them for ever."""
    if _runs_rank(plane, reading.node.id, chunk):
        size = plane.logs.append(chunk.job, chunk.attempt, chunk.rank, chunk.offset, chunk.data)
    else:
        size = chunk.offset + len(chunk.data)
    reading.offsets.append((chunk.job, chunk.attempt, chunk.rank, size))


def _runs_rank(plane: Plane, node_id: str, chunk: LogChunk) -> bool:
    """Whether the node had a part of that attempt with that rank; setup scripts write below rank 0."""
    members: Iterable[Allocation] = plane.world.allocations_of(chunk.job)
    if not members:
        picture = plane.store.picture(chunk.job)
        members = picture.allocations if picture is not None else ()
    mine = [a for a in members if a.node == node_id and a.attempt == chunk.attempt]
    return any(chunk.rank < 0 or any(task.rank == chunk.rank for task in a.tasks) for a in mine)


def _keep_sample(plane: Plane, reading: _Reading, sample: Sample) -> None:
    """A sample says that the allocation runs: one that should not is to be killed."""
    if _should_run(plane, reading.node.id, sample.allocation):
        plane.samples.add(sample)
    else:
        reading.kill[sample.allocation] = None


def _should_run(plane: Plane, node_id: str, allocation_id: str) -> bool:
    known = plane.world.allocations.get(allocation_id)
    return known is not None and known.node == node_id and known.state in HOLDING


# --- reports --------------------------------------------------------------------------------------------------------------
def _record_all(plane: Plane, reading: _Reading, reports: Iterable[Report]) -> list[Future[None]]:
    by_job: dict[str, list[Event]] = {}
    for report in reports:
        by_job.setdefault(report.allocation.rsplit(".", 2)[0], []).append(report)
    weighed = [future for report in reports for future in _weigh_start(plane, reading.node.id, report)]
    written = [_record(plane, reading.node.id, job, tuple(events)) for job, events in by_job.items()]
    for report in reports:
        if isinstance(report, AllocationUnkillable):
            written.append(_change_node(plane, reading.node.id, partial(_judge_unkillable, plane, report)))
    return [*written, *weighed]


def _weigh_start(plane: Plane, node_id: str, report: Report) -> list[Future[None]]:
    """
    Counts jobs that the node fails to prepare by its own fault; too many in a row cordon it.

    The elements of an array count once: a fault that only looks like the node's (files too large for any disk) must not take out a fleet.
    """
    if not isinstance(report, AllocationPrepared | PrepareFailed) or not _should_run(plane, node_id, report.allocation):
        return []
    if isinstance(report, AllocationPrepared):
        plane.links.accept(node_id)
        return []
    job = plane.world.jobs.get(plane.world.allocations[report.allocation].job)
    if job is None or not report.of_node:
        return []
    refused = plane.links.refuse(node_id, job.array.array_id if job.array is not None else job.id)
    if refused < limits.REFUSALS_MAX:
        return []
    plane.links.accept(node_id)
    return [_change_node(plane, node_id, lambda node: lifecycle.refusing(node, refused, report.reason, plane.clock.now_ms()))]


def _record(plane: Plane, node_id: str, job: str, events: tuple[Event, ...]) -> Future[None]:
    """
    Makes true what a node says of one job.

    A report that meets a bug is logged and counts as recorded: were it sent again for ever, nothing of that node would come through.
    """

    def judge(picture: Picture | None) -> ChangeSet:
        if picture is None:
            return ChangeSet()
        mine = {a.id for a in picture.allocations if a.node == node_id}
        told = [event for event in events if event.allocation in mine]  # type: ignore[union-attr]
        return advance_all(picture, told, plane.clock.now_ms(), plane.terms, f"node/{node_id}")

    passed: Future[None] = Future()
    passed.set_running_or_notify_cancel()

    def end(ended: Future[Picture | None]) -> None:
        error = ended.exception()
        if isinstance(error, InvariantViolated):
            log.error("reports of %s about job %s met a bug and are dropped: %s", node_id, job, events, exc_info=error)
            error = None
        if error is None:
            passed.set_result(None)
        else:
            passed.set_exception(error)

    plane.lanes.ask(JobSubject(plane.world, plane.store, job), judge).add_done_callback(end)
    return passed


def _read_last_words(plane: Plane, reading: _Reading, report: Report) -> None:
    """What the reply says of the report's allocation: its last word lets the agent forget it; of one that should not run, kill it."""
    name = report.allocation
    if isinstance(report, _LAST_WORDS):
        reading.forget[name] = None
        job, attempt, _ = name.rsplit(".", 2) if name.count(".") >= 2 else (name, "0", "0")
        reading.synced.append(_sync_logs(plane, job, parse_whole(attempt) or 0))
    elif not isinstance(report, TaskExited) and not _should_run(plane, reading.node.id, name):
        reading.kill[name] = None


def _sync_logs(plane: Plane, job: str, attempt: int) -> Future[None]:
    """The attempt's output survives a power cut. Only then may the node that wrote it throw its own copy away."""
    try:
        if not plane.logs.ranks(job, attempt):
            return done(None)
    except InvariantViolated:  # Named by the agent, and no job of ours.
        return done(None)
    return plane.aside(lambda: plane.logs.sync(job, attempt))


# --- findings -------------------------------------------------------------------------------------------------------------
def _record_findings(plane: Plane, node: Node, link: Link, upload: Upload) -> list[Future[None]]:
    """What the agent found of its devices, and that the node is back if it was away. Written only where it is news."""
    if upload.dirty != link.dirty:
        plane.links.soil(node.id, upload.dirty)
        plane.wake()
    written: list[Future[None]] = []
    broken = tuple(uuid for uuid, _ in upload.broken)
    marked = tuple(device.uuid for device in node.facts.devices if device.broken is not None)
    if sorted(broken) != sorted(marked):
        written.append(_change_node(plane, node.id, lambda n: lifecycle.devices_found(n, upload.broken, plane.clock.now_ms())))
    if node.state in (NodeState.UNREACHABLE, NodeState.LOST):
        written.append(_change_node(plane, node.id, lambda n: lifecycle.heard(n, plane.clock.now_ms())))
    return written


def _judge_unkillable(plane: Plane, report: AllocationUnkillable, node: Node) -> ChangeSet:
    return lifecycle.unkillable(node, report, plane.clock.now_ms())


def _change_node(plane: Plane, node_id: str, change: Callable[[Node], ChangeSet]) -> Future[None]:
    asked = plane.lanes.ask(_node_subject(plane, node_id), lambda node: ChangeSet() if node is None else change(node))
    return then(asked, lambda _node: None)


def _node_subject(plane: Plane, node_id: str) -> RecordSubject[Node]:
    return RecordSubject(Node, node_id, plane.world.nodes.get)


def _speaker(caller: Caller) -> str:
    """The node that speaks: named by its token, never by what it writes."""
    if not caller.node:
        raise Forbidden(f"only a node's own token may do this; {caller.principal} has the role {caller.role}")
    return caller.node


def _known(node: Node | None, node_id: str) -> Node:
    if node is None:
        raise NotFound(f"there is no node {node_id!r}; it was removed: join again")
    return node

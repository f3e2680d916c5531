"""
Why a shape does not start, as a `Reason` with the numbers that decided. The same words for the cycle, for `explain` and for `--must-fit`.

    quota.never   more than the queue could get with nothing running anywhere
    fleet.never   more than the fleet has, empty and with every node taking work
    quota         the queue may not take so much now
    resources     not enough free in all
    fragmentation enough free in all, but not enough of it on any one node
    topology      enough nodes with room, but not inside one domain (or pool)
    avoided       it would fit on nodes that failed to prepare this job

Numbers are of the option that is nearest to fitting. Nothing is tried on the ledger that is not taken back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from shoal.base import limits
from shoal.base.units import format_memory
from shoal.model.reason import Reason, ReasonCode
from shoal.scheduling.asks import MemberAsk, Shape
from shoal.scheduling.board import Board
from shoal.scheduling.columns import Columns
from shoal.scheduling.domains import room_by_domain, wish_of
from shoal.scheduling.ledger import Ledger
from shoal.scheduling.options import GroupOption, Option, options_for
from shoal.scheduling.partroom import ask_text, cannot_text, part_room, part_text
from shoal.scheduling.place import Placement, place_options
from shoal.scheduling.policy import Policy
from shoal.scheduling.quota import QuotaTree
from shoal.scheduling.runs import runs_in, tiers_of

Counts = NDArray[np.int64]


class Shortfall(NamedTuple):
    """Room for one group of one option, counted: what every reason about room is made from."""

    part: GroupOption
    resource: str
    asked: int
    free: int
    nodes_asked: int
    nodes_fitting: int
    free_by_row: Counts
    scattered: int = 0
    """Free GPUs on nodes that have enough of them, but not inside one island: then these are what is missing."""

    @property
    def missing(self) -> int:
        return max(0, self.nodes_asked - self.nodes_fitting)


# --- quota ------------------------------------------------------------------------------------------------------------------
def unknown_queue_reason(queue: str) -> Reason:
    hints = (f"create the queue {queue}, or move the job to one that exists",)
    return Reason(code=ReasonCode.UNKNOWN_QUEUE, message=f"there is no queue {queue}", queue=queue, hints=hints)


def quota_reason(quota: QuotaTree, queue: str, options: tuple[Option, ...]) -> Reason | None:
    """Why the queue may start none of the options now; None if it may start one."""
    reasons = [_quota_of(quota, queue, option) for option in options]
    found = [reason for reason in reasons if reason is not None]
    if not found or len(found) < len(reasons):
        return None
    return min(found, key=lambda reason: (reason.code is ReasonCode.QUOTA_NEVER, reason.quota_short_by or 0))


def _quota_of(quota: QuotaTree, queue: str, option: Option) -> Reason | None:
    for resource, amount in option.charge_least:
        potential = quota.potential(queue, resource)
        if potential is not None and amount > potential:
            return _quota_never(queue, resource, amount, potential)
    short = quota.short_of(queue, option.charge_least)
    if short is None:
        return None
    resource, missing = short
    asked, free = dict(option.charge_least)[resource], quota.available(queue, resource)
    words = f"asks {amount_text(resource, asked)} and queue {queue} may start {amount_text(resource, free or 0)} more"
    return Reason(
        code=ReasonCode.QUOTA,
        message=words,
        resource=resource,
        asked=count_of(resource, asked),
        free=count_of(resource, free or 0),
        capacity=count_of(resource, quota.potential(queue, resource) or 0),
        quota_short_by=_up(resource, missing),
        queue=queue,
    )


def _quota_never(queue: str, resource: str, asked: int, potential: int) -> Reason:
    words = f"asks {amount_text(resource, asked)} and queue {queue} can never have more than {amount_text(resource, potential)}"
    return Reason(
        code=ReasonCode.QUOTA_NEVER,
        message=words,
        resource=resource,
        asked=count_of(resource, asked),
        capacity=count_of(resource, potential),
        quota_short_by=_up(resource, asked - potential),
        queue=queue,
        hints=(f"raise the quota or borrowing limit of queue {queue} by {amount_text(resource, asked - potential)}", "ask for less"),
    )


# --- room -------------------------------------------------------------------------------------------------------------------
def never_reason(empty: Board, queue: str, shape: Shape, policy: Policy) -> Reason | None:
    """Why the shape could never start; None if it could. `empty` is a board that was `emptied`."""
    options = options_for(shape, empty.columns)
    quota = quota_reason(empty.quota, queue, options)
    if quota is not None:
        return quota
    reason = room_reason(empty, shape, options, policy)
    if reason is None:
        return None
    if reason.resource is None:
        return replace(reason, code=ReasonCode.FLEET_NEVER, hints=("name a pool that has nodes, or let nodes join that one",))
    hints = (*reason.hints, "ask for less, or add nodes")
    never = _never_text(empty, options)
    if never is not None:
        reason = replace(reason, message=never, blockers=())
    message = f"more than the whole fleet has: {reason.message}"
    return replace(reason, code=ReasonCode.FLEET_NEVER, message=message, capacity=reason.free, free=None, hints=hints)


def _never_text(empty: Board, options: tuple[Option, ...]) -> str | None:
    """What the fleet has with nothing on it, where whole nodes are too few or too small; None where something else is missing."""
    if not options:
        return None
    shortfall = nearest(empty, options)[1]
    rows = np.flatnonzero(shortfall.free_by_row > 0)
    if shortfall.missing == 0 or shortfall.scattered or shortfall.part.need.member.piece is not None or not len(rows):
        return None
    best = int(shortfall.free_by_row.argmax())
    largest = plain_text(shortfall.resource, int(shortfall.free_by_row[best]))
    total = plain_text(shortfall.resource, shortfall.free)
    there = f"{nodes_text(len(rows))} would have {total}, at most {largest} on one ({empty.columns.nodes[best].id})"
    count = nodes_text(shortfall.nodes_fitting) if shortfall.nodes_fitting else "no node"
    return f"{wanted(shortfall)}; with nothing running {there}, and {count} could take a member"


def room_reason(board: Board, shape: Shape, options: tuple[Option, ...], policy: Policy) -> Reason | None:
    """Why no nodes can take the shape as the board stands, quota left aside; None if some can."""
    return None if fits_somewhere(board, shape, options, policy) else no_room_reason(board, shape, options, policy)


def no_room_reason(board: Board, shape: Shape, options: tuple[Option, ...], policy: Policy) -> Reason:
    """As `room_reason`, for a shape that is known to fit nowhere."""
    missing = _no_such_pool(shape, board.columns)
    if missing is not None:
        return missing
    if not options:
        cannot = cannot_text(shape, board.columns)
        if cannot is not None:
            return Reason(code=ReasonCode.RESOURCES, message=cannot, resource="gpu", free=0, nodes_fitting=0)
        return _no_such_model(shape, board.columns)
    part, shortfall = nearest(board, options)
    if shape.avoid and fits_somewhere(board, shape._replace(avoid=()), _without_avoid(shape, board), policy):
        return _avoided(shape, shortfall)
    if shortfall.missing == 0:
        return _runs(board, shape, options, shortfall, policy) or _topology(board, shape, part, shortfall, policy)
    if shortfall.scattered:
        return _islands(board, shortfall)
    if part.need.member.piece is not None and not shortfall.resource.startswith(("cpu", "memory")):
        return _parts(shortfall, part_room(board.columns, board.rooms, part.need).foreign)
    if shortfall.free < shortfall.asked:
        return _resources(shortfall)
    return _fragmentation(board, shortfall)


def fits_somewhere(board: Board, shape: Shape, options: tuple[Option, ...], policy: Policy) -> bool:
    """True if the nodes could take the shape, whatever its queue may do."""
    return isinstance(place_options(Ledger(board), None, shape, options, policy), Placement)


def nearest(board: Board, options: tuple[Option, ...]) -> tuple[GroupOption, Shortfall]:
    """The option that misses fewest nodes and in it the group that misses most."""
    counted = [max((_count(board, part) for part in option.groups), key=lambda s: s.missing) for option in options]
    best = min(counted, key=lambda shortfall: (shortfall.missing, shortfall.asked - shortfall.free))
    return best.part, best


def _count(board: Board, part: GroupOption) -> Shortfall:
    """GPUs are what a reason counts in where they are asked for; where they would do, the cores or memory that do not."""
    columns, need, group = board.columns, part.need, part.group
    fitting = int(np.count_nonzero(board.rooms.fitting(need)))
    open_there = columns.open & columns.in_pool(need.member.pool)
    resource, each, free_by_row = "cpu", need.member.cpu_milli, np.where(open_there, columns.cpu_free, 0)
    if need.member.piece is not None:
        enough = board.rooms.parts_fitting(need) >= need.member.pieces
        if np.count_nonzero(enough) < group.low or fitting >= group.low:
            room = part_room(columns, board.rooms, need)
            most = int(room.free_by_row.max(initial=0))
            return Shortfall(part, room.resource, room.asked, most, group.low, fitting, room.free_by_row)
        free_by_row = np.where(enough, columns.cpu_free, 0)
    elif need.model is not None:
        gpus = board.rooms.free_gpus(need)
        enough = gpus >= need.member.gpus
        if need.together and np.count_nonzero(enough) >= group.low > fitting:
            return _count_islands(board, part, enough, gpus)
        if np.count_nonzero(enough) < group.low or fitting >= group.low:
            free = int(gpus.sum())
            return Shortfall(part, f"gpu/{need.model}", group.low * need.member.gpus, free, group.low, fitting, gpus)
        free_by_row = np.where(enough, columns.cpu_free, 0)
    else:
        enough = open_there
    if np.count_nonzero(enough & (columns.cpu_free >= each)) >= group.low:
        resource, each, free_by_row = "memory", need.member.memory_bytes, np.where(enough, columns.memory_free, 0)
    free = int(np.maximum(free_by_row, 0).sum())
    return Shortfall(part, resource, group.low * each, free, group.low, fitting, free_by_row)


def _count_islands(board: Board, part: GroupOption, enough: NDArray[np.bool_], gpus: Counts) -> Shortfall:
    """As `_count`, where nodes enough have the GPUs: those that lie in islands with room for a whole group of them."""
    columns, need, group = board.columns, part.need, part.group
    accepted = board.rooms.accepted(need) & columns.free_mask
    grouped = np.zeros(len(columns), np.int64)
    for row in np.flatnonzero(enough).tolist():
        grouped[row] = columns.layouts[row].groups_of(int(accepted[row]), need.together) * need.together
    fitting, free = int(np.count_nonzero(grouped >= need.member.gpus)), int(grouped.sum())
    scattered = int(gpus[enough].sum()) - free if fitting < group.low else 0
    return Shortfall(part, f"gpu/{need.model}", group.low * need.member.gpus, free, group.low, fitting, grouped, scattered)


def _base(code: ReasonCode, message: str, shortfall: Shortfall) -> Reason:
    return Reason(
        code=code,
        message=message,
        resource=shortfall.resource,
        asked=shortfall.asked,
        free=shortfall.free,
        nodes_asked=shortfall.nodes_asked,
        nodes_fitting=shortfall.nodes_fitting,
    )


def _resources(shortfall: Shortfall) -> Reason:
    text = plain_text(shortfall.resource, shortfall.free)
    return _base(ReasonCode.RESOURCES, f"{wanted(shortfall)}; {text} free {_where(shortfall)}, {fitting_text(shortfall)}", shortfall)


def _parts(shortfall: Shortfall, foreign: int) -> Reason:
    """Of parts, what counts is the one GPU (for instances: the one node) that has most."""
    most = part_text(shortfall.resource, shortfall.free) or ""
    where = "on the node with most" if shortfall.resource.startswith("mig") else "on the GPU with most"
    asked = f"{part_text(shortfall.resource, shortfall.asked)} asked"
    message = f"{wanted(shortfall)}; {most} free {where}, {asked}, {fitting_text(shortfall)}"
    if foreign:
        which = f"{foreign} GPU with room is" if foreign == 1 else f"{foreign} GPUs with room are"
        message += f"; {which} shared by another project, and projects share none"
    return replace(_base(ReasonCode.RESOURCES, message, shortfall), largest_free=shortfall.free)


def _fragmentation(board: Board, shortfall: Shortfall) -> Reason:
    rows = np.flatnonzero(shortfall.free_by_row > 0)
    rows = rows[(-shortfall.free_by_row[rows]).argsort(kind="stable")]
    shown = [(int(shortfall.free_by_row[row]), board.columns.nodes[row].id) for row in rows[: limits.HOLDERS_SHOWN_MAX]]
    places = ", ".join(f"{plain_text(shortfall.resource, free)} on {node}" for free, node in shown)
    more = f" and {len(rows) - len(shown)} more nodes" if len(rows) > len(shown) else ""
    message = (
        f"{wanted(shortfall)}; {plain_text(shortfall.resource, shortfall.free)} free {_where(shortfall)}, but spread over {len(rows)} nodes"
        f" ({places}{more}), {fitting_text(shortfall)}"
    )
    reason = _base(ReasonCode.FRAGMENTATION, message, shortfall)
    return replace(reason, largest_free=shown[0][0] if shown else 0, blockers=tuple(node for _, node in shown))


def _islands(board: Board, shortfall: Shortfall) -> Reason:
    """Nodes have the GPUs, and no island of theirs has enough."""
    need, columns = shortfall.part.need, board.columns
    free = board.rooms.free_gpus(need)
    accepted = board.rooms.accepted(need) & columns.free_mask
    rows = np.flatnonzero(free >= need.member.gpus).tolist()
    best = max(((int(accepted[row]) & island).bit_count() for row in rows for island in columns.layouts[row].islands), default=0)
    total = plain_text(shortfall.resource, shortfall.scattered + shortfall.free)
    message = (
        f"{wanted(shortfall)}, each {need.together} of them inside one NVLink island; {total} free on {nodes_text(len(rows))} "
        f"that have enough, but at most {best} on one island, {fitting_text(shortfall)}"
    )
    return replace(_base(ReasonCode.TOPOLOGY, message, shortfall), largest_free=best)


def _topology(board: Board, shape: Shape, part: GroupOption, shortfall: Shortfall, policy: Policy) -> Reason:
    wish = wish_of(shape, board.columns, policy)
    if wish.ceiling is None:
        if shape.level in ("host", "island"):
            message = f"{wanted(shortfall)} inside one {shape.level}, which only a job of one node can have"
        else:
            message = f"{wanted(shortfall)} inside one {shape.level}, and no node says which {shape.level} it is in"
        return _base(ReasonCode.TOPOLOGY, message, shortfall)
    scope = board.columns.scopes[wish.ceiling]
    counts = room_by_domain(np.flatnonzero(board.rooms.fitting(part.need)), scope)
    largest = int(counts.argmax()) if len(counts) else 0
    best, label = (int(counts[largest]), scope.labels[largest]) if len(counts) else (0, "")
    inside = f"{nodes_text(shortfall.nodes_fitting)} could take one member, but at most {best} inside one {scope.name} ({label})"
    reason = _base(ReasonCode.TOPOLOGY, f"{wanted(shortfall)} inside one {scope.name}; {inside}", shortfall)
    return replace(reason, largest_domain=label or None, largest_free=best)


def _runs(board: Board, shape: Shape, options: tuple[Option, ...], shortfall: Shortfall, policy: Policy) -> Reason | None:
    """Why the nodes that have room do not make the runs that a slice or a mesh asks for; None if that is not what is missing."""
    option = next(option for option in options if any(part is shortfall.part for part in option.groups))
    tiers = tiers_of(shape, option, board.columns, board.rooms)
    each = "slice" if shape.slice is not None else "tensor parallel group"
    if tiers is None:
        where = shape.slice[1] if shape.slice is not None else "island"
        message = f"{wanted(shortfall)}, each {each} inside one {where}, and no {where} of the fleet holds one"
        return _base(ReasonCode.TOPOLOGY, message, shortfall)
    if not tiers:
        return None
    wish = wish_of(shape, board.columns, policy)
    rows = np.flatnonzero(board.rooms.fitting(shortfall.part.need))
    size, there = tiers[0].nodes, runs_in(board.columns, rows, shortfall.part.need, wish, tiers[0])
    asked = shortfall.nodes_asked // size
    if there >= asked:
        return None
    inside = board.columns.scopes[tiers[0].ceiling].name
    whole = f", all inside one {shape.level}" if shape.required and shape.level else ""
    count = f"1 {each} of {nodes_text(size)}" if asked == 1 else f"{asked} {each}s of {nodes_text(size)}"
    made = f"{nodes_text(shortfall.nodes_fitting)} could take one member, and make {there} of them"
    message = f"{wanted(shortfall)}, as {count} inside one {inside}{' each' if asked > 1 else ''}{whole}; {made}"
    return replace(_base(ReasonCode.TOPOLOGY, message, shortfall), largest_free=there * size)


def _avoided(shape: Shape, shortfall: Shortfall) -> Reason:
    shown = shape.avoid[: limits.HOLDERS_SHOWN_MAX]
    message = f"{wanted(shortfall)}, and would fit on nodes that failed to prepare it: {', '.join(shown)}"
    return replace(_base(ReasonCode.AVOIDED, message, shortfall), blockers=shown)


def _no_such_model(shape: Shape, columns: Columns) -> Reason:
    asked = ", ".join(shape.models) or "GPUs"
    pools = shape.pools
    models = {model for pool in pools for model in columns.models_in(pool)}
    resource = f"gpu/{shape.models[0]}" if len(shape.models) == 1 else "gpu"
    fleet = f"pool {' or '.join(pools)}" if all(pools) else "the fleet"
    message = f"asks for {asked}, and {fleet} has {', '.join(sorted(models)) or 'no GPUs at all'}"
    return Reason(code=ReasonCode.RESOURCES, message=message, resource=resource, free=0, nodes_fitting=0)


def _no_such_pool(shape: Shape, columns: Columns) -> Reason | None:
    """Why a shape whose every alternative names a pool without nodes fits nowhere; None for any other."""
    if not all(pool and pool not in columns.pools for pool in shape.pools):
        return None
    there = columns.pools[: limits.HOLDERS_SHOWN_MAX]
    known = f"nodes are in {', '.join(there)}" if there else "there are no nodes"
    message = f"asks for pool {' or '.join(shape.pools)}, in which there is no node; {known}"
    return Reason(code=ReasonCode.RESOURCES, message=message, free=0, nodes_fitting=0)


def _without_avoid(shape: Shape, board: Board) -> tuple[Option, ...]:
    return options_for(shape._replace(avoid=()), board.columns)


# --- words ------------------------------------------------------------------------------------------------------------------
def wanted(shortfall: Shortfall) -> str:
    """`needs 2 nodes with 8 h100 and 16 cores each`."""
    member, need = shortfall.part.need.member, shortfall.part.need
    parts = [f"{member.gpus} {need.model}{_of_memory(member)}"] if need.model is not None else []
    if member.piece is not None:
        parts = [ask_text(member, need.model or "")]
    if member.cpu_milli:
        parts.append(plain_text("cpu", member.cpu_milli))
    if member.memory_bytes:
        parts.append(plain_text("memory", member.memory_bytes))
    pool = f" in pool {member.pool}" if member.pool else ""
    group = f"group {shortfall.part.group.name} " if shortfall.part.group.name else ""
    each = " each" if shortfall.nodes_asked > 1 else ""
    return f"{group}needs {nodes_text(shortfall.nodes_asked)} with {_joined(parts) or 'any room'}{each}{pool}"


def _where(shortfall: Shortfall) -> str:
    member = shortfall.part.need.member
    such = "with that memory " if shortfall.resource.startswith("gpu") and _of_memory(member) else ""
    return such + ("there" if member.pool else "in all")


def _of_memory(member: MemberAsk) -> str:
    """` of at least 80GB`, where a GPU's memory is asked for; else nothing."""
    if member.most_bytes < 0:
        return f" of at least {format_memory(member.least_bytes)}" if member.least_bytes else ""
    return f" of {format_memory(member.least_bytes)} to {format_memory(member.most_bytes)}"


def _joined(parts: list[str]) -> str:
    return " and ".join((", ".join(parts[:-1]), parts[-1])) if len(parts) > 1 else "".join(parts)


def fitting_text(shortfall: Shortfall) -> str:
    return f"{nodes_text(shortfall.nodes_fitting) if shortfall.nodes_fitting else 'no node'} can take a member now"


def nodes_text(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def plain_text(resource: str, amount: int) -> str:
    """An amount as it is counted on nodes: whole GPUs, millicores, bytes."""
    if resource == "memory":
        return memory_text(amount)
    if resource == "cpu":
        return f"{amount / 1_000:g} core{'' if amount == 1_000 else 's'}"
    text = part_text(resource, amount)
    if text is not None:
        return text
    model = resource.partition("/")[2]
    return f"{amount} {model or 'GPUs'}"


def memory_text(size_bytes: int) -> str:
    """Three digits are enough to see what is missing."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.3g} {name}"
    return f"{size_bytes} B"


def amount_text(resource: str, amount: int) -> str:
    """An amount as quotas count it: GPUs in thousandths."""
    if resource in ("cpu", "memory"):
        return plain_text(resource, amount) if amount >= 0 else f"-{plain_text(resource, -amount)}"
    model = resource.partition("/")[2]
    return f"{amount / 1_000:g} {model or ('GPU' if amount == 1_000 else 'GPUs')}"


def count_of(resource: str, amount: int) -> int:
    """A quota amount in whole GPUs, rounded down; millicores and bytes as they are."""
    return amount if resource in ("cpu", "memory") else amount // 1_000


def _up(resource: str, amount: int) -> int:
    return amount if resource in ("cpu", "memory") else -(-amount // 1_000)

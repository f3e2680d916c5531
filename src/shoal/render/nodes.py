"""Nodes as a grid: one line each with a box per GPU that names the job on it; and one node as a screen."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.model.node import NodeState
from shoal.model.wire import DeviceView, NodeView, NodeWindow
from shoal.render.amounts import bytes_text, thousandths_text
from shoal.render.look import Look, clean, cut, width_of, wrap
from shoal.render.table import Cell, Column, table

_NODE_COLOURS = {
    NodeState.READY: "green",
    NodeState.CORDONED: "yellow",
    NodeState.DRAINING: "yellow",
    NodeState.UNREACHABLE: "red",
    NodeState.LOST: "red",
}
_BOX_COLOURS = {"FREE": "dim", "TAKEN": "green", "DIRTY": "yellow", "BROKEN": "red"}
_MARKS = {"FREE": "", "DIRTY": "~", "BROKEN": "!"}
_BOX_CHARS_MAX = 7


def node_grid(views: Sequence[NodeView], look: Look) -> list[str]:
    """Per node: name, state, free room, and its GPUs as boxes; islands of NVLink stand apart."""
    if not views:
        return []
    name = max(width_of(clean(view.node.id)) for view in views)
    state = max(len(str(view.node.state)) for view in views)
    box = max([2, *(width_of(_mark(device)) for view in views for device in view.devices)])
    lines: list[str] = []
    for view in views:
        lead = f"{clean(view.node.id):<{name}}  {look.paint(f'{view.node.state!s:<{state}}', _NODE_COLOURS[view.node.state])}  "
        boxes = _boxes(view, min(box, _BOX_CHARS_MAX), look)
        lines += _flow(lead, boxes, [_room(view), *_about(view)], look)
        if view.node.reason is not None and view.node.state is not NodeState.READY:
            lines += wrap(view.node.reason.message, look, " " * (name + 2), " " * (name + 2))
        if view.reservations:
            lines += wrap(_window(view.reservations[0], look), look, " " * (name + 2), " " * (name + 2))
    return lines


def _window(window: NodeWindow, look: Look) -> str:
    why = f" ({clean(window.reason)})" if window.reason else ""
    return f"reserved: {clean(window.name)}{why} from {look.clock(window.start_ms)} to {look.clock(window.end_ms)}"


def legend(look: Look) -> str:
    """What the boxes mean."""
    parts = [
        ("[12]", "TAKEN", "runs job 12"),
        ("[40%]", "TAKEN", "held in parts"),
        ("[  ]", "FREE", "free"),
        ("[~ ]", "DIRTY", "not yet clean"),
        ("[! ]", "BROKEN", "broken"),
    ]
    return "  ".join(f"{look.paint(box, _BOX_COLOURS[state])} {words}" for box, state, words in parts)


def _mark(device: DeviceView) -> str:
    if device.parts and device.state == "TAKEN":
        return f"{min(100, -(-sum(part.charge for part in device.parts) // 10))}%"
    return _MARKS.get(device.state, device.job or "?")


def _boxes(view: NodeView, width: int, look: Look) -> list[str]:
    """Boxes by island, each island one piece of text without blanks at its ends."""
    islands = {device.uuid: device.island for device in view.node.facts.devices}
    pieces: dict[int, str] = {}
    for device in view.devices:
        island = islands.get(device.uuid, 0)
        text = cut(_mark(device), width, look)
        pad = " " * (width - width_of(text))
        pieces[island] = pieces.get(island, "") + look.paint(f"[{pad}{text}]", _BOX_COLOURS.get(device.state, ""))
    return list(pieces.values())


def _flow(lead: str, boxes: list[str], tail: list[str], look: Look) -> list[str]:
    """`lead`, the boxes, and `tail` on one line where they fit, else on several, indented under the first box."""
    indent = " " * width_of(lead)
    lines, line, empty = [], lead, True
    for gap, piece in [*((" ", box) for box in boxes), *(("  ", part) for part in tail)]:
        if not empty and look.width and width_of(line) + len(gap) + width_of(piece) > look.width:
            lines.append(line.rstrip())
            line, empty = indent, True
        line += piece if empty else gap + piece
        empty = False
    return [*lines, line.rstrip()]


def _room(view: NodeView) -> str:
    facts = view.node.facts
    cpus = f"{thousandths_text(view.cpu_milli_free)}/{facts.cpus} cpu"
    return f"{cpus}, {bytes_text(view.memory_bytes_free)}/{bytes_text(facts.memory_bytes)} free"


def _about(view: NodeView) -> list[str]:
    """Its GPUs in words, and its pool where that is not the one that nodes are in unless said."""
    models = list(dict.fromkeys(device.model for device in view.node.facts.devices))
    pretended = " (pretended)" if view.node.facts.pretended else ""
    gpus = [f"{len(view.node.facts.devices)} {'|'.join(models)}{pretended}"] if models else []
    return [*gpus, f"pool {clean(view.node.pool)}"] if view.node.pool != "default" else gpus


def node_screen(view: NodeView, look: Look) -> list[str]:
    """All that is known of one node."""
    node, facts = view.node, view.node.facts
    lines = [f"Node {look.paint(clean(node.id), 'bold')}  {look.paint(str(node.state), _NODE_COLOURS[node.state])}"]
    if node.reason is not None:
        lines += wrap(node.reason.message, look, "  ", "  ")
    for window in view.reservations:
        lines += wrap(_window(window, look), look, "  ", "  ")
    place = " / ".join(f"{level} {domain}" for level, domain in node.topology)
    known = [
        ("host", f"{clean(facts.hostname)} at {clean(facts.address)}"),
        ("room", _room(view)),
        ("pool", clean(node.pool)),
        ("place", clean(place)),
        ("labels", clean(", ".join(f"{key}={value}" for key, value in sorted(node.labels.items())))),
        ("isolation", facts.isolation + ("" if facts.as_root else ", agent without root")),
        ("kernel", clean(facts.kernel)),
        ("driver", clean(facts.driver or "")),
        ("joined", look.ago(node.joined_ms)),
        ("last seen", look.ago(view.last_seen_ms)),
        ("jobs", ", ".join(view.jobs)),
    ]
    lines += ["", *(f"  {word:<10}{value}" for word, value in known if value and value != "-")]
    return [*lines, "", *_device_table(view, look)] if view.devices else lines


def _device_table(view: NodeView, look: Look) -> list[str]:
    facts = {device.uuid: device for device in view.node.facts.devices}
    rows: list[tuple[str | Cell, ...]] = []
    for device in view.devices:
        known = facts.get(device.uuid)
        broken = known.broken.message if known is not None and known.broken is not None else ""
        island = str(known.island) if known is not None else ""
        state = Cell(device.state, _BOX_COLOURS.get(device.state, ""))
        parts = ", ".join(f"{part.part} ({part.job or 'not yours'})" for part in device.parts)
        gives = "" if device.gives == "whole" else device.gives
        memory = bytes_text(device.memory_bytes)
        rows.append((str(device.index), device.model, memory, island, gives, state, device.job or "", parts, device.uuid, broken))
    columns = (
        Column("GPU", right=True),
        Column("MODEL"),
        Column("MEMORY", right=True),
        Column("ISLAND", right=True),
        Column("GIVES", least=8),
        Column("STATE"),
        Column("JOB", right=True),
        Column("PARTS (JOB)", least=16),
        Column("UUID", least=12),
        Column("WHY", least=10),
    )
    return ["  " + line for line in table(columns, rows, look)]

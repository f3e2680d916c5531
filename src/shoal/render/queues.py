"""The quota tree: each queue under its parent, with a bar per resource that has a quota."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.base.units import format_duration_ms
from shoal.model.queue import Quota
from shoal.model.wire import QueueView
from shoal.render.amounts import resource_text
from shoal.render.look import Look, clean, width_of

_BAR_CHARS = 20
LATELY_LEAST = 0.0005
"""Less than half a thousandth of the fleet is not worth a word."""


def queue_tree(views: Sequence[QueueView], look: Look) -> list[str]:
    """Parents before children, siblings by name; a queue whose parent is not in `views` stands at the top."""
    names = {view.name for view in views}
    children: dict[str | None, list[QueueView]] = {}
    for view in sorted(views, key=lambda view: view.name):
        children.setdefault(view.parent if view.parent in names else None, []).append(view)
    rows: list[tuple[str, str, QueueView]] = []
    _collect(children, None, "", rows, look)
    width = max((width_of(lead) for lead, _, _ in rows), default=0)
    lines: list[str] = []
    for lead, under, view in rows:
        lines.append(f"{lead}{' ' * (width - width_of(lead))}  {_summary(view)}".rstrip())
        lines += [f"{under}{' ' * (width - width_of(under))}  {bar}" for bar in _bars(view, look)]
    return lines


def _collect(
    children: dict[str | None, list[QueueView]], parent: str | None, indent: str, rows: list[tuple[str, str, QueueView]], look: Look
) -> None:
    brothers = children.get(parent, [])
    for at, view in enumerate(brothers):
        last = at == len(brothers) - 1
        lead = "" if parent is None else look.pick("└─ ", "`- ") if last else look.pick("├─ ", "|- ")
        below = indent + ("" if parent is None else "   " if last else look.pick("│  ", "|  "))
        under = below + (look.pick("│  ", "|  ") if children.get(view.name) else "")
        rows.append((indent + lead + clean(view.name), under, view))
        _collect(children, view.name, below, rows, look)


def _summary(view: QueueView) -> str:
    """Jobs, what differs from the usual, and the use of late where there is some to speak of."""
    spec = view.spec
    parts = [f"{view.running_jobs} running", f"{view.pending_jobs} waiting" + (f" ({view.pending_gpus} GPUs)" if view.pending_gpus else "")]
    if spec.weight != 1000:
        parts.append(f"weight {spec.weight / 1000:g}")
    if spec.order == "strict":
        parts.append("strict order")
    if spec.closed:
        parts.append("closed")
    bounds = {name: value for name in spec.limits.__struct_fields__ if (value := getattr(spec.limits, name)) is not None}
    parts += [
        f"{name.removesuffix('_ms')} up to {format_duration_ms(value) if name == 'time_ms' else value}" for name, value in bounds.items()
    ]
    lately = max(view.used_lately.values(), default=0.0)
    if lately >= LATELY_LEAST:
        parts.append(f"used {lately:.1%} of late")
    return ", ".join(parts)


def _bars(view: QueueView, look: Look) -> list[str]:
    quotas = view.spec.quotas
    resources = sorted({*quotas, *(name for name, amount in view.used.items() if amount and name.startswith("gpu"))})
    width = max((len(name) for name in resources), default=0)
    return [f"{name:<{width}}  {_bar(view, name, quotas.get(name), look)}" for name in resources]


def _bar(view: QueueView, resource: str, quota: Quota | None, look: Look) -> str:
    used = view.used.get(resource, 0)
    if quota is None:
        return f"{resource_text(resource, used)} in use, no quota"
    nominal = quota.nominal
    full = min(_BAR_CHARS, _BAR_CHARS * used // nominal) if nominal else _BAR_CHARS if used else 0
    borrowed = max(view.borrowed.get(resource, 0), used - nominal, 0)
    colour = "yellow" if borrowed else "green"
    bar = look.paint(look.pick("█", "#") * full, colour) + look.pick("░", ".") * (_BAR_CHARS - full)
    notes = [f"{resource_text(resource, used)}/{resource_text(resource, nominal)}"]
    if borrowed:
        notes.append(f"{resource_text(resource, borrowed)} borrowed")
    if quota.borrowing_limit is not None:
        notes.append(f"may borrow {resource_text(resource, quota.borrowing_limit)}")
    if quota.lending_limit is not None:
        notes.append(f"lends {resource_text(resource, quota.lending_limit)}")
    return f"{bar}  {', '.join(notes)}"

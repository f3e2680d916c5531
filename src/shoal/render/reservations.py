"""Reservations of nodes as a table, and one as a screen."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.model.reservation import ReservationSpec
from shoal.model.wire import ReservationView
from shoal.render.look import Look, clean, span
from shoal.render.table import Column, table

_NODES_SHOWN_MAX = 4


def reservation_table(views: Sequence[ReservationView], look: Look) -> list[str]:
    """A line each: when, how long, which nodes, for whom, why."""
    rows = [
        (
            clean(view.name),
            "passed" if view.next_start_ms is None else look.clock(view.next_start_ms),
            span(view.spec.end_ms - view.spec.start_ms),
            view.spec.repeat or "",
            _some(view.nodes),
            _for_whom(view.spec),
            clean(view.spec.reason),
        )
        for view in views
    ]
    columns = (Column("NAME"), Column("NEXT"), Column("FOR"), Column("AGAIN"), Column("NODES"), Column("WHO"), Column("WHY", least=10))
    return list(table(columns, rows, look)) if rows else []


def reservation_screen(view: ReservationView, look: Look) -> list[str]:
    """All that is known of one reservation."""
    spec = view.spec
    place = f"pool {spec.pool}" if spec.pool is not None else spec.domain or "named"
    known = [
        ("begins", "has passed" if view.next_start_ms is None else look.clock(view.next_start_ms)),
        ("ends", "" if view.next_end_ms is None else look.clock(view.next_end_ms)),
        ("again", spec.repeat or ""),
        ("who", _for_whom(spec)),
        ("why", clean(spec.reason)),
        ("nodes", f"{clean(place)}: {clean(', '.join(view.nodes)) or 'none yet'}"),
        ("at work", clean(", ".join(view.busy))),
    ]
    head = f"Reservation {look.paint(clean(view.name), 'bold')}"
    return [head, "", *(f"  {word:<10}{value}" for word, value in known if value)]


def _some(nodes: Sequence[str]) -> str:
    shown = ", ".join(nodes[:_NODES_SHOWN_MAX])
    return clean(shown if len(nodes) <= _NODES_SHOWN_MAX else f"{shown} and {len(nodes) - _NODES_SHOWN_MAX} more")


def _for_whom(spec: ReservationSpec) -> str:
    told = [*(f"user {name}" for name in spec.users), *(f"project {name}" for name in spec.projects), *(f"queue {q}" for q in spec.queues)]
    return clean(", ".join(told)) or "nobody"

"""Schedules as a table, and one with its runs as a screen."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.model.schedule import Schedule, ScheduledRun
from shoal.render.look import Look, clean
from shoal.render.table import Column, table


def schedule_table(schedules: Sequence[Schedule], look: Look) -> list[str]:
    """A line each: when, the next time, and what the last one came to."""
    rows = [
        (
            clean(one.name),
            clean(one.spec.cron),
            clean(one.spec.time_zone),
            next_text(one, look),
            _run_text(one.runs[-1]) if one.runs else "",
            one.spec.overlap,
            clean(one.owner),
        )
        for one in schedules
    ]
    titles = ("NAME", "WHEN", "ZONE", "NEXT", "LAST", "OVERLAP", "OWNER")
    return list(table([Column(title) for title in titles], rows, look)) if rows else []


def schedule_screen(schedule: Schedule, look: Look) -> list[str]:
    """All that is known of one, its runs newest first."""
    spec = schedule.spec
    known = [
        ("when", clean(f"{spec.cron} ({spec.time_zone})")),
        ("next", next_text(schedule, look)),
        ("overlap", spec.overlap),
        ("job", clean(spec.job.name)),
        ("owner", clean(schedule.owner)),
    ]
    rows = [(look.clock(run.due_ms), _run_text(run), clean(run.message)) for run in reversed(schedule.runs)]
    head = f"Schedule {look.paint(clean(schedule.name), 'bold')}"
    runs = ["", *table((Column("DUE"), Column("RUN"), Column("WHY", least=10)), rows, look)] if rows else []
    return [head, "", *(f"  {word:<10}{value}" for word, value in known if value), *runs]


def next_text(schedule: Schedule, look: Look) -> str:
    """When it comes next, in words."""
    if schedule.spec.paused:
        return "paused"
    return "never again" if schedule.next_ms is None else look.clock(schedule.next_ms)


def _run_text(run: ScheduledRun) -> str:
    return f"job {run.number}" if run.outcome == "submitted" else run.outcome

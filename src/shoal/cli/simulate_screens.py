"""What `shoal simulate` shows: a table with a row per policy, and under a single one the classes of jobs by size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.render.look import Look, span
from shoal.render.table import Column, table

if TYPE_CHECKING:
    from shoal.sim.audit import Audit
    from shoal.sim.metrics import Metrics, SizeClass, Spread
    from shoal.sim.simulate import Simulation

_FIGURES = tuple(
    Column(title, right=True, spared=spared)
    for title, spared in (
        ("ENDED", 0),
        ("LEFT", 0),
        ("WAIT", 0),
        ("P50", 3),
        ("P95", 1),
        ("P99", 4),
        ("SLOWDOWN", 0),
        ("JCT", 0),
        ("JCT P95", 5),
        ("UTILISATION", 0),
        ("STEADY", 2),
        ("ALLOCATION", 6),
        ("FRAGMENTED", 8),
        ("BROKEN", 10),
        ("WASTE", 9),
        ("FAIRNESS", 7),
        ("FORECAST OFF", 11),
    )
)
_ENDED = {"SUCCEEDED", "FAILED", "CANCELLED", "TIMEOUT", "OOM", "NODE_LOST", "PREEMPTED", "DEADLINE"}


def simulation_screen(simulation: Simulation, look: Look) -> list[str]:
    """Lines: what was played, the policies side by side, classes by size of the only one, notes."""
    rows = [(run.policy.name, *_figures(run.metrics)) for run in simulation.runs]
    fleet = f"{simulation.jobs:,} jobs on {simulation.nodes:,} nodes with {simulation.gpus:,} GPUs"
    lines = [f"{simulation.trace}: {fleet}", "", *table((Column("POLICY"), *_FIGURES), rows, look)]
    for run in simulation.runs:
        if run.audit is not None:
            lines += ["", f"guarantees under {run.policy.name}:", *audit_lines(run.audit)]
    if len(simulation.runs) == 1:
        lines += ["", *_by_size(simulation.runs[0].metrics.by_size, look)]
    if simulation.notes:
        lines += ["", *(look.paint(f"note: {note}", "dim") for note in simulation.notes)]
    return lines


def _figures(metrics: Metrics) -> tuple[str, ...]:
    left = sum(count for state, count in metrics.states.items() if state not in _ENDED)
    return (
        f"{sum(metrics.states.values()) - left:,}",
        f"{left:,}" if left else "",
        *_waits(metrics.wait_s),
        f"{metrics.bounded_slowdown.mean:,.1f}",
        _time(metrics.jct_s.mean),
        _time(metrics.jct_s.p95),
        f"{metrics.utilisation:.1%}",
        f"{metrics.utilisation_steady:.1%}",
        f"{metrics.allocation:.1%}",
        f"{metrics.fragmentation:.1%}",
        f"{metrics.broken:.1%}" if metrics.broken else "",
        f"{metrics.waste:.1%}",
        f"{metrics.fairness:.3f}",
        _time(metrics.forecast_error_s.p50) if metrics.forecasts else "",
    )


def _waits(spread: Spread) -> tuple[str, str, str, str]:
    return _time(spread.mean), _time(spread.p50), _time(spread.p95), _time(spread.p99)


def _time(seconds: float) -> str:
    return span(round(seconds * 1_000))


def audit_lines(audit: Audit) -> list[str]:
    """What became of each guarantee, and the first promises that were broken."""
    if not audit.cell_gpus:
        return [f"  nothing is promised here: {audit.why}"]
    lines = []
    for tenant in audit.tenants:
        bound, longest = _time(tenant.bound_s), _time(tenant.longest_owed_s)
        verdict = f"{tenant.broken_count:,} BROKEN" if tenant.broken_count else "kept"
        more = f", {tenant.own:,} waited for their own queue" if tenant.own else ""
        unjudged = f", {tenant.unpromised:,} of shapes without a promise" if tenant.unpromised else ""
        lines.append(
            f"  {tenant.queue}: {tenant.gpus:,} GPUs in cells of {audit.cell_gpus}, back within {bound}: {verdict}; "
            f"{tenant.promised:,} jobs, owed room for {longest} at most{more}{unjudged}"
        )
        for broken in tenant.broken:
            alone, owed = _time(broken.alone_s), _time(broken.owed_s)
            lines.append(f"    {broken.job}: waited {_time(broken.waited_s)}, alone {alone}, owed room for {owed}")
    return lines


def _by_size(classes: tuple[SizeClass, ...], look: Look) -> list[str]:
    titles = ("JOBS", "WAIT", "P50", "P95", "P99", "SLOWDOWN", "JCT")
    rows = [(one.gpus, f"{one.jobs:,}", *_waits(one.wait_s), f"{one.bounded_slowdown.mean:,.1f}", _time(one.jct_s.mean)) for one in classes]
    return table((Column("GPUS"), *(Column(title, right=True) for title in titles)), rows, look)

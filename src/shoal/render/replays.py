"""
Replays as pictures: how many jobs waited and how much of the fleet was in use over time, and who ran where. Uses the door of `plots`.

One picture for all policies of a comparison: a line for each in the upper two panels, a panel with a bar per job for each of the first few.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shoal.render.plots import COLOURS, check_file, new_figure, save

GANTTS_MAX = 3
NODES_MAX = 256
"""Rows of a panel; nodes behind these are not drawn, and the panel says so."""
LABELLED_BARS_MAX = 80
NAMED_NODES_MAX = 24
VECTOR_BARS_MAX = 1_000
"""Bars that are drawn as shapes; more are drawn as points, else a picture has tens of megabytes."""
_UNITS = ((2 * 86_400.0, 86_400.0, "days"), (2 * 3_600.0, 3_600.0, "hours"), (0.0, 60.0, "minutes"))


class Stretch(NamedTuple):
    """A job on a node: seconds from the start, its number, which chooses the colour, and what few bars are labelled with."""

    node: str
    start_s: float
    end_s: float
    number: int
    label: str = ""


class Played(NamedTuple):
    """A replay under one policy: means over spans of `span_s` seconds, and jobs on nodes."""

    name: str
    span_s: float
    waiting: Sequence[float]
    held: Sequence[float]
    owned: Sequence[float]
    stretches: Sequence[Stretch]


def draw_replays(file: Path, title: str, played: Sequence[Played]) -> None:
    """Writes the picture. Raises Invalid for another kind of file, Refused without matplotlib."""
    check_file(file)
    gantts = [one for one in played if one.stretches][:GANTTS_MAX]
    figure = new_figure((9.6, 4.6 + 2.8 * len(gantts)))
    axes = figure.subplots(2 + len(gantts), 1, sharex=True, squeeze=False)[:, 0]
    long_s = max((one.span_s * len(one.held) for one in played), default=0.0)
    unit_s, unit = next((unit_s, unit) for least, unit_s, unit in _UNITS if long_s >= least)
    for at, one in enumerate(played):
        colour = COLOURS[at % len(COLOURS)]
        times = [(place + 0.5) * one.span_s / unit_s for place in range(len(one.held))]
        axes[0].plot(times, one.waiting, color=colour, linewidth=1.2, label=one.name)
        axes[1].plot(times, [h / o if o else 0.0 for h, o in zip(one.held, one.owned, strict=True)], color=colour, linewidth=1.2)
    axes[0].set_ylabel("jobs waiting")
    axes[1].set_ylabel("GPUs held / owned")
    axes[1].set_ylim(0.0, 1.05)
    axes[0].legend(fontsize=8, frameon=False, ncols=4)
    for axis, one in zip(axes[2:], gantts, strict=True):
        _draw_gantt(axis, one, unit_s)
    for axis in axes:
        axis.grid(visible=True, alpha=0.25)
    axes[-1].set_xlabel(f"time [{unit}]")
    figure.suptitle(title, fontsize=11)
    save(file, title, figure)


def _draw_gantt(axis: Any, played: Played, unit_s: float) -> None:
    """A row per node, a bar per job; bars of one node lie over each other where jobs share it, half transparent."""
    nodes = sorted({stretch.node for stretch in played.stretches})
    few = len(played.stretches) <= LABELLED_BARS_MAX
    shown = {node: at for at, node in enumerate(nodes[:NODES_MAX])}
    for colour_at, colour in enumerate(COLOURS):
        mine = [s for s in played.stretches if s.number % len(COLOURS) == colour_at and s.node in shown]
        axis.barh(
            [shown[s.node] for s in mine],
            [(s.end_s - s.start_s) / unit_s for s in mine],
            left=[s.start_s / unit_s for s in mine],
            height=0.9,
            color=colour,
            alpha=0.55,
            edgecolor="white",
            linewidth=0.4 if few else 0.0,
            rasterized=len(played.stretches) > VECTOR_BARS_MAX,
        )
    for s in played.stretches if few else ():
        if s.node in shown:
            axis.text(
                (s.start_s + s.end_s) / 2 / unit_s,
                shown[s.node],
                s.label or str(s.number),
                fontsize=6,
                ha="center",
                va="center",
                clip_on=True,
            )
    if len(shown) <= NAMED_NODES_MAX:
        axis.set_yticks(list(shown.values()), list(shown), fontsize=7)
    else:
        axis.yaxis.get_major_locator().set_params(integer=True)
    left_out = f", the first {NODES_MAX} of {len(nodes)}" if len(nodes) > NODES_MAX else ""
    axis.set_ylabel("nodes")
    axis.set_title(f"{played.name}: jobs on nodes{left_out}", fontsize=9)
    axis.invert_yaxis()

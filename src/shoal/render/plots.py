"""
Curves of planning answers as pictures. The one door for matplotlib, which is an extra.

Axes carry name and unit; refused points are a gap; `.html` is a page with the picture inside as SVG.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shoal.base.errors import Invalid, Refused
from shoal.planning.answer import Answer, Movement, Table
from shoal.planning.plan import Point

LINES_MAX = 4
BARS_MAX = 6
LAYERS_MAX = 40
COLOURS = ("#0b6e99", "#c45d1c", "#4d8b31", "#7a5aa6")
FORMATS = (".png", ".svg", ".html")
DPI = 130


class Curve(NamedTuple):
    """Answers along one input. `at` is where the asked question lies."""

    question: str
    input: str
    unit: str
    points: tuple[Point, ...]
    at: float | None = None
    beside: tuple[str, ...] = ()


def draw(file: Path, curve: Curve, movements: Sequence[Movement]) -> None:
    """Writes the picture. Raises Invalid for another kind of file, or where nothing could be drawn; Refused without matplotlib."""
    check_file(file)
    if not any(isinstance(point.answer, Answer) for point in curve.points):
        raise Invalid("--plot: every point of the curve is refused, there is nothing to draw")
    save(
        file,
        curve.question,
        _figure(curve, [moved for moved in movements if None not in (moved.low, moved.high) and moved.low != moved.high][:BARS_MAX]),
    )


def check_file(file: Path) -> None:
    """Raises Invalid for a file of a kind that is not written here."""
    if file.suffix.lower() not in FORMATS:
        raise Invalid(f"--plot {file}: write one of {', '.join(FORMATS)}")


def draw_layers(file: Path, question: str, layers: Table) -> None:
    """Writes a Gantt chart of an image pull: each layer's download and unpacking. Raises as `draw`."""
    check_file(file)
    figure = new_figure((8.0, 1.6 + 0.34 * min(LAYERS_MAX, len(layers.rows))))
    axis = figure.subplots()
    rows = layers.rows[:LAYERS_MAX]
    for at, (_, _, start, fetched, unpack, ready) in enumerate(rows):
        for begin, end, colour, name in ((start, fetched, COLOURS[0], "download"), (unpack, ready, COLOURS[1], "unpack")):
            axis.barh(at, float(end) - float(begin), left=float(begin), height=0.7, color=colour, label=name if at == 0 else None)
    axis.set_yticks(range(len(rows)), [f"layer {row[0]}: {float(row[1]):.3g} GB" for row in rows], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel("time [s]")
    axis.grid(visible=True, axis="x", alpha=0.25)
    axis.legend(fontsize=8, frameon=False)
    figure.suptitle(question, fontsize=11)
    save(file, question, figure)


def save(file: Path, question: str, figure: Any) -> None:
    """Writes a figure as what the file's name says; equal figures give equal bytes."""
    from matplotlib import rc_context

    kind = file.suffix.lower()
    if kind == ".png":
        figure.savefig(file, dpi=DPI)
        return
    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": "shoal"}):  # Its ids are drawn at random otherwise.
        figure.savefig(buffer, format="svg", dpi=DPI, metadata={"Date": None})
    picture = buffer.getvalue()
    if kind == ".svg":
        file.write_text(picture, encoding="utf-8")
        return
    picture = picture[picture.index("<svg") :]
    file.write_text(f'<!doctype html>\n<meta charset="utf-8">\n<title>{question}</title>\n{picture}', encoding="utf-8")


def new_figure(size: tuple[float, float]) -> Any:
    """A figure of a width and height in inches. Raises Refused without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Refused("plots need matplotlib: install shoal[plots]") from error
    return Figure(figsize=size, layout="constrained")


def _figure(curve: Curve, movements: list[Movement]) -> Any:
    bars = bool(movements)
    figure = new_figure((9.6 if bars else 6.6, 4.2))
    axes = figure.subplots(1, 2, width_ratios=(3, 2)) if bars else [figure.subplots()]
    _draw_lines(axes[0], curve)
    if bars:
        _draw_bars(axes[1], curve, movements)
    figure.suptitle(curve.question, fontsize=11)
    return figure


def _label(name: str, unit: str) -> str:
    return name.replace("_", " ") + (f" [{unit}]" if unit not in ("1", "") else "")


def _draw_lines(axis: Any, curve: Curve) -> None:
    answers = [point.answer for point in curve.points if isinstance(point.answer, Answer)]
    head = answers[0].headline
    by_unit = (
        []
        if head.unit == "1"
        else [number.name for number in answers[0].numbers if number.unit == head.unit and not isinstance(number.value, str | tuple | bool)]
    )
    names = [head.name, *(name for name in curve.beside or by_unit if name != head.name)][:LINES_MAX]
    for name, colour in zip(names, COLOURS, strict=False):
        heights = [_height(point, name) for point in curve.points]
        wide = 2.2 if name == head.name else 1.2
        axis.plot([point.at for point in curve.points], heights, color=colour, linewidth=wide, label=name.replace("_", " "))
    if curve.at is not None:
        axis.axvline(curve.at, color="#888888", linewidth=0.8, linestyle=":")
    values = [point.at for point in curve.points]
    if min(values) > 0 and max(values) / min(values) >= 10:
        _logarithmic(axis)
    axis.set_xlabel(_label(curve.input, curve.unit))
    axis.set_ylabel(_label(head.name if len(names) == 1 else "", head.unit).strip() or "share or number")
    axis.grid(visible=True, alpha=0.25)
    axis.legend(fontsize=8, frameon=False)


def _logarithmic(axis: Any) -> None:
    """A logarithmic input axis with plain numbers at 1, 2, 5, 10."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())


def _height(point: Point, name: str) -> float:
    """The number called `name` at a point; not a number where it was refused, which leaves a gap."""
    if not isinstance(point.answer, Answer):
        return float("nan")
    for number in point.answer.numbers:
        if number.name == name and not isinstance(number.value, str | tuple):
            return float(number.value)
    return float("nan")


def _draw_bars(axis: Any, curve: Curve, movements: list[Movement]) -> None:
    head = next(point.answer for point in curve.points if isinstance(point.answer, Answer)).headline
    for at, moved in enumerate(reversed(movements)):
        low, high = moved.low or 0.0, moved.high or 0.0
        axis.barh(at, high - low, left=low, color=COLOURS[0] if high >= low else COLOURS[1], height=0.6)
    axis.set_yticks(range(len(movements)), [moved.input.replace("_", " ") for moved in reversed(movements)], fontsize=8)
    axis.use_sticky_edges = False
    axis.set_xlabel(_label(head.name, head.unit))
    axis.set_title("each input a tenth lower .. higher", fontsize=9)
    axis.grid(visible=True, axis="x", alpha=0.25)

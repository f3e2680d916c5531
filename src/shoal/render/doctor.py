"""`shoal doctor`: a verdict on one screen - the stack with the broken layer, why, the deciding lines, what to do, where to look next."""

from __future__ import annotations

from typing import Final

from shoal.diagnosis.finding import CONFIDENT, Finding, Verdict
from shoal.diagnosis.layers import LAYERS, STACK, Layer
from shoal.render.look import Look, clean, cut, wrap

_CONSEQUENCES_SHOWN_MAX: Final = 4
_LINES_SHOWN_MAX: Final = 5
_LINE_WIDTH_LEAST: Final = 40


def verdict_screen(verdict: Verdict, look: Look) -> list[str]:
    """The whole verdict."""
    root = verdict.root
    lines = [*_stack(verdict, look), "", *wrap(root.cause, look, "  ", f"{_title(root, look)}: ")]
    lines += _evidence(root, look)
    if root.layer is not Layer.NONE:
        lines += ["", *wrap(root.fix, look, "     ", "Fix: ")]
        lines += [f"     $ {clean(command)}" for command in root.commands]
    lines += _consequences(verdict, look)
    if verdict.next_probe is not None:
        probe = verdict.next_probe
        why = "Next look" if root.confidence <= CONFIDENT else "To be sure"
        lines += ["", *wrap(f"{probe.command}   ({probe.name}, about {probe.seconds} s, needs {probe.needs})", look, "     ", f"{why}: ")]
    return lines


def verdict_line(verdict: Verdict, look: Look) -> str:
    """The verdict on one line, for lists of many."""
    root = verdict.root
    colour = "green" if root.layer is Layer.NONE else "yellow" if root.confidence <= CONFIDENT else "red"
    head = f"{clean(verdict.id)}  " if verdict.id else ""
    return f"{head}{look.paint(str(root.layer), colour)} ({root.confidence:.2f})  {clean(root.cause)}"


def _title(root: Finding, look: Look) -> str:
    if root.layer is Layer.NONE:
        return look.paint("Healthy" if root.rule == "healthy" else "Not a fault", "green")
    if root.layer is Layer.UNKNOWN:
        return look.paint("Not known yet", "yellow")
    words = LAYERS[root.layer].title
    sure = f"{root.layer}, {words}; certainty {root.confidence:.0%}"
    return look.paint(sure, "red" if root.confidence > CONFIDENT else "yellow")


def _stack(verdict: Verdict, look: Look) -> list[str]:
    """Every layer with its mark, from the metal up: good, the root, what follows from it, not looked at."""
    followers = {finding.layer for finding in verdict.consequences}
    marks = []
    for layer in STACK:
        if layer is verdict.root.layer:
            marks.append(look.paint(f"{look.pick('✗', 'X')} {layer}", "red"))
        elif layer in verdict.good:
            marks.append(look.paint(f"{look.pick('✓', '+')} {layer}", "green"))
        elif layer in followers:
            marks.append(look.paint(f"{look.pick('↑', '^')} {layer}", "yellow"))
        else:
            marks.append(look.paint(f"{look.pick('·', '.')} {layer}", "dim"))
    return _columns(marks, [len(layer) + 2 for layer in STACK], look.width or 100)


def _columns(marks: list[str], widths: list[int], room: int) -> list[str]:
    cell = max(widths) + 2
    per_line = max(1, room // cell)
    padded = [mark + " " * (cell - width) for mark, width in zip(marks, widths, strict=True)]
    return ["".join(padded[start : start + per_line]).rstrip() for start in range(0, len(padded), per_line)]


def _evidence(root: Finding, look: Look) -> list[str]:
    room = max(_LINE_WIDTH_LEAST, (look.width or 160) - 4)
    shown = root.evidence[:_LINES_SHOWN_MAX]
    lines = [f"  {look.pick('│', '|')} {cut(f'{clean(place.key)}:{place.line}  {clean(place.text)}', room, look)}" for place in shown]
    return ["", *lines] if lines else []


def _consequences(verdict: Verdict, look: Look) -> list[str]:
    others = [finding for finding in verdict.consequences if finding.layer is not Layer.NONE]
    if not others:
        return []
    lines = ["", "What follows from it, or less likely by itself:"]
    for finding in others[:_CONSEQUENCES_SHOWN_MAX]:
        lines += wrap(finding.cause, look, "    ", f"  {look.pick('↑', '^')} {finding.layer}: ")
    if len(others) > _CONSEQUENCES_SHOWN_MAX:
        lines.append(f"  ... and {len(others) - _CONSEQUENCES_SHOWN_MAX} more (--json shows all)")
    return lines

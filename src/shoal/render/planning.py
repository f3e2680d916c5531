"""Answers of `planning` on a terminal: the headline, every number, the derivation, what moves it; curves and variants as tables."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.planning.answer import Answer, Movement, Number, Refused, Scalar, Table
from shoal.planning.explain import value_words
from shoal.planning.plan import Point
from shoal.planning.quantity import figure, in_words
from shoal.render.look import Look, wrap
from shoal.render.table import Cell, Column, table

MOVEMENTS_SHOWN_MAX = 5
ROWS_SHOWN_MAX = 40
"""Rows of an answer's own tables on a screen; --json has all."""
COLUMNS_SHOWN_MAX = 5
LABEL = 10


def answer_screen(question: str, answer: Answer, look: Look) -> list[str]:
    """The whole answer: question, numbers, tables, and what the reader must know to use them."""
    lines = [*wrap(question, look), ""]
    head = answer.headline
    rows = [_number_row(number, number is head) for number in answer.numbers]
    lines += table([Column("RESULT"), Column("VALUE", right=True), Column("", least=12, spared=1)], rows, look)
    for one in answer.tables:
        lines += ["", *answer_table(one, look)]
    return [*lines, "", *_words(answer, look)]


def _number_row(number: Number, headline: bool) -> tuple[Cell, Cell, str]:
    colour = "bold" if headline else ""
    return Cell(number.name, colour), Cell(value_words(number.value, number.unit), colour), number.words


def answer_table(one: Table, look: Look) -> list[str]:
    """A table of an answer, with its name."""
    rows = [[_scalar(item) for item in row] for row in one.rows[:ROWS_SHOWN_MAX]]
    texts = [any(isinstance(row[at], str) for row in one.rows) for at in range(len(one.columns))]
    columns = [Column(name, right=not text, least=12 if text else None) for name, text in zip(one.columns, texts, strict=True)]
    lines = [look.paint(one.name, "cyan"), *table(columns, rows, look)]
    more = len(one.rows) - ROWS_SHOWN_MAX
    return [*lines, f"... and {more} more rows (--json shows all)"] if more > 0 else lines


def _scalar(item: Scalar) -> str:
    return item if isinstance(item, str) else figure(item)


def _words(answer: Answer, look: Look) -> list[str]:
    lines = _labelled("model", answer.model, look) + _labelled("holds for", answer.holds, look)
    if answer.binding:
        lines += _labelled("decides", answer.binding, look)
    if answer.assumed:
        words = ", ".join(f"{one.input} {value_words(one.value, one.unit)}" for one in answer.assumed)
        lines += _labelled("assumed", words, look, "yellow")
    for note in answer.notes:
        lines += _labelled("note", note, look)
    shown = [moved for moved in answer.sensitivity if moved.low != moved.high or moved.low is None][:MOVEMENTS_SHOWN_MAX]
    return lines + [line for moved in shown for line in _movement(moved, answer.headline, look)]


def _labelled(label: str, words: str, look: Look, colour: str = "dim") -> list[str]:
    pad = " " * (LABEL - len(label))
    return wrap(words, look, " " * LABEL, look.paint(label, colour) + pad)


def _movement(moved: Movement, head: Number, look: Look) -> list[str]:
    ends = [("refused" if end is None else in_words(end, head.unit)) for end in (moved.low, moved.high)]
    inputs = f"{in_words(moved.low_input, moved.unit)} .. {in_words(moved.high_input, moved.unit)}"
    return _labelled("moves", f"{moved.input} {inputs}: {head.name} {ends[0]} .. {ends[1]}", look)


def refused_screen(refused: Refused, look: Look) -> list[str]:
    """Why there is no number, one reason per paragraph."""
    lines = [look.paint(f"{refused.topic}: no answer", "bold")]
    for refusal in refused.refusals:
        lines += wrap(refusal.message, look, "    ", f"  {look.pick('•', '*')} {look.paint(refusal.code, 'red')}: ")
    return lines


def derivation_lines(derived: Sequence[tuple[Number, str]], look: Look) -> list[str]:
    """Each result as formula, formula with numbers, result."""
    lines: list[str] = []
    for number, filled in derived:
        result = value_words(number.value, number.unit)
        lines.append(f"{look.paint(number.name, 'bold')} = {result}" + (f"  ({number.words})" if number.words else ""))
        if number.formula:
            lines += wrap(number.formula, look, "    ", "    by: " if number.searched else "  = ")
        if filled and not number.searched and filled != number.formula:
            lines += wrap(filled, look, "    ", "  = ")
    return lines


def sweep_table(input: str, unit: str, points: Sequence[Point], look: Look) -> list[str]:
    """A curve as rows, one per value of the input; a refusal stands where the number would."""
    first = next((point.answer for point in points if isinstance(point.answer, Answer)), None)
    names = column_names(first) if first is not None else []
    titles = [Column(_titled(input, unit), right=True)]
    titles += (
        [Column(_titled(name, first.number(name).unit), right=True, spared=at) for at, name in enumerate(names)]
        if first is not None
        else []
    )
    rows = [[figure(point.at), *_cells(point.answer, names)] for point in points]
    return table(titles, rows, look)


def _titled(name: str, unit: str) -> str:
    return name if unit in ("1", "") else f"{name} [{unit}]"


def column_names(answer: Answer) -> list[str]:
    """The numbers that a curve or comparison shows: the headline, then others in order."""
    numeric = [n.name for n in answer.numbers if not isinstance(n.value, str | tuple) and n.name != answer.headline.name]
    lead = [answer.headline.name] if not isinstance(answer.headline.value, tuple) else []
    return (lead + numeric)[:COLUMNS_SHOWN_MAX]


def _cells(answer: Answer | Refused, names: Sequence[str]) -> list[str]:
    if isinstance(answer, Refused):
        return [answer.refusals[0].code, *("" for _ in names[1:])][: len(names)]
    known = {number.name: number for number in answer.numbers}
    return [_bare(known[name]) if name in known else "" for name in names]


def _bare(number: Number) -> str:
    return value_words(number.value, "1") if not isinstance(number.value, str) else number.value


def comparison(variants: Sequence[tuple[str, Answer | Refused]], look: Look) -> list[str]:
    """Variants side by side, a row per number."""
    answers = [answer for _, answer in variants if isinstance(answer, Answer)]
    names = list(dict.fromkeys(number.name for answer in answers for number in answer.numbers))
    rows = []
    for name in names:
        unit = next(number.unit for answer in answers for number in answer.numbers if number.name == name)
        rows.append([_titled(name, unit), *(_cells(answer, [name])[0] for _, answer in variants)])
    lines = table([Column("RESULT", least=16), *(Column(name, right=True, least=8) for name, _ in variants)], rows, look)
    for name, answer in variants:
        if isinstance(answer, Refused):
            lines += wrap(f"{name}: {answer.refusals[0].message}", look, "  ", "")
    return lines

"""docs/reference/planning.md: every question that `shoal plan` answers, with its inputs, from the records of inputs."""

from __future__ import annotations

from docs_source import cell

from shoal.planning.arrivals import FROM_TRACE
from shoal.planning.catalogue import CATALOGUE, topic_named
from shoal.planning.inputs import Field, default_words, fields_of
from shoal.planning.usage import FROM_USAGE

INTRO = """\
# Planning questions

Printed from `shoal.planning` by `tools/docs_planning.py` (`make docs`); change the code, not this page. How answers come about and where
they stop holding is told in [planning](../explanation/planning.md); each answer names its own model and range.

`shoal plan TOPIC` takes every input as a flag (`--node-rate 0.02/h`), by `--set`, or from a file. A value is *assumed* where the table says
so and nobody gives it. Lists and tables may come from files: `@layers.yaml`, `@jobs.csv`; `layers_compressed` also from an image's manifest
or the folder of an OCI layout.
"""


def planning_page() -> str:
    """The page's text."""
    parts = [INTRO]
    group = ""
    for word, entry in CATALOGUE.items():
        if entry.group != group:
            group = entry.group
            parts.append(f"## {group}\n")
        parts.append(_topic(word, entry.question))
    return "\n".join(parts)


def _topic(word: str, question: str) -> str:
    fields = fields_of(topic_named(word).inputs)
    rows = "\n".join(_row(field) for field in fields)
    usage = "`--from-usage` measures some of these on a record of use.\n\n" if word in FROM_USAGE else ""
    usage += "`--from-trace` measures some of these on a trace of arrivals.\n\n" if word in FROM_TRACE else ""
    tables = "".join(_columns(field) for field in fields if _is_table(field))
    return f"### `{word}`\n\n{question}\n\n{usage}| Input | Unit | What it is |\n|---|---|---|\n{rows}\n{tables}"


def _is_table(field: Field) -> bool:
    return field.many and field.kind not in (float, int, str)


def _row(field: Field) -> str:
    unit = "yes or no" if field.kind is bool else "rows" if _is_table(field) else field.ask.unit
    many = "list, " if field.many and not _is_table(field) else ""
    words = f"{field.ask.words}{default_words(field)}"
    return f"| `{field.name}` | {cell(many + unit)} | {cell(words)} |"


def _columns(field: Field) -> str:
    names = ", ".join(f"`{column.name}` ({column.ask.unit}: {column.ask.words})" for column in fields_of(field.kind))
    return f"\nColumns of `{field.name}`: {names}.\n"

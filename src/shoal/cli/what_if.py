"""`shoal plan what-if`: the running server's next cycle, as it would be with a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shoal.cli.options import complete_queue, epilog, json_option
from shoal.cli.session import open_session

if TYPE_CHECKING:
    from shoal.model.what_if import Fate, FateChange, WhatIf
    from shoal.render.look import Look


@click.command(
    "what-if",
    epilog=epilog(
        "shoal plan what-if --submit train.yaml",
        "shoal plan what-if --queue research gpu/h100=16 --return n3",
        "shoal plan what-if --drain n3 --cancel 12 --json",
    ),
)
@click.option("--submit", "files", multiple=True, type=click.Path(allow_dash=True), metavar="FILE", help="These jobs were submitted now.")
@click.option("--cancel", multiple=True, metavar="JOB", help="This job were gone, with what it holds.")
@click.option(
    "--queue",
    "quotas",
    multiple=True,
    type=(str, str),
    metavar="NAME RESOURCE=AMOUNT",
    shell_complete=complete_queue,
    help="A queue had this nominal quota: gpu/h100=16, gpus=16, cpu=64, memory=2TiB.",
)
@click.option("--drain", multiple=True, metavar="NODE", help="This node took no more work.")
@click.option("--return", "back", multiple=True, metavar="NODE", help="This node took work again.")
@json_option("the WhatIf")
def what_if(
    files: tuple[str, ...],
    cancel: tuple[str, ...],
    quotas: tuple[tuple[str, str], ...],
    drain: tuple[str, ...],
    back: tuple[str, ...],
    as_json: bool,
) -> None:
    """
    Say what the running server's next cycle would do otherwise: what starts, when, what is stopped or moved. Changes nothing.

    All that is given is supposed at once. Jobs of other projects are counted, not shown.
    """
    from shoal.cli.submitting import read_files
    from shoal.model.what_if import WhatIfAsk

    session = open_session(as_json)
    wanted: dict[str, dict[str, int]] = {}
    for name, text in quotas:
        resource, amount = _quota(text)
        wanted.setdefault(name, {})[resource] = amount
    specs = tuple(file.spec for file in read_files(files, ()))
    answer = session.api.jobs.what_if(WhatIfAsk(submit=specs, cancel=cancel, quotas=wanted, drain=drain, back=back))
    session.show(answer, lambda look: _lines(answer, look))


def _quota(text: str) -> tuple[str, int]:
    """A resource and its amount in the API's unit. Raises Invalid."""
    from shoal.base.errors import Invalid
    from shoal.cli.parse import memory_bytes, thousandths

    resource, equals, amount = text.partition("=")
    resource = "gpu" if resource == "gpus" else resource
    if not equals or resource.partition("/")[0] not in ("gpu", "cpu", "memory"):
        raise Invalid(f"--queue {text}: write NAME RESOURCE=AMOUNT, for example research gpu/h100=16")
    return resource, memory_bytes("--queue", amount) if resource == "memory" else thousandths("--queue", amount)


def _lines(answer: WhatIf, look: Look) -> list[str]:
    from shoal.render.table import Column, table

    rows = [(_name(change), change.queue, _words(change.now, look), _words(change.then, look)) for change in answer.changes]
    lines = table([Column("JOB"), Column("QUEUE"), Column("NOW", least=12), Column("THEN", least=12)], rows, look) if rows else []
    if not rows:
        lines = ["Nothing would go otherwise in the next cycle."]
    lines += [f"{change.job}: {change.then.reason}" for change in answer.changes if change.then.reason and change.then.what != "waits"]
    for why in answer.why:
        lines += [f"{why.job}: {why.headline}", *(f"  {hint}" for hint in why.hints)]
    if answer.more:
        lines.append(f"... and {answer.more} more jobs")
    if answer.others:
        lines.append(f"{answer.others} job{'s' if answer.others != 1 else ''} of other projects would fare otherwise too")
    if answer.bounded:
        lines.append("a cycle ended at one of its bounds: more would follow in the next")
    return lines


def _name(change: FateChange) -> str:
    return f"{change.job} (new)" if change.new else change.job


def _words(fate: Fate | None, look: Look) -> str:
    if fate is None:
        return "-"
    words = "room is freed for it" if fate.what == "clears" else fate.what
    if fate.nodes:
        words += f" on {', '.join(fate.nodes[:4])}" + (f" and {len(fate.nodes) - 4} more" if len(fate.nodes) > 4 else "")
    if fate.what == "waits" and fate.start_ms is not None:
        words += f", earliest {look.clock(fate.start_ms)}"
    return words

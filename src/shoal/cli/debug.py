"""`shoal debug`: a cycle of the running server as a file, and that cycle run again from it, anywhere."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.cli.exits import FAILED
from shoal.cli.options import epilog, json_option
from shoal.cli.session import leave, open_session

if TYPE_CHECKING:
    from shoal.render.look import Look
    from shoal.sim.again import Rerun

_SHOWN_MAX = 40


@click.group("debug", epilog=epilog("shoal debug snapshot cycle.json.gz", "shoal debug replay cycle.json.gz --why 12"))
def debug() -> None:
    """Take the next cycle's whole input to a file, and run it again without the server."""


@debug.command("snapshot", epilog=epilog("shoal debug snapshot cycle.json.gz", "shoal debug snapshot cycle.json --json"))
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@json_option("{file, bytes, jobs, nodes, version}")
def snapshot(file: Path, as_json: bool) -> None:
    """
    Write all that the next cycle judges: nodes, queues, jobs that have not ended, who holds what, and the policy. Admins only.

    What jobs run, their labels, and the values of their variables and secrets are masked; names of projects, people, queues, jobs and
    nodes stay. A name that ends in .gz is compressed.
    """
    import msgspec

    from shoal.sim.again import read_scene

    session = open_session(as_json)
    raw = session.api.jobs.debug_snapshot()
    scene = read_scene(raw, "the server's answer")
    raw = msgspec.json.format(raw, indent=1)  # People read it before they send it to anybody.
    file.write_bytes(gzip.compress(raw) if file.suffix == ".gz" else raw)
    jobs, nodes = len(scene.snapshot.jobs), len(scene.snapshot.nodes)
    record = {"file": str(file), "bytes": file.stat().st_size, "jobs": jobs, "nodes": nodes, "version": scene.snapshot.version}
    session.show(
        record, lambda _: [f"{file}: {jobs:,} jobs and {nodes:,} nodes at version {scene.snapshot.version}, {record['bytes']:,} bytes"]
    )


@debug.command(
    "replay",
    epilog=epilog(
        "shoal debug replay cycle.json.gz",
        "shoal debug replay cycle.json.gz --why 12 --why vision/40",
        "shoal debug replay cycle.json.gz --policy reserve=conservative,preempt=false",
    ),
)
@click.argument("file", metavar="FILE", type=click.Path(exists=True, path_type=Path, dir_okay=False))
@click.option("--why", multiple=True, metavar="JOB", help="Also say why this job waits, as `shoal why` would have.")
@click.option("--policy", metavar="KEY=VALUE,...", help="Decide under the snapshot's policy with these fields changed.")
@json_option("a Rerun, with the whole plan")
def replay(file: Path, why: tuple[str, ...], policy: str | None, as_json: bool) -> None:
    """Run the cycle of a snapshot again and print its plan, without a server. Ends with 1 if the plan breaks a rule."""
    from shoal.sim.again import read_scene, run_again
    from shoal.sim.policies import changed_policy

    session = open_session(as_json)
    scene = read_scene(_bytes(file), str(file))
    rerun = run_again(scene, changed_policy(scene.policy, policy) if policy else None, why)
    session.show(rerun, lambda look: _lines(rerun, look))
    if rerun.faults:
        leave(FAILED)


def _bytes(file: Path) -> bytes:
    """What is in it, uncompressed. Raises Invalid for a broken archive."""
    from shoal.base.errors import Invalid

    raw = file.read_bytes()
    try:
        return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError) as error:
        raise Invalid(f"{file} is compressed and broken: {error}; take the snapshot again") from error


def _lines(rerun: Rerun, look: Look) -> list[str]:
    from dataclasses import replace

    from shoal.render.table import Column, table
    from shoal.render.why import explanation_screen

    look = replace(look, now_ms=rerun.at_ms)
    counts = f"{rerun.nodes:,} nodes, {rerun.running:,} jobs with room, {rerun.pending:,} waiting"
    lines = [f"Cycle of {look.clock(rerun.at_ms)} at version {rerun.version}, by Shoal {rerun.shoal}: {counts}"]
    rows = [
        (row.what, row.job, _where(row.where), "" if row.start_ms is None else look.clock(row.start_ms), row.words) for row in rerun.decided
    ]
    if rows:
        columns = [Column("DECISION"), Column("JOB"), Column("NODES", least=8), Column("START"), Column("WHY", least=20)]
        lines += ["", *table(columns, rows[:_SHOWN_MAX], look)]
    else:
        lines.append("The plan decides nothing.")
    if len(rows) > _SHOWN_MAX:
        lines.append(f"... and {len(rows) - _SHOWN_MAX} more decisions (--json shows all)")
    for answer in rerun.why:
        lines += ["", *explanation_screen(answer, look)]
    return lines + [f"BROKEN RULE: {fault}" for fault in rerun.faults]


def _where(nodes: tuple[str, ...]) -> str:
    return ", ".join(nodes[:4]) + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")

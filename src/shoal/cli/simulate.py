"""
`shoal simulate`: a trace or a scenario played through the scheduler that runs jobs, without a server.

A scenario (YAML) is judged by what it expects and ends with 1 where it comes out otherwise; a trace gives figures per policy.
"""

from __future__ import annotations

import gzip
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.base.errors import Invalid
from shoal.cli.exits import FAILED
from shoal.cli.options import command, json_option
from shoal.cli.session import BadFile, Session, leave, open_session

if TYPE_CHECKING:
    from shoal.formats.gavel import Rates
    from shoal.model.node import Node
    from shoal.model.part import Partition
    from shoal.sim.bars import Bar
    from shoal.sim.series import Series
    from shoal.sim.simulate import Progress

NOTHING_PLAYED = "nothing was played"
OF_TRACES = ("fleet", "policies", "parts", "load", "jobs", "own_queues", "throughputs", "guarantees")
OF_SCENARIOS = ("interleavings", "story")
PROGRESS_S = 0.2
"""Between two looks of the progress line."""


@command(
    "simulate",
    "shoal simulate log.swf",
    "shoal simulate log.swf --fleet 128x8 --policy fcfs:order=strict --policy default",
    "shoal simulate pods.csv --fleet nodes.csv --load 1.2",
    "shoal simulate pods.csv --fleet nodes.csv --parts mps=16",
    "shoal simulate log.swf --plot week.html",
    "shoal simulate jobs.trace --throughputs throughputs.json --gpu v100 --fleet 16x4",
    "shoal simulate scenario.yaml --story",
    "shoal simulate scenario.yaml --interleavings 100",
    "shoal simulate log.swf --guarantee research=64 --guarantee vision=32",
    "shoal simulate scenario.yaml --audit",
)
@click.argument("trace", metavar="TRACE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--fleet", metavar="NODESxGPUS|FILE", help="Where it runs: 16x8, 16xh100:8,4xa100:4, or a node table; else what TRACE says.")
@click.option("--policy", "policies", multiple=True, metavar="NAME[:KEY=VALUE,...]", help="Play under this policy; twice or more compares.")
@click.option(
    "--format", "kind", type=click.Choice(["swf", "openb", "philly", "gavel", "scenario"]), help="What TRACE is, where it is not seen."
)
@click.option(
    "--parts", metavar="FORM", help="How GPUs are given: whole, mps=16, time-slice, mig; else in shares where TRACE asks for them."
)
@click.option("--seed", type=click.IntRange(0), help="Seed of what is drawn (0); of a scenario, this interleaving only.")
@click.option("--load", type=float, metavar="FACTOR", help="Arrivals so many times as fast (1).")
@click.option("--jobs", type=click.IntRange(1), metavar="COUNT", help="Only so many jobs, from the start.")
@click.option("--own-queues", is_flag=True, help="Keep the queues of the trace; else all jobs share one.")
@click.option(
    "--guarantee", "guarantees", multiple=True, metavar="QUEUE=GPUS", help="Give a queue of the trace a guarantee, and see if it was kept."
)
@click.option("--audit", is_flag=True, help="Hold what a scenario's queues are guaranteed against what each would have had alone.")
@click.option(
    "--throughputs", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Steps per second, for Gavel."
)
@click.option("--gpu", metavar="MODEL", default="v100", show_default=True, help="The GPU of --throughputs that jobs run on.")
@click.option("--plot", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Draw it: .png, .svg or .html.")
@click.option("--interleavings", metavar="COUNT", type=click.IntRange(1), help="Play a scenario in so many orders; else as it says.")
@click.option("--story", is_flag=True, help="Tell all that happened in a scenario, also where it is as expected.")
@click.option("--check", is_flag=True, help="Look at every invariant after every write (slow).")
@json_option("a Simulation, or a Verdict per interleaving of a scenario")
def simulate(trace: Path, as_json: bool, **given: Any) -> None:
    """Play a trace or a scenario through the scheduler."""
    session = open_session(as_json)
    if given["kind"] == "scenario" or (given["kind"] is None and trace.suffix in (".yaml", ".yml")):
        _refuse(given, OF_TRACES, "a scenario", "say it in the file")
        _scenario(session, trace, given)
    elif given["audit"] and not given["guarantees"]:
        raise Invalid("a trace has no guarantees to audit; give some: --guarantee QUEUE=GPUS")
    else:
        _refuse(given, OF_SCENARIOS, "a trace", "it is for scenarios")
        _trace(session, trace, given)


def _refuse(given: dict[str, Any], names: tuple[str, ...], what: str, instead: str) -> None:
    """Raises Invalid for an option that would have no effect."""
    for name in names:
        if given[name] not in (None, False, ()):
            raise Invalid(
                f"{what} takes no --{name.replace('_', '-').replace('policies', 'policy').replace('guarantees', 'guarantee')}: {instead}"
            )


def _scenario(session: Session, file: Path, given: dict[str, Any]) -> None:
    from msgspec.structs import replace

    from shoal.cli.simulate_screens import audit_lines
    from shoal.formats.scenario import read_scenario
    from shoal.sim.scenario import difference, play, whole_story

    try:
        scenario = read_scenario(file.read_bytes(), str(file))
    except Invalid as error:
        raise BadFile(str(file), error.faults, NOTHING_PLAYED) from error
    if given["plot"] is not None:
        _can_draw(given["plot"])
    seeds = range(given["interleavings"] or scenario.interleavings) if given["seed"] is None else (given["seed"],)
    good = bad = 0
    for seed in seeds:
        verdict = play(scenario, seed, chart=given["plot"] is not None and seed == seeds[0], audited=given["audit"])
        good, bad = good + verdict.good, bad + (not verdict.good)
        if given["plot"] is not None and seed == seeds[0]:
            _draw(session, given["plot"], verdict.name, [(f"interleaving {seed}", verdict.series, verdict.bars)])
        if session.as_json or given["story"] or verdict.faults:
            session.row(replace(verdict, series=None, bars=()), (whole_story if given["story"] else difference)(verdict))
        if verdict.audit is not None and not session.as_json:
            session.out("\n".join(audit_lines(verdict.audit)))
    if not session.as_json:
        waits = f"; it waits for {scenario.waits_for}" if scenario.waits_for else ""
        session.out(f"{scenario.name}: {good} of {good + bad} interleavings come out as expected{waits}")
    if bad:
        leave(FAILED)


def _trace(session: Session, file: Path, given: dict[str, Any]) -> None:
    from shoal.cli.simulate_screens import simulation_screen
    from shoal.sim.policies import named_policy
    from shoal.sim.simulate import PER_NODE, Setting, fleet_for, read_trace
    from shoal.sim.simulate import simulate as play

    if given["plot"] is not None:
        _can_draw(given["plot"])
    nodes = _fleet(given["fleet"])
    per_node = max((len(node.facts.devices) for node in nodes), default=0) or PER_NODE
    with _opened(file) as lines:
        workload = read_trace(lines, str(file), per_node, given["kind"], _rates(given["throughputs"], given["gpu"]))
    setting = Setting(
        nodes=nodes or fleet_for(workload),
        parts=_parts(given["parts"]),
        policies=tuple(named_policy(text, _bytes_of) for text in given["policies"] or ("default",)),
        seed=given["seed"] or 0,
        load=1.0 if given["load"] is None else given["load"],
        jobs=given["jobs"],
        own_queues=given["own_queues"],
        guarantees=dict(_guarantee(text) for text in given["guarantees"]),
        check=given["check"],
        chart=given["plot"] is not None,
    )
    with _progress() as progress:
        simulation = play(workload, str(file), setting, progress)
    if given["plot"] is not None:
        title = f"{file.name}: {simulation.jobs:,} jobs on {simulation.gpus:,} GPUs"
        _draw(session, given["plot"], title, [(run.policy.name, run.series, run.bars) for run in simulation.runs])
    session.show(simulation, lambda look: simulation_screen(simulation, look))


def _parts(text: str | None) -> Partition | None:
    from shoal.formats.partition import partition_of

    if text is None:
        return None
    try:
        return partition_of(text)
    except ValueError as error:
        raise Invalid(str(error)) from error


def _bytes_of(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise Invalid(f"{name} cannot be read: {error.strerror}") from error


def _guarantee(text: str) -> tuple[str, int]:
    name, equals, gpus = text.rpartition("=")
    if not equals or not name or not gpus.isascii() or not gpus.isdigit() or len(gpus) > 9:
        raise Invalid(f"--guarantee {text}: write QUEUE=GPUS, for example research=64")
    return name, int(gpus)


def _rates(file: Path | None, model: str) -> Rates | None:
    from shoal.formats.gavel import read_rates

    return None if file is None else read_rates(file.read_bytes(), str(file), model)


def _can_draw(file: Path) -> None:
    """Raises what drawing would, before the work that is to be drawn."""
    from shoal.render.plots import check_file, new_figure

    check_file(file)
    new_figure((1.0, 1.0))


def _draw(session: Session, file: Path, title: str, plays: Iterable[tuple[str, Series | None, tuple[Bar, ...]]]) -> None:
    from shoal.render.replays import Played, Stretch, draw_replays

    played = []
    for name, series, bars in plays:
        assert series is not None
        stretches = [Stretch(node, bar.start_s, bar.end_s, bar.number, bar.name) for bar in bars for node in bar.nodes]
        played.append(Played(name, series.span_s, series.waiting, series.held, series.owned, stretches))
    draw_replays(file, title, played)
    session.note(f"drawn: {file}")


def _fleet(text: str | None) -> tuple[Node, ...]:
    """The nodes that --fleet names: a file's where there is one of that name."""
    from shoal.sim.simulate import read_fleet, read_node_table

    if text is None:
        return ()
    if not Path(text).is_file():
        return read_fleet(text)
    with _opened(Path(text)) as lines:
        return read_node_table(lines, text)


@contextmanager
def _opened(file: Path) -> Iterator[Iterable[str]]:
    """The lines of a file, which may be compressed. Faults that are found in them are told with its name."""
    with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
        try:
            yield lines
        except Invalid as error:
            if not error.faults:
                raise
            raise BadFile(str(file), error.faults, NOTHING_PLAYED) from error
        except (UnicodeDecodeError, gzip.BadGzipFile) as error:
            raise Invalid(f"{file} is no text in UTF-8: {error}") from error


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """A line that says how far it is, on a terminal; it is gone in the end."""
    if not sys.stderr.isatty():
        yield None
        return
    from shoal.render.look import span

    began = last = time.monotonic()
    current = ""

    def tell(policy: str, done: int, jobs: int) -> None:
        nonlocal began, current, last
        now = time.monotonic()
        if policy != current:
            current, began = policy, last
        if now - last >= PROGRESS_S:
            last = now
            bar = "#" * (24 * done // max(jobs, 1))
            left = f", {span(round((now - began) * (jobs - done) / done * 1_000))} left" if done else ""
            sys.stderr.write(f"\r{policy}  [{bar:<24}]  {done:,} of {jobs:,} jobs{left} \x1b[K")
            sys.stderr.flush()

    try:
        yield tell
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()

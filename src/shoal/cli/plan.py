"""
`shoal plan`: the arithmetic on the command line. A command per question, made from its record of inputs when it is asked for.

Needs no server. A refusal is an answer too and ends with 1; inputs that could not be read end with 2.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from shoal.base.errors import Invalid
from shoal.cli.exits import BAD_INPUT, FAILED
from shoal.cli.options import epilog, json_option
from shoal.cli.session import Session, leave, open_session

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from shoal.planning.answer import Answer, Refused
    from shoal.planning.cases import Judged
    from shoal.planning.inputs import Field
    from shoal.planning.topic import Topic
    from shoal.render.look import Look

_OWN = (
    "file",
    "settings",
    "from_usage",
    "from_trace",
    "from_fleet",
    "from_prices",
    "old_prices",
    "from_interruptions",
    "as_json",
    "explain",
    "sweep",
    "compare",
    "plot",
)


class Topics(click.Group):
    """`list`, `check`, `what-if`, and a command per topic; topics are not listed here, so that help stays one screen."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from shoal.planning.catalogue import CATALOGUE

        if cmd_name == "what-if":
            from shoal.cli.what_if import what_if

            return what_if
        found = super().get_command(ctx, cmd_name)
        word = cmd_name.replace("-", "_")
        return found or (topic_command(word) if word in CATALOGUE else None)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "what-if"])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        from shoal.base.words import did_you_mean
        from shoal.planning.catalogue import CATALOGUE

        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            known = [*CATALOGUE, *self.list_commands(ctx)]
            ctx.fail(f"there is no topic {args[0]!r}{did_you_mean(args[0], known) or '; `shoal plan list` shows them'}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from shoal.planning.catalogue import CATALOGUE

        topics = [CompletionItem(word, help=entry.question) for word, entry in CATALOGUE.items() if word.startswith(incomplete)]
        return [*super().shell_complete(ctx, incomplete), *topics]


@click.group(
    "plan",
    cls=Topics,
    subcommand_metavar="TOPIC|list|check|what-if [ARGS]...",
    epilog=epilog(
        "shoal plan list",
        "shoal plan what-if --submit train.yaml",
        "shoal plan spot_gang --nodes 64 --node-rate 0.02/h --checkpoint 1min --restart 10min --discount 60%",
        "shoal plan warm_pool --help",
    ),
)
def plan() -> None:
    """
    Answer a planning question with its model, its range and its numbers.

    Values have units (15GB, 62.5MB/s, 10min, 2.5USD/GPU/h, 60%); what was converted or assumed is said.
    """


@plan.command("list", epilog=epilog("shoal plan list", "shoal plan list --json"))
@json_option("a list of {topic, group, question}")
def list_topics(as_json: bool) -> None:
    """List the questions that can be asked, by group."""
    from shoal.planning.catalogue import CATALOGUE

    session = open_session(as_json)
    rows = [{"topic": word, "group": entry.group, "question": entry.question} for word, entry in CATALOGUE.items()]
    session.show(rows, lambda look: _list_lines(rows, look))


def _list_lines(rows: list[dict[str, str]], look: Look) -> list[str]:
    from shoal.render.table import Column, table

    lines: list[str] = []
    for group in dict.fromkeys(row["group"] for row in rows):
        inside = [(f"  {row['topic']}", row["question"]) for row in rows if row["group"] == group]
        wide = [(word.ljust(24), question) for word, question in inside]
        lines += [look.paint(group, "bold"), *table([Column(""), Column("", least=20)], wide, look)[1:]]
    return lines


@plan.command("check", epilog=epilog("shoal plan check cases.json", "shoal plan check cases.json --json | tail -1"))
@click.argument("file", metavar="CASES.json", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option("a {case, topic, right, values} per line, then {right, wrong, failed}")
def check(file: Path, as_json: bool) -> None:
    """Put the cases of a file to the planner, and say which come out right. Ends with 1 if any does not."""
    from shoal.model.codec import decode_json
    from shoal.planning.cases import Case, judge

    session = open_session(as_json)
    cases = decode_json(file.read_bytes(), list[Case])
    judged = [(case, judge(case)) for case in cases]
    for case, values in judged:
        session.row(_case_record(case.id, case.topic, values), "\n".join(_case_lines(case.id, case.topic, values)))
    failed = [case.id for case, values in judged if not all(value.right for value in values)]
    summary = {"right": len(judged) - len(failed), "wrong": len(failed), "failed": failed}
    session.row(summary, f"{summary['right']} of {len(judged)} cases are right")
    if failed:
        leave(FAILED)


@plan.command(
    "fragmentation",
    epilog=epilog(
        "shoal plan fragmentation --train pods.csv --fleet nodes.csv -o table.json",
        "shoal jobs -a -n 100000 --json > jobs.json; shoal nodes --json > nodes.json",
        "shoal plan fragmentation --train jobs.json --fleet nodes.json -o table.json",
        "shoal up --packing value --packing-table table.json",
    ),
)
@click.option(
    "--train",
    "history",
    required=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What came: a trace as `shoal simulate` reads it, or what `shoal jobs -a --json` printed.",
)
@click.option("--fleet", required=True, metavar="NODESxGPUS|FILE", help="16x8, a node table, or what `shoal nodes --json` printed.")
@click.option(
    "--output", "-o", metavar="FILE", required=True, type=click.Path(dir_okay=False, path_type=Path), help="Where the table goes."
)
@json_option("{output, checked, faults}")
def fragmentation(history: Path, fleet: str, output: Path, as_json: bool) -> None:
    """
    Learn what free pieces of GPUs are worth on this fleet, for `shoal up --packing value`.

    The table is checked at 80, 90 and 100 % load against best fit and FGD; where it fills less, nothing is written and it ends with 1.
    """
    from shoal.cli.plan_fragmentation import train_table

    train_table(open_session(as_json), history, fleet, output)


def _case_record(case: str, topic: str, values: tuple[Judged, ...]) -> dict[str, Any]:
    rows = [{"name": v.name, "want": v.want, "got": v.got, "unit": v.unit, "right": v.right} for v in values]
    return {"case": case, "topic": topic, "right": all(v.right for v in values), "values": rows}


def _case_lines(case: str, topic: str, values: tuple[Judged, ...]) -> list[str]:
    wrong = [value for value in values if not value.right]
    mark = "wrong" if wrong else "right"
    lines = [f"{mark}  {case:<22}  {topic:<24}  {len(values) - len(wrong)} of {len(values)} values"]
    return lines + [f"       {value.name}: want {value.want} {value.unit}, got {value.got}" for value in wrong]


def topic_command(word: str) -> click.Command:
    """The command of one question, its flags from the record of inputs."""
    from shoal.planning.catalogue import CATALOGUE, topic_named
    from shoal.planning.inputs import fields_of, sample

    topic = topic_named(word)
    fields = fields_of(topic.inputs)
    needed = " ".join(f"--{field.name.replace('_', '-')} '{sample(field)}'" for field in fields if field.required)
    options: list[click.Parameter] = [_option(field) for field in fields]
    own = [
        click.Option(
            ["--file", "-f", "file"], type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Inputs as YAML or JSON."
        ),
        click.Option(["--set", "settings"], multiple=True, metavar="NAME=VALUE", help="An input, as its flag would give it."),
        *_from_life(word),
        click.Option(["--explain"], is_flag=True, help="Show the derivation with numbers filled in."),
        click.Option(["--sweep"], metavar="NAME=LOW..HIGH", help="A curve along one input, for example nodes=1..128:8."),
        click.Option(["--compare"], multiple=True, metavar="'NAME: INPUT=VALUE; ...'", help="A variant beside the given inputs."),
        click.Option(["--plot"], type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Draw it: .png, .svg or .html."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print JSON: the Answer, or Refused."),
    ]
    return click.Command(
        word,
        params=[*options, *own],
        callback=lambda **given: ask(word, topic, given),
        help=f"{CATALOGUE[word].question}\n\nModel and range are printed with the answer.",
        epilog=epilog(f"shoal plan {word} {needed}".rstrip()),
    )


def _from_life(word: str) -> list[click.Parameter]:
    """Flags that measure inputs, for the questions that have such."""
    from shoal.planning.arrivals import FROM_TRACE
    from shoal.planning.catalogue import FROM_FLEET
    from shoal.planning.market import FROM_LIVES, FROM_PRICES
    from shoal.planning.usage import FROM_USAGE

    path = click.Path(exists=True, dir_okay=False, path_type=Path)
    usage = click.Option(
        ["--from-usage"], type=path, metavar="FILE.csv", help="Measure inputs on a CSV of use: time, then GPUs by team or kind."
    )
    trace = click.Option(["--from-trace"], type=path, metavar="FILE.csv", help="Measure inputs on a CSV of arrivals: a time per row.")
    fleet = click.Option(["--from-fleet"], type=path, metavar="FILE.json", help="Take the nodes from what `shoal nodes --json` printed.")
    prices = click.Option(["--from-prices"], type=path, metavar="FILE.csv", help="Measure on a CSV of prices: time, spot, on_demand.")
    old = click.Option(["--old-prices"], is_flag=True, help="Take prices that ended more than 90 days ago too.")
    lives = click.Option(["--from-interruptions"], type=path, metavar="FILE.csv", help="Measure on a CSV of nodes: start, end, lost.")
    offered = (
        (usage, word in FROM_USAGE),
        (trace, word in FROM_TRACE),
        (fleet, word in FROM_FLEET),
        (prices, word in FROM_PRICES),
        (old, word in FROM_PRICES),
        (lives, word in FROM_LIVES),
    )
    return [option for option, there in offered if there]


def _option(field: Field) -> click.Option:
    from shoal.planning.inputs import default_words

    unit = "yes|no" if field.kind is bool else "TEXT" if field.kind is str else field.ask.unit
    unit = "SHARE" if unit == "1" and field.ask.most == 1 else "NUMBER" if unit == "1" else unit
    more = default_words(field)
    return click.Option(
        [f"--{field.name.replace('_', '-')}", field.name], metavar=unit, help=f"{field.ask.words[:1].upper()}{field.ask.words[1:]}{more}."
    )


def ask(word: str, topic: Topic, given: dict[str, Any]) -> None:
    """Answers one question in the way the flags ask for."""
    from shoal.cli.planning_inputs import gather

    own = {name: given.pop(name, None) for name in _OWN}
    session = open_session(own["as_json"])
    inputs = gather(topic, given, own["file"], own["settings"])
    if own["from_usage"] is not None:
        inputs = _measured(session, word, own["from_usage"]) | inputs
    if own["from_trace"] is not None:
        inputs = _measured_arrivals(session, word, own["from_trace"], inputs) | inputs
    if own["from_fleet"] is not None:
        inputs = _fleet_nodes(own["from_fleet"]) | inputs
    if own["from_prices"] is not None:
        inputs = _measured_prices(session, word, own["from_prices"], own["old_prices"], inputs) | inputs
    if own["from_interruptions"] is not None:
        inputs = _measured_lives(session, word, own["from_interruptions"], inputs) | inputs
    if own["compare"]:
        _compare(session, word, topic, inputs, own)
    elif own["sweep"] is not None:
        _sweep(session, word, topic, inputs, own)
    else:
        _answer(session, word, topic, inputs, own)


def _measured(session: Session, word: str, file: Path) -> dict[str, Any]:
    """Inputs from a record of use; says what was measured, since it stands for what nobody typed."""
    from shoal.cli.planning_inputs import usage_from
    from shoal.planning.usage import inputs_from

    usage = usage_from(file)
    found = inputs_from(word, usage)
    session.note(f"measured on {len(usage.series[0])} rows, {usage.seconds / 86_400:.1f} days: {_measured_words(found)}")
    return found


def _fleet_nodes(file: Path) -> dict[str, Any]:
    """The nodes of a running Shoal, as it told them to a file."""
    from shoal.model.codec import decode_json
    from shoal.model.wire import NodeView
    from shoal.planning.fleet import nodes_from

    return {"nodes": nodes_from(decode_json(file.read_bytes(), list[NodeView]))}


def _measured_words(found: dict[str, Any]) -> str:
    """Measured numbers in one line; lists are left out."""
    from shoal.planning.quantity import figure

    pairs = [(name, value["value"], f" {value['unit']}") if isinstance(value, dict) else (name, value, "") for name, value in found.items()]
    return ", ".join(f"{name} {figure(value)}{unit}" for name, value, unit in pairs if not isinstance(value, list))


def _measured_arrivals(session: Session, word: str, file: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    """Inputs from a trace of arrivals. Bursts matter over the time of a refill, where the question has one and it can be read."""
    from shoal.cli.planning_inputs import arrivals_from
    from shoal.planning.arrivals import inputs_from_arrivals
    from shoal.planning.quantity import BadQuantity, parse_amount

    refill = inputs.get("refill_time")
    try:
        window = parse_amount(refill, "s")[0] if isinstance(refill, str) else None
    except BadQuantity:
        window = None  # The reader of inputs says what is wrong with it.
    times = arrivals_from(file)
    found = inputs_from_arrivals(word, times, window, str(file))
    session.note(f"measured on {len(times)} arrivals: {_measured_words(found)}")
    return found


def _measured_prices(session: Session, word: str, file: Path, old_too: bool, inputs: dict[str, Any]) -> dict[str, Any]:
    """Inputs from a record of prices, beside the user's own on-demand price where he gave one that can be read."""
    from shoal.cli.planning_inputs import prices_from
    from shoal.planning.market import inputs_from_prices
    from shoal.planning.quantity import BadQuantity, parse_amount

    own = inputs.get("on_demand_price")
    try:
        on_demand = parse_amount(own, "USD/GPU/h")[0] if isinstance(own, str) else None
    except BadQuantity:
        on_demand = None  # The reader of inputs says what is wrong with it.
    prices = prices_from(file, session.now_ms / 1_000, old_too=old_too)
    found = inputs_from_prices(word, prices, on_demand, str(file))
    days = (prices.times_s[-1] - prices.times_s[0]) / 86_400
    session.note(f"measured on {len(prices.times_s)} prices, {days:.1f} days: {_measured_words(found)}")
    return found


def _measured_lives(session: Session, word: str, file: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    """Inputs from the lives of spot nodes; a gang's own rate where its size is given."""
    from shoal.cli.planning_inputs import lives_from
    from shoal.planning.market import inputs_from_lives

    lives = lives_from(file)
    size = inputs.get("nodes")
    nodes = int(size) if isinstance(size, int) or (isinstance(size, str) and size.isdecimal()) else None
    found = inputs_from_lives(word, lives, nodes)
    lost = sum(life.lost for life in lives)
    session.note(f"measured on {len(lives)} nodes, {lost} of them lost: {_measured_words(found)}")
    return found


def _answer(session: Session, word: str, topic: Topic, inputs: dict[str, Any], own: dict[str, Any]) -> None:
    from shoal.planning.answer import Refused
    from shoal.planning.catalogue import CATALOGUE
    from shoal.planning.plan import plan as answer_of
    from shoal.render.planning import answer_screen

    outcome = answer_of(word, inputs)
    if isinstance(outcome, Refused):
        _refuse(session, outcome)
    answer: Answer = outcome

    def lines(look: Look) -> list[str]:
        return _explain(topic, inputs, answer, look) if own["explain"] else answer_screen(CATALOGUE[word].question, answer, look)

    session.show(answer, lines)
    if own["plot"] is not None:
        from shoal.cli.planning_plots import draw_answer

        draw_answer(session, own["plot"], word, topic, inputs, answer)


def _explain(topic: Topic, inputs: dict[str, Any], answer: Answer, look: Look) -> list[str]:
    from shoal.planning.explain import derivation
    from shoal.planning.inputs import read
    from shoal.render.planning import answer_screen, derivation_lines

    reading = read(topic.inputs, inputs)
    return [*derivation_lines(derivation(topic, reading.value, answer), look), "", *answer_screen("", answer, look)[2:]]


def _refuse(session: Session, refused: Refused) -> NoReturn:
    from shoal.render.planning import refused_screen

    session.show(refused, lambda look: refused_screen(refused, look))
    leave(BAD_INPUT if refused.unread else FAILED)


def _sweep(session: Session, word: str, topic: Topic, inputs: dict[str, Any], own: dict[str, Any]) -> None:
    from shoal.cli.planning_inputs import sweep_of
    from shoal.planning.answer import Refused
    from shoal.planning.plan import sweep
    from shoal.render.planning import sweep_table

    wanted = sweep_of(topic, own["sweep"])
    name, unit = wanted.field.name, wanted.field.ask.unit
    points = sweep(word, inputs, name, wanted.values)
    first = points[0].answer
    if isinstance(first, Refused) and all(isinstance(point.answer, Refused) for point in points):
        _refuse(session, first)
    record = {"topic": word, "input": name, "unit": unit, "points": [{"at": point.at, "answer": point.answer} for point in points]}
    session.show(record, lambda look: sweep_table(name, unit, points, look))
    if own["plot"] is not None:
        from shoal.cli.planning_plots import draw_sweep

        draw_sweep(session, own["plot"], word, name, unit, points)


def _compare(session: Session, word: str, topic: Topic, inputs: dict[str, Any], own: dict[str, Any]) -> None:
    from shoal.cli.planning_inputs import gather, variant
    from shoal.planning.answer import Answer
    from shoal.planning.plan import plan as answer_of
    from shoal.render.planning import comparison

    named = [variant(text) for text in own["compare"]]
    whole = [("given", inputs)] + [
        (name, inputs | gather(topic, {}, None, tuple(f"{k}={v}" for k, v in changed.items()))) for name, changed in named
    ]
    answers = [(name, answer_of(word, one, sensitivity=False)) for name, one in whole]
    # What is given need not be an answer by itself: each variant may complete it.
    shown = answers if isinstance(answers[0][1], Answer) else answers[1:]
    record = {"topic": word, "variants": [{"name": name, "answer": answer} for name, answer in shown]}
    session.show(record, lambda look: comparison(shown, look))
    if own["plot"] is not None:
        raise Invalid("--plot draws an answer or a --sweep; it does not draw a comparison")
    if not any(isinstance(answer, Answer) for _, answer in shown):
        leave(FAILED)

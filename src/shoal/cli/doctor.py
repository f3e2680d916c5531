"""
`shoal doctor`: which layer of a GPU node is broken, and what to do. Asks no server; looks at this machine, a bundle, or given evidence.

Exit codes follow the worst verdict: 0 nothing to mend on the node, 10 some of it cannot be used, 11 GPU work does not run on it,
12 not known yet. Of many verdicts the worst counts, and what is not known is less than what is broken.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from shoal.cli.options import command, json_option
from shoal.cli.session import BadFile, Session, leave, open_session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shoal.diagnosis.evidence import Evidence
    from shoal.diagnosis.finding import Verdict

DEGRADED: Final = 10
BROKEN: Final = 11
UNKNOWN: Final = 12
_SEVERITY: Final = {0: 0, UNKNOWN: 1, DEGRADED: 2, BROKEN: 3}
"""What is known to be broken outranks what is not known."""
LINE_BYTES_MAX: Final = 16 << 20
"""Of a line of an evidence file: a node's whole kernel log fits."""
WATCH_SECONDS_LEAST: Final = 5.0


@command(
    "doctor",
    "shoal doctor",
    "shoal doctor --bundle nvidia-bug-report.log.gz",
    "shoal doctor --evidence cases.jsonl --json",
    "shoal doctor --watch 60",
)
@click.option("--evidence", "evidence_file", metavar="FILE", help="Evidence as JSON lines, a verdict for each; - for standard input.")
@click.option("--bundle", metavar="PATH", help="A directory or archive of logs and dumps instead of this machine.")
@click.option("--watch", metavar="SECONDS", type=float, help="Look again every so often; print when the verdict changes.")
@json_option("a line per verdict: {id, layer, confidence, cause, fix, next_probe, ...}")
def doctor(evidence_file: str | None, bundle: str | None, watch: float | None, as_json: bool) -> None:
    """
    Say which layer of a GPU node is broken, and what to do.

    Ends with 0 where nothing is to mend on the node, 10 where some of it cannot be used, 11 where GPU work does not run, 12 where the
    evidence does not say.
    """
    if sum(option is not None for option in (evidence_file, bundle, watch)) > 1:
        raise click.UsageError("give one of --evidence, --bundle and --watch")
    session = open_session(as_json)
    if evidence_file is not None:
        leave(_many(session, _lines_of(evidence_file)))
    if bundle is not None:
        leave(_one(session, _from_bundle(session, Path(bundle))))
    if watch is not None:
        _watch(session, max(WATCH_SECONDS_LEAST, watch))
    leave(_one(session, _from_node(session)))


def _one(session: Session, evidence: Evidence) -> int:
    from shoal.diagnosis.judge import diagnose
    from shoal.render.doctor import verdict_screen

    verdict = diagnose(evidence)
    if session.as_json:
        session.row(record_of(verdict), "")
    else:
        session.out(*verdict_screen(verdict, session.look))
    return exit_code(verdict)


def _many(session: Session, evidence: Iterable[Evidence]) -> int:
    from shoal.diagnosis.judge import diagnose
    from shoal.render.doctor import verdict_line

    worst = 0
    for one in evidence:
        verdict = diagnose(one)
        session.row(record_of(verdict), verdict_line(verdict, session.look))
        code = exit_code(verdict)
        worst = max(worst, code, key=_SEVERITY.__getitem__)
    return worst


def exit_code(verdict: Verdict) -> int:
    """See module."""
    from shoal.diagnosis.layers import Layer
    from shoal.diagnosis.rules.rule import Severity

    if verdict.root.layer is Layer.UNKNOWN:
        return UNKNOWN
    return {Severity.NOTICE: 0, Severity.DEGRADED: DEGRADED, Severity.BROKEN: BROKEN}[Severity(verdict.root.severity)]


def record_of(verdict: Verdict) -> dict[str, Any]:
    """What --json prints of a verdict."""
    root, probe = verdict.root, verdict.next_probe
    return {
        "id": verdict.id,
        "layer": str(root.layer),
        "confidence": root.confidence,
        "cause": root.cause,
        "fix": root.fix,
        "next_probe": None
        if probe is None
        else {"name": probe.name, "command": probe.command, "seconds": probe.seconds, "needs": probe.needs},
        "rule": root.rule,
        "severity": root.severity,
        "evidence": [{"key": place.key, "line": place.line, "text": place.text} for place in root.evidence],
        "commands": list(root.commands),
        "consequences": [
            {"layer": str(one.layer), "rule": one.rule, "confidence": one.confidence, "cause": one.cause} for one in verdict.consequences
        ],
        "good": [str(layer) for layer in verdict.good],
    }


def _lines_of(name: str) -> Iterator[Evidence]:
    """Evidence of each line of a file; keys that are no evidence (answers, sources) are ignored."""
    import msgspec

    from shoal.base.errors import Fault, Invalid
    from shoal.diagnosis.evidence import evidence_of
    from shoal.diagnosis.mask import mask

    try:
        stream = sys.stdin.buffer if name == "-" else Path(name).open("rb")  # noqa: SIM115  closed by the end of the program
    except OSError as error:
        raise Invalid(f"{name} cannot be read: {error.strerror}") from error
    for number, line in enumerate(iter(lambda: stream.readline(LINE_BYTES_MAX), b""), 1):
        if not line.strip():
            continue
        try:
            case = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise BadFile(name, (Fault(f"no JSON: {error}", line=number),)) from error
        texts = case.get("evidence") if isinstance(case, dict) else None
        if not isinstance(texts, dict):
            raise BadFile(name, (Fault('each line is an object with "evidence": {kind: text}', line=number),))
        masked = {key: mask(value) if isinstance(value, str) else value for key, value in texts.items()}
        yield evidence_of(masked, str(case.get("id", number)))


def _from_bundle(session: Session, path: Path) -> Evidence:
    from shoal.collect.bundle import read_bundle

    bundle = read_bundle(path)
    for name in bundle.passed_over[:5]:
        session.note(f"not read: {name}")
    return bundle.evidence


def _from_node(session: Session) -> Evidence:
    from shoal.collect.node import collect_node

    collected = collect_node()
    if collected.missed and not session.as_json:
        session.note("not looked at: " + "; ".join(f"{one.key} ({one.why})" for one in collected.missed))
    return collected.evidence


def _watch(session: Session, seconds: float) -> None:
    """Looks until it is interrupted."""
    from shoal.collect.node import collect_node
    from shoal.diagnosis.judge import diagnose
    from shoal.render.doctor import verdict_line

    said = ""
    while True:
        verdict = diagnose(collect_node().evidence)
        now = f"{verdict.root.layer} {verdict.root.cause}"
        if now != said:
            said = now
            look = session.look
            session.row(record_of(verdict), f"{look.clock(session.now_ms)}  {verdict_line(verdict, look)}")
        time.sleep(seconds)

"""
`diagnose`: evidence to verdict, in five steps that can be ticked off. START HERE to read the doctor.

1. read: parsers turn text into facts (`parsers.reading`)
2. derive: what follows from several facts (`derive`)
3. match: every rule whose signs are there gives a finding (`rules`)
4. fold: the root is the finding nearest to the cause; all others are its consequences
5. ask: the probe that would confirm the root, or remove most doubt

The root is chosen by tier (a named cause before a lead before a symptom), then by depth (the lower layer breaks the upper one), then by
confidence. Where nothing matched, the verdict is `none` if the evidence shows health and `unknown` if it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shoal.diagnosis.derive import derive
from shoal.diagnosis.evidence import Evidence, Side
from shoal.diagnosis.facts import Fact, Facts
from shoal.diagnosis.finding import CONFIDENT, Finding, NextProbe, Verdict
from shoal.diagnosis.layers import DEPTH, Layer
from shoal.diagnosis.parsers.reading import read_facts
from shoal.diagnosis.probes import PRIORS, PROBES, Probe, next_probe
from shoal.diagnosis.rules.rule import Rule, Severity, decided_by
from shoal.diagnosis.rules.table import RULES
from shoal.diagnosis.signs import Sign

REPORTED_WEIGHT: Final = 0.9
"""What somebody wrote down may be mistaken or old; raw output is not."""
HALF_READ: Final = 0.45
"""Health is not certain where somebody said something that no parser understands."""
LINES_SHOWN_MAX: Final = 6
FINDINGS_MAX: Final = 12

Match = tuple[Rule, tuple[Fact, ...]]


def diagnose(evidence: Evidence) -> Verdict:
    """The verdict on `evidence`. Never raises; depends on nothing but its argument."""
    facts = derive(read_facts(evidence))
    matches = _fold([(rule, found) for rule in RULES if (found := decided_by(rule, facts))])
    findings = tuple(_finding(rule, found) for rule, found in matches[:FINDINGS_MAX])
    good = _good_layers(facts)
    if not findings:
        root = _without_findings(facts, good)
        return Verdict(id=evidence.id, root=root, next_probe=_ask(root, "", evidence, ()), good=good)
    root, rest = findings[0], findings[1:]
    if root.layer in good:
        good = tuple(layer for layer in good if layer is not root.layer)
    return Verdict(id=evidence.id, root=root, consequences=rest, next_probe=_ask(root, matches[0][0].probe, evidence, findings), good=good)


def _fold(matches: list[Match]) -> list[Match]:
    """Matches with the root first; a rule that another beats stands behind it whatever its tier."""
    beaten = {name for rule, _ in matches for name in rule.beats}
    order = {rule.name: place for place, rule in enumerate(RULES)}
    return sorted(
        matches,
        key=lambda match: (match[0].name in beaten, -match[0].tier, DEPTH[match[0].layer], -match[0].confidence, order[match[0].name]),
    )


class _Blank(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "?"


def _finding(rule: Rule, found: tuple[Fact, ...]) -> Finding:
    values: Mapping[str, str] = _Blank({name: value for fact in reversed(found) for name, value in fact.values.items()})
    confidence = rule.confidence * (REPORTED_WEIGHT if all(fact.reported for fact in found) else 1.0)
    return Finding(
        layer=rule.layer,
        cause=rule.cause.format_map(values),
        confidence=round(confidence, 2),
        fix=rule.fix.replace("{state}", values["state"]),
        rule=rule.name,
        severity=int(rule.severity),
        evidence=tuple(dict.fromkeys(fact.place for fact in found))[:LINES_SHOWN_MAX],
        commands=rule.commands,
    )


def _without_findings(facts: Facts, good: tuple[Layer, ...]) -> Finding:
    complaints = facts.of(Sign.COMPLAINT)
    about_gpus = [fact for fact in complaints if fact.values.get("about") == "gpu"]
    if good and not about_gpus:
        shown = [fact.place for sign in (Sign.SMI_GOOD, Sign.RESOURCE_ENOUGH) for fact in facts.of(sign)]
        return Finding(
            layer=Layer.NONE,
            cause="Nothing in the evidence is broken.",
            confidence=round(min(HALF_READ if facts.has(Sign.UNREAD) else 0.9, 0.25 + 0.15 * _views(facts)), 2),
            fix="Nothing to mend here; look at what the program itself says.",
            rule="healthy",
            severity=int(Severity.NOTICE),
            evidence=tuple(dict.fromkeys(shown))[:LINES_SHOWN_MAX],
        )
    return Finding(
        layer=Layer.UNKNOWN,
        cause="The evidence does not say which layer is broken." if len(facts) else "There is no evidence that says anything about GPUs.",
        confidence=0.0,
        fix="Make the next probe and ask again with its output.",
        rule="unknown",
        severity=int(Severity.DEGRADED),
        evidence=tuple(fact.place for fact in (about_gpus or complaints)[:LINES_SHOWN_MAX]),
    )


def _views(facts: Facts) -> int:
    """From how many sides the evidence shows health: the host, a container, the node's resources, the operands."""
    return sum(
        (
            facts.has(Sign.HOST_GOOD),
            facts.has(Sign.SMI_GOOD, Side.CONTAINER),
            facts.has(Sign.RESOURCE_ENOUGH),
            facts.has(Sign.POD, state="ok"),
        )
    )


def _good_layers(facts: Facts) -> tuple[Layer, ...]:
    """Layers that the evidence shows to be well."""
    good: set[Layer] = set()
    if facts.has(Sign.HOST_GOOD):
        good |= {Layer.HARDWARE, Layer.KERNEL_DRIVER}
    if facts.has(Sign.SMI_GOOD, Side.CONTAINER):
        good |= {Layer.KERNEL_DRIVER, Layer.CONTAINER_TOOLKIT, Layer.CONTAINER_RUNTIME, Layer.CONTAINER_CGROUP}
    if facts.has(Sign.RESOURCE_ENOUGH):
        good |= {Layer.DEVICE_PLUGIN, Layer.DEVICE_HEALTH, Layer.NODE_LABELS}
    pods = {
        "driver": Layer.KERNEL_DRIVER,
        "toolkit": Layer.CONTAINER_TOOLKIT,
        "plugin": Layer.DEVICE_PLUGIN,
        "monitoring": Layer.MONITORING,
    }
    good |= {layer for operand, layer in pods.items() if facts.has(Sign.POD, operand=operand, state="ok")}
    return tuple(sorted(good, key=DEPTH.__getitem__))


def _ask(root: Finding, wanted: str, evidence: Evidence, findings: tuple[Finding, ...]) -> NextProbe | None:
    """The root's own probe where it is not answered yet; else what removes most doubt between the findings and the priors."""
    own = PROBES.get(wanted)
    if own is not None and (own.gives not in evidence.kinds or root.confidence > CONFIDENT):
        return _said(own)
    if root.layer is Layer.NONE:
        return None
    probe = next_probe(belief_of(findings), evidence.kinds) or own
    return _said(probe) if probe is not None else None


def belief_of(findings: tuple[Finding, ...]) -> dict[Layer, float]:
    """How likely each layer is the broken one: priors, moved by what was found."""
    belief = dict(PRIORS)
    for finding in findings:
        if finding.layer in belief:
            belief[finding.layer] += finding.confidence
    total = sum(belief.values())
    return {layer: weight / total for layer, weight in belief.items()}


def _said(probe: Probe) -> NextProbe:
    return NextProbe(name=probe.name, command=probe.command, seconds=probe.seconds, needs=probe.needs)

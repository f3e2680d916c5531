"""The tables hold together: names, probes, signs, layers; lines find their rows."""

from __future__ import annotations

import re
from pathlib import Path

from doctor_book import CASES
from doctor_variants import variant
from shoal.diagnosis.evidence import Kind, evidence_of
from shoal.diagnosis.layers import STACK
from shoal.diagnosis.lines import lines_of
from shoal.diagnosis.parsers.message import Index, anchors_of, branches_of
from shoal.diagnosis.parsers.reading import TABLES
from shoal.diagnosis.probes import PROBES
from shoal.diagnosis.rules.rule import Clause, On, Tier
from shoal.diagnosis.rules.table import RULES
from shoal.diagnosis.signs import Sign

SOURCE = Path(__file__).parents[3] / "src" / "shoal" / "diagnosis"


def signs_of(clause: Clause) -> set[Sign]:
    return {need.sign if isinstance(need, On) else need for need in clause}


def test_names_are_unique_and_those_that_are_beaten_exist() -> None:
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))
    assert {name for rule in RULES for name in rule.beats} <= set(names)


def test_every_rule_asks_for_a_probe_that_exists() -> None:
    assert {rule.probe for rule in RULES} <= PROBES.keys()


def test_every_layer_has_a_rule_and_a_probe_that_names_it() -> None:
    assert {rule.layer for rule in RULES} >= set(STACK)
    assert {layer for probe in PROBES.values() for layer in probe.names} >= set(STACK)


def test_symptoms_are_never_confident() -> None:
    assert [rule.name for rule in RULES if rule.tier is Tier.SYMPTOM and rule.confidence > 0.5] == []


def test_causes_name_only_values_that_facts_can_have() -> None:
    known = set(re.findall(r"\(\?P<(\w+)>", "".join(message.pattern.pattern for message in TABLES)))
    derived = set(re.findall(r"(\w+)=", (SOURCE / "derive.py").read_text())) | {"code", "bus", "text", "count", "version"}
    for rule in RULES:
        assert set(re.findall(r"\{(\w+)\}", rule.cause + rule.fix)) <= known | derived, rule.name


def test_every_sign_is_read_somewhere_and_used_somewhere() -> None:
    made = {message.sign for message in TABLES}
    text = "".join(path.read_text() for path in [*SOURCE.glob("parsers/*.py"), SOURCE / "derive.py"])
    made |= {sign for sign in Sign if re.search(rf"Sign\.{sign.name}\b", text)}
    assert set(Sign) - made == set()


def test_lines_find_every_row_that_matches_them() -> None:
    """The index by letters against trying every row on every line."""
    index = Index(TABLES)
    lines = {line.message for case in CASES for text in variant(case.evidence, 1).values() for line in lines_of(text)}
    for line in sorted(lines):
        matching = [message for message in TABLES if message.pattern.search(line)]
        found = index.candidates(line)
        assert all(message in found for message in matching), line


def test_anchors_are_words_that_every_match_holds() -> None:
    assert anchors_of(r"fallen off the bus") == ["fallen off the bus"]
    assert anchors_of(r"gpu(?: has)? fallen\b") == [" fallen"]
    assert anchors_of(r"(?:docker|crio).{0,4}\d+") == ["docker", "crio"]
    assert anchors_of(r"\d+ [ab]+") == []
    assert branches_of(r"a(?:b|c)|d[|]e|f\|g") == [r"a(?:b|c)", "d[|]e", r"f\|g"]


def test_keys_say_how_a_piece_is_read() -> None:
    wanted = {
        "nvidia_smi": Kind.SMI,
        "host nvidia-smi": Kind.SMI_HOST,
        "container_smi": Kind.SMI_CONTAINER,
        "dmesg": Kind.KERNEL_LOG,
        "device-plugin.log": Kind.PLUGIN_LOG,
        "nvidia-driver-daemonset log": Kind.DRIVER_LOG,
        "node_allocatable": Kind.ALLOCATABLE,
        "kubectl get events": Kind.POD_EVENTS,
        "slurmd_log": Kind.SLURM,
        "dcgm-exporter": Kind.MONITOR,
        "runsc_debug": Kind.SANDBOX,
        "what somebody said": Kind.NOTE,
    }
    assert {key: evidence_of({key: "x"}).pieces[0].kind for key in wanted} == wanted

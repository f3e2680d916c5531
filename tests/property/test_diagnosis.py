"""Whatever the doctor is given: it answers, within bounds; noise moves nothing; consequences never outrank their root."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from doctor_book import CASES
from doctor_variants import noise_lines
from shoal.diagnosis.evidence import Kind, evidence_of, kind_of
from shoal.diagnosis.facts import FACTS_MAX
from shoal.diagnosis.judge import FINDINGS_MAX, diagnose
from shoal.diagnosis.layers import DEPTH
from shoal.diagnosis.parsers.reading import read_facts
from shoal.diagnosis.rules.table import RULES

QUICK = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
TIERS = {rule.name: rule.tier for rule in RULES}
BEATS = {rule.name: set(rule.beats) for rule in RULES}

cases = st.sampled_from(CASES)
words = st.text(max_size=200) | st.sampled_from([text for case in CASES for text in case.evidence.values()])
bodies = st.dictionaries(st.sampled_from([*(str(kind) for kind in Kind), "a thing", ""]), words, max_size=5)


@QUICK
@given(case=cases, seed=st.integers(0, 1 << 30), count=st.integers(0, 60))
def test_another_piece_of_noise_never_changes_the_verdict(case: object, seed: int, count: int) -> None:
    noise = "\n".join(noise_lines(random.Random(seed), count))
    before = diagnose(evidence_of(case.evidence))  # type: ignore[attr-defined]
    after = diagnose(evidence_of({**case.evidence, "syslog of another day": noise}))  # type: ignore[attr-defined]
    assert (after.root.layer, after.root.rule) == (before.root.layer, before.root.rule)


@QUICK
@given(bodies)
def test_any_text_gets_an_answer_within_bounds(body: dict[str, str]) -> None:
    verdict = diagnose(evidence_of(body))
    assert 0 <= verdict.root.confidence <= 1
    assert len(verdict.consequences) < FINDINGS_MAX
    assert verdict.root.layer not in ("none", "unknown") or not verdict.consequences or verdict.root.rule != "unknown"
    assert verdict.root.layer != "unknown" or verdict.next_probe is not None


@QUICK
@given(bodies)
def test_no_consequence_outranks_the_root(body: dict[str, str]) -> None:
    """Of an equal tier none lies lower, and none is of a higher tier, unless another finding beats it by name."""
    verdict = diagnose(evidence_of(body))
    if verdict.root.rule not in TIERS:
        return
    names = [verdict.root.rule, *(finding.rule for finding in verdict.consequences)]
    beaten = set().union(*(BEATS[name] for name in names))
    for finding in verdict.consequences:
        if finding.rule not in beaten:
            assert TIERS[finding.rule] <= TIERS[verdict.root.rule]
            assert TIERS[finding.rule] < TIERS[verdict.root.rule] or DEPTH[finding.layer] >= DEPTH[verdict.root.layer]


@QUICK
@given(cases, st.randoms(use_true_random=False))
def test_the_order_of_the_pieces_does_not_matter(case: object, rng: random.Random) -> None:
    items = list(case.evidence.items())  # type: ignore[attr-defined]
    before = diagnose(evidence_of(items))
    rng.shuffle(items)
    assert diagnose(evidence_of(items)).root.layer == before.root.layer


@QUICK
@given(st.text(max_size=40))
def test_every_key_has_a_kind(key: str) -> None:
    assert kind_of(key) in Kind


def test_a_flood_of_one_line_costs_no_more_than_a_few() -> None:
    line = "NVRM: Xid (PCI:0000:c1:00): 13, pid={n}, Graphics Exception\n"
    facts = read_facts(evidence_of({"dmesg": "".join(line.format(n=n) for n in range(20_000))}))
    assert len(facts) < FACTS_MAX
    assert len(facts) < 100

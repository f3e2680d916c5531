"""The doctor names the broken layer of every fault in the book, and of its other members."""

from __future__ import annotations

import pytest

from doctor_book import CASES, Case
from doctor_variants import variant
from shoal.diagnosis.evidence import evidence_of
from shoal.diagnosis.finding import CONFIDENT
from shoal.diagnosis.judge import diagnose

VARIANTS = 2


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_broken_layer_is_named(case: Case) -> None:
    verdict = diagnose(evidence_of(case.evidence))
    assert (verdict.root.layer, verdict.root.rule) == (case.layer, verdict.root.rule)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_other_versions_addresses_order_and_noise_change_nothing(case: Case) -> None:
    for seed in range(VARIANTS):
        verdict = diagnose(evidence_of(variant(case.evidence, seed)))
        assert verdict.root.layer == case.layer, f"seed {seed}: {verdict.root}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_half_the_evidence_gives_no_confident_wrong_layer_unless_it_fixes_one(case: Case) -> None:
    """A piece taken away: the same layer, or less certainty and a probe. What one piece alone fixes lower down stays a true finding."""
    for left_out in case.evidence if len(case.evidence) > 1 and case.layer != "none" else ():
        rest = {key: text for key, text in case.evidence.items() if key != left_out}
        whole = diagnose(evidence_of(case.evidence))
        verdict = diagnose(evidence_of(rest))
        known = {case.layer, *(finding.layer for finding in whole.consequences), "unknown", "none"}
        assert verdict.root.layer in known or verdict.root.confidence <= CONFIDENT, f"without {left_out}: {verdict.root}"


def test_no_evidence_gives_unknown_with_a_probe_that_asks_the_api_first() -> None:
    verdict = diagnose(evidence_of({}))
    assert verdict.root.layer == "unknown"
    assert verdict.root.confidence == 0
    assert verdict.next_probe is not None
    assert verdict.next_probe.needs == "the API server"


@pytest.mark.parametrize(
    "text",
    ["the quick brown fox", "GPU feels odd today", "error: something about nvidia went sideways", "\x00\x01\x02", "a" * 5_000],
)
def test_unknown_text_gives_unknown_and_never_a_guess(text: str) -> None:
    verdict = diagnose(evidence_of({"note": text}))
    assert verdict.root.layer == "unknown"
    assert verdict.next_probe is not None


def test_waiting_operands_are_folded_under_the_driver() -> None:
    waiting = "\n".join(
        f"{name} 0/1 Init:0/1 0 20m" for name in ("nvidia-device-plugin-daemonset", "gpu-feature-discovery", "nvidia-dcgm-exporter")
    )
    verdict = diagnose(
        evidence_of(
            {
                "pods": f"nvidia-driver-daemonset 0/1 CrashLoopBackOff 9 20m\n{waiting}",
                "plugin_log": "waiting for nvidia container stack to be setup\n" * 40,
                "driver_log": "Could not resolve Linux kernel version",
            }
        )
    )
    assert verdict.root.rule == "headers-missing"
    assert any(finding.rule == "waiting-stack" for finding in verdict.consequences)


def test_xid_45_stands_under_the_xid_that_caused_it() -> None:
    log = "NVRM: Xid (PCI:0000:c1:00): 45, pid=1, Ch 1\nNVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus.\n" + (
        "NVRM: Xid (PCI:0000:c1:00): 45, pid=2, Ch 2\n" * 20
    )
    verdict = diagnose(evidence_of({"dmesg": log}))
    assert verdict.root.rule == "off-bus"
    assert all(finding.rule != "cleanup-alone" for finding in verdict.consequences)


def test_what_was_only_reported_weighs_less_than_output() -> None:
    raw = diagnose(evidence_of({"dmesg": "NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus."}))
    said = diagnose(evidence_of({"note": "we saw Xid 79 some time"}))
    assert raw.root.layer == said.root.layer == "hardware"
    assert said.root.confidence < raw.root.confidence


@pytest.mark.parametrize("text", ["no Xid 79 in dmesg", "dmesg without Xid 48 or ECC errors", "never saw a GPU fallen off the bus"])
def test_what_is_denied_is_not_seen(text: str) -> None:
    assert diagnose(evidence_of({"note": text})).root.layer != "hardware"

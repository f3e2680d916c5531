"""docs/reference/doctor.md and xid.md: what the doctor knows, from its rules, probes and tables."""

from __future__ import annotations

from docs_source import cell

from shoal.diagnosis.evidence import KEYS, WORDS_OF_KINDS, Kind
from shoal.diagnosis.layers import LAYERS, STACK, Layer
from shoal.diagnosis.probes import PROBES
from shoal.diagnosis.rules.rule import Rule, Severity, Tier
from shoal.diagnosis.rules.table import RULES
from shoal.diagnosis.xid_policy import PLUGIN_IGNORES, decide_xid
from shoal.facts.xid import XIDS

DOCTOR_INTRO = """\
# What the doctor knows

Printed from `shoal.diagnosis` by `tools/docs_doctor.py` (`make docs`); change the code, not this page. How it thinks is in
[the doctor](../explanation/doctor.md). Layers stand from the metal up. *Certainty* is what a rule gives on raw output; over 0.5 it may be
acted on. A *root* names the cause itself, a *lead* points to a layer, a *symptom* is what many causes share.
"""

XID_INTRO = """\
# Xids

Printed from `shoal.facts.xid` and `shoal.diagnosis.xid_policy` by `tools/docs_doctor.py` (`make docs`); change the code, not this page.
Source of meanings and actions: NVIDIA's Xid catalogue of October 2025. What Xid 154 or the GPU's recovery action says comes before this
table. *Again* is for a code that returns on one GPU. Shoal's steps: `note` writes it down; `hold-device` gives the GPU no new work until
a quiet period and a self-test have passed; `drain-node` and `cordon-node` as the commands. A code that is not here holds the device.
The last column is what NVIDIA's Kubernetes device plugin does.

| Xid | Meaning | Comes from | At once | Shoal | Again | Shoal | Plugin |
|---|---|---|---|---|---|---|---|
"""


def doctor_page() -> str:
    """A section per layer, then probes, then how keys of evidence are read."""
    parts = [DOCTOR_INTRO]
    for layer in (*STACK, Layer.NONE):
        rules = [rule for rule in RULES if rule.layer is layer]
        words = LAYERS[layer]
        parts.append(f"## {layer}\n\n{words.title[0].upper()}{words.title[1:]}." + (f" Good: {words.good}." if words.good else ""))
        parts.append(f"Seen when broken: {words.seen}." if layer is not Layer.NONE else f"Seen: {words.seen}.")
        parts.append("\n".join(["| Cause | Fix | Kind | Certainty | Next look |", "|---|---|---|---|---|", *map(_row, rules)]))
    return "\n\n".join([part.strip() for part in parts] + [_probes(), _keys()]) + "\n"


def _row(rule: Rule) -> str:
    kind = str(Tier(rule.tier).name).lower()
    bad = "" if rule.severity is Severity.BROKEN else f", {Severity(rule.severity).name.lower()}"
    return f"| {cell(rule.cause)} | {cell(rule.fix)} | {kind}{bad} | {rule.confidence:.2f} | `{rule.probe}` |"


def _probes() -> str:
    rows = [f"| `{probe.name}` | `{cell(probe.command)}` | {probe.seconds} s | {probe.needs} |" for probe in PROBES.values()]
    return "\n".join(["## Looks", "", "| Name | Command | Takes | Needs |", "|---|---|---|---|", *rows])


def _keys() -> str:
    exact: dict[Kind, list[str]] = {}
    for key, kind in KEYS.items():
        exact.setdefault(kind, []).append(f"`{key}`")
    words = {kind: f"`{cell(pattern)}`" for pattern, kind in WORDS_OF_KINDS}
    rows = [f"| {kind} | {', '.join(exact.get(kind, []))} | {words.get(kind, '')} |" for kind in Kind]
    intro = (
        "## Keys of evidence\n\nEvidence is filed under keys that people choose. A key of the second column is read as the kind of its row;"
        " every other key by its words, the first row of the code's list that matches; what matches none is a `note`, read like all text.\n"
    )
    return "\n".join([intro, "| Kind | Keys | Words in other keys |", "|---|---|---|", *rows])


def xid_page() -> str:
    """The table of all codes."""
    rows = []
    for row in XIDS.values():
        once, again = decide_xid(row.code), decide_xid(row.code, times=2)
        meaning = row.meaning + (f" ({row.note})" if row.note else "")
        plugin = "ignores it" if row.code in PLUGIN_IGNORES else "unhealthy until it restarts"
        rows.append(
            f"| {row.code} | {cell(meaning)} | {row.origin} | {once.action} | {once.step} | {again.action} | {again.step} | {plugin} |"
        )
    return XID_INTRO + "\n".join(rows) + "\n"

"""`shoal doctor` from evidence to exit code."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from shoal.cli.doctor import BROKEN, DEGRADED, UNKNOWN, doctor
from shoal.diagnosis.evidence import evidence_of
from shoal.diagnosis.judge import diagnose
from shoal.render.doctor import verdict_screen
from shoal.render.look import Look, width_of

XID = {"dmesg": "NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus."}


def run(tmp_path: Path, *cases: dict[str, object], options: tuple[str, ...] = ("--json",)) -> tuple[int, str]:
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in cases))
    result = CliRunner().invoke(doctor, ["--evidence", str(path), *options], standalone_mode=True)
    return result.exit_code, result.stdout


def test_a_verdict_per_line_with_answers_ignored(tmp_path: Path) -> None:
    code, text = run(tmp_path, {"id": "a", "evidence": XID, "layer": "scheduler"}, {"id": "b", "evidence": {}})
    first, second = map(json.loads, text.splitlines())
    assert {"id", "layer", "confidence", "cause", "fix", "next_probe"} <= first.keys()
    assert (first["id"], first["layer"]) == ("a", "hardware")
    assert (second["id"], second["layer"], second["confidence"]) == ("b", "unknown", 0)
    assert code == BROKEN


def test_the_exit_code_is_the_worst_verdicts(tmp_path: Path) -> None:
    notice = {"evidence": {"app_log": "CUDA out of memory"}}
    degraded = {"evidence": {"node_capacity": "nvidia.com/gpu: 8", "node_allocatable": "nvidia.com/gpu: 7"}}
    assert run(tmp_path, notice)[0] == 0
    assert run(tmp_path, notice, {"evidence": {}})[0] == UNKNOWN
    assert run(tmp_path, {"evidence": {}}, degraded, notice)[0] == DEGRADED
    assert run(tmp_path, {"evidence": XID}, degraded)[0] == BROKEN


def test_lines_for_people(tmp_path: Path) -> None:
    _, text = run(tmp_path, {"id": "a", "evidence": XID}, options=())
    assert text.startswith("a  hardware (0.95)  ")


def test_the_screen_fits_its_width_and_has_all_parts() -> None:
    evidence = {**XID, "pod_events": "UnexpectedAdmissionError GetPreferredAllocation rpc failed", "app_log": "\x1b[2Jno GPU available"}
    for width in (60, 100):
        lines = verdict_screen(diagnose(evidence_of(evidence)), Look(width=width, colour=False))
        text = "\n".join(lines)
        assert all(width_of(line) <= width for line in lines if "$" not in line)
        assert "✗ hardware" in text
        assert "dmesg:1" in text
        assert "Fix: " in text
        assert "To be sure: " in text
        assert "\x1b" not in text


def test_a_healthy_node_has_nothing_to_mend() -> None:
    evidence = {"nvidia_smi": "8 GPUs listed, all ok", "node_capacity": "nvidia.com/gpu: 8", "node_allocatable": "nvidia.com/gpu: 8"}
    text = "\n".join(verdict_screen(diagnose(evidence_of(evidence)), Look()))
    assert "Healthy" in text
    assert "Fix" not in text

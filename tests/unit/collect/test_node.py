"""Looks at this machine end in time, change nothing, and say what they could not see."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from shoal.collect.looks import LOOKS, Look
from shoal.collect.node import collect_node
from shoal.collect.running import OUTPUT_BYTES_MAX, run_bounded
from shoal.diagnosis.evidence import Kind
from shoal.diagnosis.judge import diagnose


def test_a_command_that_hangs_is_stopped_and_is_evidence() -> None:
    look = Look(
        "host_smi",
        Kind.SMI_HOST,
        "nothing",
        commands=((sys.executable, "-c", "print('up', flush=True); import time; time.sleep(60)"),),
        seconds=1,
    )
    start = time.monotonic()
    collected = collect_node((look,))
    assert time.monotonic() - start < 10
    assert "no output for 1 s" in collected.evidence.pieces[0].text
    assert collected.missed[0].key == "host_smi"


def test_what_a_command_prints_is_bounded() -> None:
    ran = run_bounded((sys.executable, "-c", f"import sys; sys.stdout.write('x' * {OUTPUT_BYTES_MAX * 2})"), 20)
    assert len(ran.text) == OUTPUT_BYTES_MAX


def test_exit_status_and_missing_commands_are_told() -> None:
    assert run_bounded((sys.executable, "-c", "raise SystemExit(9)"), 20).status == 9
    assert run_bounded(("no-such-command-here",), 5).status is None


def test_files_are_read_and_masked(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('default_runtime_name = "runc"\npassword = "hunter2hunter2"\n')
    look = Look("runtime_config", Kind.RUNTIME_CONFIG, "nothing", files=(str(tmp_path / "*.toml"),))
    (piece,) = collect_node((look,)).evidence.pieces
    assert "runc" in piece.text
    assert "hunter2" not in piece.text


def test_this_machine_can_be_looked_at() -> None:
    collected = collect_node()
    assert {piece.key for piece in collected.evidence.pieces} | {missed.key for missed in collected.missed} == {look.key for look in LOOKS}
    assert 0 <= diagnose(collected.evidence).root.confidence <= 1


def test_no_look_changes_anything() -> None:
    reading = {"lspci", "nvidia-smi", "journalctl", "dmesg", "systemctl", "nvidia-ctk", "scontrol"}
    for look in LOOKS:
        for command in look.commands:
            assert command[0] in reading
            assert not {"restart", "start", "stop", "reset", "--gpu-reset", "generate", "-C", "--clear"} & set(command)

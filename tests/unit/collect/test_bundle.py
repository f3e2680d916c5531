"""Bundles of any kind, whole or broken, become evidence within bounds."""

from __future__ import annotations

import contextlib
import gzip
import io
import random
import resource
import tarfile
import time
from pathlib import Path

import pytest

from shoal.base.errors import Malformed, NotFound
from shoal.collect.bundle import PIECE_CHARS_MAX, read_bundle
from shoal.diagnosis.judge import diagnose

XID = "[ 1.0] NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus.\n"
BUG_REPORT = f"""\
____________________________________________

*** /proc/driver/nvidia/./version
NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06
____________________________________________

/usr/bin/nvidia-smi -q
    Fabric
        State : N/A
____________________________________________

journalctl -b -0:
Nov 01 10:00:00 host kernel: {XID}
"""


def test_a_directory_of_dumps(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "nvidia-device-plugin.log").write_text("waiting for nvidia container stack to be setup\n")
    (tmp_path / "dmesg.txt").write_text(XID)
    (tmp_path / "core").write_bytes(bytes(range(256)) * 100)
    bundle = read_bundle(tmp_path)
    assert {piece.key for piece in bundle.evidence.pieces} == {"dmesg", "nvidia-device-plugin"}
    assert bundle.passed_over == ("core: no text",)
    assert diagnose(bundle.evidence).root.layer == "hardware"


def test_a_bug_report_is_cut_into_its_sections(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-bug-report.log.gz"
    path.write_bytes(gzip.compress(BUG_REPORT.encode()))
    bundle = read_bundle(path)
    assert len(bundle.evidence.pieces) >= 3
    assert diagnose(bundle.evidence).root.rule == "off-bus"


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_an_archive(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "bundle.tar"
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, text in (("node/dmesg.log", XID), ("node/describe.txt", "Capacity:\n  nvidia.com/gpu: 8\n")):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    assert diagnose(read_bundle(path).evidence).root.layer == "hardware"


@pytest.mark.parametrize("word", ["app", "nvidia-app"])
def test_a_fault_at_the_end_of_a_long_log_is_found_within_bounds(tmp_path: Path, word: str) -> None:
    path = tmp_path / "kern.log"
    with path.open("w") as file:
        for number in range(250_000):
            file.write(f"Nov 01 10:00:00 host {word}[0000{number % 10}]: request {number} served in {number % 97} ms\n")
        file.write(XID)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.monotonic()
    bundle = read_bundle(path)
    verdict = diagnose(bundle.evidence)
    assert verdict.root.rule == "off-bus"
    assert sum(len(piece.text) for piece in bundle.evidence.pieces) <= PIECE_CHARS_MAX
    assert time.monotonic() - start < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10  # KiB


def test_secrets_do_not_come_out_of_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "containerd-config.toml").write_text('auth = "dXNlcjpwYXNzd29yZA=="\ndefault_runtime_name = "runc"\n')
    assert "dXNlcj" not in "".join(piece.text for piece in read_bundle(tmp_path).evidence.pieces)


def test_what_is_not_there_or_no_bundle_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_bundle(tmp_path / "none.tar")


def test_a_file_that_ends_too_early_gives_what_came_before(tmp_path: Path) -> None:
    broken = tmp_path / "kern.log.gz"
    rest = "".join(f"{random.Random(number).random()}\n" for number in range(5_000))
    broken.write_bytes(gzip.compress((XID + rest).encode())[:-200])
    assert diagnose(read_bundle(broken).evidence).root.rule == "off-bus"


@pytest.mark.parametrize("seed", range(100))
def test_a_mangled_bundle_never_breaks_the_doctor(tmp_path: Path, seed: int) -> None:
    """Truncated, with bytes flipped, in the wrong encoding, with hostile markup."""
    rng = random.Random(seed)
    text = (BUG_REPORT + "<script>\x1b[2J\u202e" + XID * rng.randrange(50)).encode(rng.choice(["utf-8", "utf-16", "utf-7"]))
    raw = bytearray(gzip.compress(text) if rng.random() < 0.4 else text)
    for _ in range(rng.randrange(20)):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    path = tmp_path / rng.choice(["nvidia-bug-report.log.gz", "dmesg", "bundle.tar", "x.json"])
    path.write_bytes(bytes(raw[: rng.randrange(1, len(raw))]))
    with contextlib.suppress(Malformed):
        diagnose(read_bundle(path).evidence)

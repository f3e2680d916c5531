"""
Evidence of this machine: `collect_node()` makes every look of `looks` and gives what was seen, secrets masked.

Reads only. What could not be looked at is in `missed` with what it needs, so that a verdict on half the evidence can be told from one on
all of it.
"""

from __future__ import annotations

import glob
import platform
import re
import time
from pathlib import Path
from typing import Final, NamedTuple

from shoal.collect.looks import LOOKS, Look
from shoal.collect.running import run_bounded
from shoal.diagnosis.evidence import Evidence, Kind, Piece
from shoal.diagnosis.mask import mask

FILE_BYTES_MAX: Final = 1 << 20
"""Of a config file or listing; those looked at are a few KiB."""
FILES_PER_LOOK_MAX: Final = 256
TOTAL_SECONDS_MAX: Final = 60.0
"""For all looks together; one that would start after this is missed."""
_SAYS_NOTHING: Final = re.compile(
    r"\A\s*(?:No journal files were found|-- No entries --|System has not been booted with systemd|Failed to connect to bus)"
)
"""Answers of systemd's tools in containers and on machines without it."""
_MODULES: Final = ("nvidia", "nouveau", "vfio_pci")


class Missed(NamedTuple):
    key: str
    why: str


class Collected(NamedTuple):
    evidence: Evidence
    missed: tuple[Missed, ...]


def collect_node(looks: tuple[Look, ...] = LOOKS) -> Collected:
    """All looks, in order. Takes as long as the commands do, at most TOTAL_SECONDS_MAX and the last look."""
    pieces: list[Piece] = []
    missed: list[Missed] = []
    end = time.monotonic() + TOTAL_SECONDS_MAX
    for look in looks:
        if time.monotonic() > end:
            missed.append(Missed(look.key, "no time left"))
            continue
        text, source, why = _by_command(look) if look.commands else _by_files(look)
        if why:
            missed.append(Missed(look.key, why))
        if text.strip():
            pieces.append(Piece(key=look.key, kind=look.kind, text=mask(text), source=source))
    return Collected(Evidence(pieces=tuple(pieces), id=platform.node()), tuple(missed))


def _by_command(look: Look) -> tuple[str, str, str]:
    why = f"needs {look.needs}"
    for command in look.commands:
        filled = [part.format(host=platform.node().split(".")[0]) for part in command]
        ran = run_bounded(filled, look.seconds)
        source = " ".join(filled)
        if ran.timed_out:
            return f"{ran.text}\n{source}: no output for {look.seconds:g} s, stopped", source, "ran out of time"
        if ran.status is None or _SAYS_NOTHING.search(ran.text):
            continue
        if ran.text.strip() and (ran.status == 0 or look.kind in (Kind.SMI_HOST, Kind.FABRIC)):
            return ran.text, source, ""
        if ran.status == 0 and look.absent:
            return look.absent, source, ""
        why = ran.text.strip().splitlines()[-1][:200] if ran.text.strip() else f"needs {look.needs}"
    if look.key == "lspci" and why == f"needs {look.needs}":
        return _bus() or look.absent, "/sys/bus/pci/devices", ""
    return "", "", why


def _bus() -> str:
    """NVIDIA display devices on the PCI bus, in the form of `lspci -n`, for machines without lspci."""
    lines = []
    for device in sorted(Path("/sys/bus/pci/devices").glob("*")):
        try:
            vendor, number, kind = ((device / name).read_text().strip()[2:] for name in ("vendor", "device", "class"))
        except OSError:
            continue
        if vendor == "10de" and kind.startswith("03"):
            owner = (device / "driver").resolve().name if (device / "driver").exists() else "none"
            lines.append(f"{device.name} {kind[:4]}: {vendor}:{number}\n\tKernel driver in use: {owner}")
    return "\n".join(lines)


def _by_files(look: Look) -> tuple[str, str, str]:
    paths = sorted({path for pattern in look.files for path in glob.glob(pattern)})[:FILES_PER_LOOK_MAX]
    if look.listing:
        return "\n".join(paths), ", ".join(look.files), "" if paths else "nothing there"
    texts: list[str] = []
    why = ""
    for path in paths:
        try:
            text = _start_of(Path(path))
        except OSError as error:
            why = f"{path}: {error.strerror}"
            continue
        texts.append(text if len(paths) == 1 else f"{path}:\n{text}")
    if not paths and look.absent and _has_gpus():
        return look.absent, look.files[0], ""
    joined = "\n".join(texts)
    if look.key == "modules":
        joined = "\n".join(line for line in joined.splitlines() if line.startswith(_MODULES))
    return joined, ", ".join(paths), why or ("" if texts else "not there")


def _start_of(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(FILE_BYTES_MAX).decode("utf-8", "replace")


def _has_gpus() -> bool:
    """If the PCI bus shows an NVIDIA display device: without one, a driver that is absent is no finding."""
    return bool(_bus())

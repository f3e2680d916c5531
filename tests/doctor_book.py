"""
Faults as people meet them, each with the layer that is broken (`data/doctor_cases.jsonl`, the form of `shoal doctor --evidence`).

Written from what programs print; the texts are of the same kinds as in real threads and none is copied from one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple


class Case(NamedTuple):
    name: str
    layer: str
    evidence: dict[str, str]


def _read() -> list[Case]:
    lines = (Path(__file__).parent / "data" / "doctor_cases.jsonl").read_text(encoding="utf-8").splitlines()
    return [Case(case["id"], case["layer"], case["evidence"]) for case in map(json.loads, lines)]


CASES: list[Case] = _read()

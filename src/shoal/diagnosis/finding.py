"""What the doctor says: a finding per thing that is wrong, and the verdict that puts the root first."""

from __future__ import annotations

from typing import Final

import msgspec

from shoal.diagnosis.facts import Place
from shoal.diagnosis.layers import Layer

CONFIDENT: Final = 0.5
"""Above this a verdict may be acted on; up to it the next probe comes first."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the evidence says, with the lines that decided."""

    layer: Layer
    cause: str
    confidence: float
    fix: str
    rule: str
    severity: int
    evidence: tuple[Place, ...] = ()
    commands: tuple[str, ...] = ()


class NextProbe(msgspec.Struct, frozen=True, kw_only=True):
    """The look that would tell most, with what it costs and needs."""

    name: str
    command: str
    seconds: int
    needs: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The root, what follows from it, and where to look next. `good` are layers that the evidence shows to be well."""

    id: str = ""
    root: Finding
    consequences: tuple[Finding, ...] = ()
    next_probe: NextProbe | None = None
    good: tuple[Layer, ...] = ()

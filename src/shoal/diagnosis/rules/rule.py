"""
The form of a rule: which signs, and what they mean. A rule never sees text, so it holds for other versions, paths and numbers.

`when` is a tuple of clauses that must all hold; a clause holds if any of its needs is there. `tier` says how near to the root the signs
are: ROOT names the cause itself, LEAD points to a layer and is mostly right, SYMPTOM is what many causes have in common and only says
where to look next. A finding of a higher tier outranks all of a lower one, whatever their layers; see `judge`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from shoal.diagnosis.evidence import Side
from shoal.diagnosis.facts import Fact, Facts
from shoal.diagnosis.layers import Layer
from shoal.diagnosis.signs import Sign


class Tier(IntEnum):
    SYMPTOM = 0
    LEAD = 1
    ROOT = 2


class Severity(IntEnum):
    """How bad a finding is for the node; the exit code of `shoal doctor` follows it."""

    NOTICE = 0
    """Nothing to mend, or only the program is concerned."""
    DEGRADED = 1
    """Some of the node cannot be used."""
    BROKEN = 2
    """GPU work on the node does not run."""


class On(NamedTuple):
    """A sign on one of some sides, or with some values."""

    sign: Sign
    sides: tuple[Side, ...] = ()
    values: tuple[tuple[str, str], ...] = ()


Need = Sign | On
Clause = tuple[Need, ...]


class Rule(NamedTuple):
    """See module. `{names}` in `cause` and `fix` are filled from the values of the deciding facts."""

    name: str
    layer: Layer
    tier: Tier
    confidence: float
    when: tuple[Clause, ...]
    cause: str
    fix: str
    probe: str
    """Name of the probe that confirms or refutes it."""
    commands: tuple[str, ...] = ()
    unless: Clause = ()
    beats: tuple[str, ...] = ()
    """Rules of the same tier whose findings are consequences of this one, whatever their layers."""
    severity: Severity = Severity.BROKEN


def facts_for(need: Need, facts: Facts) -> tuple[Fact, ...]:
    """The facts that meet a need."""
    if isinstance(need, Sign):
        return facts.of(need)
    return facts.of(need.sign, *need.sides, **dict(need.values))


def decided_by(rule: Rule, facts: Facts) -> tuple[Fact, ...]:
    """The facts that make `rule` hold, in the order of its clauses; empty where it does not hold."""
    if any(facts_for(need, facts) for need in rule.unless):
        return ()
    found: list[Fact] = []
    for clause in rule.when:
        met = [fact for need in clause for fact in facts_for(need, facts)]
        if not met:
            return ()
        found += met
    return tuple(_unique(found))


def _unique(facts: Iterable[Fact]) -> list[Fact]:
    kept: list[Fact] = []
    for fact in facts:
        if fact not in kept:
            kept.append(fact)
    return kept


HOST, CONTAINER, CLUSTER, UNSAID = Side.HOST, Side.CONTAINER, Side.CLUSTER, Side.UNKNOWN


def on(sign: Sign, *sides: Side, **values: str) -> On:
    """A need with sides and values."""
    return On(sign, sides, tuple(sorted(values.items())))

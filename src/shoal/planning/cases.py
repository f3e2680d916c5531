"""Cases with known answers: one is put to `plan` as any user would, and each expected value judged within its tolerance."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from shoal.base.errors import NotFound
from shoal.planning.answer import Answer, Refused, Value
from shoal.planning.plan import plan
from shoal.planning.quantity import BadQuantity, convert

CASES_MAX = 10_000


class Expected(msgspec.Struct, frozen=True):
    """A value that must come out; numbers within `rel_tol` of themselves, the rest exactly."""

    value: Any
    unit: str = "1"
    rel_tol: float = 0.0


class Case(msgspec.Struct, frozen=True):
    """One question with inputs by name and what must come out. A case that expects `refuse` expects no number, for `reason`."""

    id: str
    topic: str
    inputs: dict[str, Any]
    expected: dict[str, Expected]
    model: str = ""


class Judged(NamedTuple):
    """One expected value: what came, and whether it is right. `want` and `got` are in the case's unit."""

    case: str
    topic: str
    name: str
    want: Any
    got: Any
    unit: str
    right: bool


def judge(case: Case) -> tuple[Judged, ...]:
    """Every expected value of a case, judged."""
    try:
        outcome = plan(case.topic, case.inputs, sensitivity=False)
    except NotFound as error:
        return tuple(Judged(case.id, case.topic, name, want.value, error.message, want.unit, False) for name, want in case.expected.items())
    return tuple(_judge(case, name, want, outcome) for name, want in case.expected.items())


def _judge(case: Case, name: str, want: Expected, outcome: Answer | Refused) -> Judged:
    got = _refusal(name, outcome) if isinstance(outcome, Refused) else _number(name, want, outcome)
    return Judged(case.id, case.topic, name, want.value, got, want.unit, same(want.value, got, want.rel_tol))


def _refusal(name: str, outcome: Refused) -> Any:
    first = outcome.refusals[0]
    return {"refuse": True, "reason": first.code}.get(name, f"refused: {first.message}")


def _number(name: str, want: Expected, answer: Answer) -> Any:
    if name == "refuse":
        return False
    try:
        number = answer.number(name)
        return _in_unit(number.value, number.unit, want.unit)
    except (KeyError, BadQuantity) as error:
        return f"none: {error.args[0]}"


def _in_unit(value: Value, unit: str, wanted: str) -> Any:
    if isinstance(value, tuple):
        return list(value) if unit == wanted else [item if isinstance(item, str) else convert(item, unit, wanted) for item in value]
    return value if isinstance(value, bool | str) or unit == wanted else convert(value, unit, wanted)


def same(want: Any, got: Any, rel_tol: float) -> bool:
    """True if `got` is `want` within the relative tolerance; lists item by item, text and booleans exactly."""
    if isinstance(want, list | tuple):
        return isinstance(got, list | tuple) and len(want) == len(got) and all(same(a, b, rel_tol) for a, b in zip(want, got, strict=True))
    if isinstance(want, bool | str) or isinstance(got, bool | str | list):
        return type(want) is type(got) and bool(want == got)
    return bool(abs(want - got) <= max(rel_tol, 1e-12) * abs(want))

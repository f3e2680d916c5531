"""What a question gives back: numbers with units and how they came about, or refusals. Values only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from shoal.planning.quantity import unit_of

Scalar = float | int | bool | str
Value = Scalar | tuple[Scalar, ...]
V = TypeVar("V", float, int, bool, str, tuple[float, ...], tuple[str, ...], tuple[int, ...])


class Number(msgspec.Struct, frozen=True):
    """
    One result. `formula` is an expression over inputs and earlier results, in coherent units, as `explain` fills it with numbers; where
    no expression says it (an event simulation, a search) it is words and `searched` is true.
    """

    name: str
    value: Value
    unit: str = "1"
    formula: str = ""
    searched: bool = False
    words: str = ""


class Table(msgspec.Struct, frozen=True):
    """Results in rows: a Gantt chart's bars, the steps of a division. `columns` are names with units in brackets."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Scalar, ...], ...]


class Assumed(msgspec.Struct, frozen=True):
    """A default that nobody gave: an engineering assumption, to be replaced by a measured value."""

    input: str
    value: Value
    unit: str


class Movement(msgspec.Struct, frozen=True):
    """What the headline becomes when one input alone is lower or higher; None where the question is refused there."""

    input: str
    unit: str
    low_input: float
    high_input: float
    low: float | None
    high: float | None


class Answer(msgspec.Struct, frozen=True):
    """Numbers in the order of their derivation. `holds` says where the model stops; `binding` which limit decides."""

    topic: str
    model: str
    holds: str
    numbers: tuple[Number, ...]
    binding: str = ""
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    assumed: tuple[Assumed, ...] = ()
    sensitivity: tuple[Movement, ...] = ()
    headline_at: int = 0

    @property
    def headline(self) -> Number:
        return self.numbers[self.headline_at]

    def number(self, name: str) -> Number:
        """The result called `name`. Raises KeyError."""
        for number in self.numbers:
            if number.name == name:
                return number
        raise KeyError(name)

    def value(self, name: str) -> float:
        """The result called `name` as a coherent float. Raises KeyError; TypeError where it is no number."""
        number = self.number(name)
        if isinstance(number.value, str | tuple):
            raise TypeError(f"{name} is no number")
        return float(number.value) * unit_of(number.unit).scale


class Refusal(msgspec.Struct, frozen=True):
    """Why there is no number: a stable code, and words with the actual values and what to do."""

    code: str
    message: str
    input: str = ""


class Refused(msgspec.Struct, frozen=True):
    """A question that gets no number. At least one refusal, the weightiest first; `unread` if the inputs could not be taken at all."""

    topic: str
    refusals: tuple[Refusal, ...]
    unread: bool = False


class Work:
    """Collects results while a function computes them. `put` takes coherent values and returns them, so it stands in the calculation."""

    def __init__(self) -> None:
        self._numbers: list[Number] = []
        self._tables: list[Table] = []
        self._notes: list[str] = []

    def put(self, name: str, value: V, unit: str = "1", formula: str = "", words: str = "") -> V:
        """Notes a result that an expression gives."""
        self._numbers.append(Number(name, shown(value, unit), unit, formula, False, words))
        return value

    def find(self, name: str, value: V, unit: str = "1", how: str = "", words: str = "") -> V:
        """Notes a result of a search or a simulation; `how` says which."""
        self._numbers.append(Number(name, shown(value, unit), unit, how, True, words))
        return value

    def table(self, name: str, columns: Iterable[str], rows: Iterable[tuple[Scalar, ...]]) -> None:
        """Notes a table; values are in the columns' own units."""
        self._tables.append(Table(name, tuple(columns), tuple(rows)))

    def note(self, words: str, when: bool = True) -> None:
        """Notes what the reader must know to use the numbers, if `when`."""
        if when:
            self._notes.append(words)

    def done(self, model: str, holds: str, binding: str = "", *, lead: str = "") -> Answer:
        """The answer, with the first number or the one called `lead` as headline. `plan` adds topic, assumptions and sensitivity."""
        numbers = tuple(self._numbers)
        if lead:
            at = next(at for at, number in enumerate(numbers) if number.name == lead)
            return Answer("", model, holds, numbers, binding, tuple(self._tables), tuple(self._notes), headline_at=at)
        return Answer("", model, holds, numbers, binding, tuple(self._tables), tuple(self._notes))


def shown(value: V, unit: str) -> Value:
    """A coherent value in the unit that readers want; text and booleans as they are."""
    if isinstance(value, bool | str):
        return value
    if isinstance(value, tuple):
        return tuple(item if isinstance(item, str) else _scaled(item, unit) for item in value)
    return _scaled(value, unit)


def _scaled(value: float | int, unit: str) -> float | int:
    scale = unit_of(unit).scale
    return value if scale == 1.0 else value / scale


def unless(right: bool, code: str, message: str, input: str = "") -> tuple[Refusal, ...]:
    """Nothing if `right`, else one refusal; so rules add up with `+`."""
    return () if right else (Refusal(code, message, input),)

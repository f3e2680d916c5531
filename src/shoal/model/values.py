"""
Small values inside records that people write with units: kept as integers, written as text that reads back the same.

Each has `parse(raw)` (from what a file or the wire holds) and `plain()` (back to it); `codec` wires both into msgspec.
"""

from __future__ import annotations

from typing import Any, Self

from shoal.base import limits, units


class Value:
    """
    A frozen value made of its `__slots__`, equal and hashed by them.

    Not a dataclass on purpose: msgspec would write a dataclass as an object, and these are written as text.
    """

    __slots__: tuple[str, ...] = ()

    def __init__(self, *parts: Any) -> None:
        for name, part in zip(self.__slots__, parts, strict=True):
            object.__setattr__(self, name, part)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def _parts(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._parts() == self._parts()

    def __hash__(self) -> int:
        return hash((type(self), self._parts()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._parts()))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts()

    @classmethod
    def parse(cls, raw: Any) -> Self:
        """The value that a file or the wire wrote as `raw`; ValueError with an example where it cannot be."""
        raise NotImplementedError

    def plain(self) -> str | int:
        """What `parse` reads back as an equal value."""
        raise NotImplementedError


def _text(raw: Any, what: str, example: str) -> str:
    if not isinstance(raw, str):
        raise ValueError(f"{what} must be text such as {example!r}, got {raw!r}")
    return raw


class Duration(Value):
    """A length of time. Text form `2h30m`."""

    __slots__ = ("ms",)
    ms: int

    def __init__(self, ms: int) -> None:
        super().__init__(ms)

    @classmethod
    def parse(cls, raw: Any) -> Self:
        return cls(units.parse_duration_ms(_text(raw, "a duration", "2h30m")))

    def plain(self) -> str:
        return units.format_duration_ms(self.ms)


class Memory(Value):
    """An amount of memory. Text form `64GiB`."""

    __slots__ = ("bytes",)
    bytes: int

    def __init__(self, bytes: int) -> None:
        super().__init__(bytes)

    @classmethod
    def parse(cls, raw: Any) -> Self:
        return cls(units.parse_memory(_text(raw, "an amount of memory", "64GiB")))

    def plain(self) -> str:
        return units.format_memory(self.bytes)


class MemoryRange(Value):
    """A device's memory asked for: at least `least_bytes`, at most `most_bytes` if given. Text form `80GB..` or `24GB..40GB`."""

    __slots__ = ("least_bytes", "most_bytes")
    least_bytes: int
    most_bytes: int | None

    def __init__(self, least_bytes: int, most_bytes: int | None = None) -> None:
        super().__init__(least_bytes, most_bytes)

    @classmethod
    def parse(cls, raw: Any) -> Self:
        return cls(*units.parse_memory_range(_text(raw, "a range of memory", "80GB..")))

    def plain(self) -> str:
        high = "" if self.most_bytes is None else units.format_memory(self.most_bytes)
        return f"{units.format_memory(self.least_bytes)}..{high}"

    def holds(self, size_bytes: int) -> bool:
        return size_bytes >= self.least_bytes and (self.most_bytes is None or size_bytes <= self.most_bytes)


class CountRange(Value):
    """A count, or a range out of which one is chosen at start. Plain form `4` or `"2..4"`."""

    __slots__ = ("high", "low")
    low: int
    high: int

    def __init__(self, low: int, high: int) -> None:
        super().__init__(high, low)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.low, self.high)

    @classmethod
    def parse(cls, raw: Any) -> Self:
        if isinstance(raw, int) and not isinstance(raw, bool):
            raw = str(raw)
        return cls(*units.parse_count_range(_text(raw, "a count", "4 or 2..4")))

    def plain(self) -> str | int:
        return self.low if self.low == self.high else f"{self.low}..{self.high}"


class ArrayList(Value):
    """The indices of an array and how many may run at once. Text form as Slurm's: `0-15:4%2`."""

    __slots__ = ("at_once", "indices", "text")
    text: str
    indices: tuple[int, ...]
    at_once: int | None

    def __init__(self, text: str, indices: tuple[int, ...], at_once: int | None = None) -> None:
        super().__init__(at_once, indices, text)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.text, self.indices, self.at_once)

    @classmethod
    def parse(cls, raw: Any) -> Self:
        text = str(raw) if isinstance(raw, int) and not isinstance(raw, bool) else _text(raw, "an array", "0-15%4")
        return cls(text, *units.parse_array(text, limits.ARRAY_TASKS_MAX))

    def plain(self) -> str:
        return self.text


VALUE_TYPES: tuple[type[Value], ...] = (Duration, Memory, MemoryRange, CountRange, ArrayList)

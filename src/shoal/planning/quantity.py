"""
Numbers with units: text and records to coherent values (seconds, bytes, USD, GPUs), and back to the unit that a reader wants.

Everything in `planning` calculates in coherent units, so no formula holds a conversion; this module is the only place that knows one.
It refuses what cannot be meant (seconds where bytes are due, `Gb`, a price without a time) and says in a note what it converted.
GB is 10^9 and GiB is 2^30 bytes, a bit is an eighth of a byte, a month has 730 hours and a year 8,760.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

HOUR_S: Final = 3_600.0
DAY_S: Final = 86_400.0
MONTH_S: Final = 730 * HOUR_S
"""A twelfth of a year, as cloud price lists count it."""
YEAR_S: Final = 8_760 * HOUR_S
UNIT_CHARS_MAX: Final = 64
NUMBER_CHARS_MAX: Final = 40

_TIME = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "min": 60.0,
    "m": 60.0,
    "h": HOUR_S,
    "hr": HOUR_S,
    "d": DAY_S,
}
_TIME |= {"day": DAY_S, "w": 7 * DAY_S, "week": 7 * DAY_S, "month": MONTH_S, "yr": YEAR_S, "year": YEAR_S}
_TIME |= {"second": 1.0, "seconds": 1.0, "minute": 60.0, "minutes": 60.0, "hour": HOUR_S, "hours": HOUR_S, "days": DAY_S}
_TIME |= {"weeks": 7 * DAY_S, "months": MONTH_S, "years": YEAR_S}
_DATA = {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15, "byte": 1.0, "bytes": 1.0}
_DATA |= {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40, "PiB": 2.0**50}
_DATA |= {"bit": 1 / 8, "kbit": 1e3 / 8, "Mbit": 1e6 / 8, "Gbit": 1e9 / 8, "Tbit": 1e12 / 8}
_FLOP = {"FLOP": 1.0, "GFLOP": 1e9, "TFLOP": 1e12, "PFLOP": 1e15}
_MONEY = {"USD": 1.0, "$": 1.0}
_PURE = {"1": 1.0, "%": 0.01, "percent": 0.01, "1e3": 1e3, "1e6": 1e6, "1e9": 1e9, "1e12": 1e12}
_PURE |= {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_GPU = {"GPU": 1.0, "GPUs": 1.0, "mGPU": 1e-3, "milliGPU": 1e-3}
_CPU = {"vCPU": 1.0, "vCPUs": 1.0, "core": 1.0, "cores": 1.0, "CPU": 1.0, "CPUs": 1.0, "mCPU": 1e-3}
_NOUNS: tuple[str, ...] = ("pod", "slot", "node", "token", "request", "job", "session", "replica", "instance", "host", "layer", "step")
_NOUNS += (
    "move",
    "run",
    "entry",
    "index",
    "queue",
    "team",
    "create",
    "row",
    "client",
    "start",
    "failure",
    "prefix",
    "actor",
    "shape",
    "lane",
    "preemption",
)
_PHYSICAL = frozenset({"time", "data", "flop", "money"})

_WORDS: dict[str, tuple[float, str]] = {}
for _dimension, _names in (
    ("time", _TIME),
    ("data", _DATA),
    ("flop", _FLOP),
    ("money", _MONEY),
    ("", _PURE),
    ("GPU", _GPU),
    ("vCPU", _CPU),
):
    _WORDS |= {name: (scale, _dimension) for name, scale in _names.items()}
for _noun in _NOUNS:
    _plural = f"{_noun[:-1]}ies" if _noun.endswith("y") else f"{_noun}es" if _noun.endswith("x") else f"{_noun}s"
    _WORDS |= {_noun: (1.0, _noun), _plural: (1.0, _noun)}
_WORDS |= {"req": (1.0, "request"), "entries": (1.0, "entry")}
_SPELLED = {"Gbps": "Gbit/s", "Mbps": "Mbit/s", "kbps": "kbit/s", "TFLOPS": "TFLOP/s", "PFLOPS": "PFLOP/s", "GFLOPS": "GFLOP/s"}
_UNCLEAR = {
    "Gb": "Gbit or GB", "Mb": "Mbit or MB", "Kb": "kbit or kB", "kb": "kbit or kB", "Tb": "Tbit or TB", "b": "bit or B",
    "gb": "GB, GiB or Gbit", "mb": "MB, MiB or Mbit", "tb": "TB or TiB", "G": "GB or GiB", "M": "MB, MiB or million",
    "K": "kB, KiB or thousand",
    "k": "thousand, kB or KiB", "T": "TB or TiB", "Gi": "GiB", "Mi": "MiB", "Ki": "KiB", "Ti": "TiB", "GBps": "GB/s", "MBps": "MB/s",
    "mo": "month or min", "mon": "month or min", "€": "USD", "EUR": "USD", "cents": "USD",
    "milli": "mGPU or mCPU", "gpu": "GPU", "usd": "USD",
}  # fmt: skip
"""Words with two readings, or of another country, and what to write instead."""
AMOUNT = re.compile(r"([-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*(.*)", re.DOTALL)
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|[smhdw])){2,}")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw])")


class BadQuantity(ValueError):
    """Text or a unit that is refused. `code` is stable; the message says what to write instead."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Unit:
    """`scale` coherent units; `dims` are sorted (dimension, power). Nouns (pods, nodes) are dimensions that a bare count may stand for."""

    text: str
    scale: float
    dims: tuple[tuple[str, int], ...]

    @property
    def physical(self) -> tuple[tuple[str, int], ...]:
        return tuple(pair for pair in self.dims if pair[0] in _PHYSICAL)

    @property
    def nouns(self) -> tuple[tuple[str, int], ...]:
        return tuple(pair for pair in self.dims if pair[0] not in _PHYSICAL)

    @property
    def takes_bare_numbers(self) -> bool:
        """True for counts, fractions, GPUs and CPUs, whose number alone is clear."""
        return not self.physical


@lru_cache(maxsize=4_096)
def unit_of(text: str) -> Unit:
    """The unit written as `MB/s`, `USD/GPU/h`, `GPU*h`, `GPU-h`, `1/min`, `%`, `1e9`. Raises BadQuantity."""
    if len(text) > UNIT_CHARS_MAX:
        raise BadQuantity("unknown_unit", f"unit of {len(text)} characters: at most {UNIT_CHARS_MAX}")
    scale, dims, sign = 1.0, dict[str, int](), 1
    for mark, words in re.findall(r"([*/·]|^)([^*/·]*)", _SPELLED.get(text.strip(), text.strip()).replace(" per ", "/")):
        sign = -1 if mark == "/" else 1
        for word in words.strip().split("-"):
            factor, dimension = _word(word.strip(), text)
            scale *= factor**sign
            if dimension:
                dims[dimension] = dims.get(dimension, 0) + sign
    return Unit(text.strip() or "1", scale, tuple(sorted((name, power) for name, power in dims.items() if power)))


def _word(word: str, whole: str) -> tuple[float, str]:
    if word in ("", "x", "ratio"):
        return 1.0, ""
    if word in _UNCLEAR:
        raise BadQuantity("ambiguous_unit", f"unit {whole!r}: {word!r} is not clear here; write {_UNCLEAR[word]}")
    if word == "m" and "/" in whole:
        raise BadQuantity("ambiguous_unit", f"unit {whole!r}: 'm' is not clear here; write min or month")
    if word not in _WORDS:
        raise BadQuantity(
            "unknown_unit", f"unit {whole!r}: {word!r} is not known; for example s, min, h, GB, GiB, MB/s, Gbit/s, USD/GPU/h, GPU, 1/h"
        )
    return _WORDS[word]


def fits(given: Unit, wanted: Unit) -> bool:
    """
    True if a value in `given` can stand where `wanted` is due.

    A bare count may stand for pods or GPUs, and `1/min` for jobs per minute. Money and amounts of time are strict about what they are
    per: USD/h is no USD/GPU/h, and hours are no GPU-hours.
    """
    if given.dims == wanted.dims:
        return True
    if given.physical != wanted.physical or given.physical not in ((), (("time", -1),)):
        return False
    return not given.nouns or not wanted.nouns


def convert(value: float, given: str, wanted: str) -> float:
    """`value` of unit `given`, in unit `wanted`. Raises BadQuantity where the dimensions differ."""
    one, other = unit_of(given), unit_of(wanted)
    if not fits(one, other):
        raise BadQuantity("wrong_dimension", _mismatch(one, other))
    return value if one.scale == other.scale else value * one.scale / other.scale


def coherent(value: float, given: str, wanted: str) -> tuple[float, str]:
    """(`value` in coherent units, a note where the unit was not the one of the question). Raises BadQuantity."""
    one, other = unit_of(given), unit_of(wanted)
    if not fits(one, other):
        raise BadQuantity("wrong_dimension", _mismatch(one, other))
    result = value * one.scale
    if one.scale == other.scale:
        words = {given, wanted}
        note = "a core is counted as one vCPU" if {"vCPU"} <= words and words & {"core", "cores"} else ""
        return result, note
    return result, f"{in_words(value, given)} = {in_words(result / other.scale, wanted)}{_month_note(given, wanted)}"


def _month_note(given: str, wanted: str) -> str:
    words = re.split(r"[*/·-]", given) + re.split(r"[*/·-]", wanted)
    if any(word in ("month", "months") for word in words):
        return ", a month counted as 730 h"
    if any(word in ("year", "years", "yr") for word in words):
        return ", a year counted as 8,760 h"
    return ""


def _mismatch(given: Unit, wanted: Unit) -> str:
    hint = ""
    if given.text == "m" and dict(wanted.dims).keys() & {"GPU", "vCPU"}:
        hint = "; 'm' is minutes here, thousandths are mGPU and mCPU"
    elif dict(given.physical) == dict(wanted.physical) and given.nouns != wanted.nouns:
        hint = "; say per what" if "money" in dict(given.physical) else ""
    elif dict(given.dims).get("data") and dict(wanted.dims).get("data"):
        hint = "; an amount is not a rate"
    return f"{given.text} given where {wanted.text} is due{hint}"


def parse_amount(text: str, wanted: str) -> tuple[float, str]:
    """
    (coherent value, note) of text such as `62.5 MB/s`, `40%`, `2h30m`, or a bare number where `wanted` is a count or a fraction.

    Raises BadQuantity with one of: not_a_number, unit_needed, unknown_unit, ambiguous_unit, wrong_dimension.
    """
    stripped = text.strip()
    if _DURATION.fullmatch(stripped):
        seconds = sum(float(part[1]) * _TIME[part[2]] for part in _DURATION_PART.finditer(stripped))
        value, _ = coherent(seconds, "s", wanted)
        return value, f"{stripped} = {in_words(value / unit_of(wanted).scale, wanted)}"
    match = AMOUNT.fullmatch(stripped)
    if match is None or len(match[1]) > NUMBER_CHARS_MAX:
        raise BadQuantity("not_a_number", f"{text[:60]!r} is no number with a unit; for example {example(wanted)}")
    number = float(match[1].replace("_", ""))
    if not math.isfinite(number):
        raise BadQuantity("not_a_number", f"{text[:60]!r} is not finite")
    if match[2].startswith(","):
        raise BadQuantity("not_a_number", f"{text[:60]!r}: write thousands without commas")
    if not match[2]:
        return bare(number, wanted), ""
    return coherent(number, match[2], wanted)


def bare(number: float, wanted: str) -> float:
    """The coherent value of a number without unit: itself for counts, fractions and GPUs. Raises BadQuantity for the rest."""
    if not math.isfinite(number):
        raise BadQuantity("not_a_number", f"{number} is not finite")
    if not unit_of(wanted).takes_bare_numbers:
        raise BadQuantity("unit_needed", f"{number:g} without a unit; for example {number:g} {wanted}")
    return number


def example(wanted: str) -> str:
    """A value as one would write it for a question in `wanted`."""
    return "4" if wanted == "1" else f"4{wanted[1:]}" if wanted.startswith("1/") else f"4 {wanted}"


def in_words(value: float, unit: str) -> str:
    """A number as a person reads it, with its unit: at most six significant digits, thousands apart."""
    text = figure(value)
    if unit in ("", "1"):
        return text
    return f"{text}{'' if unit[0] == '%' else ' '}{unit}" if unit not in ("1e9", "1e6", "1e3", "1e12") else f"{text}{unit[1:]}"


def figure(value: float) -> str:
    """A number without unit, as a person reads it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not math.isfinite(value):
        return "never" if value > 0 else str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    size = abs(value)
    if size >= 1e7 or size < 1e-4:
        return f"{value:.4g}"
    if size >= 1_000:
        return f"{value:,.1f}"
    return f"{value:.{max(0, 4 - math.floor(math.log10(size)) - 1)}f}".rstrip("0").rstrip(".") if size < 1 else f"{value:.5g}"

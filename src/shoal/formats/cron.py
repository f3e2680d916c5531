"""
A schedule that a person wrote, `30 2 * * mon-fri`, and when it comes next in a time zone. Knows calendars; never asks what day it is.

Five fields, separated by spaces: minute, hour, day of the month, month, day of the week (0 and 7 are Sunday). Each is `*`, numbers,
ranges `9-17`, steps `*/15` or `9-17/2`, and lists of these with commas; months and days of the week may be names of three letters. Where
both days are restricted, either is enough, as cron has had it since 1987. `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly` stand
for the usual ones.

**Summer time.** With `*` as hour the clock on the wall is followed: the hour that comes twice has its minutes twice, the one that is left
out has none. At fixed hours each day has each time once: one that is left out comes later by as much as the clock was moved, one that
comes twice is the first of the two.

Own parser, since it is sixty lines; zones are the system's (`zoneinfo`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from shoal.base.limits import CRON_DAYS_MAX

_UTC = timezone.utc  # noqa: UP017
_EPOCH = datetime(1970, 1, 1, tzinfo=_UTC)
_MS = timedelta(milliseconds=1)
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
ALIASES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MOVED_HOURS_MAX: Final = 3
"""No clock is moved by more at a time; summer time is an hour, rarely two."""
_EXAMPLE = "write minute hour day month weekday, for example 30 2 * * mon-fri"


class Cron(NamedTuple):
    """When: the values that each field takes, ascending. `weekdays` are 0 (Sunday) to 6."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]

    def has(self, day: date) -> bool:
        """True if some of its times are on this day."""
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        if len(self.days) < 31 and len(self.weekdays) < 7:
            return of_month or of_week
        return of_month and of_week


def parse_cron(text: str) -> Cron:
    """Raises ValueError that names the field, what is wrong with it, and an example."""
    words = ALIASES.get(text.strip().lower(), text).split()
    if len(words) != 5:
        raise ValueError(f"schedule {text!r} has {len(words)} fields, five are due: {_EXAMPLE}")
    minute, hour, day, month, weekday = words
    found = Cron(
        _field("minute", minute, 0, 59),
        _field("hour", hour, 0, 23),
        _field("day", day, 1, 31),
        _field("month", month, 1, 12, MONTHS, 1),
        tuple(sorted({at % 7 for at in _field("weekday", weekday, 0, 7, WEEKDAYS, 0)})),
    )
    if not any(found.has(date(2024, 1, 1) + timedelta(days=at)) for at in range(366)):  # 2024 has every date that there is.
        raise ValueError(f"schedule {text!r}: there is no such day in any year")
    return found


def zone_of(name: str) -> ZoneInfo:
    """The time zone of a name such as `Europe/Berlin`. Raises ValueError for one that the system does not know."""
    try:
        return ZoneInfo(name)
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"there is no time zone {name!r}; use a name such as UTC or Europe/Berlin") from error


def next_time(cron: Cron, zone: ZoneInfo, after_ms: int) -> int | None:
    """The first of its times after `after_ms`, in milliseconds since the epoch; None if there is none in CRON_DAYS_MAX days."""
    after = _EPOCH + after_ms * _MS
    local = after.astimezone(zone)
    day, from_hour = local.date(), local.hour - _MOVED_HOURS_MAX
    for _ in range(CRON_DAYS_MAX):
        found = _first(cron, zone, day, after, from_hour) if cron.has(day) else None
        if found is not None:
            return (found - _EPOCH) // _MS
        day, from_hour = day + timedelta(days=1), 0
    return None


def _first(cron: Cron, zone: ZoneInfo, day: date, after: datetime, from_hour: int) -> datetime | None:
    """The first moment of a day after another; hours behind one that has some are looked at as far as a clock is moved."""
    found: list[datetime] = []
    until = 24
    for hour in cron.hours:
        if from_hour <= hour <= until:
            found += [at for at in _times(cron, zone, day, hour) if at > after]
            until = min(until, hour + _MOVED_HOURS_MAX) if found else until
    return min(found, default=None)


def _times(cron: Cron, zone: ZoneInfo, day: date, hour: int) -> Iterator[datetime]:
    """The moments of one hour of the wall clock, in UTC; none, or twice as many, where the clock is moved."""
    by_the_wall = len(cron.hours) == 24
    for minute in cron.minutes:
        local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
        if not by_the_wall:
            yield local.astimezone(_UTC)
            continue
        for fold in (0, 1):
            moment = local.replace(fold=fold).astimezone(_UTC)
            if moment.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None):
                yield moment


# --- fields -----------------------------------------------------------------------------------------------------------------
def _field(what: str, text: str, low: int, high: int, names: tuple[str, ...] = (), first: int = 0) -> tuple[int, ...]:
    values: set[int] = set()
    for part in text.lower().split(","):
        body, slash, step_text = part.partition("/")
        step = _number(what, step_text, 1, high) if slash else 1
        if body == "*":
            begin, end = low, high
        else:
            one, dash, other = body.partition("-")
            begin = _value(what, one, low, high, names, first)
            end = _value(what, other, low, high, names, first) if dash else (high if slash else begin)
        if begin > end:
            raise ValueError(f"{what} {part!r} ends before it begins: {_EXAMPLE}")
        values.update(range(begin, end + 1, step))
    return tuple(sorted(values))


def _value(what: str, text: str, low: int, high: int, names: tuple[str, ...], first: int) -> int:
    return names.index(text) + first if text in names else _number(what, text, low, high)


def _number(what: str, text: str, low: int, high: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and low <= int(text) <= high):
        raise ValueError(f"{what} {text!r}: a number from {low} to {high} is due: {_EXAMPLE}")
    return int(text)

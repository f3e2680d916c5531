"""
What happens next: virtual time, the events that wait on it, and the trace of those that happened.

Everything in a swarm is an event of this one agenda, so that a seed decides the whole course of things. Two events of one instant come in
the order in which they were put down.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from shoal.testing.clock import EPOCH_MS


@dataclass(slots=True)
class Alarm:
    """An event that waits. `cancel` makes it nothing."""

    act: Callable[[], None] | None

    def cancel(self) -> None:
        self.act = None


@dataclass(slots=True)
class Agenda:
    """See module. Times are milliseconds since the beginning of the world."""

    now_ms: int = 0
    steps: int = 0
    """What has been done so far: everything that was `note`d."""
    keep: bool = False
    """Keeps the trace's lines, to be read."""
    lines: list[str] = field(default_factory=list)
    _waiting: list[tuple[int, int, Alarm]] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _hash: hashlib._Hash = field(default_factory=hashlib.sha256)

    def after(self, delay_ms: int, act: Callable[[], None]) -> Alarm:
        """`act` is done so much later."""
        alarm = Alarm(act)
        heapq.heappush(self._waiting, (self.now_ms + max(0, delay_ms), next(self._numbers), alarm))
        return alarm

    def play_next(self, until_ms: int) -> bool:
        """Does the next event, if there is one before `until_ms`; else lets time pass to there and says False."""
        while self._waiting and self._waiting[0][0] <= until_ms:
            at_ms, _, alarm = heapq.heappop(self._waiting)
            if alarm.act is not None:
                self.now_ms = at_ms
                act, alarm.act = alarm.act, None
                act()
                return True
        self.now_ms = max(self.now_ms, until_ms)
        return False

    def note(self, what: str) -> None:
        """A step was taken: it counts, and stands in the trace."""
        self.steps += 1
        line = f"{self.now_ms} {what}"
        self._hash.update(line.encode())
        if self.keep:
            self.lines.append(line)

    @property
    def trace(self) -> str:
        """One name for the whole course of things so far."""
        return self._hash.hexdigest()[:16]


@dataclass(slots=True)
class MachineClock:
    """
    The clocks of one machine. Boot-time and monotonic begin at its boot; the wall clock can be set to anything.

    `drift_ppm`: how much faster its clocks run than the world's, in millionths.
    """

    agenda: Agenda
    drift_ppm: int = 0
    booted_ms: int = 0
    set_by_ms: int = 0
    """How far somebody has set the wall clock off."""

    def boottime_ms(self) -> int:
        passed_ms = self.agenda.now_ms - self.booted_ms
        return 1_000 + passed_ms + passed_ms * self.drift_ppm // 1_000_000

    def monotonic_ms(self) -> int:
        return self.boottime_ms()

    def now_ms(self) -> int:
        return EPOCH_MS + self.agenda.now_ms + self.set_by_ms

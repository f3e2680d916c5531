"""
Looks for what jobs say of their checkpoints: a task touches the file $SHOAL_CHECKPOINT when all of the job is saved.

Called by the course at each of its rounds. A look is one `stat` per running allocation; each of them is looked at every LOOK_MS, and every
SOON_MS while an answer is awaited. A job cannot flood the control plane: see limits.CHECKPOINT_REPORT_MS.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from shoal.agent.environment import checkpoint_file
from shoal.agent.holds import Hold, Phase
from shoal.base import limits
from shoal.base.clock import Clock
from shoal.model.event import Checkpointed

LOOK_MS = 2_000
SOON_MS = 100


@dataclass(slots=True)
class _Seen:
    next_ms: int
    mark_ns: int = 0
    """The file's time at the last report."""
    told_ms: int | None = None


@dataclass(slots=True)
class Checkpoints:
    """See module. `private` gives an allocation's private directory, `tell` takes reports."""

    clock: Clock
    private: Callable[[str], str]
    tell: Callable[[Checkpointed], None]
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def mark(self, allocation: str) -> int:
        """The time of its file in nanoseconds, 0 without one: another one means that it was touched."""
        try:
            # Not what a link leads to: the file is the job's, and the agent may be root.
            return os.stat(checkpoint_file(self.private(allocation)), follow_symlinks=False).st_mtime_ns
        except OSError:
            return 0

    def look(self, holds: dict[str, Hold]) -> int | None:
        """Tells of what is new; the monotonic instant of the next look, None where nothing runs."""
        now_ms = self.clock.monotonic_ms()
        running = [hold for hold in holds.values() if hold.phase is Phase.STARTED]
        self._seen = {hold.id: self._seen.get(hold.id) or _Seen(now_ms) for hold in running}
        for hold in running:
            seen = self._seen[hold.id]
            if seen.next_ms <= now_ms or hold.awaits_save:
                seen.next_ms = now_ms + (SOON_MS if hold.awaits_save else LOOK_MS)
                too_soon = seen.told_ms is not None and now_ms - seen.told_ms < limits.CHECKPOINT_REPORT_MS
                if hold.awaits_save or not too_soon:
                    self._look_at(hold, seen)
        return min((seen.next_ms for seen in self._seen.values()), default=None)

    def look_last(self, hold: Hold) -> None:
        """A task of it has ended: what it said before that is told before that."""
        if hold.phase is Phase.STARTED:
            self._look_at(hold, self._seen.setdefault(hold.id, _Seen(0)))

    def _look_at(self, hold: Hold, seen: _Seen) -> None:
        mark_ns = self.mark(hold.id)
        if mark_ns in (0, seen.mark_ns):
            return
        answers = hold.asked is not None and mark_ns != hold.asked.mark_ns  # and not one from before it was asked
        seen.mark_ns, seen.told_ms = mark_ns, self.clock.monotonic_ms()
        hold.answered = answers
        at_ms = min(mark_ns // 1_000_000, self.clock.now_ms())
        self.tell(Checkpointed(allocation=hold.id, attempt=hold.order.attempt, at_ms=at_ms, answers=answers))

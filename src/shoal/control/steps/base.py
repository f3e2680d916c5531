"""What a step is, and the edge at which its failures end: a bug in one step must not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Protocol

from shoal.base import limits
from shoal.base.errors import InvariantViolated, ShoalError, Unavailable

log = logging.getLogger("shoal.control")
AFTER_FAILURE_MS = 1_000
"""A step that failed is tried again after this: soon for a full writer, rarely enough that a bug does not fill the log."""
IDLE_MS_MAX = 1_000
"""A round at least so often, so that a lost wake-up costs a second and not for ever."""


@dataclass(slots=True, frozen=True)
class Progress:
    """What a step got done: how many things it changed, and when time alone gives it something to do."""

    did: int = 0
    next_at_ms: int | None = None

    def __add__(self, other: Progress) -> Progress:
        times = [t for t in (self.next_at_ms, other.next_at_ms) if t is not None]
        return Progress(self.did + other.did, min(times, default=None))

    def wait_ms(self, now_ms: int) -> int:
        """How long a driver may sleep at most."""
        if self.next_at_ms is None:
            return IDLE_MS_MAX
        return max(0, min(self.next_at_ms - now_ms, IDLE_MS_MAX))


class Step(Protocol):
    name: str

    def step(self, now_ms: int) -> Progress: ...


def step_through(steps: Iterable[Step], now_ms: int, troubles: dict[str, str]) -> Progress:
    """Each step once, in order. What one raises is logged and noted in `troubles` here and nowhere else; the rest goes on."""
    total = Progress()
    for step in steps:
        try:
            total += step.step(now_ms)
            troubles.pop(step.name, None)
        except InvariantViolated as error:
            log.exception("%s: a bug was stopped before it could do harm", step.name)
            total += _failed(step, error, now_ms, troubles)
        except ShoalError as error:
            log.warning("%s: %s; tried again in %d ms", step.name, error.internal or error.message, AFTER_FAILURE_MS)
            total += _failed(step, error, now_ms, troubles)
    return total


def _failed(step: Step, error: ShoalError, now_ms: int, troubles: dict[str, str]) -> Progress:
    troubles[step.name] = error.message
    return Progress(0, now_ms + AFTER_FAILURE_MS)


def await_all(futures: Iterable[Future[Any]], write: Callable[[], int] | None = None) -> None:
    """
    Waits until all writes of a step have ended: one wait for the group, however large. `write` does the store's next group by hand.

    Raises the first failure in order once all have ended; Unavailable when the store takes longer than COMMIT_WAIT_MS_MAX.
    """
    held = list(futures)
    while write is not None and not all(future.done() for future in held):
        if write() == 0 and not all(future.done() for future in held):
            raise Unavailable("the store has nothing left to write, and yet some writes have not ended")
    _, late = wait(held, timeout=limits.COMMIT_WAIT_MS_MAX / 1_000)
    if late:
        raise Unavailable(f"{len(late)} of {len(held)} writes were not durable after {limits.COMMIT_WAIT_MS_MAX} ms")
    for future in held:
        future.result()

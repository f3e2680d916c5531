"""
The plane's thread: rounds of its steps, woken by commits and reports, paced so that the HTTP side gets its share.

A round that raises is a bug (steps end their own failures): it is logged with its trace and tried again with a growing pause, and health
says so until a round succeeds. The thread never ends by itself, since a server that answers but starts no job is worse than one that
says it is broken.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

from shoal.api.service import Service
from shoal.base.clock import Clock
from shoal.control.plane import Plane
from shoal.model.wire import Health

log = logging.getLogger("shoal.run")

REST_SHARE = 0.5
"""Rest after a round, per time that the round took: at most two thirds of a core go to the plane while commits come without end."""
REST_MS_MAX = 50
PAUSE_FIRST_MS = 100
PAUSE_MAX_MS = 10_000
STUCK_MS = 30_000
"""A round takes milliseconds, on the largest fleets a second; one that takes this long hangs."""
FAILURES_TOLD = 3
"""Failed rounds in a row after which the server says that it is not well; one may be an accident."""


class Driver:
    """See module. `start` once, `stop` once."""

    def __init__(self, plane: Plane, clock: Clock) -> None:
        self._plane = plane
        self._clock = clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="plane", daemon=True)
        self._rounds = 0
        self._failures = 0
        self._last_error = ""
        self._round_since_ms: int | None = None
        self._ended_ms = clock.monotonic_ms()

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Ends after the round that runs."""
        self._stopping.set()
        self._plane.wake()
        self._thread.join(timeout_s)

    def health(self, service: Service | None = None) -> Health:
        """How the plane does; `faults` is empty when it is well."""
        now_ms = self._clock.monotonic_ms()
        faults: list[str] = []
        since_ms = self._round_since_ms
        faults.extend(f"step {name} failed: {why}" for name, why in sorted(dict(self._plane.troubles).items()))
        if self._plane.store.trouble:
            faults.append(f"the last write failed: {self._plane.store.trouble}")
        if not self._thread.is_alive():
            faults.append("the plane does not run")
        if self._failures >= FAILURES_TOLD:
            faults.append(f"the plane's last {self._failures} rounds failed: {self._last_error}")
        if since_ms is not None and now_ms - since_ms > STUCK_MS:
            faults.append(f"a round of the plane has taken {(now_ms - since_ms) // 1_000} s so far")
        return Health(
            ok=not faults,
            faults=tuple(faults),
            watchers=service.tail.watchers if service is not None else 0,
            plane_steps=self._rounds,
            plane_idle_ms=0 if since_ms is not None else now_ms - self._ended_ms,
        )

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause_ms = self._round()
            if pause_ms:
                self._stopping.wait(pause_ms / 1_000)

    def _round(self) -> int:
        """One round and the wait for the next; gives the pause that a failure asks for."""
        begun_ms = self._round_since_ms = self._clock.monotonic_ms()
        try:
            progress = self._plane.step_all(self._clock.now_ms())
        except Exception as error:
            self._failures += 1
            self._last_error = type(error).__name__
            log.exception("a round of the plane failed", extra={"failures": self._failures})
            return min(PAUSE_FIRST_MS << min(self._failures - 1, 10), PAUSE_MAX_MS)
        finally:
            self._round_since_ms = None
            self._ended_ms = self._clock.monotonic_ms()
        self._failures = 0
        self._rounds += 1
        rest_ms = min((self._ended_ms - begun_ms) * REST_SHARE, REST_MS_MAX)
        self._stopping.wait(rest_ms / 1_000)
        self._plane.wait(progress.wait_ms(self._clock.now_ms()))
        return 0


def stop_all(driver: Driver, plane: Plane) -> None:
    """The plane stands still and lets go of the store. Never raises: what follows must be closed whatever happens here."""
    with suppress(Exception):
        driver.stop()
    with suppress(Exception):
        plane.close()

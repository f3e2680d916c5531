"""The plane's thread: it goes on whatever a round does, and health says how it fares. A log line is JSON whatever is in it."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from shoal.control.steps import Progress
from shoal.run.clock import RealClock
from shoal.run.driver import FAILURES_TOLD, Driver
from shoal.run.log_lines import JsonLines


class Rounds:
    """What a driver knows of a plane, with rounds that a test decides on."""

    def __init__(self, work: Callable[[int], None]) -> None:
        self.count = 0
        self.troubles: dict[str, str] = {}
        self.store = self
        self.trouble = ""
        self._work = work
        self._bell = threading.Event()

    def step_all(self, now_ms: int) -> Progress:
        self.count += 1
        self._work(self.count)
        return Progress(0, now_ms)

    def wait(self, timeout_ms: int) -> None:
        self._bell.wait(min(timeout_ms, 5) / 1_000)

    def wake(self) -> None:
        self._bell.set()


def wait_until(true: Callable[[], object]) -> None:
    until = time.monotonic() + 10
    while not true():
        assert time.monotonic() < until
        time.sleep(0.002)


def test_a_failing_round_is_told_by_health_until_one_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    broken = threading.Event()
    broken.set()

    def work(_count: int) -> None:
        if broken.is_set():
            raise RuntimeError("a bug")

    rounds = Rounds(work)
    driver = Driver(rounds, RealClock())  # type: ignore[arg-type]
    driver.start()
    try:
        wait_until(lambda: not driver.health().ok)
        assert rounds.count >= FAILURES_TOLD
        assert "RuntimeError" in driver.health().faults[0]
        assert "a bug" in caplog.text
        broken.clear()
        wait_until(lambda: driver.health().ok)
        assert driver.health().plane_steps >= 1
    finally:
        driver.stop()
    assert driver.health().faults == ("the plane does not run",)


def test_a_step_that_failed_is_told_by_health() -> None:
    rounds = Rounds(lambda _count: None)
    driver = Driver(rounds, RealClock())  # type: ignore[arg-type]
    driver.start()
    try:
        rounds.trouble = "no room on the disk"
        assert driver.health().faults == ("the last write failed: no room on the disk",)
        rounds.trouble = ""
        rounds.troubles["schedule"] = "the disk is full"
        assert driver.health().faults == ("step schedule failed: the disk is full",)
        rounds.troubles.clear()
        assert driver.health().ok
    finally:
        driver.stop()


def test_pauses_after_failures_grow() -> None:
    times: list[float] = []

    def work(_count: int) -> None:
        times.append(time.monotonic())
        raise RuntimeError

    driver = Driver(Rounds(work), RealClock())  # type: ignore[arg-type]
    driver.start()
    wait_until(lambda: len(times) >= 4)
    driver.stop()
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[0] >= 0.09
    assert gaps[1] >= 0.18
    assert gaps[2] >= 0.36


def test_it_stops_at_once_also_in_a_pause() -> None:
    def work(_count: int) -> None:
        raise RuntimeError

    rounds = Rounds(work)
    driver = Driver(rounds, RealClock())  # type: ignore[arg-type]
    driver.start()
    wait_until(lambda: rounds.count >= 3)
    begun = time.monotonic()
    driver.stop()
    assert time.monotonic() - begun < 0.3


def test_a_log_line_is_one_json_object_with_what_was_given() -> None:
    formatter = JsonLines()
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.getLogger("shoal.x").makeRecord(
            "shoal.x", logging.ERROR, "f", 1, "it %s", ("broke\n",), sys.exc_info(), extra={"request_id": "r1", "odd": object()}
        )
    text = formatter.format(record)
    assert "\n" not in text
    line = json.loads(text)
    assert (line["level"], line["logger"], line["message"], line["request_id"]) == ("error", "shoal.x", "it broke\n", "r1")
    assert "ValueError: two" in line["trace"]
    assert line["at"].endswith("Z")

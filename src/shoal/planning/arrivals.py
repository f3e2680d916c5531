"""Inputs of a question from a trace of arrivals: their rate, their gaps, and how much more they come in bursts than chance alone."""

from __future__ import annotations

import math
from typing import Any, Final

from shoal.base.errors import Invalid

ARRIVALS_LEAST: Final = 30
WINDOWS_LEAST: Final = 20
FROM_TRACE: Final[dict[str, tuple[str, ...]]] = {
    "warm_pool": ("start_rate", "dispersion"),
    "keep_alive": ("mean_gap",),
    "replicas": ("request_rate",),
    "false_ready": ("request_rate",),
    "queue_wait": ("arrival_rate",),
    "ray_idle": ("mean_gap",),
}
"""What each question takes from a trace of arrivals."""


def rate_of(times_s: list[float]) -> float:
    """Arrivals per second."""
    return (len(times_s) - 1) / (times_s[-1] - times_s[0])


def dispersion_of(times_s: list[float], window_s: float) -> float:
    """
    Variance over mean of the count in windows of this length; 1 for arrivals by chance.

    A value that chance alone would give (two standard errors, about sqrt(2 / windows) each) is told as exactly 1, so that the plain
    formula is used. Raises Invalid for a trace of too few windows.
    """
    windows = int((times_s[-1] - times_s[0]) / window_s)
    if windows < WINDOWS_LEAST:
        raise Invalid(
            f"the trace holds {windows} windows of {window_s:g} s; at least {WINDOWS_LEAST} are needed to tell bursts from chance"
        )
    counts = [0] * windows
    for time in times_s:
        at = int((time - times_s[0]) / window_s)
        if at < windows:
            counts[at] += 1
    mean = math.fsum(counts) / windows
    index = math.fsum((count - mean) ** 2 for count in counts) / (windows - 1) / mean
    return 1.0 if abs(index - 1) <= 2 * math.sqrt(2 / (windows - 1)) else index


def inputs_from_arrivals(word: str, times_s: list[float], window_s: float | None, source: str) -> dict[str, Any]:
    """
    Inputs of the question `word`, measured; `window_s` is the time over which bursts matter, where the question has one.

    Raises Invalid for a question that takes none, and for a trace that is short or stands still.
    """
    if word not in FROM_TRACE:
        raise Invalid(f"{word} takes no inputs from arrivals; {', '.join(FROM_TRACE)} do")
    times = sorted(times_s)
    if len(times) < ARRIVALS_LEAST or times[-1] <= times[0]:
        raise Invalid(f"{source}: {len(times)} arrivals; at least {ARRIVALS_LEAST} at different times are needed")
    rate = rate_of(times)
    found: dict[str, Any] = {}
    for name in FROM_TRACE[word]:
        if name == "dispersion" and window_s is not None:
            found[name] = dispersion_of(times, window_s)
        elif name == "mean_gap":
            found[name] = {"value": 1 / rate, "unit": "s"}
        elif name != "dispersion":
            found[name] = {"value": rate, "unit": "1/s"}
    return found

"""A pool shared by serving and training: headroom that covers the time of a reclaim, and what a floor keeps from being lent."""

from __future__ import annotations

import math
from typing import Annotated, Final

import msgspec

from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask, assumed
from shoal.planning.topic import Topic


class Reclaim(msgspec.Struct, frozen=True, kw_only=True):
    """Serving that takes GPUs back from training while its load rises."""

    notice: Annotated[float, Ask("s", "warning that training gets")] = assumed("30 s")
    checkpoint: Annotated[float, Ask("s", "its checkpoint")] = assumed("90 s")
    teardown: Annotated[float, Ask("s", "until its devices are free")] = assumed("15 s")
    start: Annotated[float, Ask("s", "until a replica serves on them")] = assumed("60 s")
    ramp: Annotated[float, Ask("GPU/s", "growth of serving's need", above=True)]
    delay_slo: Annotated[float, Ask("s", "delay that requests may have")]
    serving_gpus: Annotated[float, Ask("GPU", "GPUs that serve when the ramp starts", above=True)]
    training_checkpoints: Annotated[bool, Ask("bool", "training can be stopped at a checkpoint")] = True


def headroom(reclaim_time: float, ramp: float, delay_slo: float, serving_gpus: float) -> float:
    """GPUs to keep free so that a ramp's backlog stays within the delay until reclaimed ones serve."""
    return max(0.0, ramp * (reclaim_time - math.sqrt(2 * delay_slo * serving_gpus / ramp)))


def reclaim(x: Reclaim) -> Answer:
    """How long a reclaim takes, and the headroom that bridges it."""
    work = Work()
    time = work.put("reclaim_time", x.notice + x.checkpoint + x.teardown + x.start, "s", "notice + checkpoint + teardown + start")
    breaks = work.put("time_to_break", math.sqrt(2 * x.delay_slo * x.serving_gpus / x.ramp), "s",
                      "sqrt(2 * delay_slo * serving_gpus / ramp)", "the delay is reached without headroom")  # fmt: skip
    work.put("headroom", headroom(time, x.ramp, x.delay_slo, x.serving_gpus), "GPU", "max(0, ramp * (reclaim_time - time_to_break))")
    work.put("headroom_naive", x.ramp * time, "GPU", "ramp * reclaim_time", "no delay allowed at all")
    parts = {"notice": x.notice, "checkpoint": x.checkpoint, "teardown": x.teardown, "model start": x.start}
    work.note("a diurnal rise is far slower than a step: check floor_borrow's max_slope before paying for headroom")
    return work.done(
        "reclaim = notice + checkpoint + teardown + start; linear ramp, fluid queue; delay = backlog / capacity",
        "whole gangs are evicted, and one reclaim at a time; a ramp that ends before the reclaim needs less",
        max(parts, key=lambda name: parts[name]) if breaks < time else "the delay goal: no headroom is needed",
        lead="headroom",
    )


def validate_reclaim(x: Reclaim) -> tuple[Refusal, ...]:
    """Training without checkpoints loses everything at each reclaim."""
    words = "training without checkpoints loses all its work at every reclaim: do not lend to it"
    return unless(x.training_checkpoints, "no_checkpoint", words, "training_checkpoints")


class FloorBorrow(msgspec.Struct, frozen=True, kw_only=True):
    """Sinusoidal demand of serving, a floor, and training that borrows the rest."""

    mean: Annotated[float, Ask("GPU", "mean demand", above=True)]
    amplitude: Annotated[float, Ask("GPU", "amplitude of the day's swing")]
    buffer: Annotated[float, Ask("GPU", "kept above demand")] = 0.0
    floor: Annotated[float, Ask("GPU", "never lent below this")] = 0.0
    period: Annotated[float, Ask("h", "period of the swing", above=True)] = 24 * 3_600.0
    reclaims: Annotated[float, Ask("1/day", "reclaims")] = assumed("6 1/day")
    gang: Annotated[float, Ask("GPU", "GPUs that a reclaim takes")] = assumed("16 GPU")
    lost: Annotated[float, Ask("min", "work and restart that a reclaim costs")] = assumed("25 min")


def excess_of_sine(mean: float, amplitude: float, level: float) -> float:
    """The mean of max(0, mean + amplitude sin - level) over a period."""
    if amplitude <= 0 or abs(level - mean) >= amplitude:
        return max(0.0, mean - level)
    k = (level - mean) / amplitude
    return (amplitude * math.sqrt(1 - k * k) + (mean - level) * math.acos(k)) / math.pi


def floor_borrow(x: FloorBorrow) -> Answer:
    """What serving holds and lends on average, and what reclaims cost training."""
    work = Work()
    peak = work.put("peak", x.mean + x.amplitude, "GPU", "mean + amplitude")
    work.put("static_util", x.mean / peak, "1", "mean / peak", "everything held all the time")
    low, high = max(0.0, min(peak, x.floor)), peak
    shifted = x.mean + x.buffer
    held = low + excess_of_sine(shifted, x.amplitude, low) - excess_of_sine(shifted, x.amplitude, high)
    work.find("held_mean", held, "GPU", "mean over a period of min(peak, max(floor, demand + buffer)), in closed form")
    work.put("util", x.mean / held, "1", "mean / held_mean")
    lent = work.put("lent_mean", peak - held, "GPU", "peak - held_mean")
    work.put("max_slope", 2 * math.pi * x.amplitude / x.period, "GPU/min", "2 * pi * amplitude / period", "steepest rise")
    waste = work.put("reclaim_waste", x.reclaims * x.gang * x.lost, "GPU*h/day", "reclaims * gang * lost")
    lent_day = work.put("lent_day", lent, "GPU*h/day", "lent_mean")
    work.put("gain", lent_day - waste, "GPU*h/day", "lent_day - reclaim_waste", "after what reclaims cost")
    work.note("reclaims cost more than lending gives", waste > lent_day)
    return work.done(
        "demand mean + amplitude sin; serving holds min(peak, max(floor, demand + buffer)); the rest is lent",
        "one swing a day; take a real load curve where launches make steps",
        "the floor" if x.floor >= x.mean + x.buffer else "demand and buffer",
        lead="lent_mean",
    )


def validate_floor_borrow(x: FloorBorrow) -> tuple[Refusal, ...]:
    """Demand does not go below nothing."""
    words = f"amplitude {x.amplitude:g} GPU is above the mean {x.mean:g} GPU: demand would be negative"
    return unless(x.amplitude <= x.mean, "negative_demand", words, "amplitude")


RECLAIM: Final = Topic(Reclaim, reclaim, "ramp", validate_reclaim)
FLOOR_BORROW: Final = Topic(FloorBorrow, floor_borrow, "floor", validate_floor_borrow)

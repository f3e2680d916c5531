"""Slurm, Kubernetes or both: what a static split costs, what a gang pays that starts pod by pod, which base the load suggests."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from shoal.planning import special
from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask, assumed
from shoal.planning.quantity import YEAR_S
from shoal.planning.topic import Topic, nothing_refused


class Hybrid(msgspec.Struct, frozen=True, kw_only=True):
    """Training and serving on one fleet or on two."""

    training: Annotated[float, Ask("GPU", "training, averaged over days")]
    serving_mean: Annotated[float, Ask("GPU", "serving, mean")]
    serving_peak: Annotated[float, Ask("GPU", "serving, peak", above=True)]
    usable: Annotated[float, Ask("1", "share of the fleet that training can keep busy", most=1, above=True)] = assumed("0.9")
    price: Annotated[float, Ask("USD/GPU/h", "price of a GPU")] = assumed("2.5 USD/GPU/h")


def hybrid(x: Hybrid) -> Answer:
    """GPUs of a static split and of one fleet whose training takes what serving leaves."""
    work = Work()
    static = work.put("static", x.training / x.usable + x.serving_peak, "GPU", "training / usable + serving_peak", "two fleets")
    bounds = {"the serving peak": x.serving_peak, "the sum of work": (x.training + x.serving_mean) / x.usable}
    shared = work.put("shared", max(bounds.values()), "GPU", "max(serving_peak, (training + serving_mean) / usable)", "one fleet")
    work.put("saving", 1 - shared / static, "1", "1 - shared / static")
    work.put("saved_year", (static - shared) * x.price * YEAR_S, "USD", "(static - shared) * price * 8760 * 3600")
    return work.done(
        "static: T / rho + peak; shared: max(peak, (T + mean) / rho)",
        "training that can wait hours; rigid training needs the maximum of T(t) + S(t) over the trace",
        max(bounds, key=lambda name: bounds[name]),
        lead="saving",
    )


def validate_hybrid(x: Hybrid) -> tuple[Refusal, ...]:
    """A mean is not above its peak."""
    words = f"serving_mean {x.serving_mean:g} GPU is above serving_peak {x.serving_peak:g} GPU"
    return unless(x.serving_mean <= x.serving_peak, "mean_above_peak", words, "serving_mean")


class GangStart(msgspec.Struct, frozen=True, kw_only=True):
    """A gang whose pods start one by one."""

    pods: Annotated[int, Ask("1", "pods", least=1, most=1e9)]
    mean_start: Annotated[float, Ask("s", "mean start of one pod")]
    gpus_per_pod: Annotated[int, Ask("GPU", "GPUs of a pod", least=1)] = 1


def gang_start(x: GangStart) -> Answer:
    """When the last pod runs, and what the others idle until then."""
    work = Work()
    last = work.put("expected_gang_start", x.mean_start * special.harmonic(x.pods), "s", "mean_start * harmonic(pods)", "the last pod runs")
    idle = x.pods * x.gpus_per_pod * (last - x.mean_start)
    work.put("idle_gpu_seconds", idle, "GPU*s", "pods * gpus_per_pod * (expected_gang_start - mean_start)", "waiting for the last")
    work.put("native_launcher", x.mean_start, "s", "mean_start", "one launcher that starts all together")
    return work.done(
        "independent exponential start times; the gang starts at their maximum, mean x H_n",
        "pods that start independently; image pulls from one registry are slower together, and then later still",
    )


class EngineChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace says of the load, and the thresholds of the recommendation."""

    service_share: Annotated[float, Ask("1", "share of GPU-hours that services use, from a trace", most=1)]
    gang_share: Annotated[float, Ask("1", "share of GPU-hours in gangs over 8 nodes, from a trace", most=1)]
    trace: Annotated[float, Ask("day", "how long the trace is")]
    uses_mpi: Annotated[bool, Ask("bool", "jobs are started by MPI launchers")] = False
    service_threshold: Annotated[float, Ask("1", "services above this want a Kubernetes base", most=1)] = assumed("0.2")
    gang_threshold: Annotated[float, Ask("1", "large gangs above this want Slurm's semantics", most=1)] = assumed("0.5")


def engine_choice(x: EngineChoice) -> Answer:
    """The base that the load suggests, by two thresholds that can be edited."""
    work = Work()
    services = work.put("services_decide", x.service_share > x.service_threshold, "1", "service_share > service_threshold")
    gangs = work.put("gangs_decide", x.gang_share > x.gang_threshold or x.uses_mpi, "1", "gang_share > gang_threshold or uses_mpi")
    base = "hybrid" if services and gangs else "kubernetes" if services else "slurm" if gangs else "either"
    work.find("base", base, "1", "both: hybrid; services alone: kubernetes; gangs alone: slurm")
    near = min(abs(x.service_share - x.service_threshold), abs(x.gang_share - x.gang_threshold))
    work.note(f"a share is within {near:.0%} of its threshold: the other answer is as good", near < 0.05)
    return work.done(
        "services > threshold: Kubernetes base; gangs over 8 nodes > threshold: Slurm semantics; both: a batch queue on Kubernetes",
        "thresholds are engineering defaults, not measurements; a trace of at least two weeks",
        "services and gangs" if base == "hybrid" else "services" if services else "gangs" if gangs else "neither",
        lead="base",
    )


def validate_engine_choice(x: EngineChoice) -> tuple[Refusal, ...]:
    """No recommendation from a glance."""
    return unless(x.trace >= 14 * 86_400, "trace_too_short", f"a trace of {x.trace / 86_400:.1f} days: at least 14 are needed", "trace")


HYBRID: Final = Topic(Hybrid, hybrid, "serving_peak", validate_hybrid)
GANG_START: Final = Topic(GangStart, gang_start, "pods", nothing_refused)
ENGINE_CHOICE: Final = Topic(EngineChoice, engine_choice, "", validate_engine_choice)

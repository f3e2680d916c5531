"""How many hosts many small sandboxes need: the bound of memory, of CPU, of starts and of addresses, by tier; and what overcommit gains."""

from __future__ import annotations

import math
from typing import Annotated, Final

import msgspec

from shoal.planning import special
from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask, assumed
from shoal.planning.topic import Topic

TIERS: Final[dict[str, tuple[int, str]]] = {
    "runc": (5, "none: the kernel is shared"),
    "gvisor": (30, "through its driver proxy"),
    "microvm": (69, "none upstream: no PCI passthrough"),
    "kata": (288, "whole GPUs by VFIO"),
    "vm": (512, "whole GPUs by VFIO"),
}
"""MiB of overhead per sandbox (microvm: 5 for the monitor and 64 for the guest), and GPU access. Engineering assumptions."""
_GPU_TIERS: Final = ("gvisor", "kata", "vm")


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions of one kind on equal hosts."""

    sessions: Annotated[int, Ask("1", "sessions at once")]
    session_memory: Annotated[float, Ask("MiB", "memory of a session", above=True)]
    overhead: Annotated[float, Ask("MiB", "memory of its sandbox beside it")]
    host_memory: Annotated[float, Ask("GiB", "memory of a host", above=True)]
    reserve: Annotated[float, Ask("1", "share of it kept for the host", most=1)] = assumed("0.1")
    session_cpu: Annotated[float, Ask("core", "CPU of a session, mean")]
    cpu_tax: Annotated[float, Ask("1", "CPU that the sandbox adds", most=10)] = assumed("0.05")
    host_cores: Annotated[float, Ask("core", "cores of a host", above=True)]
    cpu_target: Annotated[float, Ask("1", "load of a host to aim at", most=1, above=True)] = assumed("0.9")
    lifetime: Annotated[float, Ask("s", "mean life of a session", above=True)] = assumed("600 s")
    spare_hosts: Annotated[int, Ask("1", "hosts to spare")] = 0
    starts_per_host: Annotated[float | None, Ask("starts/s", "starts that a host can do", above=True)] = None
    addresses_per_host: Annotated[int | None, Ask("1", "IP addresses of a host", least=1)] = None
    tier: Annotated[str, Ask("tier", "kind of sandbox", choices=tuple(TIERS))] = "microvm"
    needs_gpu: Annotated[bool, Ask("bool", "sessions use a GPU")] = False


def per_host_memory(x: Sandbox) -> int:
    """Sessions that a host's memory holds."""
    return math.floor(x.host_memory * (1 - x.reserve) / (x.session_memory + x.overhead) + 1e-9)


def sandbox(x: Sandbox) -> Answer:
    """Hosts, by the bound that decides."""
    work = Work()
    held = work.put("per_host_memory", per_host_memory(x), "1", "floor(host_memory * (1 - reserve) / (session_memory + overhead) + 1e-9)")
    bounds = {"memory": work.put("hosts_memory", math.ceil(x.sessions / held), "1", "ceil(sessions / per_host_memory)")}
    work_cpu = x.sessions * x.session_cpu * (1 + x.cpu_tax) / (x.host_cores * x.cpu_target)
    cpu = "ceil(sessions * session_cpu * (1 + cpu_tax) / (host_cores * cpu_target) - 1e-9)"
    bounds["CPU"] = work.put("hosts_cpu", math.ceil(work_cpu - 1e-9), "1", cpu)
    rate = work.put("start_rate", x.sessions / x.lifetime, "1/s", "sessions / lifetime", "starts, by Little's law")
    if x.starts_per_host is not None:
        bounds["starts"] = work.put(
            "hosts_starts", math.ceil(rate / x.starts_per_host - 1e-9), "1", "ceil(start_rate / starts_per_host - 1e-9)"
        )
    if x.addresses_per_host is not None:
        bounds["addresses"] = work.put(
            "hosts_addresses", math.ceil(x.sessions / x.addresses_per_host), "1", "ceil(sessions / addresses_per_host)"
        )
    largest = max(bounds.values())
    names = {"memory": "hosts_memory", "CPU": "hosts_cpu", "starts": "hosts_starts", "addresses": "hosts_addresses"}
    hosts = work.put("hosts", largest + x.spare_hosts, "1", f"max({', '.join(names[name] for name in bounds)}) + spare_hosts")
    work.put("starts_each", rate / hosts if hosts else 0.0, "1/s", "start_rate / hosts" if hosts else "", "starts on each host")
    work.put("overhead_total", x.sessions * x.overhead, "GiB", "sessions * overhead")
    work.table("tiers", ("tier", "overhead [MiB]", "per host", "hosts by memory", "GPU"), _tier_rows(x))
    return work.done(
        "hosts = largest of memory, CPU, starts and addresses, plus spare; starts by Little's law",
        "memory by limits, nothing overcommitted; equal sessions",
        max(bounds, key=lambda name: bounds[name]),
        lead="hosts",
    )


def _tier_rows(x: Sandbox) -> list[tuple[str, int, int, int, str]]:
    rows = []
    for name, (overhead_mib, gpu) in TIERS.items():
        held = per_host_memory(msgspec.structs.replace(x, overhead=overhead_mib * 2.0**20))
        rows.append((name, overhead_mib, held, math.ceil(x.sessions / held) if held else 0, gpu))
    return rows


def validate_sandbox(x: Sandbox) -> tuple[Refusal, ...]:
    """A session must fit a host, and a tier must have the GPU that is wanted."""
    need, room = (x.session_memory + x.overhead) / 2**20, x.host_memory * (1 - x.reserve) / 2**20
    words = f"a session with its sandbox needs {need:,.0f} MiB, a host has {room:,.0f}"
    has = not x.needs_gpu or x.tier in _GPU_TIERS
    return unless(per_host_memory(x) > 0, "session_exceeds_host", words, "session_memory") + unless(
        has, "no_gpu_in_tier", f"{x.tier} gives no GPU ({TIERS[x.tier][1]}); use {', '.join(_GPU_TIERS)}", "tier"
    )


class TierRow(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the sessions."""

    tier: Annotated[str, Ask("tier", "kind of sandbox", choices=tuple(TIERS))]
    share: Annotated[float, Ask("1", "share of sessions", most=1)]


class SandboxTiers(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions of several kinds, each on hosts of its own."""

    sessions: Annotated[int, Ask("1", "sessions at once", least=1)]
    session_memory: Annotated[float, Ask("MiB", "memory of a session", above=True)]
    host_memory: Annotated[float, Ask("GiB", "memory of a host", above=True)]
    reserve: Annotated[float, Ask("1", "share of it kept for the host", most=1)] = assumed("0.1")
    mix: Annotated[tuple[TierRow, ...], Ask("list", "tiers and their shares")]


def sandbox_tiers(x: SandboxTiers) -> Answer:
    """Hosts by memory for each tier of a mix, and in all."""
    work = Work()
    rows, total = [], 0
    for row in x.mix:
        room = x.host_memory * (1 - x.reserve)
        held = math.floor(room / (x.session_memory + TIERS[row.tier][0] * 2.0**20) + 1e-9)
        hosts = math.ceil(x.sessions * row.share / held - 1e-9)
        rows.append((row.tier, 100 * row.share, held, hosts))
        total += hosts
    work.find("hosts", total, "1", "sum over tiers of ceil(sessions x share / sessions per host)")
    work.table("tiers", ("tier", "share [%]", "per host", "hosts"), rows)
    return work.done(
        "memory bound of each tier on hosts of its own", "overheads of the table of tiers; check CPU with the topic sandbox", "memory"
    )


def validate_sandbox_tiers(x: SandboxTiers) -> tuple[Refusal, ...]:
    """Shares sum to one and every tier fits a host."""
    total = math.fsum(row.share for row in x.mix)
    largest = max((TIERS[row.tier][0] for row in x.mix), default=0) * 2.0**20
    fits = x.session_memory + largest <= x.host_memory * (1 - x.reserve)
    return unless(abs(total - 1) < 1e-6, "shares_off", f"shares sum to {total:g}, 1 is due", "mix") + unless(
        fits, "session_exceeds_host", "a session with the largest overhead does not fit a host", "session_memory"
    )


class SandboxOvercommit(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions whose memory use is known, beside their limit."""

    mean_memory: Annotated[float, Ask("MiB", "memory that a session uses, with its sandbox, mean", above=True)]
    sd_memory: Annotated[float, Ask("MiB", "standard deviation of it")]
    limit_memory: Annotated[float, Ask("MiB", "memory that it may use at most, with its sandbox", above=True)]
    host_memory: Annotated[float, Ask("GiB", "memory of a host", above=True)]
    reserve: Annotated[float, Ask("1", "share of it kept for the host", most=1)] = assumed("0.1")
    safety: Annotated[float, Ask("1", "probability that a host's memory is enough", most=1, above=True)] = assumed("0.999")


def safe_count(room: float, mean: float, sd: float, z: float) -> int:
    """The most sessions n with n mean + z sd sqrt(n) at most `room`."""
    side = (-z * sd + math.sqrt((z * sd) ** 2 + 4 * mean * room)) / (2 * mean)
    return max(0, math.floor(side * side + 1e-9)) if side > 0 else 0


def sandbox_overcommit(x: SandboxOvercommit) -> Answer:
    """Sessions on a host by their limits, and by their use at the wanted safety."""
    work = Work()
    room = work.put("room", x.host_memory * (1 - x.reserve), "GiB", "host_memory * (1 - reserve)")
    by_limit = work.put("by_limit", math.floor(room / x.limit_memory + 1e-9), "1", "floor(room / limit_memory + 1e-9)")
    z = work.put("z", special.normal_quantile(x.safety), "1", "normal_quantile(safety)")
    count = work.find("safe", safe_count(room, x.mean_memory, x.sd_memory, z), "1", "most n with n mean + z sd sqrt(n) <= room")
    work.put("gain", count / by_limit - 1 if by_limit else 0.0, "1", "safe / by_limit - 1" if by_limit else "")
    return work.done(
        "sum of n independent uses is about normal: n mean + z sd sqrt(n) <= room",
        "30 sessions or more per host and independent use; a common cause (the same job in all) breaks it",
        "the spread of use" if z * x.sd_memory * math.sqrt(count) > 0.1 * room else "mean use",
        lead="safe",
    )


def validate_overcommit(x: SandboxOvercommit) -> tuple[Refusal, ...]:
    """The normal sum needs many sessions, and no safety of 100 %."""
    if x.safety >= 1:
        return (Refusal("unreachable", "100 % safety is only by limits", "safety"),)
    count = safe_count(x.host_memory * (1 - x.reserve), x.mean_memory, x.sd_memory, special.normal_quantile(x.safety))
    return unless(count >= 30, "too_few", f"{count} sessions per host: a normal sum needs 30; plan by limits", "mean_memory")


SANDBOX: Final = Topic(Sandbox, sandbox, "sessions", validate_sandbox, ("hosts_memory", "hosts_cpu"))
SANDBOX_TIERS: Final = Topic(SandboxTiers, sandbox_tiers, "sessions", validate_sandbox_tiers)
SANDBOX_OVERCOMMIT: Final = Topic(SandboxOvercommit, sandbox_overcommit, "sd_memory", validate_overcommit)

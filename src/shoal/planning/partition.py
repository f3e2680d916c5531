"""
One GPU for many: MIG instances (where they fit, which mixes there are, what a cut gives up), MPS and time slicing, and the tenant rule.

Pure geometry over `facts.mig`. `starts_for` says where a profile fits; `best_start` takes the start that leaves most possible beside it:
small ones at the highest slots, so that large ones keep the low slots that they need. Placement asks the same two.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from shoal.facts import mig as facts
from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask, assumed
from shoal.planning.topic import Topic

MPS_CLIENTS_MAX: Final = {"13.0": 48, "13.1": 60}
"""Clients of one MPS server: up to CUDA 13.0, and from 13.1 on."""
Placed = tuple[tuple[facts.Profile, int], ...]


class Mig(msgspec.Struct, frozen=True, kw_only=True):
    """A cut of one GPU, or the profiles whose mixes are to be listed."""

    config: Annotated[tuple[str, ...] | None, Ask("profiles", "instances of one GPU")] = None
    profiles: Annotated[tuple[str, ...] | None, Ask("profiles", "profiles to enumerate")] = None
    model: Annotated[str, Ask("model", "GPU", choices=tuple(facts.GEOMETRIES))] = "h100"


def free_slots(geometry: facts.Geometry, placed: Placed) -> frozenset[int]:
    """Memory slices that no instance covers."""
    taken = {slot for profile, start in placed for slot in range(start, start + profile.memory)}
    return frozenset(range(geometry.memory)) - taken


def starts_for(geometry: facts.Geometry, placed: Placed, want: facts.Profile) -> tuple[int, ...]:
    """Where `want` can still start, lowest first."""
    free = free_slots(geometry, placed)
    room = geometry.compute - sum(profile.compute for profile, _ in placed)
    if want.compute > room:
        return ()
    return tuple(start for start in want.starts if free.issuperset(range(start, start + want.memory)))


def best_start(geometry: facts.Geometry, placed: Placed, want: facts.Profile, among: tuple[int, ...] | None = None) -> int | None:
    """The start (of those in `among`, where it is given) that leaves most possible; the highest of equal ones; None if there is none."""
    starts = starts_for(geometry, placed, want) if among is None else among
    return max(starts, key=lambda start: (room_left(geometry, (*placed, (want, start))), start), default=None)


def room_left(geometry: facts.Geometry, placed: Placed) -> int:
    """What can still be made: over all profiles and starts that fit alone, the sum of their memory slices."""
    return sum(len(starts_for(geometry, placed, profile)) * profile.memory for profile in geometry.profiles)


def mig_charge(geometry: facts.Geometry, profile: facts.Profile) -> int:
    """What an instance counts for, in thousandths of its GPU: the larger of its compute and memory fraction, rounded up."""
    return max(-(-1_000 * profile.compute // geometry.compute), -(-1_000 * profile.memory // geometry.memory))


def share_held(thousandths: int, memory_bytes: int, usable_bytes: int) -> tuple[int, int]:
    """
    (thousandths, bytes) that a soft share takes of a GPU: where one is not asked for (0) it is the same part of the GPU as the other.

    Rounded down, so that shares which fill one of the two are never refused for the other.
    """
    if not memory_bytes:
        return thousandths, thousandths * usable_bytes // 1_000
    return thousandths or memory_bytes * 1_000 // max(1, usable_bytes), memory_bytes


def share_charge(thousandths: int, memory_bytes: int, usable_bytes: int) -> int:
    """What a soft share counts for, in thousandths of its GPU: its own, or its bytes over the usable ones rounded up, if that is more."""
    return max(thousandths, -(-memory_bytes * 1_000 // max(1, usable_bytes)))


def maximal_placements(geometry: facts.Geometry, profiles: tuple[facts.Profile, ...]) -> tuple[Placed, ...]:
    """Every set of instances to which none of `profiles` can be added, each once, in order of starts."""
    found: set[tuple[tuple[int, str], ...]] = set()
    complete: list[Placed] = []

    def extend(placed: Placed, from_start: int) -> None:
        for start in range(from_start, geometry.memory):
            for profile in profiles:
                if start in starts_for(geometry, placed, profile):
                    extend((*placed, (profile, start)), start + 1)
        if not any(starts_for(geometry, placed, profile) for profile in profiles):
            key = tuple((start, profile.name) for profile, start in placed)
            if key not in found:
                found.add(key)
                complete.append(placed)

    extend((), 0)
    return tuple(complete)


def place_all(geometry: facts.Geometry, profiles: tuple[facts.Profile, ...]) -> Placed | None:
    """Starts for all of `profiles` together, larger ones first, or None where they cannot be on one GPU."""
    order = sorted(profiles, key=lambda profile: (-profile.memory, -profile.compute, profile.name))

    def attempt(placed: Placed, rest: list[facts.Profile]) -> Placed | None:
        if not rest:
            return placed
        for start in reversed(starts_for(geometry, placed, rest[0])):
            whole = attempt((*placed, (rest[0], start)), rest[1:])
            if whole is not None:
                return whole
        return None

    return attempt((), order)


def mig(x: Mig) -> Answer:
    """What a cut uses and gives up, or every mix that the profiles allow."""
    return _enumeration(x) if x.config is None else _cut(x, x.config)


def _cut(x: Mig, config: tuple[str, ...]) -> Answer:
    geometry = facts.GEOMETRIES[x.model]
    profiles = tuple(geometry.named(name) for name in config)
    work = Work()
    work.find("compute_slices", sum(p.compute for p in profiles), "1", "sum over instances")
    work.find("memory_slices", sum(p.memory for p in profiles), "1", "sum over instances")
    sms = work.find("sms", sum(p.sms for p in profiles), "1", "sum over instances, as the driver lists them")
    work.find("sm_fraction", sms / geometry.sms, "1", f"sms / {geometry.sms}")
    work.put("memory_fraction", sum(p.memory for p in profiles) / geometry.memory, "1", f"memory_slices / {geometry.memory}")
    placed = place_all(geometry, profiles) or ()
    work.table("placement", ("profile", "start", "SMs", "memory [MiB]"), [(p.name, start, p.sms, p.memory_mib) for p, start in placed])
    work.note("names round up: plan with the memory of the table, and NVLink peer-to-peer does not work between instances")
    return work.done(
        f"slices, SMs and memory of each profile as the driver lists them for {x.model} (table of {facts.TABLE_DATE})",
        "instances are made on an idle GPU; other products have other tables",
        "compute slices" if sum(p.compute for p in profiles) == geometry.compute else "memory slices",
        lead="sm_fraction",
    )


def _enumeration(x: Mig) -> Answer:
    geometry = facts.GEOMETRIES[x.model]
    names = x.profiles if x.profiles is not None else tuple(profile.name for profile in geometry.profiles)
    profiles = tuple(geometry.named(name) for name in names)
    placements = maximal_placements(geometry, profiles)
    mixes = sorted({tuple(sorted((profile.name for profile, _ in placed), reverse=True)) for placed in placements}, reverse=True)
    work = Work()
    work.find("distinct_mixes", len(mixes), "1", "placements that differ in their instances")
    work.find("placements", len(placements), "1", "every set of starts to which nothing can be added")
    work.table("mixes", ("instances", "SM share [%]", "memory share [%]"), [_mix_row(geometry, mix) for mix in mixes])
    work.note("mixes with 1g.20gb follow from the slot rules; confirm on hardware before promising", "1g.20gb" in names)
    return work.done(
        f"brute force over start positions of {x.model} (table of {facts.TABLE_DATE}), at most {geometry.compute} compute slices",
        "one GPU with nothing on it",
        lead="placements",
    )


def _mix_row(geometry: facts.Geometry, mix: tuple[str, ...]) -> tuple[str, float, float]:
    profiles = [geometry.named(name) for name in mix]
    sms, memory = sum(p.sms for p in profiles), sum(p.memory for p in profiles)
    return " + ".join(mix), 100 * sms / geometry.sms, 100 * memory / geometry.memory


def _known(model: str, names: tuple[str, ...]) -> tuple[Refusal, ...]:
    for name in names:
        try:
            facts.GEOMETRIES[model].named(name)
        except ValueError as error:
            return (Refusal("unknown_profile", str(error)),)
    return ()


def validate_mig(x: Mig) -> tuple[Refusal, ...]:
    """Profiles must be the product's, and a cut must fit one GPU."""
    faults = _known(x.model, (x.config or ()) + (x.profiles or ()))
    if faults or x.config is None:
        return faults
    geometry = facts.GEOMETRIES[x.model]
    fits = len(x.config) <= geometry.memory and place_all(geometry, tuple(geometry.named(name) for name in x.config)) is not None
    return unless(fits, "cut_does_not_fit", f"{' + '.join(x.config)} cannot be on one {x.model} together", "config")


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that exists."""

    profile: Annotated[str, Ask("profile", "its profile")]
    start: Annotated[int, Ask("slots", "its start in memory slices")]


class MigFragmentation(msgspec.Struct, frozen=True, kw_only=True):
    """Instances on one GPU, and one that is wanted beside them."""

    existing: Annotated[tuple[Instance, ...], Ask("profile@start", "instances that exist")]
    want: Annotated[str, Ask("profile", "profile wanted")]
    model: Annotated[str, Ask("model", "GPU", choices=tuple(facts.GEOMETRIES))] = "h100"


def mig_fragmentation(x: MigFragmentation) -> Answer:
    """Whether the wanted profile still fits, where, and where it does least harm."""
    geometry = facts.GEOMETRIES[x.model]
    placed = tuple((geometry.named(one.profile), one.start) for one in x.existing)
    starts = starts_for(geometry, placed, geometry.named(x.want))
    work = Work()
    work.find("possible", bool(starts), "1", "a start position with all its slices free, and compute slices left")
    work.find("starts", starts, "slots", "start positions of the profile, lowest first")
    best = best_start(geometry, placed, geometry.named(x.want))
    if best is not None:
        work.find("best_start", best, "index", "leaves most possible beside it, the highest of equal ones")
    work.find("free_slices", len(free_slots(geometry, placed)), "1", "memory slices that nothing covers")
    left = geometry.compute - sum(profile.compute for profile, _ in placed)
    short = left < geometry.named(x.want).compute
    work.note("enough slices are free but not together: place small instances at the highest slot first", not starts and not short)
    return work.done(
        f"start positions of {x.model} (table of {facts.TABLE_DATE}); instances never overlap",
        "running instances cannot be moved; reconfiguring needs an idle GPU",
        "compute slices" if short else "free start positions",
    )


def validate_mig_fragmentation(x: MigFragmentation) -> tuple[Refusal, ...]:
    """What exists must itself be possible."""
    faults = _known(x.model, (*(one.profile for one in x.existing), x.want))
    if faults:
        return faults
    geometry = facts.GEOMETRIES[x.model]
    placed: Placed = ()
    for one in x.existing:
        profile = geometry.named(one.profile)
        if one.start not in starts_for(geometry, placed, profile):
            return (Refusal("impossible_layout", f"{one.profile} cannot be at slot {one.start} beside the others", "existing"),)
        placed = (*placed, (profile, one.start))
    return ()


class GpuSharing(msgspec.Struct, frozen=True, kw_only=True):
    """Workloads that would share one GPU."""

    clients: Annotated[int, Ask("clients", "workloads active at once", least=1)]
    same_tenant: Annotated[bool, Ask("bool", "all belong to one tenant")]
    memory: Annotated[float, Ask("GB", "GPU memory of each, with its context")] = assumed("16 GB")
    slice: Annotated[float, Ask("ms", "time slice of the driver", above=True)] = assumed("2 ms")
    cuda: Annotated[str, Ask("CUDA", "CUDA version of the MPS server", choices=tuple(MPS_CLIENTS_MAX))] = "13.0"
    model: Annotated[str, Ask("model", "GPU", choices=tuple(facts.GEOMETRIES))] = "h100"


def gpu_sharing(x: GpuSharing) -> Answer:
    """The way to share that the tenants allow, with each one's share and worst wait."""
    geometry = facts.GEOMETRIES[x.model]
    total = geometry.profiles[-1].memory_mib * 2.0**20
    work = Work()
    fitting = [p for p in geometry.profiles if p.memory_mib * 2.0**20 >= x.memory]
    smallest = min(fitting, key=lambda p: (p.memory, p.compute), default=None)
    work.find("profile", smallest.name if smallest else "none", "1", "smallest profile whose memory holds one workload")
    per_gpu = len(place_most(geometry, smallest)) if smallest else 0
    work.find("mig_instances", per_gpu, "1", "such instances on one GPU")
    work.put("time_share", 1 / x.clients, "1", "1 / clients", "of the GPU, time slicing with all active")
    work.put("worst_wait", (x.clients - 1) * x.slice, "ms", "(clients - 1) * slice", "for a turn, time slicing")
    limit = work.find("mps_clients_max", MPS_CLIENTS_MAX[x.cuda], "clients", f"one MPS server of CUDA {x.cuda}")
    fits = work.find(
        "memory_fits", x.clients * x.memory <= total, "1", "all clients' memory on one GPU; neither MPS nor time slicing limits it"
    )
    mps = x.same_tenant and fits and x.clients <= limit
    way = ("mps" if mps else "time_slicing" if fits else "whole_gpus") if x.same_tenant else "mig" if per_gpu >= x.clients else "whole_gpus"
    work.find("way", way, "1", "different tenants: MIG or whole GPUs; the same tenant: MPS or time slicing")
    work.note("one fault domain: an error of one client ends all of them", mps)
    return work.done(
        "time slicing: share 1/N, worst wait (N - 1) slices; MPS: shared SMs; MIG: own slices",
        "all clients active at once; neither MPS nor time slicing isolates memory or faults",
        "the tenants" if not x.same_tenant else "memory" if not fits else "clients",
        lead="worst_wait",
    )


def place_most(geometry: facts.Geometry, profile: facts.Profile) -> Placed:
    """As many instances of one profile as one GPU takes."""
    placed: Placed = ()
    while (start := best_start(geometry, placed, profile)) is not None:
        placed = (*placed, (profile, start))
    return placed


MIG: Final = Topic(Mig, mig, "", validate_mig)
MIG_FRAGMENTATION: Final = Topic(MigFragmentation, mig_fragmentation, "", validate_mig_fragmentation)
GPU_SHARING: Final = Topic(GpuSharing, gpu_sharing, "clients")

"""
MIG profiles: slices, start positions, SMs and memory. The only copy: placement, quota and planning read it here.

Start positions are in memory slices; two instances may not overlap. Source: printed `nvidia-smi mig -lgipp` and NVML output in public
logs, read August 2026; SMs of 4g and 7g by the published shape. Names round up: capacity is what the driver reports, `memory_mib`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

TABLE_DATE: Final = "2026-08"


class Profile(NamedTuple):
    """One instance shape of one product."""

    name: str
    compute: int
    memory: int
    """In memory slices; the instance takes so many from its start on."""
    starts: tuple[int, ...]
    sms: int
    memory_mib: int
    """0 where the driver's figure was not read."""


class Geometry(NamedTuple):
    """How one product can be cut."""

    model: str
    compute: int
    memory: int
    sms: int
    profiles: tuple[Profile, ...]
    nominal_gb: int = 80
    """The product's memory as its profiles' names count it: tells products of one model apart."""

    def named(self, name: str) -> Profile:
        """The profile called `name`. Raises ValueError with those there are."""
        for profile in self.profiles:
            if profile.name == name:
                return profile
        raise ValueError(f"{self.model} has no MIG profile {name!r}; it has {', '.join(profile.name for profile in self.profiles)}")


H100_80GB: Final = Geometry(
    "h100",
    7,
    8,
    132,
    (
        Profile("1g.10gb", 1, 1, (0, 1, 2, 3, 4, 5, 6), 16, 9_984),
        Profile("1g.20gb", 1, 2, (0, 2, 4, 6), 26, 20_096),
        Profile("2g.20gb", 2, 2, (0, 2, 4), 32, 20_096),
        Profile("3g.40gb", 3, 4, (0, 4), 60, 40_448),
        Profile("4g.40gb", 4, 4, (0,), 64, 40_448),
        Profile("7g.80gb", 7, 8, (0,), 132, 81_152),
    ),
)
A100_80GB: Final = Geometry(
    "a100",
    7,
    8,
    98,
    (
        Profile("1g.10gb", 1, 1, (0, 1, 2, 3, 4, 5, 6), 14, 9_856),
        Profile("1g.20gb", 1, 2, (0, 2, 4, 6), 14, 19_968),
        Profile("2g.20gb", 2, 2, (0, 2, 4), 28, 19_968),
        Profile("3g.40gb", 3, 4, (0, 4), 42, 40_192),
        Profile("4g.40gb", 4, 4, (0,), 56, 40_192),
        Profile("7g.80gb", 7, 8, (0,), 98, 80_384),
    ),
)
A100_40GB: Final = Geometry(
    "a100-40gb",
    7,
    8,
    98,
    (
        Profile("1g.5gb", 1, 1, (0, 1, 2, 3, 4, 5, 6), 14, 4_864),
        Profile("1g.10gb", 1, 2, (0, 2, 4, 6), 14, 9_856),
        Profile("2g.10gb", 2, 2, (0, 2, 4), 28, 9_856),
        Profile("3g.20gb", 3, 4, (0, 4), 42, 19_968),
        Profile("4g.20gb", 4, 4, (0,), 56, 19_968),
        Profile("7g.40gb", 7, 8, (0,), 98, 40_192),
    ),
    40,
)
A30: Final = Geometry(
    "a30",
    4,
    4,
    56,
    (
        Profile("1g.6gb", 1, 1, (0, 1, 2, 3), 14, 5_836),
        Profile("2g.12gb", 2, 2, (0, 2), 28, 11_672),
        Profile("4g.24gb", 4, 4, (0,), 56, 23_344),
    ),
    24,
)
GEOMETRIES: Final = {geometry.model: geometry for geometry in (H100_80GB, A100_80GB, A100_40GB, A30)}
"""Products whose SMs were read, by word; without a size the 80 GB form. `products` has those that can be cut, too."""

# Names of 1g, 1g with double memory, 2g, 3g, 4g and 7g; the slices are the family's (NVIDIA mig-parted's default configurations).
_NAMED: Final = {
    ("h100", 94): ("1g.12gb", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"),
    ("h100", 96): ("1g.12gb", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"),
    ("h200", 141): ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    ("gh200", 96): ("1g.12gb", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"),
    ("gh200", 144): ("1g.18gb", "1g.36gb", "2g.36gb", "3g.72gb", "4g.72gb", "7g.144gb"),
    ("b200", 180): ("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
    ("gb200", 186): ("1g.23gb", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb"),
    ("b300", 269): ("1g.34gb", "1g.67gb", "2g.67gb", "3g.135gb", "4g.135gb", "7g.269gb"),
    ("gb300", 278): ("1g.35gb", "1g.70gb", "2g.70gb", "3g.139gb", "4g.139gb", "7g.278gb"),
}


def _named(model: str, nominal_gb: int, names: tuple[str, ...]) -> Geometry:
    shapes = (profile._replace(name=name, sms=0, memory_mib=0) for profile, name in zip(H100_80GB.profiles, names, strict=True))
    return Geometry(model, 7, 8, 0, tuple(shapes), nominal_gb)


PRODUCTS: Final = (
    *(geometry._replace(model=geometry.model.partition("-")[0]) for geometry in GEOMETRIES.values()),
    *(_named(model, size, names) for (model, size), names in _NAMED.items()),
)
"""Every product that can be cut, under the word that asks use. SMs and memory are 0 where they were not read."""
_MEMORY_OFF_MAX: Final = 0.1
"""A driver reports up to this part less or more than the name says."""


def geometry_of(model: str, memory_bytes: int) -> Geometry | None:
    """How a GPU of this model and memory can be cut; None where it cannot be, as far as is known."""
    size_gb = memory_bytes / (1 << 30)
    fitting = [g for g in PRODUCTS if g.model == model and abs(size_gb / g.nominal_gb - 1) <= _MEMORY_OFF_MAX]
    return min(fitting, key=lambda g: abs(size_gb - g.nominal_gb), default=None)

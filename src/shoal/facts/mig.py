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


class Geometry(NamedTuple):
    """How one product can be cut."""

    model: str
    compute: int
    memory: int
    sms: int
    profiles: tuple[Profile, ...]

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
)
GEOMETRIES: Final = {geometry.model: geometry for geometry in (H100_80GB, A100_80GB, A30)}
"""By the word that jobs ask by; 80 GB forms. Products whose SMs were not read are left out rather than guessed."""

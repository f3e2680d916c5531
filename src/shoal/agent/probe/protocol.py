"""What the agent asks about GPUs. Two implementations: `nvml.NvmlProbe` for real ones, `pretended.PretendedProbe` for drills."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shoal.model.node import Device


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """One look at one GPU: percent busy since the last look or so, memory in use."""

    utilisation: int
    memory_bytes: int


class Probe(Protocol):
    """The GPUs of one machine. Calls may come from any thread."""

    pretended: bool

    def devices(self) -> tuple[Device, ...]:
        """The GPUs of this machine in index order, with `broken` set on those that are known and do not answer."""
        ...

    def driver(self) -> str | None:
        """The driver's version; None without one."""
        ...

    def use(self, uuids: tuple[str, ...]) -> dict[str, DeviceUse]:
        """How busy the GPUs are; those that do not answer are left out."""
        ...

    def processes(self, uuid: str) -> tuple[int, ...]:
        """Processes that have the GPU open for computing. Raises DeviceGone when it does not answer: then nothing is known."""
        ...


class DeviceGone(Exception):
    """The GPU is not there any more or does not answer."""


class NoProbe:
    """A machine without GPUs."""

    pretended = False

    def devices(self) -> tuple[Device, ...]:
        return ()

    def driver(self) -> str | None:
        return None

    def use(self, uuids: tuple[str, ...]) -> dict[str, DeviceUse]:  # noqa: ARG002
        return {}

    def processes(self, uuid: str) -> tuple[int, ...]:
        raise DeviceGone(f"this machine has no GPU {uuid}")
